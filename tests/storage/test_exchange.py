"""What comes between the steps of an exchange of segments: each time it is undone or finished."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from odradek.storage.errors import DiskFailure, StaleSegments, StorageError
from odradek.storage.exchange import Exchange, carry_out
from odradek.storage.readable_log import LogIdentity
from odradek.storage.segment import CLEANED, DELETED, SWAP, Segment
from tests.simulation.crashfs import CrashFileSystem
from tests.storage.partition import SMALL, Partition, StoredBatch, clean, rewrite

DATA = Path("/data")
STEPS = 4  # offer, switch and retire, settle, and hear that it is over
SWITCH = 1
FULL = OSError(errno.ENOSPC, "No space left on device")

Gap = pytest.mark.parametrize("gap", range(STEPS))


class World:
    """A log, a cleaned segment for three of its own, and what happens in one of the gaps."""

    def __init__(self, first: int = 0) -> None:
        self.fs = CrashFileSystem()
        self.partition = Partition(self.fs, config=replace(SMALL, internal_segment_bytes=1000))
        for at in range(40):
            self.partition.append([(b"key%d" % (at % 5), bytes(at))] * 2)
            self.partition.clock.advance(10)
        self.partition.flush()
        self.before = self.partition.batches()
        bases = [segment.base_offset for segment in self.partition.log.segments]
        start, self.end = bases[first], bases[first + 3]
        dropped = {b.base_offset for b in self.before[::3] if start <= b.base_offset < self.end}
        self.after = [batch for batch in self.before if batch.base_offset not in dropped]
        self.old, self.new = rewrite(self.partition, first, 3, dropped)
        self.steps = 0

    def exchange(self, meanwhile: Callable[[], object], gap: int) -> Exchange:
        """Carry the exchange out as a cleaner's thread does, new segment's removal included."""
        log = self.partition.log
        exchange = log.begin_exchange(self.old, [self.new], self.partition.clock.now_ms())

        def step() -> bool:
            if self.steps == gap:
                meanwhile()
            self.steps += 1
            return exchange.step()

        try:
            carry_out(exchange.sync, step, exchange.undo)
        except StaleSegments:
            self.new.remove()
            raise
        return exchange

    def left_over(self) -> list[str]:
        """The names of an exchange that is not over."""
        names = self.fs.list(self.partition.log.directory)
        return [name for name in names if name.endswith((CLEANED, SWAP))]

    def survivors(self) -> list[list[StoredBatch]]:
        """What is found after a kill, and after crashes."""
        crashed = [self.fs.clone_after_crash(seed) for seed in range(12)]
        lives = [self.partition.next_life(fs) for fs in (self.fs.clone_after_kill(), *crashed)]
        assert not [n for one in lives for n in one.fs.list(one.log.directory) if SWAP in n]
        return [one.batches() for one in lives]


@Gap
def test_appends_and_flushes_do_not_disturb_it(gap: int) -> None:
    world = World()

    def meanwhile() -> None:
        for _ in range(20):
            world.partition.append([(b"k", bytes(100))])
        world.partition.flush()

    world.exchange(meanwhile, gap)
    found = world.partition.batches()
    assert found[: len(world.after)] == world.after
    assert len(found) == len(world.after) + 20
    assert all(survived == found for survived in world.survivors())
    log = world.partition.log
    assert log.size_bytes == sum(segment.size_bytes for segment in log.segments)


@Gap
def test_retention_undoes_it_before_the_switch_and_finishes_it_after(gap: int) -> None:
    world = World()
    log = world.partition.log
    first_old = log.segments[0]

    def meanwhile() -> None:
        there = log.segments
        log.delete_segments(1, world.partition.clock.now_ms())
        assert log.segments == there[1:]

    if gap <= SWITCH:
        with pytest.raises(StaleSegments):
            world.exchange(meanwhile, gap)
        left = [b for b in world.before if b.base_offset >= log.segments[0].base_offset]
        assert log.segments[0] is world.old[1]
    else:
        world.exchange(meanwhile, gap)
        left = [batch for batch in world.after if batch.base_offset >= world.end]
    assert first_old not in log.segments
    assert world.partition.batches() == left
    assert world.left_over() == []
    world.partition.flush()
    for survived in world.survivors():
        assert survived[-len(left) :] == left
    # Nothing of it is in the way of the next one.
    clean(world.partition, 0, 1, set())
    assert world.partition.batches() == left


@Gap
def test_retention_of_other_segments_leaves_it_alone(gap: int) -> None:
    world = World(first=2)
    log = world.partition.log
    world.exchange(lambda: log.delete_segments(2, 0), gap)
    left = [batch for batch in world.after if batch.base_offset >= log.log_start_offset]
    assert log.segments[0] is world.new
    assert world.partition.batches() == left
    for survived in world.survivors():
        assert survived[-len(left) :] == left


@Gap
def test_deleted_records_do_not_disturb_it(gap: int) -> None:
    world = World()
    log = world.partition.log
    offset = world.old[1].base_offset + 1
    world.exchange(lambda: log.advance_start_offset(offset), gap)
    assert log.segments[0] is world.new
    assert log.log_start_offset == offset
    left = [batch for batch in world.after if batch.last_offset >= offset]
    assert world.partition.batches() == left
    # Now retention lets the segment go.
    log.delete_segments(1, 0)
    assert world.partition.batches() == [b for b in left if b.base_offset >= world.end]


@Gap
def test_a_deleted_topic_is_let_go(gap: int) -> None:
    world = World()
    directory, clock = world.partition.directory, world.partition.clock

    def meanwhile() -> None:
        directory.delete_log(world.partition.log, clock.now_ms())

    # Gone is the directory that the thread makes durable, or it hears of it at its step.
    if gap <= SWITCH:
        with pytest.raises(StorageError):
            world.exchange(meanwhile, gap)
    else:
        world.exchange(meanwhile, gap)
    directory.remove(directory.take_due_removals(clock.advance(100_000)))
    assert not [name for name in world.fs.files(DATA) if "/" in name]


@Gap
def test_a_stop_settles_it(gap: int) -> None:
    world = World()

    def meanwhile() -> None:
        world.partition.directory.close()
        assert world.left_over() == []

    if gap <= SWITCH:
        with pytest.raises(StaleSegments):
            world.exchange(meanwhile, gap)
    else:
        world.exchange(meanwhile, gap)
    expected = world.before if gap <= SWITCH else world.after
    assert world.partition.next_life().batches() == expected
    assert all(survived == expected for survived in world.survivors())


@Gap
@pytest.mark.parametrize("is_late", [False, True])
def test_a_log_that_is_loaded_again_has_the_segments_that_recovery_chose(
    gap: int, is_late: bool
) -> None:
    """The thread removes its segment when it hears of it, before the reload or after it."""
    world = World()
    partition = world.partition
    failed, directory = partition.log, partition.directory

    def reload() -> None:
        identity = LogIdentity(failed.topic, failed.partition, failed.topic_id)
        partition.log = directory.open_log(identity, failed.config, now_ms=0, failed=failed)
        directory.add(partition.log)

    def meanwhile() -> None:
        failed.failure = DiskFailure(failed.active.path(".log"), FULL)
        directory.withdraw(failed)
        if not is_late:
            reload()

    if gap <= SWITCH:
        with pytest.raises(StorageError):
            world.exchange(meanwhile, gap)
    else:
        world.exchange(meanwhile, gap)
    if is_late:
        reload()
    assert partition.batches() == (world.before if gap == 0 else world.after)
    assert world.left_over() == []
    clean(partition, 0, 1, set())
    assert partition.batches() == (world.before if gap == 0 else world.after)


@pytest.mark.parametrize("refused", range(STEPS))
def test_a_sync_that_is_refused_undoes_it_or_leaves_the_rest_for_later(refused: int) -> None:
    world = World()
    count = 0

    def refuse(kind: str, path: Path) -> OSError | None:
        nonlocal count
        count += kind == "sync_directory"
        return FULL if kind == "sync_directory" and count == refused + 1 else None

    world.fs.refuse = refuse
    with pytest.raises(DiskFailure):
        world.exchange(lambda: None, -1)
    world.fs.refuse = None
    expected = world.before if refused <= SWITCH else world.after
    assert world.partition.batches() == expected
    assert bool(world.left_over()) == (refused == 2)
    clean(world.partition, 1, 1, set())
    assert world.partition.batches() == expected
    assert world.left_over() == []
    assert all(survived == expected for survived in world.survivors())


def test_files_that_an_undoing_could_not_remove_are_removed_before_the_next_one() -> None:
    """Recovery would take two of them for one, and all between them for replaced."""
    world = World()
    partition, log = world.partition, world.partition.log

    def refuse(kind: str, path: Path) -> OSError | None:
        is_swapped = path.name.endswith((SWAP, CLEANED)) and world.steps > SWITCH
        return FULL if is_swapped and kind == "remove" else None

    def meanwhile() -> None:
        world.fs.refuse = lambda kind, path: FULL if kind in ("remove", "rename") else None

    with pytest.raises(DiskFailure):
        world.exchange(meanwhile, SWITCH)
    assert world.left_over()
    at = len(log.segments) - 2
    old, new = rewrite(partition, at, 1, set())
    with pytest.raises(DiskFailure):  # it cannot be removed yet
        log.replace_segments(old, [new], 0)
    world.fs.refuse = None
    log.replace_segments(old, [new], 0)
    assert world.left_over() == []
    found = partition.batches()
    assert all(survived == found for survived in world.survivors())


def test_many_old_segments_are_retired_a_few_at_a_time() -> None:
    """The loop is not kept by the renaming of all of them."""
    world = World()
    world.new.remove()
    partition, log = world.partition, world.partition.log
    for _ in range(400):
        partition.append([(b"k", bytes(300))])
    partition.flush()
    sealed = len(log.segments) - 1
    old, new = rewrite(partition, 0, sealed, set())
    exchange = log.begin_exchange(old, [new], 0)
    counts = []

    def step() -> bool:
        def gone() -> int:
            return sum(name.endswith(f".log{DELETED}") for name in world.fs.list(log.directory))

        before = gone()
        is_more = exchange.step()
        counts.append(gone() - before)
        return is_more

    before = partition.batches()
    carry_out(exchange.sync, step, exchange.undo)
    assert sum(counts) == sealed
    assert max(counts) < sealed // 4
    assert partition.batches() == before


def test_the_segments_of_an_exchange_are_consecutive_ones_of_the_log() -> None:
    world = World()
    log = world.partition.log
    segments: list[list[Segment]] = [[log.segments[1], log.segments[0]], [world.new]]
    for old in segments:
        with pytest.raises(StaleSegments):
            log.begin_exchange(old, [world.new], 0)
