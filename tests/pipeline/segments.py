"""Writes segment files for the tests of their reader, and reads them back without Spark."""

from __future__ import annotations

import itertools
import struct
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from odradek.pipeline.segment_arrow import arrow_schema
from odradek.pipeline.segment_files import prune
from odradek.pipeline.segment_finding import find_segments, tasks_of
from odradek.pipeline.segment_rows import read_segments
from odradek.pipeline.segment_selection import parse_options
from odradek.protocol.batch_records import decode_records
from odradek.protocol.batches import Record, increment_sequence, read_header
from odradek.protocol.legacy import read_stored_header

Row = dict[str, Any]


@dataclass(frozen=True)
class Written:
    """A batch in a file: where it is, and its bytes."""

    path: Path
    position: int
    data: bytes


@contextmanager
def partition_folder(name: str = "orders-0") -> Iterator[Path]:
    """Lend the folder of a partition in a log directory, for the time of an example."""
    with tempfile.TemporaryDirectory() as data:
        yield Path(data) / name


def write_segment(folder: Path, base_offset: int, batches: Iterable[bytes]) -> list[Written]:
    """Write a segment file, and return where its batches are."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{base_offset:020d}.log"
    written, position = [], 0
    for data in batches:
        written.append(Written(path, position, data))
        position += len(data)
    path.write_bytes(b"".join(one.data for one in written))
    return written


def write_log(folder: Path, batches: Sequence[bytes], cuts: Iterable[int] = ()) -> list[Written]:
    """Write batches as segments that begin at the first one and at those numbered by `cuts`."""
    edges = sorted({0, *(cut for cut in cuts if cut < len(batches)), len(batches)})
    return [
        one
        for first, after in itertools.pairwise(edges)
        for one in write_segment(
            folder, read_stored_header(batches[first]).base_offset, batches[first:after]
        )
    ]


def write_index(path: Path, batches: Sequence[Written], zeros: int = 0) -> None:
    """Write the .index of a segment with an entry for each batch given, as a broker would."""
    base = int(path.stem)
    entries = (
        struct.pack(">ii", read_header(one.data).last_offset - base, one.position)
        for one in batches
    )
    path.with_suffix(".index").write_bytes(b"".join(entries) + bytes(8 * zeros))


def write_time_index(path: Path, batches: Sequence[Written]) -> None:
    """Write the .timeindex of a sealed segment."""
    base, largest = int(path.stem), -1
    entries = b""
    for header in (read_header(one.data) for one in batches):
        if header.max_timestamp > largest:
            largest = header.max_timestamp
            entries += struct.pack(">qi", largest, header.last_offset - base)
    path.with_suffix(".timeindex").write_bytes(entries)


def read(path: Path | str, **options: object) -> list[Row]:
    """Read segments as the data source's tasks do, one after the other; times in microseconds."""
    return read_by({"path": str(path)} | {k: str(v) for k, v in options.items()})


def read_by(options: Mapping[str, str]) -> list[Row]:
    """Read segments by all options of the data source."""
    parsed = parse_options(options)
    schema = arrow_schema(dict.fromkeys(parsed.columns, True))
    rows: list[Row] = []
    selection = parsed.selection
    for task in tasks_of(prune(find_segments(parsed, selection), selection)):
        for batch in read_segments(task, selection, schema, parsed.on_damage):
            batch.validate(full=True)
            assert batch.schema.equals(schema)
            rows += _with_plain_times(batch).to_pylist()
    return rows


def records_of(rows: Iterable[Row]) -> list[Record]:
    """Return the rows as records; a time in ms."""
    return [
        Record(
            row["offset"],
            row["timestamp"] // 1000,
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"] or ()),
        )
        for row in rows
    ]


def expected_rows(batches: Iterable[Written]) -> list[Row]:
    """Return the rows that batches come to by the plain decoder, but for size and `aborted`."""
    rows = []
    for one in batches:
        header = read_header(one.data)
        topic, _, partition = one.path.parent.name.rpartition("-")
        for record in decode_records(one.data) if header.count else ():
            delta = record.offset - header.base_offset
            has_sequence = header.base_sequence >= 0
            rows.append(
                {
                    "key": record.key,
                    "value": record.value,
                    "topic": topic,
                    "partition": int(partition),
                    "offset": record.offset,
                    "timestamp": record.timestamp * 1000,
                    "headers": [{"key": k, "value": v} for k, v in record.headers] or None,
                    "timestamp_type": int(header.is_log_append_time),
                    "value_size_bytes": None if record.value is None else len(record.value),
                    "batch_offset": header.base_offset,
                    "batch_size_bytes": len(one.data),
                    "codec": header.codec.label,
                    "leader_epoch": header.leader_epoch,
                    "producer_id": header.producer_id,
                    "producer_epoch": header.producer_epoch,
                    "sequence": increment_sequence(header.base_sequence, delta)
                    if has_sequence
                    else -1,
                    "transactional": header.is_transactional,
                    "control": header.is_control,
                    "delete_horizon_ms": header.base_timestamp
                    if header.has_delete_horizon
                    else None,
                    "segment": str(one.path),
                    "segment_offset": int(one.path.stem),
                    "position": one.position,
                    "damage": None,
                }
            )
    return rows


def _with_plain_times(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a record batch with its timestamps as integers, for Python knows no year 10000."""
    if "timestamp" not in batch.schema.names:
        return batch
    at = batch.schema.get_field_index("timestamp")
    arrays = list(batch.columns)
    arrays[at] = arrays[at].view(pa.int64())
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)
