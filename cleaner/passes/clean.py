"""Cleans one log, from a job to its result: index, group, rewrite, propose.

    dirty section -> offset map, marks          cleaner/passes/indexing.py, cleaner/passes/spill.py
    segments before the map's end -> those that must be read             cleaner/passes/summary.py
    all of them -> groups of segments          cleaner/rules/policy.py
    each group -> a `.cleaned` segment, or none if nothing changes    cleaner/passes/rewrite.py
    old and new segments -> the event loop, which swaps them or refuses
                                               cleaner/passes/exchanges.py, storage/log.py

1. Without `propose` no file of the log changes.
2. Batches because of which records are dropped are on the disk before the first group is proposed.
3. With log.cleaner.verify each group is proved before it is proposed.
4. A new segment that the proof rejects or the log refuses is removed.
5. A summary is written only for a segment that is clean to its end.

This module and those below it load Numba: import it late, and not before the broker listens.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from odradek.cleaner.passes.cleaning import Cleaning
from odradek.cleaner.passes.exchanges import Exchanges, Propose
from odradek.cleaner.passes.hashing import PRIME, HashKey
from odradek.cleaner.passes.indexing import DirtyIndex, Indexer
from odradek.cleaner.passes.key_filter import read_filter, write_summary
from odradek.cleaner.passes.rewrite import Rewriter, Rewritten
from odradek.cleaner.passes.spill import Spill
from odradek.cleaner.passes.stats import CleanResult, Counters
from odradek.cleaner.passes.summary import SegmentSummary, read_summary
from odradek.cleaner.proof.proof import Proof
from odradek.cleaner.rules.job import CleaningJob
from odradek.cleaner.rules.policy import (
    Reason,
    SegmentSizes,
    merge_groups,
    pays_alone,
)
from odradek.storage.errors import DiskFailure
from odradek.storage.files import FileSystem
from odradek.storage.reading import aborted_between
from odradek.storage.segment import INDEX, TIME_INDEX, Segment

logger = logging.getLogger(__name__)

_BIT_COUNTS = np.array([number.bit_count() for number in range(256)], np.uint8)


def clean(
    job: CleaningJob,
    *,
    fs: FileSystem,
    random_below: Callable[[int], int],
    clock_ms: Callable[[], int],
    before_io: Callable[[int], None],
    propose: Propose | None,
    counters: Counters | None = None,
) -> CleanResult:
    """Clean a log as its job says.

    Without `propose` nothing changes: the result describes the outcome of a cleaning.
    `before_io` gets the bytes of every read and write: it may wait, and raise CleaningAborted.
    `propose` exchanges the old segments of a group for new ones, or begins to
    (cleaner/passes/exchanges.py), or raises StaleSegments; then the new ones are removed.
    `random_below` must be as hard to guess as secrets.randbelow.
    `counters` show the progress. Raises CorruptFile and DiskFailure; VerificationFailed when the
    output must be proved and is wrong.
    """
    counters = Counters() if counters is None else counters
    aborted = partial(aborted_between, job.segments + job.later_segments)
    cleaning = Cleaning(job, fs, aborted, counters, before_io)
    with contextlib.ExitStack() as stack:
        return _Run(cleaning, random_below, clock_ms, propose, stack).clean()


class _Run:
    """One cleaning; owned by its thread."""

    def __init__(
        self,
        cleaning: Cleaning,
        random_below: Callable[[int], int],
        clock_ms: Callable[[], int],
        propose: Propose | None,
        stack: contextlib.ExitStack,
    ) -> None:
        self._cleaning, self._job, self._fs = cleaning, cleaning.job, cleaning.fs
        self._counters, self._before_io = cleaning.counters, cleaning.before_io
        self._random_below, self._clock_ms, self._propose = random_below, clock_ms, propose
        self._stack = stack
        self._horizons: list[int] = []
        self._proof: Proof | None = None
        self._is_alone = False  # the dirty section is cleaned without the clean one

    def clean(self) -> CleanResult:
        """Read, decide, rewrite, exchange."""
        job = self._job
        started_ms = self._clock_ms()
        summaries = self._read_summaries()
        points = [one.point for one in summaries.values()]
        filter_point = points[-1] if points else self._random_below(PRIME)
        indexer = Indexer(
            self._cleaning,
            hash_key=HashKey.draw(self._random_below),
            make_spill=self._make_spill,
            filter_point=filter_point if summaries else None,
        )
        dirty = [segment.log.path for segment in job.segments[indexer.first :]]
        self._stack.enter_context(self._fs.keeping(dirty))
        index = indexer.index_dirty()
        self._is_alone = self._can_clean_alone(index, indexer)
        skipped = set() if self._is_alone else self._skip(index, summaries, filter_point)
        if index.has_spilled:
            clean = range(min(indexer.first + 1, len(job.segments)))
            indexer.index_clean(index, [at for at in clean if at not in skipped])
        indexed_ms = self._clock_ms()
        first = indexer.first if self._is_alone else 0
        self._rewrite(index, summaries, skipped, filter_point, first)
        return self._result(index, started_ms, indexed_ms)

    def _can_clean_alone(self, index: DirtyIndex, indexer: Indexer) -> bool:
        """Return whether the dirty section is cleaned without the clean one.

        Older values of its keys may stay below, so its tombstones must stay, and it stays dirty.
        Markers and batches of transactions may belong to others below, too.
        """
        job, dirty = self._job, self._job.dirty
        if (
            job.reason is not Reason.DIRTY
            or not job.settings.may_clean_alone
            or job.settings.must_verify
            or index.has_spilled
            or indexer.has_transactions
            or index.latest_offset + 1 < dirty.first_uncleanable_offset
            or job.segments[indexer.first].base_offset != dirty.first_dirty_offset
        ):
            return False
        counters = self._counters
        obsolete = int(_BIT_COUNTS[index.map.obsolete.bits].sum())
        share = 1 - obsolete / max(counters.indexed_records, 1)
        kept_bytes = round(share * counters.indexed_bytes)
        return pays_alone(dirty, kept_bytes, job.config.min_cleanable_dirty_ratio)

    def _read_summaries(self) -> Mapping[int, SegmentSummary]:
        """Return the summaries of the completely clean segments, by their places."""
        job = self._job
        ends = [segment.base_offset for segment in job.segments[1:]]
        known = (
            (at, read_summary(job.segments[at]))
            for at, end in enumerate([*ends, job.dirty.first_uncleanable_offset])
            if end <= job.dirty.first_dirty_offset
        )
        return {at: summary for at, summary in known if summary is not None}

    def _skip(
        self, index: DirtyIndex, summaries: Mapping[int, SegmentSummary], filter_point: int
    ) -> set[int]:
        """Choose the clean segments in which nothing can be obsolete or expired."""
        return {
            at
            for at, one in summaries.items()
            if not one.must_read
            and (one.next_horizon_ms is None or one.next_horizon_ms > self._job.now_ms)
            and self._has_no_dirty_key(index, at, one, filter_point)
        }

    def _has_no_dirty_key(
        self, index: DirtyIndex, at: int, summary: SegmentSummary, filter_point: int
    ) -> bool:
        if index.key_count == 0:
            return True
        if index.filter_hashes is None or not summary.has_filter or summary.point != filter_point:
            return False
        keys = read_filter(self._job.segments[at])
        return keys is not None and not keys.may_have_any(index.filter_hashes)

    def _rewrite(
        self,
        index: DirtyIndex,
        summaries: Mapping[int, SegmentSummary],
        skipped: set[int],
        filter_point: int,
        first: int,
    ) -> None:
        job = self._job
        end_offset = index.latest_offset + 1
        segments = [s for s in job.segments if s.base_offset < end_offset]
        if self._propose is not None:
            self._make_durable(end_offset)
        ends = [s.base_offset for s in job.segments[1:]] + [job.dirty.first_uncleanable_offset]
        rewriter = Rewriter(
            self._cleaning,
            index,
            filter_point=filter_point,
            is_dry=self._propose is None,
            keeps_tombstones=self._is_alone,
        )
        if job.settings.must_verify and self._propose is not None:
            self._proof = Proof(
                job,
                fs=self._fs,
                aborted=self._cleaning.aborted,
                end_offset=end_offset,
                before_io=self._before_io,
            )
        with Exchanges(self._propose) as exchanges:
            for group in self._groups(segments, first):
                if len(group) == 1 and group.start in skipped:
                    self._pass_over(segments[group.start], summaries[group.start])
                    continue
                old = segments[group.start : group.stop]
                end = ends[group.stop - 1]
                rewritten = rewriter.rewrite(group, end)
                is_clean = end <= end_offset and not self._is_alone
                if is_clean and rewritten.summary.next_horizon_ms is not None:
                    self._horizons.append(rewritten.summary.next_horizon_ms)
                if self._propose is not None:
                    self._settle(exchanges, old, rewritten, is_clean=is_clean)

    def _make_durable(self, end_offset: int) -> None:
        """Sync the batches because of which records are dropped.

        These are the later records of their keys, and the later batches of their producers: a
        crash must not lose them when the dropped records are gone forever.
        """
        job = self._job
        last_offsets = (one.last_data_offset for one in job.producers.values())
        last_offset = max((one for one in last_offsets if one is not None), default=-1)
        for segment in job.segments + job.later_segments:
            if segment.base_offset < max(end_offset, last_offset + 1) and not segment.is_durable:
                segment.sync_batches()

    def _groups(self, segments: Sequence[Segment], first: int) -> list[range]:
        """Group the segments from a place on that become one each."""
        sizes = [_sizes(self._fs, segment) for segment in segments[first:]]
        groups = merge_groups(
            sizes,
            log_bytes_max=self._job.segment_bytes,
            index_bytes_max=self._job.config.segment_index_bytes,
            end_offset=self._job.dirty.first_uncleanable_offset,
        )
        return [range(first + one.start, first + one.stop) for one in groups]

    def _pass_over(self, segment: Segment, summary: SegmentSummary) -> None:
        if self._proof is not None:
            self._proof.check([segment], [segment])
        counters = self._counters
        counters.segments_kept += 1
        counters.segments_skipped += 1
        counters.start_bytes += segment.size_bytes
        counters.end_bytes += segment.size_bytes
        counters.start_records += summary.record_count
        counters.end_records += summary.record_count
        if summary.next_horizon_ms is not None:
            self._horizons.append(summary.next_horizon_ms)

    def _settle(
        self, exchanges: Exchanges, old: Sequence[Segment], rewritten: Rewritten, *, is_clean: bool
    ) -> None:
        """Exchange a group for its rewritten segment, and write the segment's summary."""
        made = rewritten.segment
        if self._proof is not None:
            try:
                self._proof.check(old, old if made is None else [made])
            except BaseException:
                if made is not None:
                    made.remove()
                raise

        def summarize() -> None:
            if not is_clean:
                return
            try:
                write_summary(made or old[0], rewritten.summary, rewritten.keys)
            except DiskFailure as error:  # The summary only saves work.
                logger.warning("could not write a key filter: %s", error)

        if made is None:
            summarize()
        else:
            exchanges.begin(old, made, summarize)

    def _make_spill(self, record_count: int) -> Spill:
        job = self._job
        spill = Spill(
            self._fs,
            job.directory,
            self._random_below(2**32),
            record_count=record_count,
            map_bytes_max=job.settings.map_bytes_max,
            load_factor_max=job.settings.map_load_factor,
            before_io=self._before_io,
        )
        return self._stack.enter_context(spill)

    def _result(self, index: DirtyIndex, started_ms: int, indexed_ms: int) -> CleanResult:
        job, finished_ms = self._job, self._clock_ms()
        return CleanResult(
            topic=job.topic,
            partition=job.partition,
            reason=job.reason,
            first_dirty_offset=job.dirty.first_dirty_offset,
            end_offset=(
                job.dirty.first_dirty_offset if self._is_alone else index.latest_offset + 1
            ),
            first_uncleanable_offset=job.dirty.first_uncleanable_offset,
            started_ms=started_ms,
            # Not negative when the clock was set back.
            index_ms=max(indexed_ms - started_ms, 0),
            total_ms=max(finished_ms - started_ms, 0),
            map_keys=index.key_count,
            map_bytes=index.map.memory_bytes,
            map_utilization=index.map.utilization,
            cleanable_ratio=job.dirty.cleanable_ratio,
            overdue_ms=job.dirty.overdue_ms,
            next_horizon_ms=min(self._horizons, default=None),
            is_verified=self._proof is not None,
            is_alone=self._is_alone,
            **dataclasses.asdict(self._counters),
        )


def _sizes(fs: FileSystem, segment: Segment) -> SegmentSizes:
    # Sealed segments' indexes are as large as their files; their entries need not be loaded.
    index_bytes, time_index_bytes = (
        fs.size(path) if fs.exists(path) else 0
        for path in (segment.path(INDEX), segment.path(TIME_INDEX))
    )
    return SegmentSizes(segment.base_offset, segment.size_bytes, index_bytes, time_index_bytes)
