"""Predicts the effect of cleaning a log: exactly, after a dry run, or as bounds, from known facts.

The bounds cost only arithmetic. Each offset of the dirty section may be a record with a key of
its own, and all segments may have to be read and written again.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek.cleaner.passes.stats import CleanResult
from odradek.cleaner.rules.job import CleanerSettings
from odradek.cleaner.runtime.dry_run import Missing
from odradek.cleaner.runtime.survey import Finding

# A slot of 16 bytes for each key, of which 0.8 are in use (cleaner/passes/offset_map.py).
_MAP_BYTES_PER_KEY = 20


@dataclass(frozen=True, slots=True)
class Bounds:
    """The most that a cleaning takes."""

    records_max: int  # in the dirty section; also the most keys
    map_bytes_max: int
    may_spill: bool
    read_bytes_max: int
    written_bytes_max: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The predicted effect of cleaning a log now."""

    bounds: Bounds
    exact: CleanResult | Missing


def bounds(finding: Finding, settings: CleanerSettings) -> Bounds:
    """Return the most that cleaning a log takes, without reading it."""
    dirty = finding.dirty
    if dirty.cleanable_bytes == 0 and dirty.expired_ms is None:
        return Bounds(0, 0, False, 0, 0)
    records = max(dirty.first_uncleanable_offset - dirty.first_dirty_offset, 0)
    map_bytes = records * _MAP_BYTES_PER_KEY
    return Bounds(
        records,
        min(map_bytes, settings.map_bytes_max),
        map_bytes > settings.map_bytes_max,
        # The dirty section is read twice: for the map, and with all others for the rewrite.
        dirty.cleanable_bytes + dirty.total_bytes,
        dirty.total_bytes,
    )
