"""max.compaction.lag.ms rolls the active segment in time, whoever appends or does not."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.cleaner.runtime.roller import Roller
from odradek.config.topic import TopicConfig
from odradek.protocol.batches import Record, encode_batch
from odradek.storage.errors import StorageError
from odradek.storage.log import Log
from tests.cleaner.test_pool import (
    CONFIG,
    Broker,
    on_a_loop,
    running_pool,
    slow,
)
from tests.cleaner.worlds import COMPACT, EAGER
from tests.simulation.faultyfs import DISK_FULL, IO_ERROR, FaultyFileSystem
from tests.support.waiting import until

LAG_MS = 1000
IN_TIME = replace(EAGER, max_compaction_lag_ms=LAG_MS)


@pytest.fixture
def broker(tmp_path: Path) -> Broker:
    return Broker(tmp_path)


def new_roller(broker: Broker, rolled: list[int] | None = None) -> Roller:
    noted = [] if rolled is None else rolled
    return Roller(broker, lambda: broker.config, broker.now_ms, lambda: noted.append(1))


def add_active(broker: Broker, topic: str, config: TopicConfig, *stamps: int) -> Log:
    """Create a log with one batch for each timestamp, all in its active segment."""
    world = broker.world
    log = world.directory.create_log(topic, 0, bytes(16), config, now_ms=world.now_ms)
    first, world.log = world.log, log
    for at, stamp in enumerate(stamps):
        world.append([(b"k", b"%d" % at)], timestamps=[stamp])
    world.log = first
    return log


@on_a_loop
async def test_a_segment_rolls_when_its_first_batch_is_older_than_the_lag(broker: Broker) -> None:
    start_ms = broker.world.now_ms
    log = add_active(broker, "a", IN_TIME, start_ms, start_ms + 500, start_ms - 500)
    rolled: list[int] = []
    roller = new_roller(broker, rolled)
    broker.world.now_ms = start_ms + LAG_MS
    assert await roller.check_all() == start_ms + LAG_MS + 1
    assert len(log.segments) == 1 and not rolled
    broker.world.now_ms += 1
    assert await roller.check_all() is None
    assert [one.base_offset for one in log.segments] == [0, 3] and rolled == [1]
    broker.world.now_ms += 10 * LAG_MS
    assert await roller.check_all() is None
    assert len(log.segments) == 2 and rolled == [1]  # the empty one stays


@on_a_loop
async def test_the_next_to_roll_is_the_one_that_is_due_first(broker: Broker) -> None:
    start_ms = broker.world.now_ms
    add_active(broker, "a", IN_TIME, start_ms + 7)
    add_active(broker, "b", replace(IN_TIME, max_compaction_lag_ms=10), start_ms)
    assert await new_roller(broker).check_all() == start_ms + 11


@pytest.mark.parametrize(
    ("config", "stamp_ms"),
    [
        (replace(IN_TIME, cleanup_policy=frozenset({"delete"})), 1),
        (replace(IN_TIME, cleanup_policy=frozenset()), 1),
        (EAGER, 1),  # no lag is set
        (IN_TIME, 0),  # without a timestamp a log is never overdue
        (IN_TIME, -1),
    ],
)
def test_other_logs_are_left_alone(broker: Broker, config: TopicConfig, stamp_ms: int) -> None:
    log = add_active(broker, "a", config, stamp_ms)
    assert asyncio.run(new_roller(broker).check_all()) is None
    assert len(log.segments) == 1


@on_a_loop
async def test_compact_with_delete_rolls_as_well(broker: Broker) -> None:
    both = replace(IN_TIME, cleanup_policy=COMPACT | {"delete"})
    log = add_active(broker, "a", both, 1)
    await new_roller(broker).check_all()
    assert len(log.segments) == 2


@on_a_loop
async def test_a_log_rolled_in_time_is_cleaned_at_once(broker: Broker) -> None:
    log = add_active(broker, "a", IN_TIME, 1, 2, 3)
    async with running_pool(broker) as pool:  # its threads rest for ten minutes
        await until(lambda: bool(pool.scheduler.runs.runs(log)))
        assert broker.checkpoint(log) == 3
        results = [run.result for run in pool.scheduler.runs.runs(log)]
        assert [result.end_records for result in results if result] == [1]


@on_a_loop
async def test_no_thread_need_be_free(broker: Broker) -> None:
    slow(broker)
    async with running_pool(broker) as pool:
        await until(lambda: pool.status().running)
        log = add_active(broker, "a", IN_TIME, 1)
        pool.wake()
        await until(lambda: len(log.segments) == 2)
        assert [one.job.topic for one in pool.scheduler.progress.running] == ["slow"]


@on_a_loop
async def test_a_log_rolls_at_its_moment_however_long_threads_rest(broker: Broker) -> None:
    lag_ms = 150
    start_s = time.monotonic()
    now_ms = broker.world.now_ms
    log = add_active(broker, "a", replace(EAGER, max_compaction_lag_ms=lag_ms), now_ms)
    broker.now_ms = lambda: now_ms + int((time.monotonic() - start_s) * 1000)  # type: ignore[method-assign]
    async with running_pool(broker):
        await until(lambda: len(log.segments) == 2)
        assert (time.monotonic() - start_s) * 1000 > lag_ms
        await until(lambda: broker.checkpoint(log) == 1)


@on_a_loop
async def test_a_new_lag_counts_at_once(broker: Broker) -> None:
    log = add_active(broker, "a", EAGER, 1)
    async with running_pool(broker) as pool:
        await until(lambda: pool.scheduler.last_choice.at_ms == broker.world.now_ms)
        assert len(log.segments) == 1
        log.config = IN_TIME
        pool.wake()
        await until(lambda: len(log.segments) == 2)


@on_a_loop
async def test_a_new_rest_counts_at_once(broker: Broker) -> None:
    log = add_active(broker, "a", EAGER, 1)
    async with running_pool(broker) as pool:
        await until(lambda: pool.scheduler.last_choice.at_ms == broker.world.now_ms)
        broker.config = replace(CONFIG, log_cleaner_backoff_ms=5)
        pool.reconfigure()
        log.config = IN_TIME  # nobody is notified: the next look finds it
        await until(lambda: broker.checkpoint(log) == 1)


@on_a_loop
async def test_a_disabled_cleaner_rolls_nothing(broker: Broker) -> None:
    log = add_active(broker, "a", IN_TIME, 1)
    witness = broker.add_log("old", TopicConfig(retention_bytes=0))
    broker.config = replace(
        CONFIG,
        log_cleaner_enable=False,
        log_initial_task_delay_ms=0,
        log_retention_check_interval_ms=5,
    )
    async with running_pool(broker) as pool:
        pool.wake()
        await until(lambda: witness.log_start_offset == 3)
    assert len(log.segments) == 1


@on_a_loop
async def test_a_refused_roll_is_reported_and_done_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = FaultyFileSystem()
    monkeypatch.setattr("tests.cleaner.worlds.FS", fs)
    broker = Broker(tmp_path)
    log = add_active(broker, "a", IN_TIME, 1, 2)
    healthy = add_active(broker, "b", IN_TIME, 1)
    roller = new_roller(broker)
    failed: list[tuple[Log, StorageError]] = []
    roller.on_failed = lambda log, error: failed.append((log, error))
    fs.refuse = lambda kind, path: DISK_FULL if "a-0" in str(path) else None
    await roller.check_all()
    assert [one for one, _ in failed] == [log] and "No space left" in str(failed[0][1])
    assert len(log.segments) == 1 and len(healthy.segments) == 2
    fs.refuse = lambda kind, path: None
    await roller.check_all()
    assert [one.base_offset for one in log.segments] == [0, 2] and len(failed) == 1
    batch = encode_batch([Record(0, broker.world.now_ms, b"k", b"v")])
    assert log.append(bytearray(batch), now_ms=broker.world.now_ms).base_offset == 2


@on_a_loop
async def test_an_age_that_cannot_be_read_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = FaultyFileSystem()
    monkeypatch.setattr("tests.cleaner.worlds.FS", fs)
    broker = Broker(tmp_path)
    log = add_active(broker, "a", IN_TIME, 1)
    log.active._first_timestamp = None  # as after a start
    roller = new_roller(broker)
    failed: list[Log] = []
    roller.on_failed = lambda log, error: failed.append(log)
    fs.refuse = lambda kind, path: IO_ERROR if kind == "read" else None
    await roller.check_all()
    assert failed == [log] and len(log.segments) == 1
    fs.refuse = lambda kind, path: None
    await roller.check_all()
    assert failed == [log] and len(log.segments) == 2

