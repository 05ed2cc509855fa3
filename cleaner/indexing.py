"""Builds the offset map: reads a log's dirty section once, and notes where each key was last."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator

import numpy as np

from cleaner import kernels
from cleaner.chunks import Chunk, pieces, read_chunks
from cleaner.job import CleaningJob
from cleaner.kernels import (
    ATTRIBUTES,
    BAD_RECORD,
    COUNT,
    FULL,
    LAST_OFFSET,
    POSITION,
    PRODUCER_ID,
)
from cleaner.offset_map import SLOT_BYTES, HashKey, OffsetMap
from cleaner.stats import Counters
from cleaner.transactions import CleanedTransactions
from protocol.batches import CONTROL_BIT, TRANSACTIONAL_BIT, decode_records
from protocol.control import ControlType, decode_control
from protocol.errors import ProtocolError
from protocol.records import Bytes
from storage.errors import CorruptFile
from storage.files import FileSystem
from storage.index import OffsetIndex
from storage.scan import walk
from storage.segment import INDEX, LOG, Segment
from storage.transactions import AbortedTransaction

logger = logging.getLogger(__name__)

# A smaller record than this has hardly a key and a value: then offsets are gaps, not records.
_RECORD_BYTES = 16
_ANY_VERDICT = 0xFF

AbortedSource = Callable[[int, int], list[AbortedTransaction]]


def control_type(chunk: Chunk, row: int) -> ControlType | None:
    """Return what a control batch says, None when its record is gone."""
    if chunk.batches[row, COUNT] == 0:
        return None
    try:
        record = decode_records(chunk.data, int(chunk.batches[row, POSITION]))[0]
        return decode_control(record).type
    except ProtocolError as error:
        raise chunk.damage(row, str(error)) from error


class MapBuilder:
    """One pass over the dirty section of a log."""

    def __init__(
        self,
        job: CleaningJob,
        *,
        fs: FileSystem,
        aborted: AbortedSource,
        hash_key: HashKey,
        counters: Counters,
        before_read: Callable[[int], None],
    ) -> None:
        self._job, self._fs, self._aborted = job, fs, aborted
        self._hash_key, self._counters, self._before_read = hash_key, counters, before_read
        dirty = job.dirty
        # A segment's end is where the next one begins.
        self._ends = [s.base_offset for s in job.segments[1:]] + [dirty.first_uncleanable_offset]
        self._first = sum(end <= dirty.first_dirty_offset for end in self._ends)

    def build(self) -> OffsetMap:
        """Return the map of the cleanable range, or of as much of it as the ceiling allows.

        Its latest offset tells how far it got, which is one batch at least. Raises CorruptFile.
        """
        record_count = self._count_records()
        bytes_max = self._job.settings.map_bytes_max
        while True:
            built = self._new_map(record_count, bytes_max)
            too_large = self._fill(built)
            if too_large is None or built.latest_offset >= built.start_offset:
                return built
            # Kafka would come back to this batch for ever.
            logger.warning(
                "exceeded log.cleaner.dedupe.buffer.size for one batch log=%s records=%d",
                self._job.name, too_large,
            )  # fmt: skip
            record_count, bytes_max = too_large, 2 * SLOT_BYTES * (too_large + 1)

    def _new_map(self, record_count: int, bytes_max: int) -> OffsetMap:
        return OffsetMap(
            record_count,
            bytes_max=bytes_max,
            load_factor_max=self._job.settings.map_load_factor,
            start_offset=self._job.dirty.first_dirty_offset,
            hash_key=self._hash_key,
        )

    def _count_records(self) -> int:
        """Return how many records are dirty, or a little more."""
        dirty = self._job.dirty
        offsets = dirty.first_uncleanable_offset - dirty.first_dirty_offset
        if offsets <= dirty.cleanable_bytes // _RECORD_BYTES:
            return offsets
        count = sum(
            int(chunk.batches[:, COUNT].sum())
            for at in range(self._first, len(self._job.segments))
            for chunk in self._chunks(at)
        )
        return min(count, offsets)

    def _fill(self, offset_map: OffsetMap) -> int | None:
        """Read the range into the map; return the records of the batch that did not fit."""
        counters = self._counters
        counters.indexed_bytes = counters.indexed_records = 0
        transactions = CleanedTransactions()
        dirty = self._job.dirty
        transactions.add(self._aborted(dirty.first_dirty_offset, dirty.first_uncleanable_offset))
        for at in range(self._first, len(self._job.segments)):
            for chunk in self._chunks(at):
                stopped = self._index(chunk, offset_map, transactions)
                if stopped is not None:
                    return stopped
            # Offsets may be missing before the next segment; nothing dirty is among them.
            offset_map.latest_offset = self._ends[at] - 1
        return None

    def _chunks(self, at: int) -> Iterator[Chunk]:
        segment, start_offset = self._job.segments[at], self._job.dirty.first_dirty_offset
        return read_chunks(
            segment.log,
            start=self._position_of(segment, start_offset),
            end=segment.size_bytes,
            offset_min=segment.base_offset,
            chunk_bytes=self._job.settings.chunk_bytes,
            max_decompressed_bytes=self._job.config.max_decompressed_message_bytes,
            before_read=self._before_read,
        )

    def _position_of(self, segment: Segment, offset: int) -> int:
        """Return where to begin reading a segment for the records from an offset on."""
        if offset <= segment.base_offset:
            return 0
        # An index of our own: the segment's belongs to the event loop.
        index = OffsetIndex(self._fs, segment.path(INDEX), segment.base_offset)
        entry = index.at_or_before(offset)
        if entry is not None:
            with contextlib.suppress(CorruptFile):
                for place in walk(segment.log, segment.path(LOG), entry[1], segment.size_bytes):
                    return entry[1] if place[2] == entry[0] else 0
        return 0  # The index has no entry yet, or a wrong one.

    def _index(
        self, chunk: Chunk, offset_map: OffsetMap, transactions: CleanedTransactions
    ) -> int | None:
        """Add a chunk to the map; return the records of the batch that did not fit, if any."""
        batches = chunk.batches
        verdicts = self._passed_over(chunk, transactions)
        taken = len(batches)
        for piece in pieces(
            chunk,
            verdicts,
            passed_over=_ANY_VERDICT,
            max_decompressed_bytes=self._job.config.max_decompressed_message_bytes,
        ):
            added = offset_map.add(piece.data, piece.batches, piece.verdicts)
            row = piece.first_row + added.row
            if added.status == BAD_RECORD:
                raise chunk.damage(row, kernels.PROBLEMS[BAD_RECORD])
            if added.status == FULL:
                taken = row
                break
        self._counters.indexed_bytes += int(batches[:taken, kernels.SIZE].sum())
        self._counters.indexed_records += int(batches[:taken, COUNT].sum())
        if taken:
            latest = int(batches[taken - 1, LAST_OFFSET])
            offset_map.latest_offset = max(offset_map.latest_offset, latest)
        return int(batches[taken, COUNT]) if taken < len(batches) else None

    def _passed_over(self, chunk: Chunk, transactions: CleanedTransactions) -> Bytes:
        """Mark the batches that have no say in what is latest: control, aborted, clean ones."""
        batches = chunk.batches
        verdicts = np.zeros(len(batches), np.uint8)
        attributes = batches[:, ATTRIBUTES]
        verdicts[batches[:, LAST_OFFSET] < self._job.dirty.first_dirty_offset] = _ANY_VERDICT
        for row in np.flatnonzero(attributes & (CONTROL_BIT | TRANSACTIONAL_BIT)).tolist():
            producer_id, last_offset, bits = (
                int(batches[row, column]) for column in (PRODUCER_ID, LAST_OFFSET, ATTRIBUTES)
            )
            if bits & CONTROL_BIT:
                transactions.on_control(producer_id, last_offset, control_type(chunk, row))
                verdicts[row] = _ANY_VERDICT
            elif transactions.on_data(producer_id, last_offset, is_transactional=True):
                verdicts[row] = _ANY_VERDICT
        return verdicts
