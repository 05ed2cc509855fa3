"""Rewrites groups of segments: what the offset map leaves of them becomes one new segment each.

Every batch is judged (cleaner/keep.py), then its records (by the kernels), then what is left is
written. A batch in which nothing changes is copied as it is. The new segment is on the disk
before anybody hears of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from cleaner import emission, kernels
from cleaner.chunks import Chunk, Piece, pieces, read_chunks
from cleaner.emission import (
    EMPTIED,
    OUT_COUNT,
    OUT_HOW,
    OUT_POSITION,
    OUT_ROW,
    OUT_SIZE,
    UNCHANGED,
)
from cleaner.indexing import AbortedSource, control_type
from cleaner.job import CleaningJob
from cleaner.keep import BatchFacts, BatchVerdict, Retention, is_last_of_producer, judge_batch
from cleaner.kernels import (
    ATTRIBUTES,
    BASE_TIMESTAMP,
    CONTROL,
    COUNT,
    DISCARD,
    LAST_OFFSET,
    MARKER,
    POSITION,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RETAIN,
    SIZE,
)
from cleaner.offset_map import OffsetMap
from cleaner.output import CleanedSegment
from cleaner.stats import Counters
from cleaner.transactions import CleanedTransactions
from config.values import INT64_MAX
from protocol.batches import (
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    TRANSACTIONAL_BIT,
    read_header,
    replace_section,
)
from protocol.compression import Codec, compress
from protocol.records import Bytes, Table
from storage.files import Buffer, FileSystem
from storage.segment import Segment


class Rewriter:
    """One pass over a log, group by group; owned by the thread that cleans."""

    def __init__(
        self,
        job: CleaningJob,
        offset_map: OffsetMap,
        *,
        fs: FileSystem,
        aborted: AbortedSource,
        counters: Counters,
        before_io: Callable[[int], None],
    ) -> None:
        self._job, self._map, self._fs = job, offset_map, fs
        self._aborted, self._counters, self._before_io = aborted, counters, before_io
        self._transactions = CleanedTransactions()
        self._horizon_ms = min(job.now_ms + job.config.delete_retention_ms, INT64_MAX)
        last_offsets = [p.last_data_offset for p in job.producers.values()]
        self._producers_last = np.array([o for o in last_offsets if o is not None], np.int64)
        self._positions = np.empty(0, np.int64)
        self._fates = np.empty(0, np.uint8)
        self._out = np.empty(0, np.uint8)

    def rewrite(self, group: Sequence[Segment], end_offset: int) -> Segment:
        """Write what is left of a group of segments; return it, durable, as `.cleaned`.

        What follows the group begins at `end_offset`. Nothing is left behind by a failure.
        Raises CorruptFile for damage, and whatever `before_io` raises.
        """
        target = CleanedSegment(
            self._fs,
            self._job.directory,
            group[0].base_offset,
            self._job.config.index_interval_bytes,
        )
        try:
            ends = [segment.base_offset for segment in group[1:]] + [end_offset]
            for segment, end in zip(group, ends, strict=True):
                self._transactions.add(self._aborted(segment.base_offset, end))
                self._rewrite_segment(segment, target)
            self._counters.segments_read += len(group)
            self._counters.segments_written += 1
            return target.finish(self._transactions.take_kept(), group[-1].modified_ms)
        except BaseException:
            target.discard()
            raise

    def _rewrite_segment(self, segment: Segment, target: CleanedSegment) -> None:
        config = self._job.config
        for chunk in read_chunks(
            segment.log,
            start=0,
            end=segment.size_bytes,
            offset_min=segment.base_offset,
            chunk_bytes=self._job.settings.chunk_bytes,
            max_decompressed_bytes=config.max_decompressed_message_bytes,
            before_read=self._before_io,
        ):
            verdicts = self._judge_batches(chunk)
            size = int(chunk.batches[:, SIZE].sum())
            self._counters.start_bytes += size
            self._counters.read_bytes += size
            for piece in pieces(
                chunk,
                verdicts,
                passed_over=DISCARD,
                max_decompressed_bytes=config.max_decompressed_message_bytes,
            ):
                self._filter(chunk, piece, target)

    def _judge_batches(self, chunk: Chunk) -> Bytes:
        """Give each batch its verdict, in the kernels' bits."""
        batches = chunk.batches
        verdicts = np.zeros(len(batches), np.uint8)
        # All other batches have the verdict 0: judged record by record, gone when empty.
        special = (batches[:, ATTRIBUTES] & (CONTROL_BIT | TRANSACTIONAL_BIT)) != 0
        special |= batches[:, LAST_OFFSET] + 1 == self._job.dirty.first_uncleanable_offset
        if len(self._producers_last):
            special |= np.isin(batches[:, LAST_OFFSET], self._producers_last)
        for row in np.flatnonzero(special).tolist():
            verdicts[row] = self._bits(self._judge_batch(chunk, row), chunk, row)
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
            bits |= CONTROL
        if verdict.is_marker_of_empty_transaction:
            bits |= MARKER
        return bits

    def _filter(self, chunk: Chunk, piece: Piece, target: CleanedSegment) -> None:
        """Judge the records of a piece, and write what is left of it."""
        self._make_room(piece)
        status, row, judged, keyless, expired = self._map.judge(
            piece.data,
            piece.batches,
            piece.verdicts,
            self._job.now_ms,
            self._positions,
            self._fates,
        )
        if status != kernels.WHOLE:
            raise chunk.damage(piece.first_row + row, kernels.PROBLEMS[status])
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
        buffers: list[Buffer] = [self._out.data[:size]]
        if piece.is_inflated:
            buffers = [self._repack(chunk, piece, survivor) for survivor in survivors]
            survivors[:, OUT_SIZE] = [len(buffer) for buffer in buffers]
        counters = self._counters
        written = int(survivors[:, OUT_SIZE].sum())
        counters.start_records += judged
        counters.invalid_records += keyless
        counters.expired_tombstones += expired
        counters.end_records += int(survivors[:, OUT_COUNT].sum())
        counters.end_bytes += written
        counters.written_bytes += written
        if count:
            target.append(buffers, survivors)
            self._before_io(written)

    def _make_room(self, piece: Piece) -> None:
        records = piece.record_count_max
        if len(self._fates) < records:
            self._positions = np.empty(records, np.int64)
            self._fates = np.empty(records, np.uint8)
        wanted = int(piece.batches[:, SIZE].sum()) + emission.GROWTH_MAX * records
        if len(self._out) < wanted:
            self._out = np.empty(wanted, np.uint8)

    def _repack(self, chunk: Chunk, piece: Piece, survivor: Table) -> Buffer:
        """Return a decompressed batch as it will be written: compressed as it was."""
        how, row, start, size = (
            int(survivor[column]) for column in (OUT_HOW, OUT_ROW, OUT_POSITION, OUT_SIZE)
        )
        source = chunk.batches[piece.first_row + row]
        if how == UNCHANGED:
            position = int(source[POSITION])
            return memoryview(chunk.data)[position : position + int(source[SIZE])]
        written = self._out.data[start : start + size]
        if how == EMPTIED:
            return written
        codec = Codec(int(source[ATTRIBUTES]) & CODEC_MASK)
        section = compress(codec, written[HEADER_SIZE:])
        return replace_section(read_header(written), section, codec)
