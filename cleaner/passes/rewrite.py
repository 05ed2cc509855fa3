"""Rewrites groups of segments: the remaining records of each group become one new segment.

Every batch is judged (cleaner/rules/keep.py), then its records (by the kernels); the rest is
written. A batch in which nothing changes is copied unchanged. The new segment is on the disk
before it is proposed. A segment that would not change keeps its files.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from odradek.cleaner.passes import emission
from odradek.cleaner.passes.chunks import Chunk, Piece, pieces, read_chunks
from odradek.cleaner.passes.cleaning import Cleaning
from odradek.cleaner.passes.emission import (
    EMPTIED,
    OUT_COUNT,
    OUT_HOW,
    OUT_POSITION,
    OUT_ROW,
    OUT_SIZE,
    UNCHANGED,
    Mask,
)
from odradek.cleaner.passes.indexing import DirtyIndex, control_type
from odradek.cleaner.passes.key_filter import KeyFilter, SummaryBuilder
from odradek.cleaner.passes.ordinals import Ordinals
from odradek.cleaner.passes.output import CleanedSegment
from odradek.cleaner.passes.summary import SegmentSummary
from odradek.cleaner.rules.keep import (
    BatchFacts,
    BatchVerdict,
    Retention,
    is_last_of_producer,
    judge_batch,
)
from odradek.cleaner.rules.transactions import CleanedTransactions
from odradek.cleaner.rules.verdicts import DISCARD, EXPIRED, KEEP, MARKER, NO_ORDINAL, RETAIN
from odradek.config.values import INT64_MAX
from odradek.dataclass import dataclass
from odradek.protocol import batch_scan
from odradek.protocol.batch_scan import (
    ATTRIBUTES,
    BASE_TIMESTAMP,
    COUNT,
    LAST_OFFSET,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    SIZE,
)
from odradek.protocol.batches import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    TRANSACTIONAL_BIT,
    with_section,
)
from odradek.protocol.compression import Codec, compress
from odradek.protocol.kernel import Bytes, Table
from odradek.storage.errors import CorruptFile
from odradek.storage.files import Buffer
from odradek.storage.segment import LOG, Segment
from odradek.storage.transactions import pack_aborted


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The result of rewriting a group of segments."""

    segment: Segment | None  # the new segment; None if the only one stays, or in a dry run
    summary: SegmentSummary
    keys: KeyFilter | None


class Rewriter:
    """One pass over a log, group by group; owned by the thread that cleans."""

    def __init__(
        self,
        cleaning: Cleaning,
        index: DirtyIndex,
        *,
        filter_point: int,
        is_dry: bool,
        transactions: CleanedTransactions | None = None,
        keeps_tombstones: bool = False,
    ) -> None:
        """A dry run writes nothing, and creates no segments.

        `transactions` knows those that began before the first group, if it is not the log's. With
        `keeps_tombstones` they stay as they are, since records before the groups may be older.
        """
        self._job, self._fs, self._aborted = cleaning.job, cleaning.fs, cleaning.aborted
        self._counters, self._before_io = cleaning.counters, cleaning.before_io
        self._room = cleaning.room
        self._index, self._filter_point, self._is_dry = index, filter_point, is_dry
        self._transactions = transactions or CleanedTransactions()
        job = self._job
        horizon_ms = job.now_ms + job.config.delete_retention_ms
        # As in Kafka: a horizon beyond the largest timestamp is not set yet.
        has_horizon = horizon_ms <= INT64_MAX and not keeps_tombstones
        self._horizon_ms = horizon_ms if has_horizon else -1
        # No tombstone has expired at the begin of time.
        self._now_ms = -INT64_MAX if keeps_tombstones else job.now_ms
        self._keeps_tombstones = keeps_tombstones
        last_offsets = [p.last_data_offset for p in job.producers.values()]
        self._producers_last = np.array([o for o in last_offsets if o is not None], np.int64)
        self._positions = np.empty(0, np.int64)
        self._fates = np.empty(0, np.uint8)
        self._out = np.empty(0, np.uint8)

    def rewrite(self, places: range, end_offset: int) -> Rewritten:
        """Write the remaining records of a group of the job's segments, durably, as `.cleaned`.

        The segment after the group begins at `end_offset`. A failure leaves no files.
        Raises CorruptFile for damage, and the errors of `before_io`.
        """
        group = self._job.segments[places.start : places.stop]
        interval_bytes = self._job.config.index_interval_bytes
        target = CleanedSegment(self._fs, group[0], interval_bytes, is_dry=self._is_dry)
        self._summary = SummaryBuilder(self._filter_point, self._filter_keys_max)
        try:
            ends = [segment.base_offset for segment in group[1:]] + [end_offset]
            for at, segment, end in zip(places, group, ends, strict=True):
                if at > places.start:
                    self._begin(target)  # to be merged
                self._transactions.add(self._aborted(segment.base_offset, end))
                self._rewrite_segment(at, end, target)
            self._counters.segments_read += len(group)
            aborted = self._transactions.take_kept()
            if pack_aborted(aborted) != bytes(group[0].transactions.load()):
                self._begin(target)
            made = None
            if target.is_begun:
                made = target.finish(aborted, group[-1].modified_ms)
        except BaseException:
            if target.is_begun:
                target.discard()
            raise
        if target.is_begun:
            self._counters.segments_written += 1
        else:
            self._counters.segments_kept += 1
        summary, keys = self._summary.take(group[0].base_offset, target.size_bytes)
        return Rewritten(made, summary, keys)

    @cached_property
    def _legacy_horizon_ms(self) -> int:
        """The latest file time at which tombstones of older formats, without horizons, expire."""
        job = self._job
        clean = [s for s in job.segments if s.base_offset < job.dirty.first_dirty_offset]
        return clean[-1].modified_ms - job.config.delete_retention_ms if clean else 0

    @property
    def _filter_keys_max(self) -> int:
        # Eight bytes a key, sorted once: within a quarter of the memory that the map may take.
        return self._job.settings.map_bytes_max // 64

    def _begin(self, target: CleanedSegment) -> None:
        copied = target.begin()
        self._counters.written_bytes += copied
        self._before_io(2 * copied)

    def _rewrite_segment(self, at: int, end: int, target: CleanedSegment) -> None:
        config, segment = self._job.config, self._job.segments[at]
        numberings = self._index.dirty.get(at), self._index.clean.get(at)
        dirty, clean = (
            Ordinals(self._index.start_offset, one.first) if one else None for one in numberings
        )
        for chunk in read_chunks(
            segment,
            chunk_bytes=self._job.settings.chunk_bytes,
            max_decompressed_bytes=config.max_decompressed_message_bytes,
            before_read=self._before_io,
        ):
            ordinals = np.full(len(chunk.batches), NO_ORDINAL)
            for numbers, is_dirty in ((dirty, True), (clean, False)):
                if numbers is not None:
                    ordinals = np.maximum(
                        ordinals, numbers.number(chunk.batches, dirty=is_dirty)
                    )
            verdicts = self._judge_batches(chunk, segment)
            if int(chunk.batches[-1, LAST_OFFSET]) > self._index.latest_offset:
                beyond = chunk.batches[:, LAST_OFFSET] > self._index.latest_offset
                verdicts[beyond] |= KEEP
                ordinals[beyond] = NO_ORDINAL
            ordinals[verdicts & (KEEP | DISCARD) != 0] = NO_ORDINAL  # their bits do not count
            verdicts[self._are_obsolete(chunk, ordinals)] |= DISCARD
            size = int(chunk.batches[:, SIZE].sum())
            self._counters.start_bytes += size
            self._counters.read_bytes += size
            self._counters.start_records += int(chunk.batches[:, COUNT].sum())
            for piece in pieces(
                chunk,
                verdicts,
                self._room,
                passed_over=DISCARD,
                max_decompressed_bytes=config.max_decompressed_message_bytes,
            ):
                self._filter(chunk, piece, ordinals, target)
        for numbers, before in zip((dirty, clean), numberings, strict=True):
            is_whole = end <= self._index.latest_offset + 1
            if numbers and before and is_whole and numbers.next != before.after:
                raise CorruptFile(segment.path(LOG), 0, "it has changed while it was cleaned")

    def _are_obsolete(self, chunk: Chunk, ordinals: Table) -> Mask:
        """Return which batches lose all records, so that they need no decompression."""
        batches = chunk.batches
        found = np.zeros(len(batches), np.bool_)
        emission.find_obsolete(
            batches, len(batches), ordinals, self._index.map.obsolete.bits, found
        )
        return found

    def _judge_batches(self, chunk: Chunk, segment: Segment) -> Bytes:
        """Return each batch's verdict, in the kernels' bits."""
        batches = chunk.batches
        verdicts = np.zeros(len(batches), np.uint8)
        # All other batches have the verdict 0: judged record by record, removed when empty.
        special = (batches[:, ATTRIBUTES] & (CONTROL_BIT | TRANSACTIONAL_BIT)) != 0
        special |= batches[:, LAST_OFFSET] + 1 == self._job.dirty.first_uncleanable_offset
        if len(self._producers_last):
            special |= np.isin(batches[:, LAST_OFFSET], self._producers_last)
        for row in np.flatnonzero(special).tolist():
            verdicts[row] = self._bits(self._judge_batch(chunk, row), chunk, row)
        may_expire = chunk.is_converted and not self._keeps_tombstones
        if may_expire and segment.modified_ms <= self._legacy_horizon_ms:
            verdicts |= EXPIRED
        return verdicts

    def _judge_batch(self, chunk: Chunk, row: int) -> BatchVerdict:
        columns = (ATTRIBUTES, LAST_OFFSET, PRODUCER_ID, PRODUCER_EPOCH, BASE_TIMESTAMP)
        attributes, last_offset, producer_id, epoch, base_timestamp = (
            int(chunk.batches[row, column]) for column in columns
        )
        is_control = attributes & CONTROL_BIT != 0
        if is_control:
            kind = control_type(chunk, row)
            can_discard = self._transactions.on_control(producer_id, last_offset, kind)
        else:
            can_discard = self._transactions.on_data(
                producer_id, last_offset, is_transactional=attributes & TRANSACTIONAL_BIT != 0
            )
        producer = self._job.producers.get(producer_id)
        facts = BatchFacts(
            is_control=is_control,
            can_discard=can_discard,
            delete_horizon_ms=base_timestamp if attributes & DELETE_HORIZON_BIT else None,
            is_producers_last=producer is not None
            and is_last_of_producer(
                last_offset=last_offset,
                is_control=is_control,
                epoch=epoch,
                producer_last_offset=producer.last_data_offset,
                producer_epoch=producer.epoch,
            ),
            ends_range=last_offset + 1 == self._job.dirty.first_uncleanable_offset,
        )
        return judge_batch(facts, self._job.now_ms)

    def _bits(self, verdict: BatchVerdict, chunk: Chunk, row: int) -> int:
        is_control = int(chunk.batches[row, ATTRIBUTES]) & CONTROL_BIT != 0
        bits = RETAIN if verdict.retention == Retention.RETAIN_EMPTY else 0
        if verdict.discards_records:
            if chunk.batches[row, COUNT]:
                self._counters.removed_markers += is_control
                self._counters.removed_aborted_batches += not is_control
            return bits | DISCARD
        if is_control:
            bits |= KEEP
        if verdict.is_marker_of_empty_transaction:
            bits |= MARKER
        return bits

    def _filter(
        self, chunk: Chunk, piece: Piece, ordinals: Table, target: CleanedSegment
    ) -> None:
        """Judge the records of a piece, and write the remaining ones."""
        self._make_room(piece)
        status, row, judged, keyless, expired = self._index.map.judge(
            piece.data,
            piece.batches,
            piece.verdicts,
            ordinals[piece.first_row : piece.first_row + len(piece.batches)],
            self._now_ms,
            self._positions,
            self._fates,
        )
        if status != batch_scan.WHOLE:
            raise chunk.damage(piece.first_row + row, batch_scan.PROBLEMS[status])
        self._counters.invalid_records += keyless
        self._counters.expired_tombstones += expired
        survivors = np.empty((len(piece.batches), emission.OUT_COLUMNS), np.int64)
        size, count = emission.emit_batches(
            piece.data,
            piece.batches,
            len(piece.batches),
            piece.verdicts,
            self._positions,
            self._fates,
            self._horizon_ms,
            not piece.is_inflated,
            self._out,
            survivors,
        )
        survivors = survivors[:count]
        self._summary.add(piece, survivors, self._positions, self._fates, judged)
        is_unchanged = (
            count == len(piece.batches)
            and not survivors[:, OUT_HOW].any()
            and not chunk.is_converted
        )
        if is_unchanged and not target.is_begun:
            survivors[:, OUT_SIZE] = chunk.batches[piece.first_row :][:count, SIZE]
            target.pass_over(survivors)
        else:
            self._write(chunk, piece, survivors, self._out.data[:size], target)
        self._counters.end_records += int(survivors[:, OUT_COUNT].sum())
        self._counters.end_bytes += int(survivors[:, OUT_SIZE].sum())

    def _write(
        self,
        chunk: Chunk,
        piece: Piece,
        survivors: Table,
        emitted: Buffer,
        target: CleanedSegment,
    ) -> None:
        self._begin(target)
        buffers = [emitted]
        if piece.is_inflated:
            buffers = [self._repack(chunk, piece, survivor) for survivor in survivors.tolist()]
            survivors[:, OUT_SIZE] = [len(buffer) for buffer in buffers]
        if len(survivors):
            written = int(survivors[:, OUT_SIZE].sum())
            target.append(buffers, survivors)
            self._counters.written_bytes += written
            self._before_io(written)

    def _make_room(self, piece: Piece) -> None:
        records = piece.record_count_max
        if len(self._fates) < records:
            self._positions = np.empty(records, np.int64)
            self._fates = np.empty(records, np.uint8)
        wanted = int(piece.batches[:, SIZE].sum()) + emission.GROWTH_MAX * records
        if len(self._out) < wanted:
            self._out = np.empty(wanted, np.uint8)

    def _repack(self, chunk: Chunk, piece: Piece, survivor: Sequence[int]) -> Buffer:
        """Return a batch of an inflated piece as it will be written, with its former codec."""
        how, row, start, size = (
            survivor[OUT_HOW], survivor[OUT_ROW], survivor[OUT_POSITION], survivor[OUT_SIZE]
        )  # fmt: skip
        source = chunk.batches[piece.first_row + row]
        if how == UNCHANGED:
            position = int(source[POSITION])
            return memoryview(chunk.data)[position : position + int(source[SIZE])]
        written = self._out.data[start : start + size]
        codec = Codec(int(source[ATTRIBUTES]) & CODEC_MASK)
        if how == EMPTIED or codec is Codec.NONE:
            return written
        return with_section(written, compress(codec, written[HEADER_SIZE:]))
