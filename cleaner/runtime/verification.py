"""Proves the guarantees of one log: cleans it between two snapshots, or checks it without.

The files of a snapshot stay open, so that the records before and after can be compared one by
one, however large the log is. A thread reads them, at the speed of plain Python and below
log.cleaner.io.max.bytes.per.second. The keys of the log and their offsets are in memory, at most
KEYS_MAX at once (some 300 MB): a log with more keys is read in several rounds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from odradek.cleaner.passes.stats import CleanResult
from odradek.cleaner.passes.throttle import Pace
from odradek.cleaner.proof.guarantees import (
    OFFSETS_UNCHANGED,
    Bounds,
    Finding,
    Violation,
    compare,
    final_state,
)
from odradek.cleaner.proof.snapshot import Snapshot, hold, note_moment
from odradek.cleaner.proof.soundness import prove_clean_section, prove_indexes
from odradek.cleaner.runtime.asked import Status
from odradek.cleaner.runtime.pool import CleanerPool
from odradek.cleaner.runtime.progress import CleanerOffsets
from odradek.dataclass import dataclass
from odradek.storage.errors import CorruptFile
from odradek.storage.files import FileSystem
from odradek.storage.log import Log
from odradek.storage.metering import StoreUse, metered


class NotCleaned(Exception):
    """The log was not cleaned, so nothing is proved; the message says why."""


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of proving one partition's guarantees."""

    topic: str
    partition: int
    result: CleanResult | None  # None when it was not cleaned
    start_offset: int
    end_offset: int
    clean_offset: int  # the cleaner's checkpoint at the time of the last snapshot
    size_bytes: int
    findings: tuple[Finding, ...]
    store: StoreUse | None  # the proof's own requests to the object store, of a shared log

    @property
    def is_proved(self) -> bool:
        """Whether no finding breaks a guarantee."""
        return all(one.violation is None for one in self.findings)


def bounds_of(before: Snapshot, after: Snapshot, result: CleanResult, lag_ms: int) -> Bounds:
    """Return the bounds to compare two snapshots by; `lag_ms` is min.compaction.lag.ms."""
    return Bounds(
        start_offset=max(before.start_offset, after.start_offset),
        stable_offset=before.stable_offset,
        end_offset=before.end_offset,
        first_dirty_offset=result.first_dirty_offset,
        first_uncleanable_offset=result.first_uncleanable_offset,
        min_lag_ms=lag_ms,
        now_ms=result.started_ms,
    )


def prove_guarantees(
    before: Snapshot, after: Snapshot, bounds: Bounds, before_io: Callable[[int], None]
) -> list[Finding]:
    """Prove the four guarantees of a cleaning; runs in a thread.

    Raises CorruptFile, DiskFailure, and the errors of `before_io`.
    """
    return [
        *compare(before.seen(before_io), after.seen(before_io), bounds),
        final_state(lambda: before.seen(before_io), lambda: after.seen(before_io), bounds),
    ]


def prove_as_it_is(
    snapshot: Snapshot,
    checkpoint: int | None,
    fs: FileSystem,
    before_io: Callable[[int], None],
) -> list[Finding]:
    """Prove the properties of a log that need no cleaning; runs in a thread.

    `checkpoint` is the offset up to which the log is clean, None when it is not compacted. Raises
    DiskFailure, and the errors of `before_io`.
    """
    found = prove_indexes(snapshot, fs, before_io)
    if checkpoint is None:
        return found
    try:
        return [*found, *prove_clean_section(snapshot, checkpoint, before_io)]
    except CorruptFile:  # the first finding reports the damage
        return found


def prove_run(
    before: Snapshot,
    after: Snapshot,
    bounds: Bounds,
    checkpoint: int,
    fs: FileSystem,
    before_io: Callable[[int], None],
) -> list[Finding]:
    """Prove a cleaning completely: the guarantees, and the resulting log; runs in a thread.

    Raises DiskFailure, and the errors of `before_io`.
    """
    as_it_is = prove_as_it_is(after, checkpoint, fs, before_io)
    try:
        return [*prove_guarantees(before, after, bounds, before_io), *as_it_is]
    except CorruptFile as error:
        unread = Violation(after.start_offset, None, f"it could not be compared: {error}")
        return [Finding(OFFSETS_UNCHANGED, 0, unread), *as_it_is]


async def verify(
    log: Log,
    pool: CleanerPool,
    offsets: CleanerOffsets,
    *,
    fs: FileSystem,
    pace: Pace,
    run: bool,
) -> Verification:
    """Prove a log's guarantees; with `run`, over a cleaning of the part that can be cleaned now.

    That cleaning's output is also proved before the swap, even without log.cleaner.verify. Runs
    on the loop. Raises CorruptFile, DiskFailure, NotCleaned and CleaningAborted.
    """
    in_thread, key = asyncio.to_thread, (log.topic, log.partition)
    result = None
    before = await in_thread(hold, note_moment(log))
    if run:
        outcome = await pool.ask(log, must_verify=True)
        if outcome.status not in (Status.CLEANED, Status.NOTHING):
            raise NotCleaned(f"{log.name}: {outcome.status.value}: {outcome.because}")
        result = outcome.result
    after = await in_thread(hold, note_moment(log))
    checkpoint = offsets.cleaner_offsets.get(key, after.start_offset)
    if result is not None:
        bounds = bounds_of(before, after, result, log.config.min_compaction_lag_ms)
        prove = partial(prove_run, before, after, bounds, checkpoint, fs, pace.before_io)
    else:
        clean = checkpoint if log.config.compact else None
        prove = partial(prove_as_it_is, after, clean, fs, pace.before_io)
    with metered() as meter:
        findings = await in_thread(prove)
    return Verification(
        log.topic,
        log.partition,
        result,
        after.start_offset,
        after.end_offset,
        checkpoint,
        after.size_bytes,
        tuple(findings),
        meter.use if log.is_shared else None,
    )
