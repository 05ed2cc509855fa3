"""What somebody asks the cleaner for: a cleaning now, or to know what it would do."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.cleaner.passes.stats import CleanResult
from odradek.cleaner.rules.policy import Reason
from odradek.cleaner.runtime.asked import Outcome, Status
from odradek.cleaner.runtime.dry_run import Missing
from odradek.cleaner.runtime.progress import Running
from odradek.cleaner.runtime.scheduler import Scheduler
from odradek.cleaner.runtime.worker import Rest
from odradek.storage.log import Log
from odradek.storage.segment import CLEANED
from tests.cleaner.test_pool import (
    CONFIG,
    PATIENCE_S,
    Broker,
    broker,
    damage,
    dry_result,
    new_scheduler,
    on_a_loop,
    running_pool,
    slow,
    take,
)
from tests.cleaner.worlds import EAGER, pairs
from tests.support.waiting import until

__all__ = ["broker"]  # a fixture

# Nothing is dirty enough to be cleaned unless it is asked for.
LAZY = replace(EAGER, min_cleanable_dirty_ratio=1.0)


def ask(scheduler: Scheduler, log: Log) -> list[Outcome]:
    outcomes: list[Outcome] = []
    scheduler.ask(log, outcomes.append)
    return outcomes


def append(broker: Broker, log: Log, values: str) -> None:
    """Append to the active segment of a log."""
    first, broker.world.log = broker.world.log, log
    for pair in pairs(values):
        broker.world.append([pair])
    broker.world.log = first


# --- the queue, without threads ---------------------------------------------------------------


def test_a_log_that_is_asked_for_comes_first_however_clean_it_is(broker: Broker) -> None:
    broker.add_log("dirty")
    asked = broker.add_log("asked", LAZY)
    broker.world.directory.cleaner_offsets["asked", 0] = 2
    scheduler = new_scheduler(broker)
    ask(scheduler, asked)
    running = take(scheduler)
    assert running.log is asked and running.job.reason is Reason.ASKED
    assert take(scheduler).log.topic == "dirty"


def test_the_active_segment_is_sealed_so_that_all_of_it_is_cleaned(broker: Broker) -> None:
    log = broker.add_log("a", LAZY)
    append(broker, log, "c:1 c:2")
    scheduler = new_scheduler(broker)
    ask(scheduler, log)
    assert take(scheduler).job.dirty.first_uncleanable_offset == log.log_end_offset == 5
    assert log.active.size_bytes == 0


def test_records_that_are_too_young_stay_and_so_does_their_segment(broker: Broker) -> None:
    log = broker.add_log("a", replace(LAZY, min_compaction_lag_ms=1000))
    broker.world.now_ms += 5_000
    append(broker, log, "c:1 c:2")
    scheduler = new_scheduler(broker)
    ask(scheduler, log)
    running = take(scheduler)
    assert running.job.dirty.first_uncleanable_offset == log.active.base_offset == 3
    scheduler.progress.end(running)
    scheduler.progress.succeed(running, dry_result(running))
    outcomes = ask(scheduler, log)
    assert isinstance(scheduler.take(0), Rest)
    assert outcomes[0].status is Status.NOTHING and "min.compaction.lag.ms" in outcomes[0].because
    assert log.active.size_bytes > 0


def test_an_open_transaction_stays_and_is_named(broker: Broker) -> None:
    log = broker.add_log("a", LAZY)
    broker.world.directory.cleaner_offsets["a", 0] = 3
    broker.world.log = log
    broker.world.append(pairs("c:1"), producer=(7, 0, 0), transactional=True)
    scheduler = new_scheduler(broker)
    scheduler.progress.horizons["a", 0] = None  # nothing expires
    outcomes = ask(scheduler, log)
    assert isinstance(scheduler.take(0), Rest)
    assert outcomes[0].status is Status.NOTHING and "offset 3" in outcomes[0].because
    assert log.active.size_bytes > 0


def test_a_clean_log_has_nothing_to_clean(broker: Broker) -> None:
    log = broker.add_log("a", LAZY)
    broker.world.directory.cleaner_offsets["a", 0] = 3
    scheduler = new_scheduler(broker)
    scheduler.progress.horizons["a", 0] = None  # nothing expires
    outcomes = ask(scheduler, log)
    assert isinstance(scheduler.take(0), Rest)
    assert (outcomes[0].status, outcomes[0].because) == (
        Status.NOTHING, "it is clean up to its end, offset 3",
    )  # fmt: skip


@pytest.mark.parametrize("late_ms", [-1, 0])
def test_expired_records_are_a_reason_to_clean(broker: Broker, late_ms: int) -> None:
    log = broker.add_log("a", LAZY)
    broker.world.directory.cleaner_offsets["a", 0] = 3
    scheduler = new_scheduler(broker)
    scheduler.progress.horizons["a", 0] = broker.now_ms() - late_ms
    outcomes = ask(scheduler, log)
    order = scheduler.take(0)
    assert isinstance(order, Rest if late_ms < 0 else Running)
    assert bool(outcomes) == (late_ms < 0)


def test_quarantine_is_left_at_once_and_entered_again_by_a_failure(broker: Broker) -> None:
    log = broker.add_log("a")
    scheduler = new_scheduler(broker)
    scheduler.fail(take(scheduler), ValueError("no"))
    assert isinstance(scheduler.take(0), Rest)
    outcomes = ask(scheduler, log)
    scheduler.fail(take(scheduler), ValueError("still no"))
    assert outcomes[0].status is Status.FAILED and "still no" in outcomes[0].because
    assert scheduler.progress.quarantined[0].failures == 2
    assert [run.outcome for run in scheduler.runs.runs(log)] == ["FAILED", "FAILED"]


def test_a_log_in_progress_is_cleaned_again_for_who_asked_meanwhile(broker: Broker) -> None:
    log = broker.add_log("a", values="a:1 a:2 b:1")
    scheduler = new_scheduler(broker)
    running = take(scheduler)
    outcomes = ask(scheduler, log)
    assert isinstance(scheduler.take(0), Rest) and not outcomes
    append(broker, log, "c:1")
    scheduler.progress.end(running)
    scheduler.progress.succeed(running, dry_result(running))
    again = take(scheduler)
    assert not outcomes and again.job.dirty.first_dirty_offset == 3
    scheduler.abandon(again)
    assert outcomes[0].status is Status.ABORTED


@pytest.mark.parametrize(
    ("change", "status", "because"),
    [
        ("delete", Status.ABORTED, "was deleted"),
        ("uncompact", Status.REFUSED, "cleanup.policy"),
        ("pause", Status.REFUSED, "paused"),
    ],
)
def test_a_request_is_refused_once_its_log_can_never_be_cleaned(
    broker: Broker, change: str, status: Status, because: str
) -> None:
    log = broker.add_log("a")
    scheduler = new_scheduler(broker)
    outcomes = ask(scheduler, log)
    if change == "delete":
        broker.world.directory.delete_log(log, broker.world.now_ms)
    elif change == "uncompact":
        log.config = replace(EAGER, cleanup_policy=frozenset({"delete"}))
    else:
        scheduler.progress.pause("a", 0)
    assert isinstance(scheduler.take(0), Rest)
    assert outcomes[0].status is status and because in outcomes[0].because


# --- with threads -----------------------------------------------------------------------------


@on_a_loop
async def test_all_requests_for_a_log_are_answered_with_the_result(broker: Broker) -> None:
    log = broker.add_log("a", LAZY)
    broker.world.directory.cleaner_offsets["a", 0] = 0
    async with running_pool(broker) as pool:
        outcomes = await asyncio.gather(pool.ask(log), pool.ask(log))
        assert {one.status for one in outcomes} == {Status.CLEANED}
        result = outcomes[0].result
        assert result is not None and (result.end_offset, result.reason) == (3, Reason.ASKED)
        assert (await pool.ask(log)).status is Status.NOTHING
        broker.config = replace(CONFIG, log_cleaner_threads=0)
        refused = await pool.ask(log)
        assert refused.status is Status.REFUSED and "log.cleaner.enable" in refused.because


@on_a_loop
async def test_a_waiting_request_is_answered_when_the_cleaner_is_switched_off(
    broker: Broker,
) -> None:
    slow(broker)
    other = broker.add_log("other")
    async with running_pool(broker) as pool:
        await until(lambda: pool.status().running)
        waiting = pool.ask(other)
        broker.config = replace(broker.config, log_cleaner_threads=0)
        pool.reconfigure()
        assert (await waiting).status is Status.REFUSED


@on_a_loop
async def test_a_waiting_request_is_answered_when_the_broker_stops(broker: Broker) -> None:
    log, other = slow(broker), broker.add_log("other")
    async with running_pool(broker) as pool:
        await until(lambda: pool.status().running)
        waiting = [pool.ask(log), pool.ask(other)]
    assert {one.result().status for one in waiting} == {Status.ABORTED}


# --- dry runs ---------------------------------------------------------------------------------


def files(log: Log) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(log.directory.iterdir())}


@on_a_loop
async def test_a_dry_run_predicts_the_result_and_changes_nothing(broker: Broker) -> None:
    broker.config = replace(CONFIG, log_cleaner_enable=False)
    log = broker.add_log("a", values="a:1 a:2 b:1 b:- a:3 c:1")
    broker.world.now_ms += 10_000
    async with running_pool(broker) as pool:
        before = files(log)
        tried = await pool.dry_runs.run(log, time.monotonic() + PATIENCE_S)
        assert isinstance(tried, CleanResult)
        assert files(log) == before and broker.checkpoint(log) is None
        assert not pool.status().running
        broker.config = CONFIG
        pool.reconfigure()
        done = (await pool.ask(log)).result
    assert done is not None and done.end_records < done.start_records
    times = {"index_ms": 0, "total_ms": 0, "started_ms": 0}
    assert replace(tried, **times, reason=done.reason) == replace(done, **times)


@on_a_loop
async def test_a_dry_run_out_of_time_leaves_nothing_behind(broker: Broker) -> None:
    broker.config = replace(CONFIG, log_cleaner_enable=False)
    log = broker.add_log("a")
    async with running_pool(broker) as pool:
        assert await pool.dry_runs.run(log, time.monotonic() - 1) is Missing.TOO_LONG
        assert not list(log.directory.glob(f"*{CLEANED}")) and not pool.status().running
        damage(log)
        assert await pool.dry_runs.run(log, time.monotonic() + 9) is Missing.FAILED
        clean = broker.add_log("clean")
        broker.world.directory.cleaner_offsets["clean", 0] = 3
        assert await pool.dry_runs.run(clean, time.monotonic() + 9) is Missing.NOTHING


@on_a_loop
async def test_one_dry_run_goes_on_at_a_time_and_none_beside_a_cleaning(broker: Broker) -> None:
    log = slow(broker)
    other = broker.add_log("other", LAZY)
    broker.world.directory.cleaner_offsets["other", 0] = 2
    async with running_pool(broker) as pool:
        await until(lambda: pool.status().running)
        assert await pool.dry_runs.run(log, time.monotonic() + 9) is Missing.CLEANED_NOW
        first = asyncio.ensure_future(pool.dry_runs.run(other, time.monotonic() + PATIENCE_S))
        await until(lambda: len(pool.status().running) == 2)
        assert await pool.dry_runs.run(other, time.monotonic() + 9) is Missing.BUSY
        pool.abort("other", 0)
        assert await first is Missing.ABORTED


@on_a_loop
async def test_a_stop_does_not_wait_for_a_dry_run(broker: Broker) -> None:
    log = slow(broker)
    log.config = LAZY
    broker.world.directory.cleaner_offsets["slow", 0] = 1
    async with running_pool(broker) as pool:
        trying = asyncio.ensure_future(pool.dry_runs.run(log, time.monotonic() + 600))
        await until(lambda: pool.status().running)
    assert await trying is Missing.ABORTED
    assert not list(log.directory.glob(f"*{CLEANED}"))


@on_a_loop
async def test_a_pool_remembers_what_an_earlier_one_did(broker: Broker) -> None:
    log = broker.add_log("a")
    async with running_pool(broker) as pool:
        await until(lambda: broker.checkpoint(log) == 3)
        await until(lambda: not pool.status().running)
    async with running_pool(broker) as pool:
        await until(lambda: pool.scheduler.runs.runs(log))
        (run,) = pool.scheduler.runs.runs(log)
        assert run.result is not None and run.result.end_offset == 3


