"""A cleaning as a thread does it, in a life: what the event loop does falls between its steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from odradek.cleaner.passes.clean import clean
from odradek.cleaner.rules.job import make_job
from odradek.cleaner.rules.policy import Reason
from odradek.cleaner.runtime.progress import find_candidate
from odradek.storage.errors import DiskFailure, StaleSegments
from odradek.storage.exchange import carry_out
from odradek.storage.log import Log
from odradek.storage.segment import CLEANED, SWAP, Segment
from tests.cleaner.once import SETTINGS
from tests.simulation.ledger import content_of, latest_values
from tests.storage.partition import StoredBatch

if TYPE_CHECKING:
    from tests.simulation.life import Life

MEANWHILE_SHARE = 0.4


def clean_meanwhile(life: Life, log: Log, meanwhile: Callable[[], None]) -> None:
    """Clean a log; `meanwhile` is called between some steps, and may do anything but clean."""
    directory, ledger = life.directory, life.ledgers[log.topic, log.partition]
    now_ms = life.clock.now_ms()
    candidate = find_candidate(log, directory, now_ms)
    if candidate is None or candidate.dirty.cleanable_bytes == 0:
        return
    dropped: set[StoredBatch] = set()

    def propose(old: Sequence[Segment], new: Sequence[Segment]) -> None:
        ledger.proposed.update(content_of(new))
        exchange = log.begin_exchange(old, new, now_ms)

        def step() -> bool:
            if life.source.random() < MEANWHILE_SHARE:
                meanwhile()
            start, before = log.log_start_offset, content_of(log.segments)
            try:
                return exchange.step()
            finally:
                after = content_of(log.segments)
                assert latest_values(after, start) == latest_values(before, start)
                dropped.update(set(before) - set(after))
                life.look()

        carry_out(exchange.sync, step, exchange.undo)

    job = make_job(log, candidate.dirty, SETTINGS, now_ms, Reason.ASKED)
    life.cleaned_meanwhile = log
    try:
        result = clean(
            job, fs=life.fs, random_below=life.source.randrange, clock_ms=lambda: now_ms,
            before_io=lambda size: None, propose=propose,
        )  # fmt: skip
    except StaleSegments:
        life.stale_cleanings += 1
        life.note(f"  stale {log.name}")
        if not log.is_closed:
            names = life.fs.list(log.directory)
            assert life.fs.refuse or not [n for n in names if n.endswith((CLEANED, SWAP))]
    except DiskFailure as error:
        if not log.is_closed:  # else it may have no directory any more
            life.hear(error)
            ledger.obsolete |= dropped
            ledger.may_be_cleaned = True
            if log.sync_failure is not None:
                life.reload(log, log.sync_failure)
    else:
        life.cleanings += 1
        if not log.is_closed:
            directory.cleaner_offsets[log.topic, log.partition] = result.end_offset
            taken = directory.take_cleaner_offsets()
            meanwhile()
            with life.refusable():
                directory.store(taken)
    life.cleaned_meanwhile = None
