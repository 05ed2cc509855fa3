"""The first pass: reads a log's dirty section once, and marks the obsolete records in it.

Every record of the dirty section gets an ordinal, its number in the order of reading; the map
stores it with the key, and marks the ordinal of each record that a later one of its key makes
obsolete (cleaner/passes/mapping.py). The second pass numbers the records in the same way, and
reads the marks.

The second pass looks up records of clean segments in the map, unless the map was too small: then
they are numbered and marked here as well, with the help of cleaner/passes/spill.py.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np

from odradek.cleaner.passes.chunks import Chunk, Piece, pieces, read_chunks
from odradek.cleaner.passes.cleaning import Cleaning
from odradek.cleaner.passes.hashing import HashKey
from odradek.cleaner.passes.mapping import ORDINAL_MAX, SPILL_COLUMNS, SpillRows
from odradek.cleaner.passes.offset_map import (
    LOAD_FACTOR,
    NO_HASHES,
    NO_ROWS,
    SLOT_BYTES,
    OffsetMap,
)
from odradek.cleaner.passes.ordinals import Numbering, Ordinals
from odradek.cleaner.passes.spill import CLEAN, DIRTY, ROW_BYTES, SpillTarget
from odradek.cleaner.rules.policy import must_count
from odradek.cleaner.rules.transactions import CleanedTransactions
from odradek.cleaner.rules.verdicts import NO_ORDINAL
from odradek.config.values import INT64_MAX
from odradek.dataclass import dataclass
from odradek.protocol import batch_scan
from odradek.protocol.batch_records import decode_records
from odradek.protocol.batch_scan import (
    ATTRIBUTES,
    BAD_RECORD,
    BASE_OFFSET,
    COUNT,
    FULL,
    LAST_OFFSET,
    POSITION,
    PRODUCER_ID,
    SIZE,
)
from odradek.protocol.batches import CONTROL_BIT, TRANSACTIONAL_BIT
from odradek.protocol.control import ControlType, decode_control
from odradek.protocol.errors import ProtocolError
from odradek.protocol.intrinsics import Words
from odradek.protocol.kernel import Bytes, Table

logger = logging.getLogger(__name__)

_ANY_VERDICT = 0xFF

# From the number of records that may be spilled.
MakeSpill: TypeAlias = Callable[[int], SpillTarget]


def control_type(chunk: Chunk, row: int) -> ControlType | None:
    """Return the type of a control batch, None when its record is gone."""
    if chunk.batches[row, COUNT] == 0:
        return None
    try:
        record = decode_records(chunk.data, int(chunk.batches[row, POSITION]))[0]
        return decode_control(record).type
    except ProtocolError as error:
        raise chunk.damage(row, str(error)) from error


@dataclass(frozen=True, slots=True)
class _CutBatch:
    """A batch of which only the later records are dirty."""

    data: Bytes
    batch: Table  # one row
    ordinal: Table


class DirtyIndex:
    """The result of the first pass; the second reads it."""

    def __init__(self, offset_map: OffsetMap, start_offset: int) -> None:
        self.map = offset_map
        self.start_offset = start_offset
        self.latest_offset = start_offset - 1  # the last offset that was indexed
        self.dirty: dict[int, Numbering] = {}  # by the segment's place in the job
        self.clean: dict[int, Numbering] = {}  # only when keys were spilled
        self.key_count = 0
        self.has_spilled = False
        # Hashes of the dirty keys for filters; None when there are too many, or no filters.
        self.filter_hashes: Words | None = None


class Indexer:
    """Builds the index of one job."""

    def __init__(
        self,
        cleaning: Cleaning,
        *,
        hash_key: HashKey,
        make_spill: MakeSpill,
        filter_point: int | None,
    ) -> None:
        """With a `filter_point` keys are also hashed for the filters of clean segments."""
        self._job, self._aborted, self._room = cleaning.job, cleaning.aborted, cleaning.room
        self._counters, self._before_io = cleaning.counters, cleaning.before_io
        self._hash_key, self._make_spill, self._filter_point = hash_key, make_spill, filter_point
        job, dirty = self._job, self._job.dirty
        # A segment ends where the next one begins.
        self._ends = [s.base_offset for s in job.segments[1:]] + [dirty.first_uncleanable_offset]
        self.first = sum(end <= dirty.first_dirty_offset for end in self._ends)
        self._record_count = 0
        self._next_ordinal = 0
        self._spill: SpillTarget | None = None
        self._may_spill: bool | None = None  # not known before it matters
        self._spill_rows = NO_ROWS
        self._filter_parts: list[Words] | None = None
        self._cut: _CutBatch | None = None
        self.transactions = CleanedTransactions()
        self.has_transactions = False  # batches of transactions, or markers

    def index_dirty(self) -> DirtyIndex:
        """Read the cleanable range, or as much of it as memory and temporary files allow.

        The index has the last offset read; at least one batch is read. Raises CorruptFile.
        """
        self._record_count = self._count_dirty()
        bytes_max = self._job.settings.map_bytes_max
        load_factor_max = self._job.settings.map_load_factor
        record_count = self._record_count
        while True:
            index = self._new_index(record_count, bytes_max, load_factor_max)
            too_large = self._fill(index)
            if too_large is None or index.latest_offset >= index.start_offset:
                self._look_up_cut(index.map)
                index.key_count = len(index.map)
                if self._filter_parts is not None:
                    index.filter_hashes = np.concatenate([NO_HASHES, *self._filter_parts])
                return index
            # Kafka would try this batch again forever.
            logger.warning(
                "exceeded log.cleaner.dedupe.buffer.size for one batch log=%s records=%d",
                self._job.name, too_large,
            )  # fmt: skip
            record_count, bytes_max = too_large, 2 * SLOT_BYTES * (too_large + 1)
            load_factor_max = LOAD_FACTOR

    def index_clean(self, index: DirtyIndex, wanted: Sequence[int]) -> None:
        """Mark obsolete records of clean segments, given by their places, after keys were spilled.

        Then the second pass needs only the marks, and the map's memory is freed.
        """
        assert self._spill is not None
        ordinals = Ordinals(index.start_offset, self._next_ordinal)
        for at in wanted:
            start = ordinals.next
            for chunk in self._chunks(at):
                numbers = ordinals.number(chunk.batches, dirty=False)
                index.map.obsolete.make_room(ordinals.next)
                self._look_up(chunk, numbers, index.map)
            index.clean[at] = Numbering(start, ordinals.next)
        index.map.give_back()
        index.key_count += self._spill.resolve(index.map.obsolete.bits)
        self._counters.spilled_bytes = self._spill.written_bytes
        self._counters.spill_count = self._spill.part_count

    def _new_index(
        self, record_count: int, bytes_max: int, load_factor_max: float
    ) -> DirtyIndex:
        offset_map = OffsetMap(
            record_count,
            bytes_max=bytes_max,
            load_factor_max=load_factor_max,
            hash_key=self._hash_key,
            filter_point=self._filter_point or 0,
        )
        # Eight bytes a record, up to a quarter of the memory that the map may take.
        has_room = 32 * self._record_count <= self._job.settings.map_bytes_max
        wants_hashes = self._filter_point is not None and has_room
        self._filter_parts = [] if wants_hashes else None
        return DirtyIndex(offset_map, self._job.dirty.first_dirty_offset)

    def _count_dirty(self) -> int:
        """Return the number of dirty records, or a little more."""
        dirty = self._job.dirty
        if must_count(dirty):
            return self._count(range(self.first, len(self._job.segments)), dirty=True)
        return max(dirty.first_uncleanable_offset - dirty.first_dirty_offset, 0)

    def _count(self, places: range, *, dirty: bool) -> int:
        """Return the number of dirty or of clean records in segments, by the batches' headers."""
        ordinals = Ordinals(self._job.dirty.first_dirty_offset, 0)
        for at in places:
            for chunk in self._chunks(at, checks_crc=False):
                ordinals.number(chunk.batches, dirty=dirty)
        return ordinals.next

    def _fill(self, index: DirtyIndex) -> int | None:
        """Read the range into the map; return the records of the batch that did not fit."""
        counters = self._counters
        counters.indexed_bytes = counters.indexed_records = counters.invalid_records = 0
        self._cut = None
        self.transactions = transactions = CleanedTransactions()
        dirty = self._job.dirty
        transactions.add(self._aborted(dirty.first_dirty_offset, dirty.first_uncleanable_offset))
        ordinals = Ordinals(dirty.first_dirty_offset, 0)
        for at in range(self.first, len(self._job.segments)):
            start = ordinals.next
            for chunk in self._chunks(at):
                numbers = ordinals.number(chunk.batches, dirty=True)
                if ordinals.next > ORDINAL_MAX:
                    return int(chunk.batches[0, COUNT])
                index.dirty[at] = Numbering(start, ordinals.next)
                index.map.obsolete.make_room(ordinals.next)
                stopped = self._index(chunk, numbers, index, transactions)
                if stopped is not None:
                    return stopped
            # There may be a gap of offsets before the next segment; it has no dirty records.
            index.latest_offset = self._ends[at] - 1
        self._next_ordinal = ordinals.next
        return None

    def _chunks(self, at: int, *, checks_crc: bool = True) -> Iterator[Chunk]:
        # From the segment's start, even where only its end is dirty: entries of older formats
        # are grouped into the same batches as when they are rewritten.
        return read_chunks(
            self._job.segments[at],
            chunk_bytes=self._job.settings.chunk_bytes,
            max_decompressed_bytes=self._job.config.max_decompressed_message_bytes,
            before_read=self._before_io,
            checks_crc=checks_crc,
        )

    def _index(
        self, chunk: Chunk, numbers: Table, index: DirtyIndex, transactions: CleanedTransactions
    ) -> int | None:
        """Add a chunk to the map; return the records of the batch that did not fit, if any."""
        batches = chunk.batches
        verdicts = self._passed_over(chunk, numbers, transactions)
        taken = len(batches)
        for piece in pieces(
            chunk,
            verdicts,
            self._room,
            passed_over=_ANY_VERDICT,
            max_decompressed_bytes=self._job.config.max_decompressed_message_bytes,
        ):
            room = piece.record_count_max
            hashes = np.empty(room, np.uint64) if self._filter_parts is not None else NO_HASHES
            added = index.map.add(
                piece.data,
                piece.batches,
                piece.verdicts,
                numbers[piece.first_row : piece.first_row + len(piece.batches)],
                start_offset=index.start_offset,
                spill=self._room_to_spill(index.map, room),
                filter_hashes=hashes,
            )
            row = piece.first_row + added.row
            if added.status == BAD_RECORD:
                raise chunk.damage(row, batch_scan.PROBLEMS[BAD_RECORD])
            self._note_cut(piece, numbers, index.start_offset)
            self._counters.invalid_records += added.keyless
            if self._filter_parts is not None:
                self._filter_parts.append(hashes[: added.hashed])
            if added.spilled:
                self._write_down(index, added.spilled)
            if added.status == FULL:
                taken = row
                break
        self._counters.indexed_bytes += int(batches[:taken, SIZE].sum())
        self._counters.indexed_records += int(batches[:taken, COUNT].sum())
        if taken:
            latest = int(batches[taken - 1, LAST_OFFSET])
            index.latest_offset = max(index.latest_offset, latest)
        return int(batches[taken, COUNT]) if taken < len(batches) else None

    def _note_cut(self, piece: Piece, numbers: Table, start_offset: int) -> None:
        """Keep the batch in whose middle the dirty section begins, if it is in the piece."""
        if int(piece.batches[0, BASE_OFFSET]) >= start_offset:
            return
        is_cut = piece.batches[:, BASE_OFFSET] < start_offset
        is_cut &= piece.batches[:, LAST_OFFSET] >= start_offset
        for row in np.flatnonzero(is_cut & (piece.verdicts == 0)).tolist():
            batch = piece.batches[row : row + 1].copy()
            position, size = int(batch[0, POSITION]), int(batch[0, SIZE])
            batch[0, POSITION] = 0
            ordinal = numbers[piece.first_row + row : piece.first_row + row + 1].copy()
            self._cut = _CutBatch(piece.data[position : position + size].copy(), batch, ordinal)

    def _look_up_cut(self, offset_map: OffsetMap) -> None:
        """Mark obsolete records that precede the dirty section in its first batch.

        The log start offset may lie in the middle of a batch; also, entries of older formats
        share batches after their conversion.
        """
        cut = self._cut
        if cut is None:
            return
        rows = np.empty((int(cut.batch[0, COUNT]), SPILL_COLUMNS), np.uint32)
        first_dirty_offset = self._job.dirty.first_dirty_offset
        verdicts = np.zeros(1, np.uint8)
        added = offset_map.look_up(
            cut.data, cut.batch, verdicts, cut.ordinal, first_dirty_offset, rows
        )
        self._counters.invalid_records += added.keyless
        if self._spill is not None:
            self._spill.write(CLEAN, rows[: added.spilled])

    def _look_up(self, chunk: Chunk, numbers: Table, offset_map: OffsetMap) -> None:
        """Mark a chunk's clean records that the map makes obsolete; spill the others."""
        assert self._spill is not None
        verdicts = np.where(numbers == NO_ORDINAL, _ANY_VERDICT, 0).astype(np.uint8)
        verdicts[chunk.batches[:, ATTRIBUTES] & CONTROL_BIT != 0] = _ANY_VERDICT
        for piece in pieces(
            chunk,
            verdicts,
            self._room,
            passed_over=_ANY_VERDICT,
            max_decompressed_bytes=self._job.config.max_decompressed_message_bytes,
        ):
            rows = self._rows(piece.record_count_max)
            added = offset_map.look_up(
                piece.data,
                piece.batches,
                piece.verdicts,
                numbers[piece.first_row : piece.first_row + len(piece.batches)],
                INT64_MAX,
                rows,
            )
            if added.status == BAD_RECORD:
                raise chunk.damage(piece.first_row + added.row, batch_scan.PROBLEMS[BAD_RECORD])
            self._counters.invalid_records += added.keyless
            self._spill.write(CLEAN, rows[: added.spilled])

    def _room_to_spill(self, offset_map: OffsetMap, row_count: int) -> SpillRows:
        """Return rows for keys that may not fit into the map; none if useless or forbidden."""
        if not offset_map.may_fill_up(row_count):
            return NO_ROWS
        if self._may_spill is None:
            self._may_spill = self._can_spill()
        return self._rows(row_count) if self._may_spill else NO_ROWS

    def _rows(self, count: int) -> SpillRows:
        if len(self._spill_rows) < count:
            self._spill_rows = np.empty((count, SPILL_COLUMNS), np.uint32)
        return self._spill_rows

    def _can_spill(self) -> bool:
        """Return whether all records that might be spilled are within the limit."""
        bytes_max = self._job.settings.spill_bytes_max
        if self._record_count * ROW_BYTES > bytes_max:
            return False
        count = self._record_count + self._count(range(self.first + 1), dirty=False)
        return count * ROW_BYTES <= bytes_max and count <= ORDINAL_MAX

    def _write_down(self, index: DirtyIndex, count: int) -> None:
        if self._spill is None:
            self._spill = self._make_spill(self._record_count - len(index.map))
            index.has_spilled = True
        self._spill.write(DIRTY, self._spill_rows[:count])

    def _passed_over(
        self, chunk: Chunk, numbers: Table, transactions: CleanedTransactions
    ) -> Bytes:
        """Mark the batches that do not count for the latest records: control, aborted, clean."""
        batches = chunk.batches
        verdicts = np.zeros(len(batches), np.uint8)
        attributes = batches[:, ATTRIBUTES]
        verdicts[numbers == NO_ORDINAL] = _ANY_VERDICT
        for row in np.flatnonzero(attributes & (CONTROL_BIT | TRANSACTIONAL_BIT)).tolist():
            self.has_transactions = True
            bits, producer_id, last_offset = (
                int(batches[row, column]) for column in (ATTRIBUTES, PRODUCER_ID, LAST_OFFSET)
            )
            if bits & CONTROL_BIT:
                transactions.on_control(producer_id, last_offset, control_type(chunk, row))
                verdicts[row] = _ANY_VERDICT
            elif transactions.on_data(producer_id, last_offset, is_transactional=True):
                verdicts[row] = _ANY_VERDICT
        return verdicts
