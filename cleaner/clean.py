"""Cleans one log, from a job to its result: index, group, rewrite, propose.

    dirty section -> offset map          cleaner/indexing.py
    segments before the map's end -> groups of segments          cleaner/policy.py
    each group -> one `.cleaned` segment          cleaner/rewrite.py
    old and new segments -> the event loop, which swaps them or refuses          storage/log.py

This module and those below it load Numba: import it late, and not before the broker listens.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial

from cleaner.indexing import MapBuilder
from cleaner.job import CleaningJob
from cleaner.offset_map import HashKey, OffsetMap
from cleaner.policy import SegmentSizes, group_segments
from cleaner.rewrite import Rewriter
from cleaner.stats import CleanResult, Counters
from storage.errors import StaleSegments
from storage.files import FileSystem
from storage.reading import aborted_between
from storage.rolling import segment_bytes_max
from storage.segment import INDEX, TIME_INDEX, Segment

Propose = Callable[[Sequence[Segment], Sequence[Segment]], None]


def clean(
    job: CleaningJob,
    *,
    fs: FileSystem,
    random_below: Callable[[int], int],
    clock_ms: Callable[[], int],
    before_io: Callable[[int], None],
    propose: Propose | None,
) -> CleanResult:
    """Clean a log as its job says.

    Without `propose` nothing changes: the result tells what would become of the log.

    `before_io` hears of every read and write, in bytes: it may wait, and raise CleaningAborted.
    `propose` exchanges the old segments of a group for new ones, or raises StaleSegments; then
    the new ones are removed. `random_below` must be as secrets.randbelow is. Raises CorruptFile
    and DiskFailure.
    """
    started_ms = clock_ms()
    counters = Counters()
    aborted = partial(aborted_between, job.segments + job.later_segments)
    offset_map = MapBuilder(
        job,
        fs=fs,
        aborted=aborted,
        hash_key=HashKey.draw(random_below),
        counters=counters,
        before_read=before_io,
    ).build()
    indexed_ms = clock_ms()
    end_offset = offset_map.latest_offset + 1
    segments = [s for s in job.segments if s.base_offset < end_offset]
    for segment in segments:
        # A crash must not take what makes records obsolete when those have gone for good.
        if not segment.is_durable:
            segment.sync_batches()
    ends = [s.base_offset for s in job.segments[1:]] + [job.dirty.first_uncleanable_offset]
    rewriter = Rewriter(
        job, offset_map, fs=fs, aborted=aborted, counters=counters, before_io=before_io
    )
    for group in group_segments(
        [_sizes(fs, segment) for segment in segments],
        log_bytes_max=segment_bytes_max(job.config),
        index_bytes_max=job.config.segment_index_bytes,
        end_offset=job.dirty.first_uncleanable_offset,
    ):
        old = segments[group.start : group.stop]
        new = rewriter.rewrite(old, ends[group.stop - 1])
        if propose is None:
            new.remove()
            continue
        try:
            propose(old, [new])
        except StaleSegments:
            new.remove()
            raise
    return _result(job, counters, offset_map, started_ms, indexed_ms, clock_ms())


def _result(
    job: CleaningJob,
    counters: Counters,
    offset_map: OffsetMap,
    started_ms: int,
    indexed_ms: int,
    finished_ms: int,
) -> CleanResult:
    return CleanResult(
        topic=job.topic,
        partition=job.partition,
        reason=job.reason,
        first_dirty_offset=job.dirty.first_dirty_offset,
        end_offset=offset_map.latest_offset + 1,
        first_uncleanable_offset=job.dirty.first_uncleanable_offset,
        started_ms=started_ms,
        # A clock that was set back has no say.
        index_ms=max(indexed_ms - started_ms, 0),
        total_ms=max(finished_ms - started_ms, 0),
        map_keys=len(offset_map),
        map_bytes=offset_map.memory_bytes,
        map_utilization=offset_map.utilization,
        cleanable_ratio=job.dirty.cleanable_ratio,
        overdue_ms=job.dirty.overdue_ms,
        next_horizon_ms=None,
        is_verified=False,
        **dataclasses.asdict(counters),
    )


def _sizes(fs: FileSystem, segment: Segment) -> SegmentSizes:
    # Sealed segments' indexes are as large as their files; their entries need not be loaded.
    index_bytes, time_index_bytes = (
        fs.size(path) if fs.exists(path) else 0
        for path in (segment.path(INDEX), segment.path(TIME_INDEX))
    )
    return SegmentSizes(segment.base_offset, segment.size_bytes, index_bytes, time_index_bytes)
