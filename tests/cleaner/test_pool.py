"""The cleaner's threads against a running event loop: what they do when things go wrong."""

from __future__ import annotations

import asyncio
import errno
import functools
import secrets
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import ParamSpec

import pytest

from odradek.cleaner.passes.clean import clean
from odradek.cleaner.passes.stats import CleanResult
from odradek.cleaner.passes.throttle import Throttle
from odradek.cleaner.rules.quarantine import RETRY_MIN_MS
from odradek.cleaner.runtime.inspection import Inspection, inspect_all
from odradek.cleaner.runtime.pool import CleanerPool
from odradek.cleaner.runtime.progress import Running
from odradek.cleaner.runtime.scheduler import Scheduler
from odradek.cleaner.runtime.worker import Rest
from odradek.config.broker import BrokerConfig
from odradek.config.topic import TopicConfig
from odradek.storage.directory import LogDirectory
from odradek.storage.errors import BucketFailure, DiskFailure, NotLeader
from odradek.storage.log import Log
from odradek.storage.real_files import RealFile, RealFileSystem
from odradek.storage.segment import CLEANED, LOG
from tests.cleaner.worlds import EAGER, FS, World, pairs
from tests.support.waiting import until

P = ParamSpec("P")

PATIENCE_S = 30.0
# Threads that find nothing to do rest for as long as no test lasts.
CONFIG = replace(BrokerConfig(), log_cleaner_backoff_ms=600_000)


def on_a_loop(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run a test on an event loop of its own."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), 3 * PATIENCE_S))

    return run


class Broker:
    """What the pool sees of a broker: logs, directories, settings, a clock."""

    def __init__(self, path: Path) -> None:
        self.world = World(path)
        self.config = CONFIG

    def __iter__(self) -> Iterator[Log]:
        return iter(list(self.world.directory.logs.values()))

    def directory_of(self, log: Log) -> LogDirectory:
        return self.world.directory

    def now_ms(self) -> int:
        return self.world.now_ms

    def add_log(self, topic: str, config: TopicConfig = EAGER, values: str = "a:1 a:2 b:1") -> Log:
        """Create a log with a sealed segment of as many batches as there are values."""
        world = self.world
        log = world.directory.create_log(topic, 0, bytes(16), config, now_ms=world.now_ms)
        first, world.log = world.log, log
        for pair in pairs(values):
            world.append([pair])
        world.roll()
        world.log = first
        return log

    def checkpoint(self, log: Log) -> int | None:
        return self.world.directory.cleaner_offsets.get((log.topic, log.partition))


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


@asynccontextmanager
async def running_pool(broker: Broker) -> AsyncIterator[CleanerPool]:
    pool = CleanerPool(broker, lambda: broker.config, asyncio.get_running_loop(), broker, FS)
    pool.start()
    try:
        yield pool
    finally:
        await pool.stop()


def _alive(pool: CleanerPool, wanted: int) -> bool:
    return pool.status().threads_alive == wanted


def damage(log: Log) -> bytes:
    """Damage the first batch of a log's first segment; return what was there."""
    file = FS.open(log.segments[0].path(LOG), write=True)
    was = file.read(70, 1)
    file.append(70, [bytes([was[0] ^ 0xFF])])
    return was


def slow(broker: Broker) -> Log:
    """Make a log, and the cleaner so slow that its cleaning takes a minute."""
    log = broker.add_log("slow", values=" ".join(f"k{at}:{at}" for at in range(200)))
    size = log.segments[0].size_bytes
    broker.config = replace(CONFIG, log_cleaner_io_max_bytes_per_second=size / 60)
    return log


# --- the loop's side, without threads ---------------------------------------------------------


def take(scheduler: Scheduler) -> Running:
    order = scheduler.take(0)
    assert isinstance(order, Running)
    return order


def new_scheduler(broker: Broker) -> Scheduler:
    return Scheduler(broker, lambda: broker.config, broker.now_ms)


def test_the_count_of_read_bytes_never_falls_when_a_cleaning_begins_again(broker: Broker) -> None:
    broker.add_log("a")
    scheduler = new_scheduler(broker)
    running = take(scheduler)
    for indexed_bytes, reported in ((100, 100), (30, 100), (120, 120)):
        running.counters.indexed_bytes = indexed_bytes
        assert scheduler.progress.io_bytes().read == reported
    scheduler.abandon(running)
    assert scheduler.progress.io_bytes().read == 120


def test_the_filthiest_log_comes_first_and_none_twice(broker: Broker) -> None:
    half = broker.add_log("half")
    broker.world.directory.cleaner_offsets["half", 0] = 2
    whole = broker.add_log("whole")
    scheduler = new_scheduler(broker)
    assert take(scheduler).log is whole
    broker.world.directory.cleaner_offsets["half", 0] = 0
    assert take(scheduler).log is half
    assert scheduler.take(0) == Rest(CONFIG.log_cleaner_backoff_ms / 1000)
    assert scheduler.take(1) is None  # there is to be one thread


def test_an_overdue_log_comes_before_the_filthiest(broker: Broker) -> None:
    broker.add_log("filthy")
    late = broker.add_log("late", replace(EAGER, max_compaction_lag_ms=1000))
    later = broker.add_log("later", replace(EAGER, max_compaction_lag_ms=500))
    broker.world.now_ms += 5000
    scheduler = new_scheduler(broker)
    assert [take(scheduler).log for _ in range(2)] == [later, late]
    assert scheduler.last_choice.overdue_count == 1


def test_only_compacted_logs_are_compacted(broker: Broker) -> None:
    for policy in (set(), {"delete"}):
        config = replace(EAGER, cleanup_policy=frozenset(policy))
        broker.add_log(f"none-{len(policy)}", config)
    scheduler = new_scheduler(broker)
    assert isinstance(scheduler.take(0), Rest)
    both = broker.add_log("both", replace(EAGER, cleanup_policy=frozenset({"compact", "delete"})))
    assert take(scheduler).log is both


def test_a_paused_log_waits_for_as_many_resumes(broker: Broker) -> None:
    broker.add_log("a")
    scheduler = new_scheduler(broker)
    scheduler.progress.pause("a", 0)
    scheduler.progress.pause("a", 0)
    scheduler.progress.resume("a", 0)
    assert isinstance(scheduler.take(0), Rest)
    scheduler.progress.resume("a", 0)
    assert isinstance(scheduler.take(0), Running)


def dry_result(running: Running) -> CleanResult:
    """Return what a thread would report of a job, of which nothing is carried out."""
    return clean(
        running.job, fs=FS, random_below=secrets.randbelow, clock_ms=lambda: running.job.now_ms,
        before_io=lambda size: None, propose=None,
    )  # fmt: skip


def test_quarantine_lasts_longer_each_time_until_a_success(broker: Broker) -> None:
    log = broker.add_log("a")
    scheduler = new_scheduler(broker)
    for failures, wait_ms in enumerate((RETRY_MIN_MS, 2 * RETRY_MIN_MS, 4 * RETRY_MIN_MS), 1):
        scheduler.fail(take(scheduler), ValueError("no"))
        (entry,) = scheduler.progress.quarantined
        assert (entry.failures, entry.exception) == (failures, "ValueError: no")
        assert entry.retry_at_ms == broker.world.now_ms + wait_ms
        broker.world.now_ms += wait_ms - 1
        assert isinstance(scheduler.take(0), Rest)
        broker.world.now_ms += 1
    running = take(scheduler)
    result = dry_result(running)
    scheduler.progress.succeed(running, result)
    scheduler.progress.end(running)
    assert scheduler.progress.quarantined == ()
    assert broker.checkpoint(log) == result.end_offset


def test_a_bucket_that_is_away_does_not_lengthen_the_quarantine(broker: Broker) -> None:
    broker.add_log("a")
    scheduler = new_scheduler(broker)
    for failures in (1, 2, 3):
        scheduler.fail(take(scheduler), BucketFailure("it is away"))
        (entry,) = scheduler.progress.quarantined
        assert (entry.failures, entry.retry_at_ms) == (
            failures, broker.world.now_ms + RETRY_MIN_MS,
        )  # fmt: skip
        broker.world.now_ms += RETRY_MIN_MS


def test_a_log_that_another_broker_leads_now_has_no_quarantine(broker: Broker) -> None:
    log = broker.add_log("a")
    scheduler = new_scheduler(broker)
    scheduler.fail(take(scheduler), BucketFailure("the session of this broker is closed"))
    assert len(scheduler.progress.quarantined) == 1
    log.failure = NotLeader("it is led by another broker")
    assert scheduler.progress.quarantined == ()


def test_a_new_configuration_ends_the_quarantine(broker: Broker) -> None:
    log = broker.add_log("a")
    scheduler = new_scheduler(broker)
    scheduler.fail(take(scheduler), ValueError("no"))
    assert isinstance(scheduler.take(0), Rest)
    log.config = replace(EAGER, max_decompressed_message_bytes=123)
    assert take(scheduler).log is log


def test_a_deleted_log_leaves_the_quarantine_and_the_history(broker: Broker) -> None:
    log = broker.add_log("a")
    scheduler = new_scheduler(broker)
    scheduler.fail(take(scheduler), ValueError("no"))
    broker.world.directory.delete_log(log, broker.world.now_ms)
    assert isinstance(scheduler.take(0), Rest)
    assert scheduler.progress.quarantined == ()


# --- threads ----------------------------------------------------------------------------------


@on_a_loop
async def test_a_pool_cleans_by_itself_and_reports_the_results(broker: Broker) -> None:
    logs = [broker.add_log(topic) for topic in ("a", "b", "c")]
    async with running_pool(broker) as pool:
        await until(lambda: all(broker.checkpoint(log) == 3 for log in logs))
        await until(lambda: not pool.status().running)
        status = pool.status()
        assert (status.threads_alive, status.threads_died) == (1, 0)
        assert {result.topic for result in status.last_results} == {"a", "b", "c"}
        assert all(result.end_records == 2 for result in status.last_results)
        runs = pool.scheduler.runs.runs(logs[0])
        assert [run.result.end_offset for run in runs if run.result] == [3]
        assert pool.problems() == []
    assert pool.status().threads_alive == 0
    saved = (broker.world.directory.path / "cleaner-offset-checkpoint").read_text()
    assert "a 0 3" in saved


@on_a_loop
async def test_a_resting_thread_can_be_woken(broker: Broker) -> None:
    async with running_pool(broker) as pool:
        await until(lambda: pool.scheduler.last_choice.at_ms == broker.world.now_ms)
        log = broker.add_log("late")
        pool.wake()
        await until(lambda: broker.checkpoint(log) == 3)


@on_a_loop
async def test_damage_quarantines_one_log_and_no_other(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    bad, good = broker.add_log("bad"), broker.add_log("good")
    was = damage(bad)
    async with running_pool(broker) as pool:
        await until(lambda: broker.checkpoint(good) == 3 and pool.status().quarantined)
        (entry,) = pool.status().quarantined
        assert (entry.topic, entry.file, entry.position) == (
            "bad", str(bad.segments[0].path(LOG)), 0,
        )  # fmt: skip
        (problem,) = pool.problems()
        assert "bad-0" in problem and "CRC" in problem
        errors = [record for record in caplog.records if record.levelname == "ERROR"]
        assert len(errors) == 1 and "log=bad-0" in errors[0].getMessage()
        # Mended, it is cleaned at the next try.
        FS.open(bad.segments[0].path(LOG), write=True).append(70, [was])
        broker.world.now_ms = entry.retry_at_ms
        pool.wake()
        await until(lambda: broker.checkpoint(bad) == 3)
        assert pool.problems() == []


@on_a_loop
async def test_a_log_deleted_meanwhile_is_let_go_without_a_fuss(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    log = slow(broker)
    async with running_pool(broker) as pool:
        await until(lambda: pool.status().running)
        broker.world.directory.delete_log(log, broker.world.now_ms)
        broker.config = CONFIG
        await until(lambda: not pool.status().running)
        assert pool.problems() == []
    assert not [record for record in caplog.records if record.levelname in ("ERROR", "WARNING")]


@on_a_loop
async def test_a_cleaning_can_be_aborted_and_starts_again(broker: Broker) -> None:
    log = slow(broker)
    async with running_pool(broker) as pool:
        await until(lambda: pool.status().running)
        pool.pause("slow", 0)
        broker.config = CONFIG
        await until(lambda: not pool.status().running)
        assert broker.checkpoint(log) is None
        assert not list(log.directory.glob(f"*{CLEANED}"))
        pool.resume("slow", 0)
        await until(lambda: broker.checkpoint(log) == 200)


@on_a_loop
async def test_a_topic_that_is_compacted_no_more_is_let_go(broker: Broker) -> None:
    log = slow(broker)
    async with running_pool(broker) as pool:
        await until(lambda: pool.status().running)
        log.config = TopicConfig()
        broker.config = CONFIG
        await until(lambda: not pool.status().running)
    assert broker.checkpoint(log) is None
    assert not list(log.directory.glob(f"*{CLEANED}"))


@on_a_loop
async def test_a_stop_does_not_wait_for_a_slow_cleaning(broker: Broker) -> None:
    log = slow(broker)
    started = time.monotonic()
    async with running_pool(broker) as pool:
        await until(lambda: pool.status().running)
    assert time.monotonic() - started < PATIENCE_S
    assert broker.checkpoint(log) is None
    assert not list(log.directory.glob(f"*{CLEANED}"))


@on_a_loop
async def test_a_thread_that_dies_is_replaced_and_counted(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with running_pool(broker) as pool:
        await until(lambda: pool.status().threads_alive == 1)
        with monkeypatch.context() as patched:

            def die(thread: int, inspection: Inspection) -> Running | Rest | None:
                raise SystemError("a bug")

            patched.setattr(pool.scheduler, "take", die)
            pool.wake()
            await until(lambda: pool.status().threads_died > 0)
        log = broker.add_log("a")
        await until(lambda: broker.checkpoint(log) == 3)
        assert pool.status().threads_alive == 1
        assert "SystemError: a bug" in str(pool.status().last_death)
        assert any("died" in problem for problem in pool.problems())
    assert "died" in caplog.text


@on_a_loop
async def test_threads_come_and_go_with_the_setting(broker: Broker) -> None:
    async with running_pool(broker) as pool:
        for wanted in (1, 3, 2, 0, 1):
            broker.config = replace(CONFIG, log_cleaner_threads=wanted)
            pool.reconfigure()
            await until(functools.partial(_alive, pool, wanted))
        assert pool.status().threads_died == 0


@on_a_loop
async def test_a_disabled_cleaner_still_applies_retention(broker: Broker) -> None:
    broker.config = replace(
        CONFIG,
        log_cleaner_enable=False,
        log_initial_task_delay_ms=0,
        log_retention_check_interval_ms=5,
    )
    old = broker.add_log("old", replace(TopicConfig(), retention_ms=1000))
    compacted = broker.add_log("a")
    async with running_pool(broker) as pool:
        broker.world.now_ms += 5000
        await until(lambda: old.log_start_offset == 3)
        assert pool.status().threads_alive == 0
    assert broker.checkpoint(compacted) is None


@on_a_loop
async def test_retention_does_not_wait_for_a_compaction(broker: Broker) -> None:
    log = slow(broker)
    log.config = replace(
        EAGER, cleanup_policy=frozenset({"compact", "delete"}), retention_ms=1000
    )
    broker.config = replace(
        broker.config, log_initial_task_delay_ms=0, log_retention_check_interval_ms=5
    )
    async with running_pool(broker) as pool:
        await until(lambda: pool.status().running)
        broker.world.now_ms += 5000
        await until(lambda: log.log_start_offset == 200)
        broker.config = CONFIG
        await until(lambda: not pool.status().running)
        assert pool.problems() == []


@on_a_loop
async def test_the_loop_goes_on_while_a_log_is_cleaned(broker: Broker) -> None:
    slow(broker)
    turns = 0
    async with running_pool(broker) as pool:
        await until(lambda: pool.status().running)
        for _ in range(100):
            await asyncio.sleep(0)
            turns += 1
        assert pool.status().running
    assert turns == 100


class Recorder:
    """Notes which threads wait for the disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[str, str, str]] = []  # thread, operation, file
        self.refuse: Callable[[str, Path], bool] = lambda what, path: False
        for name in ("sync_directory", "write_atomically"):
            monkeypatch.setattr(RealFileSystem, name, self._noting(getattr(RealFileSystem, name)))
        monkeypatch.setattr(RealFile, "sync", self._noting(RealFile.sync))
        monkeypatch.setattr(RealFile, "read", self._noting(RealFile.read))

    def _noting(self, operation: Callable[..., object]) -> Callable[..., object]:
        def noting(file: RealFile | RealFileSystem, *args: object) -> object:
            path = file.path if isinstance(file, RealFile) else Path(str(args[0]))
            self.seen.append((threading.current_thread().name, operation.__name__, path.name))
            if self.refuse(operation.__name__, path):
                raise DiskFailure(path, OSError(errno.EIO, "Input/output error"))
            return operation(file, *args)

        return noting


@on_a_loop
async def test_the_loop_never_waits_for_the_disk(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither to inspect logs, nor to exchange segments, nor for a checkpoint, even repaired."""
    lags = replace(EAGER, max_compaction_lag_ms=1000, min_compaction_lag_ms=1)
    log = broker.add_log("a", lags)
    impossible = broker.add_log("b", lags)
    broker.world.directory.cleaner_offsets["b", 0] = 1000
    broker.world.directory.close()
    path = broker.world.directory.path
    broker.world.directory = LogDirectory(FS, path, cluster_id="c", node_id=1)
    for topic in ("a", "b"):
        broker.world.directory.create_log(topic, 0, bytes(16), lags, now_ms=broker.world.now_ms)
    broker.world.now_ms += 5000
    recorder = Recorder(monkeypatch)
    async with running_pool(broker) as pool:
        await until(lambda: broker.checkpoint(log) == broker.checkpoint(impossible) == 3)
        await until(lambda: not pool.status().running)
    assert {thread for thread, _, _ in recorder.seen} == {"cleaner-0"}
    kinds = {what for _, what, _ in recorder.seen}
    assert kinds == {"sync_directory", "write_atomically", "sync", "read"}


@on_a_loop
async def test_a_checkpoint_that_is_refused_is_logged_and_stored_with_the_next(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = broker.add_log("a")
    recorder = Recorder(monkeypatch)
    recorder.refuse = lambda what, path: what == "write_atomically"
    failed: list[Log] = []
    async with running_pool(broker) as pool:
        pool.scheduler.on_failed = lambda log, error: failed.append(log)
        await until(lambda: bool(pool.scheduler.runs.runs(log)))
        assert failed == [log]
        assert "failed to store the cleaner's checkpoint log=a-0" in caplog.text
        assert pool.problems() == []
        recorder.refuse = lambda what, path: False
        other = broker.add_log("b")
        pool.wake()
        await until(lambda: bool(pool.scheduler.runs.runs(other)))
    assert broker.checkpoint(log) == broker.checkpoint(other) == 3
    saved = (broker.world.directory.path / "cleaner-offset-checkpoint").read_text()
    assert "a 0 3" in saved and "b 0 3" in saved


@on_a_loop
async def test_a_repaired_checkpoint_is_stored_though_nothing_is_cleaned(broker: Broker) -> None:
    """Else a crash brought it back, and the log may have grown past it by then."""
    log = broker.add_log("a", replace(EAGER, min_cleanable_dirty_ratio=1.0))
    directory = broker.world.directory
    directory.cleaner_offsets["a", 0] = 1000
    directory.store(directory.take_cleaner_offsets())
    async with running_pool(broker):
        await until(
            lambda: "a 0 0" in (directory.path / "cleaner-offset-checkpoint").read_text()
        )
    assert broker.checkpoint(log) == 0


def test_a_log_that_changed_since_it_was_looked_at_is_not_taken(broker: Broker) -> None:
    trimmed, damaged, other = (broker.add_log(topic) for topic in ("a", "b", "c"))
    scheduler = new_scheduler(broker)
    (broken,) = scheduler.note([damaged])
    inspection = inspect_all(scheduler, lambda function, *args: function(*args), broker.now_ms())
    failed = Inspection([one for one in inspection.candidates if one[0].log is not damaged])
    failed.failures.append((broken, DiskFailure(damaged.directory, OSError())))
    for log in (trimmed, damaged):
        log.delete_segments(1, broker.now_ms())
    order = scheduler.take(0, failed)
    assert isinstance(order, Running) and order.log is other
    assert isinstance(scheduler.take(0, failed), Rest)
    # What could not be read because it went meanwhile is no failure.
    assert scheduler.progress.quarantined == ()


# --- the throttle -----------------------------------------------------------------------------


def test_the_throttle_keeps_all_callers_together_below_the_rate() -> None:
    now_s = 100.0
    throttle = Throttle(lambda: now_s)
    for _ in range(100):
        wait_s = throttle.charge(1000, 10_000.0)
        assert wait_s < 0.11
        now_s += wait_s
    assert now_s == pytest.approx(110.0)  # 100 kB at 10 kB/s


def test_a_burst_is_allowed_after_a_rest_but_no_longer_one() -> None:
    now_s = 100.0
    throttle = Throttle(lambda: now_s)
    now_s += 3600
    assert throttle.charge(3000, 10_000.0) == 0
    assert throttle.charge(1000, 10_000.0) == pytest.approx(0.1)


def test_a_rate_that_changes_counts_at_once() -> None:
    now_s = 100.0
    throttle = Throttle(lambda: now_s)
    assert throttle.charge(1 << 40, BrokerConfig().log_cleaner_io_max_bytes_per_second) == 0
    now_s += 1
    assert throttle.charge(100_000, 1000.0) == pytest.approx(99.7)
    assert throttle.charge(0, 1_000_000.0) == pytest.approx(0.1, abs=0.01)
