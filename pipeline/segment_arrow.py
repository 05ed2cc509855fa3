"""Builds Arrow arrays from rows that the kernels have noted, with a function for each column.

pipeline/segment_columns.py describes the columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from odradek.dataclass import dataclass
from odradek.pipeline.segment_batches import Damage
from odradek.pipeline.segment_columns import COLUMNS
from odradek.pipeline.segment_files import Segment
from odradek.pipeline.segment_transactions import ABORTED, OPEN
from odradek.protocol import batch_scan, columns
from odradek.protocol.batches import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
)
from odradek.protocol.compression import Codec
from odradek.protocol.kernel import Bytes, Table
from odradek.protocol.legacy import SIZES_MIN

_INT32_MAX = 2**31 - 1
_INT64_MAX = 2**63 - 1
_US_PER_MS = 1000
# Arrow's types for Spark's types, by Spark's own rules: PySpark 4.2 requires exactly these.
_TYPES = {
    "binary": pa.binary(),
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    COLUMNS["headers"]: pa.list_(
        pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))
    ),
}
_HEADERS = _TYPES[COLUMNS["headers"]]
_CODECS = pa.array([codec.label for codec in Codec], pa.string())


@dataclass(frozen=True, slots=True)
class Rows:
    """Records of one segment, of batches of one magic, as `read_rows` has noted them."""

    segment: Segment
    chunk_position: int  # in the file; the batches' positions count from it
    magic: int
    data: Bytes
    batches: Table
    fates: npt.NDArray[np.int8]  # of each batch
    table: Table  # a line for each of protocol.columns' ROW_ fields

    def of_batch(self, column: int) -> npt.NDArray[np.int64]:
        """Return a column of the batches' table, once for each row."""
        numbers: npt.NDArray[np.int64] = self.batches[self.table[columns.ROW_BATCH], column]
        return numbers

    def has_bit(self, bit: int) -> npt.NDArray[np.bool_]:
        """Return for each row whether its batch has an attribute."""
        has: npt.NDArray[np.bool_] = self.of_batch(batch_scan.ATTRIBUTES) & bit != 0
        return has


def arrow_schema(nullable: Mapping[str, bool]) -> pa.Schema:
    """Return the schema of columns, each of which may hold nulls or not."""
    return pa.schema(
        [pa.field(name, _TYPES[COLUMNS[name]], may) for name, may in nullable.items()]
    )


def record_batch(rows: Rows, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows as a record batch with the columns that the schema names."""
    arrays = [_COLUMNS[field.name](rows) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def damage_batch(damage: Damage, schema: pa.Schema) -> pa.RecordBatch:
    """Return a record batch of one row that reports damage."""
    known: dict[str, object] = {
        "topic": damage.segment.topic,
        "partition": damage.segment.partition,
        "offset": damage.offset,
        "batch_size_bytes": min(damage.size_bytes, _INT32_MAX),
        "segment": damage.segment.path,
        "segment_offset": damage.segment.base_offset,
        "position": damage.position,
        "damage": damage.cause,
    }
    arrays = [pa.array([known.get(field.name)], field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _bits(mask: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(mask, bitorder="little"))


def _gathered(
    kind: pa.DataType,
    data: Bytes,
    positions: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
) -> pa.Array:
    """Copy one part of each row into an array of binaries or strings; -1 is a null's length."""
    is_there = lengths >= 0
    offsets = np.empty(len(lengths) + 1, np.int32)
    out = np.empty(int(lengths.sum(where=is_there)), np.uint8)
    fits = columns.gather(data, positions, lengths, offsets, out)
    assert fits, "a kernel notes positions within its buffer only"
    validity = None if is_there.all() else _bits(is_there)
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(out)]
    return pa.Array.from_buffers(kind, len(lengths), buffers)


def _key(rows: Rows) -> pa.Array:
    table = rows.table
    positions, lengths = table[columns.ROW_KEY_POSITION], table[columns.ROW_KEY_LENGTH]
    return _gathered(pa.binary(), rows.data, positions, lengths)


def _value(rows: Rows) -> pa.Array:
    table = rows.table
    positions, lengths = table[columns.ROW_VALUE_POSITION], table[columns.ROW_VALUE_LENGTH]
    return _gathered(pa.binary(), rows.data, positions, lengths)


def _headers(rows: Rows) -> pa.Array:
    counts = rows.table[columns.ROW_HEADERS_COUNT]
    total = int(counts.sum())
    if total == 0:
        return pa.nulls(len(counts), _HEADERS)
    noted = np.empty((columns.HEADER_FIELDS, total), np.int64)
    positions = rows.table[columns.ROW_HEADERS_POSITION]
    filled = columns.read_headers(rows.data, positions, counts, noted)
    assert filled == total, "a record's headers were walked when it was noted"
    keys = _gathered(
        pa.binary(),
        rows.data,
        noted[columns.HEADER_KEY_POSITION],
        noted[columns.HEADER_KEY_LENGTH],
    )
    values = _gathered(
        pa.binary(),
        rows.data,
        noted[columns.HEADER_VALUE_POSITION],
        noted[columns.HEADER_VALUE_LENGTH],
    )
    try:
        names = keys.cast(pa.string())
    except pa.ArrowInvalid:  # not UTF-8: read as Java reads it
        names = pa.array([key.decode(errors="replace") for key in keys.to_pylist()], pa.string())
    offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    pairs = pa.StructArray.from_arrays([names, values], fields=list(_HEADERS.value_type))
    buffers = [_bits(counts > 0), pa.py_buffer(offsets)]
    return pa.Array.from_buffers(_HEADERS, len(counts), buffers, children=[pairs])


def _timestamp(rows: Rows) -> pa.Array:
    times = rows.table[columns.ROW_TIMESTAMP]
    is_beyond = np.abs(times) > _INT64_MAX // _US_PER_MS
    # The least number has no absolute value.
    is_beyond |= times == -_INT64_MAX - 1
    micros = pa.array(np.where(is_beyond, 0, times) * _US_PER_MS, mask=is_beyond)
    return micros.view(_TYPES["timestamp"])


def _size_bytes(rows: Rows) -> pa.Array:
    sizes = rows.table[columns.ROW_SIZE]
    if rows.magic != MAGIC:
        lengths = rows.table[[columns.ROW_KEY_LENGTH, columns.ROW_VALUE_LENGTH]]
        sizes = SIZES_MIN[rows.magic] + np.maximum(lengths, 0).sum(axis=0)
    return _int32(sizes)


def _value_size_bytes(rows: Rows) -> pa.Array:
    lengths = rows.table[columns.ROW_VALUE_LENGTH]
    return pa.array(lengths.astype(np.int32), mask=lengths < 0)


def _sequence(rows: Rows) -> pa.Array:
    base = rows.of_batch(batch_scan.BASE_SEQUENCE)
    delta = rows.table[columns.ROW_OFFSET] - rows.of_batch(batch_scan.BASE_OFFSET)
    return _int32(np.where(base == NO_SEQUENCE, NO_SEQUENCE, base + delta & _INT32_MAX))


def _aborted(rows: Rows) -> pa.Array:
    fates = rows.fates[rows.table[columns.ROW_BATCH]]
    return pa.array(fates == ABORTED, mask=fates == OPEN)


def _delete_horizon_ms(rows: Rows) -> pa.Array:
    horizons = rows.of_batch(batch_scan.BASE_TIMESTAMP)
    return pa.array(horizons, mask=~rows.has_bit(DELETE_HORIZON_BIT))


def _codec(rows: Rows) -> pa.Array:
    return _CODECS.take(pa.array(rows.of_batch(batch_scan.ATTRIBUTES) & CODEC_MASK))


def _position(rows: Rows) -> pa.Array:
    return pa.array(rows.of_batch(batch_scan.POSITION) + rows.chunk_position)


def _int32(numbers: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> pa.Array:
    return pa.array(numbers.astype(np.int32))


def _same(rows: Rows, value: object, kind: pa.DataType) -> pa.Array:
    """Return an array of the same value for each row."""
    return pa.repeat(pa.scalar(value, kind), rows.table.shape[1])


_COLUMNS: dict[str, Callable[[Rows], pa.Array]] = {
    "key": _key,
    "value": _value,
    "topic": lambda rows: _same(rows, rows.segment.topic, pa.string()),
    "partition": lambda rows: _same(rows, rows.segment.partition, pa.int32()),
    "offset": lambda rows: pa.array(rows.table[columns.ROW_OFFSET]),
    "timestamp": _timestamp,
    "headers": _headers,
    "timestamp_type": lambda rows: _int32(rows.has_bit(LOG_APPEND_TIME_BIT)),
    "size_bytes": _size_bytes,
    "value_size_bytes": _value_size_bytes,
    "batch_offset": lambda rows: pa.array(rows.of_batch(batch_scan.BASE_OFFSET)),
    "batch_size_bytes": lambda rows: _int32(rows.of_batch(batch_scan.SIZE)),
    "codec": _codec,
    "leader_epoch": lambda rows: _int32(rows.of_batch(batch_scan.LEADER_EPOCH)),
    "producer_id": lambda rows: pa.array(rows.of_batch(batch_scan.PRODUCER_ID)),
    "producer_epoch": lambda rows: _int32(rows.of_batch(batch_scan.PRODUCER_EPOCH)),
    "sequence": _sequence,
    "transactional": lambda rows: pa.array(rows.has_bit(TRANSACTIONAL_BIT)),
    "control": lambda rows: pa.array(rows.has_bit(CONTROL_BIT)),
    "aborted": _aborted,
    "delete_horizon_ms": _delete_horizon_ms,
    "segment": lambda rows: _same(rows, rows.segment.path, pa.string()),
    "segment_offset": lambda rows: _same(rows, rows.segment.base_offset, pa.int64()),
    "position": _position,
    "damage": lambda rows: pa.nulls(rows.table.shape[1], pa.string()),
}
