"""Deletion never waits for a compaction, wherever that one is held up; nothing comes of it."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.cleaner.runtime.deleter import Deleter
from odradek.cleaner.runtime.pool import CleanerPool
from odradek.protocol.batch_records import decode_records
from odradek.protocol.batches import Record
from odradek.storage.directory import LogDirectory
from odradek.storage.log import Log
from odradek.storage.readable_log import LogIdentity
from tests.cleaner.test_pool import CONFIG, Broker, on_a_loop, running_pool
from tests.cleaner.worlds import COMPACT, EAGER, FS
from tests.support.waiting import until

RETENTION_MS = 1000
BOTH = replace(
    EAGER,
    cleanup_policy=COMPACT | {"delete"},
    retention_ms=RETENTION_MS,
    internal_segment_bytes=800,  # each segment is cleaned, and swapped, by itself
)
QUICK = replace(CONFIG, log_initial_task_delay_ms=0, log_retention_check_interval_ms=5)
SEGMENTS, BATCHES, KEYS = 12, 10, 40


class Gate:
    """Holds a cleaner thread up before its nth read or write, until it is opened."""

    def __init__(self, number: int) -> None:
        self._number, self._calls = number, 0
        self.is_held, self._opened = threading.Event(), threading.Event()

    def charge(self, size_bytes: int) -> float:
        self._calls += 1
        if self._calls == self._number:
            self.is_held.set()
            assert self._opened.wait(60)
        return 0.0

    def open(self) -> None:
        self._opened.set()


def add_log(broker: Broker, topic: str) -> tuple[Log, int]:
    """Create a log of sealed segments, the older half of which are past retention soon.

    Returns the offset where the younger half begins.
    """
    world = broker.world
    log = world.directory.create_log(topic, 0, bytes(16), BOTH, now_ms=world.now_ms)
    first, world.log = world.log, log
    number = boundary = 0
    for segment in range(SEGMENTS):
        if segment == SEGMENTS // 2:
            world.now_ms += 10 * RETENTION_MS
            boundary = log.log_end_offset
        for _ in range(BATCHES):
            # Some of the old keys have nothing younger.
            kind = b"old" if number % 3 == 0 and not boundary else b"k"
            world.append([(kind + b"%d" % (number * 7 % KEYS), b"%d" % number)])
            number += 1
        world.roll()
    world.log = first
    return log, boundary


def records(log: Log) -> list[Record]:
    found: list[Record] = []
    for segment in log.segments:
        for _, _, data in segment.batches():
            found += decode_records(data)
    return [record for record in found if record.offset >= log.log_start_offset]


def latest(found: list[Record]) -> dict[bytes | None, tuple[int, bytes | None]]:
    return {record.key: (record.offset, record.value) for record in found}


@pytest.mark.parametrize("number", [1, 2, 4, 7, 10, 13, 16, 19, 22, 25])
@on_a_loop
async def test_retention_goes_on_while_a_compaction_is_held_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    broker = Broker(tmp_path)
    broker.config = QUICK
    log, boundary = add_log(broker, "both")
    young = [record for record in records(log) if record.offset >= boundary]
    # Nothing is old as long as the clock is where the younger half was written.
    other = broker.add_log("other", replace(EAGER, cleanup_policy=frozenset({"delete"})))
    log.config = replace(BOTH, retention_ms=-1)
    gate = Gate(number)
    monkeypatch.setattr(CleanerPool, "charge", lambda _, size: gate.charge(size))
    async with running_pool(broker) as pool:
        await until(lambda: gate.is_held.is_set() or broker.checkpoint(log))
        was_held = gate.is_held.is_set()
        log.config = BOTH
        other.config = replace(other.config, retention_bytes=0)
        await until(lambda: log.log_start_offset > 0 and other.log_start_offset == 3)
        assert was_held == bool(pool.status().running)
        gate.open()
        await until(lambda: not pool.status().running)
        start_offset = log.log_start_offset
        assert latest(records(log)).items() >= latest(young).items()
        pool.wake()
        await until(lambda: (broker.checkpoint(log) or 0) == log.active.base_offset)
        assert pool.problems() == []
        await until(lambda: log.log_start_offset == boundary)
    assert 0 < start_offset <= boundary
    assert latest(records(log)) == latest(young)
    broker.world.directory.close()
    again = _reopen(tmp_path, log)
    assert again.log_start_offset == boundary
    assert records(again) == records(log)


def _reopen(path: Path, log: Log) -> Log:
    directory = LogDirectory(FS, path, cluster_id="c", node_id=1)
    return directory.open_log(LogIdentity(log.topic, 0, log.topic_id), log.config, now_ms=1)


@on_a_loop
async def test_a_segment_that_cleaning_has_emptied_does_not_hold_retention_up(
    tmp_path: Path,
) -> None:
    broker = Broker(tmp_path)
    world = broker.world
    world.now_ms = time.time_ns() // 1_000_000  # an empty segment is as old as its file
    log = world.log
    log.config = replace(BOTH, internal_segment_bytes=50)
    for value in (b"1", b"2", b"3"):
        world.append([(b"k", value)])
        world.roll()
    world.append([(b"k", b"4")])
    world.clean()
    assert [segment.size_bytes > 0 for segment in log.segments] == [False, False, True, True]
    deleter = Deleter(broker, lambda: broker.config, broker.now_ms)
    await deleter.check_all()
    assert log.log_start_offset == 0
    world.now_ms += 10 * RETENTION_MS
    await deleter.check_all()
    assert log.log_start_offset == log.log_end_offset == 4
