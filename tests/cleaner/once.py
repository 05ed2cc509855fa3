"""Cleans one log at once, without threads."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence

from odradek.cleaner.passes.clean import clean
from odradek.cleaner.passes.stats import CleanResult
from odradek.cleaner.rules.job import CleanerSettings, make_job
from odradek.cleaner.rules.policy import Reason
from odradek.cleaner.runtime.progress import CleanerOffsets, Horizons, find_candidate, range_of
from odradek.storage.files import FileSystem
from odradek.storage.log import Log
from odradek.storage.segment import Segment

SETTINGS = CleanerSettings(
    map_bytes_max=128 << 20,
    map_load_factor=0.9,
    chunk_bytes=1 << 20,
    spill_bytes_max=1 << 30,
    must_verify=False,
)


def clean_once(
    log: Log,
    offsets: CleanerOffsets,
    now_ms: int,
    *,
    fs: FileSystem,
    settings: CleanerSettings = SETTINGS,
    random_below: Callable[[int], int] = secrets.randbelow,
    before_io: Callable[[int], None] = lambda size: None,
    horizons: Horizons | None = None,
) -> CleanResult | None:
    """Clean a log as a cleaner thread would, including the swap and the checkpoint.

    `horizons` are the results of earlier cleanings, and are updated. Returns None when there is
    nothing to clean yet by the topic's settings. Raises the errors of cleaner.passes.clean.clean.
    """
    candidate = find_candidate(log, offsets, now_ms, horizons)
    if candidate is None:
        return None
    if horizons is not None and candidate.is_surveyed:
        horizons.setdefault((log.topic, log.partition), candidate.horizon_ms)
    reason = candidate.reason
    if reason is None and not candidate.is_surveyed:
        reason = Reason.SURVEY
    if reason is None:
        return None

    def propose(old: Sequence[Segment], new: Sequence[Segment]) -> None:
        log.replace_segments(old, new, now_ms)

    result = clean(
        make_job(log, range_of(candidate, reason), settings, now_ms, reason),
        fs=fs,
        random_below=random_below,
        clock_ms=lambda: now_ms,
        before_io=before_io,
        propose=propose,
    )
    if horizons is not None:
        horizons[log.topic, log.partition] = result.next_horizon_ms
    offsets.cleaner_offsets[log.topic, log.partition] = result.end_offset
    offsets.store(offsets.take_cleaner_offsets())
    return result
