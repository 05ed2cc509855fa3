"""Decodes the records of a segment into Arrow record batches, with no loop over the records.

Kernels (protocol/columns.py) note the positions of the parts of each record, and Arrow's arrays
are built from these notes. Batches without selected records are not decompressed. Importing this
module loads or compiles the kernels: it is imported to read records, not to plan the reading.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from odradek.pipeline.segment_arrow import Rows, damage_batch, record_batch
from odradek.pipeline.segment_batches import Chunk, Damage, read_chunks, stop
from odradek.pipeline.segment_bytes import Opener, opener
from odradek.pipeline.segment_files import Segment
from odradek.pipeline.segment_selection import (
    INT64_END,
    INT64_MIN,
    REPORT,
    SKIP,
    STOP,
    Selection,
    Span,
)
from odradek.pipeline.segment_transactions import STANDS, Outcomes
from odradek.protocol.batch_scan import (
    ATTRIBUTES,
    BAD_RECORD,
    BASE_OFFSET,
    COUNT,
    LAST_OFFSET,
    MAX_TIMESTAMP,
    POSITION,
    PROBLEMS,
    SIZE,
    WHOLE,
)
from odradek.protocol.batches import (
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    MAGIC,
)
from odradek.protocol.columns import ROW_FIELDS, ROW_SIZE, read_rows
from odradek.protocol.compression import Codec, decompress
from odradek.protocol.errors import ProtocolError
from odradek.protocol.kernel import Bytes, Table, as_bytes
from odradek.protocol.legacy import decode_entry
from odradek.protocol.records_plain import encode_record, wrap_int64

logger = logging.getLogger(__name__)

# A record batch is as large as one of these allows; one record alone may be larger.
ROWS_MAX = 65_536
BYTES_MAX = 16 << 20

# A batch that unpacks to more is damage: some 800 packed bytes can take all memory of an executor.
# A broker accepts a hundredth of this by default (max.message.bytes).
_DECOMPRESSED_MAX_BYTES = 256 << 20
# Messages of format 0 and 1 are decoded one by one, and take some ten times their bytes.
_OLD_DECOMPRESSED_MAX_BYTES = 64 << 20
_RECORD_BYTES_MIN = 7

Numbers = npt.NDArray[np.int64]


def read_segments(
    segments: Sequence[Segment], selection: Selection, schema: pa.Schema, on_damage: str = STOP
) -> Iterator[pa.RecordBatch]:
    """Read the selected records of segments, with the columns that the schema names.

    Raises PipelineError for bytes that are gone or have changed, and for damage unless it is to
    be skipped or reported.
    """
    open_segment = opener(segments)
    for segment in segments:
        offsets = selection.offsets & segment.read
        narrowed = replace(selection, offsets=offsets)
        if selection.keys is None:
            yield from _read_segment(segment, narrowed, schema, on_damage, open_segment)
            continue
        from odradek.pipeline.segment_keys import may_have, with_keys  # they bring kernels

        if may_have(segment, selection.keys):
            keyed = with_keys(schema)
            for batch in _read_segment(segment, narrowed, keyed.schema, on_damage, open_segment):
                yield keyed.select(batch, selection.keys)


def _read_segment(
    segment: Segment,
    selection: Selection,
    schema: pa.Schema,
    on_damage: str,
    open_segment: Opener,
) -> Iterator[pa.RecordBatch]:
    reader = _Reader(segment, selection, schema, on_damage, open_segment)
    start = selection.offsets.start
    for chunk in read_chunks(
        segment, reader.meet, open_segment=open_segment, start_offset=start
    ):
        yield from reader.decode(chunk)
        yield from reader.report()
        if chunk.magic == MAGIC and chunk.batches[-1, BASE_OFFSET] >= selection.offsets.end:
            break
    yield from reader.report()
    reader.summarize()


class _Reader:
    """Decodes the chunks of one segment, and counts its damage."""

    def __init__(
        self,
        segment: Segment,
        selection: Selection,
        schema: pa.Schema,
        on_damage: str,
        open_segment: Opener,
    ) -> None:
        self._segment, self._selection, self._schema = segment, selection, schema
        self._on_damage = on_damage
        self._outcomes = Outcomes(
            segment, selection.offsets.start, self.meet, open_segment
        )
        self._wants_fates = selection.committed_only or "aborted" in schema.names
        self._bounds = np.array(_bounds(selection.offsets) + _bounds(selection.timestamps))
        self._unreported: list[Damage] = []
        self._damaged_count = self._damaged_bytes = 0

    def meet(self, damage: Damage) -> None:
        """Raise a PipelineError for damage, or note it, depending on the option onDamage."""
        if self._on_damage == STOP:
            stop(damage)
        self._damaged_count += 1
        self._damaged_bytes += damage.size_bytes
        if self._on_damage == REPORT:
            self._unreported.append(damage)
        else:
            logger.warning(
                "left out damage path=%s position=%d bytes=%d offset=%d cause=%s",
                damage.segment.path, damage.position, damage.size_bytes, damage.offset,
                damage.cause,
            )  # fmt: skip

    def report(self) -> Iterator[pa.RecordBatch]:
        """Yield a row for each damage that is not reported yet, with onDamage=report."""
        for damage in self._unreported:
            if damage.offset in self._selection.offsets:
                yield damage_batch(damage, self._schema)
        self._unreported.clear()

    def summarize(self) -> None:
        """Log the number of places and bytes left out, if any."""
        if self._damaged_count and self._on_damage == SKIP:
            logger.warning(
                "left out damage path=%s places=%d bytes=%d",
                self._segment.path, self._damaged_count, self._damaged_bytes,
            )  # fmt: skip

    def decode(self, chunk: Chunk) -> Iterator[pa.RecordBatch]:
        """Yield the selected records of a chunk."""
        batches = chunk.batches[self._choose(chunk)]
        fates = np.zeros(len(batches), np.int8)
        if self._wants_fates:
            fates = self._outcomes.fates(batches)
            if self._selection.committed_only:
                batches, fates = batches[fates == STANDS], fates[fates == STANDS]
        # Consecutive batches that are all compressed, or all not; old ones count as compressed.
        unpacked = (batches[:, ATTRIBUTES] & CODEC_MASK != Codec.NONE) | (chunk.magic != MAGIC)
        edges = [0, *(np.flatnonzero(np.diff(unpacked)) + 1).tolist(), len(batches)]
        for first, after in pairwise(edges if len(batches) else ()):
            run, run_fates = batches[first:after], fates[first:after]
            if unpacked[first]:
                yield from self._decode_unpacked(chunk, run, run_fates)
            else:
                starts, ends = run[:, POSITION] + HEADER_SIZE, run[:, POSITION] + run[:, SIZE]
                data = as_bytes(chunk.data)
                yield from self._decode_run(chunk, data, run, run_fates, starts, ends)

    def _choose(self, chunk: Chunk) -> npt.NDArray[np.bool_]:
        """Return which batches may have records to read, by their headers."""
        batches, selection = chunk.batches, self._selection
        chosen: npt.NDArray[np.bool_] = batches[:, COUNT] != 0
        chosen &= batches[:, LAST_OFFSET] >= self._bounds[0]
        # The head of a compressed message has its last offset, and may lack a timestamp.
        if chunk.magic == MAGIC:
            chosen &= batches[:, BASE_OFFSET] <= self._bounds[1]
            chosen &= batches[:, MAX_TIMESTAMP] >= self._bounds[2]
            is_append_time = batches[:, ATTRIBUTES] & LOG_APPEND_TIME_BIT != 0
            chosen &= ~is_append_time | (batches[:, MAX_TIMESTAMP] <= self._bounds[3])
            if not selection.include_control:
                chosen &= batches[:, ATTRIBUTES] & CONTROL_BIT == 0
        return chosen

    def _decode_unpacked(
        self, chunk: Chunk, batches: Table, fates: npt.NDArray[np.int8]
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of batches that are decompressed or converted first, step by step."""
        rows: list[int] = []
        sections: list[bytes] = []
        size = count = 0
        table = batches.copy()
        for row in range(len(table)):
            try:
                section, table[row, COUNT] = _unpack(chunk, table[row])
            except ProtocolError as error:
                self.meet(self._damage(chunk, table[row], str(error)))
                continue
            rows.append(row)
            sections.append(section)
            size, count = size + len(section), count + int(table[row, COUNT])
            if size >= BYTES_MAX or count >= ROWS_MAX:
                yield from self._decode_sections(chunk, table[rows], fates[rows], sections)
                rows, sections, size, count = [], [], 0, 0
        if rows:
            yield from self._decode_sections(chunk, table[rows], fates[rows], sections)

    def _decode_sections(
        self, chunk: Chunk, batches: Table, fates: npt.NDArray[np.int8], sections: list[bytes]
    ) -> Iterator[pa.RecordBatch]:
        data = as_bytes(sections[0] if len(sections) == 1 else b"".join(sections))
        ends = np.cumsum([len(section) for section in sections])
        starts = np.concatenate(([0], ends[:-1]))
        yield from self._decode_run(chunk, data, batches, fates, starts, ends)

    def _decode_run(
        self,
        chunk: Chunk,
        data: Bytes,
        batches: Table,
        fates: npt.NDArray[np.int8],
        starts: Numbers,
        ends: Numbers,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the records of batches whose records are in the data unchanged."""
        batches = np.ascontiguousarray(batches)
        room = np.cumsum(np.minimum(batches[:, COUNT], (ends - starts) // _RECORD_BYTES_MIN))
        first = 0
        while first < len(batches):
            before = room[first - 1] if first else 0
            after = max(first + 1, int(np.searchsorted(room, before + ROWS_MAX, "right")))
            table = np.empty((ROW_FIELDS, int(room[after - 1] - before)), np.int64)
            status, first, filled = read_rows(
                data, batches[:after], first, starts, ends, self._bounds, table
            )
            for start, end in _slices(table[ROW_SIZE, :filled]):
                rows = Rows(
                    self._segment, chunk.position, chunk.magic, data, batches, fates,
                    table[:, start:end],
                )  # fmt: skip
                yield record_batch(rows, self._schema)
            if status != WHOLE:
                self.meet(self._damage(chunk, batches[first], PROBLEMS[BAD_RECORD]))
                first += 1

    def _damage(self, chunk: Chunk, batch: Numbers, cause: str) -> Damage:
        return Damage(
            self._segment,
            chunk.position + int(batch[POSITION]),
            int(batch[SIZE]),
            int(batch[BASE_OFFSET]),
            cause,
        )


def _bounds(span: Span) -> list[int]:
    """Return the first and the last number of a span, limited to 64 bits."""
    return [min(span.start, INT64_END - 1), max(span.end - 1, INT64_MIN)]


def _unpack(chunk: Chunk, batch: Numbers) -> tuple[bytes, int]:
    """Return the records of a compressed batch, or of an old entry, as one section; and a count.

    Old records become records of magic 2, whose offsets and times count from the entry's. Raises
    ProtocolError.
    """
    position, end = int(batch[POSITION]), int(batch[POSITION] + batch[SIZE])
    if chunk.magic == MAGIC:
        codec = Codec(int(batch[ATTRIBUTES]) & CODEC_MASK)
        packed = chunk.data[position + HEADER_SIZE : end]
        return decompress(codec, packed, _DECOMPRESSED_MAX_BYTES), int(batch[COUNT])
    records = decode_entry(chunk.data[position:end], 0, _OLD_DECOMPRESSED_MAX_BYTES)
    encoded = (
        encode_record(
            record.offset - int(batch[BASE_OFFSET]),
            wrap_int64(record.timestamp - int(batch[MAX_TIMESTAMP])),
            record.key,
            record.value,
        )
        for record in records
    )
    return b"".join(encoded), len(records)


def _slices(sizes: Numbers) -> Iterator[tuple[int, int]]:
    """Yield the starts and ends of pieces of rows that a record batch may hold."""
    ends = np.cumsum(sizes)
    start = 0
    while start < len(sizes):
        before = ends[start - 1] if start else 0
        fitting = int(np.searchsorted(ends, before + BYTES_MAX, "right"))
        end = max(start + 1, min(fitting, start + ROWS_MAX))
        yield start, end
        start = end
