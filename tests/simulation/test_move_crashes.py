"""A log moves to another directory, and the power fails, or the process is killed, anywhere.

What was flushed is found again, nothing else is, and after a kill all of it; there is one
directory of the log then, and it goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import settings

from odradek.config.topic import TopicConfig
from odradek.storage.directory import LogDirectory
from odradek.storage.log import Log
from odradek.storage.moving import Copy, settle
from odradek.storage.partition_directories import list_futures
from odradek.storage.readable_log import LogIdentity
from tests.simulation.crashfs import CrashFileSystem
from tests.storage.partition import TOPIC_ID, make_batch

pytestmark = pytest.mark.slow

A, B = Path("/data/a"), Path("/data/b")
KEY = ("orders", 0)
CONFIG = TopicConfig(internal_segment_bytes=700, index_interval_bytes=100)
CLUSTER = "4L6g3nShT-eMCtK--X86sw"

Found = list[tuple[int, bytes]]


def open_directories(fs: CrashFileSystem) -> list[LogDirectory]:
    found = [LogDirectory(fs, path, cluster_id=CLUSTER, node_id=1) for path in (A, B)]
    settle(fs, found)
    return found


def open_log(home: LogDirectory) -> Log:
    log = home.open_log(LogIdentity(*KEY, TOPIC_ID), CONFIG, now_ms=1_000)
    home.sync()
    home.add(log)
    return log


def append(log: Log, number: int, producer: tuple[int, int, int] | None = None) -> None:
    values = [(b"key", b"value %d" % number)] * (1 + number % 3)
    log.append(make_batch(values, 1_000 + number, producer=producer), now_ms=1_000 + number)


def flush(log: Log) -> None:
    part = log.unflushed()
    part.sync()
    log.flushed(part.end_offset)


def content(log: Log) -> Found:
    """Return the batches of a log: base offset, and what its CRC covers."""
    return [(header.base_offset, bytes(data[17:])) for header, data in log.batches(0)]


@dataclass
class World:
    """Two directories and a log; what it may hold after a crash, and what it must."""

    fs: CrashFileSystem = field(default_factory=CrashFileSystem)
    number: int = 0
    flushed_end: int = 0

    def __post_init__(self) -> None:
        self.a, self.b = open_directories(self.fs)
        self.log = open_log(self.a)

    def append(self, count: int = 1) -> None:
        for _ in range(count):
            append(self.log, self.number, producer=(7, 0, self._sequence()))
            self.number += 1

    def _sequence(self) -> int:
        known = self.log.producers.get(7)
        return known.last_sequence + 1 if known else 0

    def flush(self) -> None:
        end = self.log.log_end_offset
        flush(self.log)
        self.flushed_end = end

    def copy_all(self, copy: Copy) -> None:
        work = copy.next_work()
        copy.carry_on(work)

    def check(self, fs: CrashFileSystem, *, was_killed: bool = False) -> None:
        """Look at what a crash has left: all that was flushed, or just everything."""
        before = content(self.log)
        end = self.log.log_end_offset
        directories = open_directories(fs)
        homes = [one for one in directories if KEY in one.partitions_at_start]
        assert len(homes) == 1
        log = open_log(homes[0])
        found = content(log)
        # A batch that is being appended may be there already, before its log knows of it; of
        # those that were not flushed any may be lost, not only the last.
        assert {one for one in found if one[0] < end} <= set(before)
        assert found == sorted(found)
        flushed = {one for one in before if one[0] < self.flushed_end}
        assert flushed <= set(found), "flushed and lost"
        assert log.log_end_offset >= self.flushed_end
        if was_killed:
            assert found[: len(before)] == before, "written and lost"
        self.goes_on(directories, log)

    def goes_on(self, directories: list[LogDirectory], log: Log) -> None:
        for home in directories:
            home.remove([home.path / name for name in list_futures(log._fs, home.path)])
        known = log.producers.get(7)
        append(log, 900, producer=(7, 0, known.last_sequence + 1 if known else 0))
        found = content(log)
        for home in directories:
            home.close()
        again = open_directories(log._fs)  # type: ignore[arg-type]
        (home,) = [one for one in again if KEY in one.partitions_at_start]
        assert content(open_log(home)) == found


def crash_everywhere(world: World, act: Callable[[], None]) -> list[str]:
    """Act, and look at what a crash or a kill before each file operation would leave."""
    operations: list[str] = []
    seeds = max(1, settings().max_examples // 100)

    def before(kind: str, path: Path) -> None:
        operations.append(f"{kind} {path}")
        for seed in range(seeds):
            world.check(world.fs.clone_after_crash(len(operations) * seeds + seed))
        world.check(world.fs.clone_after_kill(), was_killed=True)

    world.fs.before = before
    act()
    world.fs.before = None
    world.check(world.fs.clone_after_crash(0))
    world.check(world.fs.clone_after_kill(), was_killed=True)
    return operations


def filled() -> World:
    world = World()
    world.append(8)
    world.flush()
    world.append(3)
    return world


def test_a_crash_at_each_operation_of_a_move() -> None:
    world = filled()
    copy = Copy(world.fs, world.log, world.a, world.b)

    def act() -> None:
        copy.begin()
        world.copy_all(copy)
        world.append(4)  # one more segment
        world.flush()
        assert not copy.finish(2_000, 1 << 20)  # they are missing
        world.copy_all(copy)
        world.append(2)
        assert copy.finish(2_000, 1 << 20)
        world.append(4)
        world.flush()
        world.append(2)
        world.a.forget_offsets(KEY)
        world.a.write_checkpoints()

    operations = crash_everywhere(world, act)
    assert any(one.startswith("rename") and "-future" in one for one in operations)
    assert world.log.directory == B / "orders-0"
    assert not world.fs.exists(A / "orders-0")
    assert copy.left is not None


def test_a_flush_that_began_before_the_log_has_moved_ends_after_it() -> None:
    world = filled()
    copy = Copy(world.fs, world.log, world.a, world.b)
    copy.begin()
    world.copy_all(copy)

    def act() -> None:
        part = world.log.unflushed()
        assert copy.finish(2_000, 1 << 20)
        part.sync()
        world.flushed_end = part.end_offset
        world.append(3)
        world.flush()

    crash_everywhere(world, act)


def test_a_clean_stop_right_after_the_log_has_moved() -> None:
    world = filled()
    copy = Copy(world.fs, world.log, world.a, world.b)
    copy.begin()
    world.copy_all(copy)

    def act() -> None:
        assert copy.finish(2_000, 1 << 20)
        world.append(2)
        for home in (world.a, world.b):
            home.close()
        world.flushed_end = world.log.log_end_offset

    crash_everywhere(world, act)
    assert not world.fs.exists(A / "orders-0")


def test_records_of_a_stale_directory_past_a_crash_never_come_back() -> None:
    """One that was led again since goes before one that reaches further."""
    world = filled()
    copy = Copy(world.fs, world.log, world.a, world.b)
    copy.begin()
    world.copy_all(copy)
    assert copy.finish(2_000, 1 << 20)
    world.append(6)
    later = world.fs.clone_after_kill()  # both directories are there, b reaches further
    here = LogDirectory(later, A, cluster_id=CLUSTER, node_id=1)  # and b's disk is away
    log = open_log(here)
    append(log, 500)
    flush(log)
    expected = content(log)
    here._lock = None
    (home,) = [one for one in open_directories(later) if KEY in one.partitions_at_start]
    assert home.path == A
    assert content(open_log(home)) == expected
