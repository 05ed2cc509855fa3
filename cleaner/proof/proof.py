"""Proves that the output of a cleaning is exactly the result that the rules give for its input.

The kernels, hashes and bitmaps of a cleaning may be wrong; the proof shares none of them. It
reads the dirty section once more into a dictionary of whole keys, judges every batch and record
of the old segments by the truth tables (cleaner/rules/keep.py, transactions.py), and compares
with the new ones, field by field. With `log.cleaner.verify` that happens before each swap.

    old segments --> expected result, batch by batch --\\
                                                        equal? --> the swap
    new segments --> their contents, batch by batch ---/
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from odradek.cleaner.errors import VerificationFailed
from odradek.cleaner.proof.comparison import (
    Kept,
    check_header,
    check_records,
    each_record_of,
    failed,
    reduced_header,
)
from odradek.cleaner.proof.files import ExpectedIndexes, check_aborted
from odradek.cleaner.proof.old_formats import OldFormats
from odradek.cleaner.proof.stored import AbortedRanges, Stored, batches_of, read_stored
from odradek.cleaner.rules.job import CleaningJob
from odradek.cleaner.rules.keep import (
    BatchFacts,
    BatchVerdict,
    Retention,
    is_last_of_producer,
    judge_batch,
    keep_record,
    must_stamp,
)
from odradek.cleaner.rules.transactions import CleanedTransactions
from odradek.config.values import INT64_MAX
from odradek.protocol.batches import MAGIC, BatchHeader, Record
from odradek.protocol.control import ControlType, decode_control
from odradek.protocol.errors import ProtocolError
from odradek.storage.errors import CorruptFile
from odradek.storage.files import FileSystem
from odradek.storage.segment import LOG, Segment
from odradek.storage.transactions import AbortedTransaction

# A full map may end within a batch, or within the old messages that are converted together.
_BEYOND_END_BYTES = 64 * 1024


class Found:
    """The batches of a cleaning's output, in order, with a look-ahead of one.

    The bytes and offsets of each file are checked on the way.
    """

    def __init__(
        self, job: CleaningJob, new: Sequence[Segment], before_io: Callable[[int], None]
    ) -> None:
        self._job, self._segments, self._before_io = job, new, before_io
        self._indexes: list[ExpectedIndexes] = []
        self._batches = self._read()
        self.next: Stored | None = next(self._batches, None)

    def take(self) -> Stored:
        """Return the next batch; there must be one."""
        taken = self.next
        assert taken is not None
        self.next = next(self._batches, None)
        return taken

    def missing(self, offset: int, cause: str) -> VerificationFailed:
        """Return the error for the output that should come next and is missing."""
        if self.next is not None:
            return failed(self.next, cause, offset)
        path = self._segments[-1].path(LOG) if self._segments else self._job.directory
        size = self._segments[-1].size_bytes if self._segments else 0
        return VerificationFailed(path, size, offset, cause)

    def check_indexes(self, fs: FileSystem) -> None:
        """Check the indexes, once all batches were taken. Raises VerificationFailed."""
        for indexes in self._indexes:
            indexes.check(fs)

    def _read(self) -> Iterator[Stored]:
        offset_min = 0
        for segment in self._segments:
            offset_min = max(offset_min, segment.base_offset)
            indexes = ExpectedIndexes(segment, self._job.config.index_interval_bytes)
            try:
                for batch in read_stored(
                    batches_of(segment), range(offset_min, INT64_MAX), self._before_io
                ):
                    offset_min = batch.header.next_offset
                    if offset_min - 1 > segment.offset_max:
                        raise batch.damage("its offsets are beyond its indexes' range")
                    indexes.note(batch)
                    yield batch
            except CorruptFile as damage:
                raise VerificationFailed(
                    damage.path, damage.position, offset_min, damage.cause
                ) from damage
            self._indexes.append(indexes)


class Proof:
    """The proof of one cleaning; owned by the thread that cleans.

    It keeps each key of the dirty section, and its latest offset, in memory.
    """

    def __init__(
        self,
        job: CleaningJob,
        *,
        fs: FileSystem,
        aborted: Callable[[int, int], list[AbortedTransaction]],
        end_offset: int,
        before_io: Callable[[int], None],
    ) -> None:
        """Read the dirty section, up to the offset that the cleaning's own map has reached.

        Raises CorruptFile, and the errors of `before_io`.
        """
        self._job, self._fs, self._aborted = job, fs, aborted
        self._end_offset, self._before_io = end_offset, before_io
        self._bytes_max = job.config.max_decompressed_message_bytes
        self._horizon_ms = min(job.now_ms + job.config.delete_retention_ms, INT64_MAX)
        starts = [one.base_offset for one in job.segments]
        ends = [*starts[1:], job.dirty.first_uncleanable_offset]
        self._ends = dict(zip(starts, ends, strict=True))
        self._transactions = CleanedTransactions()
        self._latest: dict[bytes, int] = {}
        # Keys right after the end, which a full map may or may not hold.
        self._beyond: set[bytes] = set()
        # The offsets of the output's batch that was last looked up.
        self._offsets_of: Stored | None = None
        self._offsets = array("q")
        self._read_keys()

    def check(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        """Prove that new segments are the correct result of cleaning old ones.

        Groups come in the order of the log; a segment that keeps its files is also `new`.
        Raises VerificationFailed with the first difference, CorruptFile for a damaged source.
        """
        found = Found(self._job, new, self._before_io)
        old_formats = OldFormats(found, self._keeps, self._horizon_ms, self._bytes_max)
        for segment in old:
            end = self._ends[segment.base_offset]
            self._transactions.add(self._aborted(segment.base_offset, end))
            offsets = range(segment.base_offset, end)
            for source in read_stored(batches_of(segment), offsets, self._before_io):
                if source.header.magic == MAGIC:
                    old_formats.finish()
                    self._check_batch(source, found)
                else:
                    verdict = self._judge(source)
                    old_formats.check(source, verdict.retention == Retention.RETAIN_EMPTY)
        old_formats.finish()
        if found.next is not None:
            raise failed(found.next, "no batch may be left from here on")
        is_kept = list(old) == list(new)
        if not is_kept:  # if it is, the cleaning has not written the files
            found.check_indexes(self._fs)
        check_aborted(self._fs, new, self._transactions.take_kept(), is_kept=is_kept)

    def _read_keys(self) -> None:
        dirty = self._job.dirty
        start, end = dirty.first_dirty_offset, dirty.first_uncleanable_offset
        aborted = AbortedRanges(self._aborted(start, end))
        beyond_bytes = 0
        for segment in self._job.segments:
            offsets = range(segment.base_offset, self._ends[segment.base_offset])
            if offsets.stop <= start:
                continue
            for batch in read_stored(batches_of(segment), offsets, self._before_io):
                header = batch.header
                if header.last_offset < start or header.is_control or aborted.hold(header):
                    continue
                if beyond_bytes > _BEYOND_END_BYTES:
                    return
                for record in batch.each_record(self._bytes_max):
                    if record.key is None or record.offset < start:
                        continue
                    if record.offset < self._end_offset:
                        self._latest[record.key] = record.offset
                    else:
                        self._beyond.add(record.key)
                if header.last_offset >= self._end_offset:
                    beyond_bytes += len(batch.data)

    def _check_batch(self, source: Stored, found: Found) -> None:
        header = source.header
        verdict = self._judge(source)
        ahead = found.next
        if ahead is not None and ahead.header.base_offset < header.base_offset:
            raise failed(ahead, f"no batch may be left before offset {header.base_offset}")
        left = ahead if ahead and ahead.header.base_offset == header.base_offset else None
        there = self._kept_of(source, verdict, left)
        first = next(there, None)
        if first is None and verdict.retention != Retention.RETAIN_EMPTY:
            if left is not None:
                raise failed(left, f"no record of this batch of {header.count} may be left")
            return
        if left is None:
            count = 0 if first is None else 1 + sum(1 for _ in there)
            what = f"{count} of {header.count} records" if count else "its empty header"
            cause = f"{what} of a batch must be left, up to offset {header.last_offset}"
            raise found.missing(header.base_offset if first is None else first.offset, cause)
        found.take()
        self._check_left(source, left, verdict, () if first is None else chain((first,), there))

    def _check_left(
        self, source: Stored, left: Stored, verdict: BatchVerdict, expected: Iterable[Record]
    ) -> None:
        """Compare a batch of the output with the expected records of its source."""
        header, kept = source.header, Kept()
        is_copy = left.data == source.data
        expected = kept.noting(expected)
        if is_copy:
            deque(expected, maxlen=0)
        else:
            check_records(left, each_record_of(left, self._bytes_max), expected)
        stamps = bool(kept.count) and must_stamp(
            keeps_tombstones=not header.is_control and kept.has_tombstones,
            verdict=verdict,
            delete_horizon_ms=header.base_timestamp if header.has_delete_horizon else None,
        )
        if kept.count and kept.count == header.count and not stamps:
            if not is_copy:
                check_header(left, header)
                raise failed(left, "it was not copied unchanged, though it loses no record")
            return
        if is_copy:
            there = each_record_of(left, self._bytes_max)
            check_records(left, there, self._kept_of(source, verdict, left))
        check_header(left, reduced_header(header, kept, self._horizon_ms if stamps else None))

    def _kept_of(
        self, source: Stored, verdict: BatchVerdict, left: Stored | None
    ) -> Iterator[Record]:
        """Yield the records of a batch that must be left, one by one to save memory."""
        if verdict.discards_records:
            return
        header = source.header
        horizon = header.base_timestamp if header.has_delete_horizon else None
        for record in source.each_record(self._bytes_max):
            if header.is_control or self._keeps(record, horizon, left):
                yield record

    def _judge(self, source: Stored) -> BatchVerdict:
        header = source.header
        if header.is_control:
            discard = self._transactions.on_control(
                header.producer_id, header.last_offset, self._control_type(source)
            )
        else:
            discard = self._transactions.on_data(
                header.producer_id,
                header.last_offset,
                is_transactional=header.is_transactional,
            )
        facts = BatchFacts(
            is_control=header.is_control,
            can_discard=discard,
            delete_horizon_ms=header.base_timestamp if header.has_delete_horizon else None,
            is_producers_last=self._is_producers_last(header),
            ends_range=header.next_offset == self._job.dirty.first_uncleanable_offset,
        )
        return judge_batch(facts, self._job.now_ms)

    def _is_producers_last(self, header: BatchHeader) -> bool:
        producer = self._job.producers.get(header.producer_id)
        return producer is not None and is_last_of_producer(
            last_offset=header.last_offset,
            is_control=header.is_control,
            epoch=header.producer_epoch,
            producer_last_offset=producer.last_data_offset,
            producer_epoch=producer.epoch,
        )

    def _control_type(self, source: Stored) -> ControlType | None:
        if source.header.count == 0:
            return None
        try:
            return decode_control(next(source.each_record(self._bytes_max))).type
        except ProtocolError as error:
            raise source.damage(str(error)) from error

    def _keeps(self, record: Record, horizon_ms: int | None, left: Stored | None) -> bool:
        """Return whether a record is kept; `left` is its batch in the output, if any."""
        key = record.key
        is_kept = keep_record(
            offset=record.offset,
            has_key=key is not None,
            has_value=record.value is not None,
            mapped_offset=None if key is None else self._latest.get(key),
            latest_offset=self._end_offset - 1,
            delete_horizon_ms=horizon_ms,
            now_ms=self._job.now_ms,
        )
        if is_kept and record.offset < self._end_offset and key in self._beyond:
            # A record that the map may lack makes it obsolete: both results are right.
            return left is not None and self._is_in(left, record.offset)
        return is_kept

    def _is_in(self, left: Stored, offset: int) -> bool:
        """Return whether an output batch has a record; caches the offsets of the last batch."""
        if self._offsets_of is not left:
            records = each_record_of(left, self._bytes_max)
            self._offsets = array("q", (one.offset for one in records))
            self._offsets_of = left
        at = bisect_left(self._offsets, offset)
        return at < len(self._offsets) and self._offsets[at] == offset
