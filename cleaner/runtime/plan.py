"""Predicts the effect of cleaning a log: exactly, after a dry run, or as bounds, from known facts.

The bounds cost only arithmetic. Each offset of the dirty section may be a record with a key of
its own, and all segments may have to be read and written again. Where keys are spilled, or the
dirty records must be counted, cleaner/passes/indexing.py reads some segments more often.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from odradek.cleaner.passes.stats import CleanResult
from odradek.cleaner.rules.facts import LogFacts
from odradek.cleaner.rules.job import CleanerSettings
from odradek.cleaner.rules.policy import DirtyRange, must_count
from odradek.cleaner.runtime.dry_run import Missing
from odradek.cleaner.runtime.survey import Finding
from odradek.dataclass import dataclass

# A slot of 16 bytes for each key, of which 0.8 are in use (cleaner/passes/offset_map.py).
_MAP_BYTES_PER_KEY = 20


@dataclass(frozen=True, slots=True)
class SegmentReads:
    """A segment in the range of a cleaning, and how often that reads it at most."""

    base_offset: int
    size_bytes: int
    count: int
    is_dirty: bool


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most that a cleaning takes."""

    records_max: int  # in the dirty section; also the most keys
    map_bytes_max: int
    may_spill: bool
    read_bytes_max: int
    written_bytes_max: int
    reads: Sequence[SegmentReads]


@dataclass(frozen=True, slots=True)
class Plan:
    """The predicted effect of cleaning a log now."""

    bounds: Bounds
    exact: CleanResult | Missing


def bounds(finding: Finding, settings: CleanerSettings) -> Bounds:
    """Return the most that cleaning a log takes, without reading it."""
    dirty = finding.dirty
    if dirty.cleanable_bytes == 0 and dirty.expired_ms is None:
        return Bounds(0, 0, False, 0, 0, ())
    records = max(dirty.first_uncleanable_offset - dirty.first_dirty_offset, 0)
    map_bytes = records * _MAP_BYTES_PER_KEY
    may_spill = map_bytes > settings.map_bytes_max
    reads = count_reads(finding.facts, dirty, may_spill=may_spill)
    return Bounds(
        records,
        min(map_bytes, settings.map_bytes_max),
        may_spill,
        sum(one.size_bytes * one.count for one in reads),
        sum(one.size_bytes for one in reads),
        reads,
    )


def count_reads(log: LogFacts, dirty: DirtyRange, *, may_spill: bool) -> list[SegmentReads]:
    """Return the segments that a cleaning reads, and how often at most; pure."""
    # The dirty section is read for the map, and with all others for the rewrite.
    dirty_count = 2 + must_count(dirty)
    found: list[SegmentReads] = []
    for segment, following in pairwise(log.segments):
        if segment.base_offset >= dirty.first_uncleanable_offset:
            break
        is_dirty = following.base_offset > dirty.first_dirty_offset
        count = dirty_count if is_dirty else 1
        # Spilled keys: the clean section is counted, and looked up, up to the first dirty batch.
        if may_spill and segment.base_offset <= dirty.first_dirty_offset:
            count += 2
        found.append(SegmentReads(segment.base_offset, segment.size_bytes, count, is_dirty))
    return found
