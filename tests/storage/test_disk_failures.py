"""A disk that is full or refuses: the log is as it was, and goes on when the disk does."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.storage.epochs import FILE_NAME as EPOCHS
from odradek.storage.errors import DiskFailure, StaleSegments
from odradek.storage.readable_log import LogIdentity
from odradek.storage.segment import INDEX, LOG, SWAP, TIME_INDEX
from tests.simulation.crashfs import CrashFileSystem
from tests.storage.partition import SMALL, Partition, clean

DATA = Path("/data")
FULL = OSError(errno.ENOSPC, "No space left on device")


def filled(batches: int = 40) -> tuple[CrashFileSystem, Partition]:
    """A log of some segments."""
    fs = CrashFileSystem()
    partition = Partition(fs, config=replace(SMALL, internal_segment_bytes=1000))
    for at in range(batches):
        partition.append([(b"key%d" % (at % 5), bytes(at))] * 2)
        partition.clock.advance(10)
    return fs, partition


def state(partition: Partition) -> tuple[object, ...]:
    """What a refused append must not change."""
    log = partition.log
    sizes = [(s.base_offset, s.size_bytes, s.next_offset, s.max_timestamp) for s in log.segments]
    indexes = [(s.offset_index.last(), s.time_index.last()) for s in log.segments]
    return log.log_end_offset, log.size_bytes, sizes, indexes


def contents(fs: CrashFileSystem) -> dict[str, bytes]:
    """All files, but for the zeros that an index may or may not have after its last entry."""
    return {
        name: data.rstrip(b"\0") if name.endswith("index") else data
        for name, data in fs.files(DATA).items()
    }


class Refusing:
    """Refuses the operations whose turn it is, counted from when it is set."""

    def __init__(self, *turns: int, matching: Callable[[str, Path], bool] | None = None) -> None:
        self.turns, self.matching, self.count = turns, matching, -1

    def __call__(self, kind: str, path: Path) -> OSError | None:
        if self.matching is not None:
            return FULL if self.matching(kind, path) else None
        self.count += 1
        return FULL if self.count in self.turns else None


@pytest.mark.parametrize("room", [0, 1, 60, 61, 100])
def test_a_full_disk_refuses_an_append_and_keeps_the_log(room: int) -> None:
    fs, partition = filled(5)
    before, files = state(partition), contents(fs)
    fs.capacity_bytes = sum(map(len, fs.files(DATA).values())) + room
    with pytest.raises(DiskFailure, match="No space left") as refused:
        partition.append([(b"k", bytes(200))])
    assert refused.value.path == partition.log.active.path(LOG)
    assert (state(partition), contents(fs)) == (before, files)
    fs.capacity_bytes = None
    assert partition.append([(b"k", b"v")]).base_offset == 10
    assert partition.reopen().batches()[-1].records[0].value == b"v"


@given(turns=st.sets(st.integers(0, 25), min_size=1), batches=st.integers(1, 45))
def test_an_append_succeeds_whole_or_not_at_all(turns: set[int], batches: int) -> None:
    """Rolls, indexes and undoing included: each operation may be the one that is refused."""
    fs, partition = filled(batches)
    expected = partition.batches()
    fs.refuse = Refusing(*turns)
    for at in range(8):
        before = state(partition)
        try:
            done = partition.append([(b"k", bytes(150 + at))], producer=(1, 0, at))
        except DiskFailure:
            after = state(partition)
            # A roll may have come about; the batch has not.
            assert (after[0], after[1]) == (before[0], before[1])
            fs.refuse = None
            done = partition.append([(b"k", bytes(150 + at))], producer=(1, 0, at))
            fs.refuse = Refusing(*turns)
        assert done.base_offset == before[0]
        assert not done.is_duplicate
    fs.refuse = None
    found = partition.batches()
    assert found[: len(expected)] == expected
    assert [len(b.records[0].value or b"") for b in found[len(expected) :]] == list(
        range(150, 158)
    )
    assert partition.reopen().batches() == found
    killed = partition.next_life(fs.clone_after_kill())
    assert killed.batches() == found


def test_bytes_that_an_append_could_not_take_back_are_cut_off_at_the_end() -> None:
    """The write fails half way, and so does the truncation after it."""
    fs, partition = filled(3)
    size = partition.log.active.size_bytes
    fs.capacity_bytes = sum(map(len, fs.files(DATA).values())) + 100
    fs.refuse = Refusing(matching=lambda kind, path: kind == "truncate")
    with pytest.raises(DiskFailure):
        partition.append([(b"k", bytes(300))])
    fs.capacity_bytes = fs.refuse = None
    assert fs.size(partition.log.active.path(LOG)) == size + 100
    partition.append([(b"k", b"short")])
    expected = partition.batches()
    reopened = partition.reopen()
    assert reopened.batches() == expected
    assert fs.size(reopened.log.active.path(LOG)) == reopened.log.active.size_bytes


def test_a_segment_sealed_right_after_a_flush_is_flushed_with_its_indexes() -> None:
    """Its batches were durable before, its indexes were not."""
    fs, partition = filled(15)
    partition.flush()
    sealed = partition.log.active
    partition.log.roll(partition.clock.now_ms())
    partition.append([(b"k", b"v")])
    partition.flush()
    partition.directory.write_checkpoints()
    for seed in range(20):
        after = fs.clone_after_crash(seed)
        for kind in (".index", ".timeindex"):
            assert after.read_bytes(sealed.path(kind)) == fs.read_bytes(sealed.path(kind))


def test_bytes_that_a_failed_sync_has_forgotten_are_written_again() -> None:
    """Linux counts pages as clean that it could not write back: the next sync is no proof."""
    fs, partition = filled(3)
    fs.failed_sync_forgets = True
    fs.refuse = Refusing(matching=lambda kind, path: kind == "sync" and path.suffix == LOG)
    with pytest.raises(DiskFailure) as refused:
        partition.flush()
    fs.refuse = None
    failed, directory = partition.log, partition.directory
    failed.failure = refused.value
    directory.withdraw(failed)
    identity = LogIdentity(failed.topic, failed.partition, failed.topic_id)
    now_ms = partition.clock.now_ms()
    partition.log = directory.open_log(identity, failed.config, now_ms=now_ms, failed=failed)
    directory.add(partition.log)
    expected = partition.batches()
    assert len(expected) == 3
    assert partition.next_life(fs.clone_after_crash(1)).batches() == expected


@pytest.mark.parametrize("turn", range(12))
def test_an_exchange_that_the_disk_interrupts_is_finished_later(turn: int) -> None:
    fs, partition = filled()
    partition.flush()
    before = partition.batches()
    dropped = {batch.base_offset for batch in before[::3]}
    log = partition.log
    end = log.segments[4].base_offset
    after = [
        b for b in before
        if b.base_offset not in dropped or not log.segments[1].base_offset <= b.base_offset < end
    ]  # fmt: skip
    renames = Refusing(turn)
    fs.refuse = lambda kind, path: renames(kind, path) if kind == "rename" else None
    with pytest.raises(DiskFailure):
        clean(partition, 1, 3, dropped)
    fs.refuse = None
    assert partition.batches() in (before, after)
    for survived in (partition.next_life(fs.clone_after_kill()), partition):
        assert survived.batches() == partition.batches()
    # The next exchange first finishes the last one.
    clean(partition, 1, 1, set())
    found = partition.batches()
    assert found in (before, after)
    reopened = partition.reopen()
    assert reopened.batches() == found
    assert not [name for name in fs.list(DATA / "orders-0") if name.endswith(SWAP)]


def test_a_new_log_that_cannot_be_made_can_be_made_later() -> None:
    fs, partition = filled(1)
    directory = partition.directory
    turn = 0
    while True:
        fs.refuse = Refusing(turn)
        try:
            directory.create_log("other", 0, bytes(16), partition.log.config, now_ms=0)
        except DiskFailure:
            turn += 1
        else:
            break
    assert turn > 5
    fs.refuse = None
    log = directory.logs["other", 0]
    log.append(partition.batches()[0].data, now_ms=partition.clock.now_ms())
    assert log.log_end_offset == 2


@pytest.mark.parametrize("kind", ["sync_directory", "make_directory", "create", "write"])
def test_a_new_log_made_in_the_second_attempt_outlives_a_crash(kind: str) -> None:
    fs, partition = filled(1)
    directory, config = partition.directory, partition.log.config
    refusing = True
    turn = 0
    while refusing:
        name = f"other{turn}"
        turns = Refusing(turn)
        fs.refuse = lambda k, path, turns=turns: turns(k, path) if k == kind else None
        refusing = False
        try:
            log = directory.create_log(name, 0, bytes(16), config, now_ms=0)
        except DiskFailure:
            refusing = True
        fs.refuse = None
        if refusing:
            log = directory.create_log(name, 0, bytes(16), config, now_ms=0)
        unflushed = log.unflushed()
        unflushed.sync()
        log.flushed(unflushed.end_offset)
        for seed in range(10):
            survived = partition.next_life(fs.clone_after_crash(seed))
            assert survived.directory.partitions()[name, 0] == bytes(16)
            assert fs.clone_after_crash(seed).exists(DATA / f"{name}-0" / EPOCHS)
        turn += 1
    assert turn > 1


@pytest.mark.parametrize("seed", range(20))
def test_a_log_without_records_is_not_synced_and_begins_again_after_a_crash(seed: int) -> None:
    fs, partition = filled(1)
    synced: list[Path] = []
    fs.before = lambda kind, path: synced.append(path) if kind == "sync" else None
    partition.directory.create_log("other", 0, bytes(16), partition.log.config, now_ms=0)
    assert not synced
    survived = partition.next_life(fs.clone_after_crash(seed)).directory
    log = survived.create_log("other", 0, bytes(16), partition.log.config, now_ms=0)
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    assert log.leader_epoch == 1  # whatever clients have read in epoch 0 is lost
    assert survived.partitions()["other", 0] == bytes(16)
    log.append(partition.batches()[0].data, now_ms=partition.clock.now_ms())
    assert log.log_end_offset == 2


def test_a_stop_syncs_no_log_without_records() -> None:
    fs, partition = filled(1)
    for name in ("one", "other"):
        partition.directory.create_log(name, 0, bytes(16), partition.log.config, now_ms=0)
    touched: list[str] = []
    fs.before = lambda kind, path: touched.append(path.parent.name)
    partition.directory.close()
    assert "orders-0" in touched
    assert not {"one-0", "other-0"} & set(touched)


def test_a_roll_that_the_disk_interrupts_is_finished_by_the_next_append() -> None:
    """Else a batch would lie past the offset at which the files of a new segment begin."""
    turn, refused = 0, True
    while refused:
        fs, partition = filled(4)
        end = partition.log.log_end_offset
        fs.refuse = Refusing(turn)
        refused = False
        try:
            partition.log.roll(partition.clock.now_ms())
        except DiskFailure:
            refused = True
        fs.refuse = None
        for life in (partition, partition.next_life(fs.clone_after_kill())):
            assert life.append([(b"k", b"v")]).base_offset == end
            survived = life.next_life(life.fs.clone_after_kill())  # type: ignore[attr-defined]
            assert survived.log.log_end_offset == end + 1
            assert survived.batches() == life.batches()
        turn += 1
    assert turn > 3


def test_segments_that_changed_meanwhile_are_not_replaced() -> None:
    _, partition = filled()
    log, clock = partition.log, partition.clock
    old = log.segments[1:3]
    log.delete_segments(2, clock.now_ms())
    with pytest.raises(StaleSegments):
        log.replace_segments(old, [], clock.now_ms())
    first, second = log.segments[:2]
    with pytest.raises(StaleSegments):
        log.replace_segments([second, first], [], clock.now_ms())
    partition.directory.delete_log(log, clock.now_ms())
    with pytest.raises(StaleSegments):
        log.replace_segments([first], [], clock.now_ms())


@pytest.mark.parametrize("turn", range(3))
def test_a_segment_that_the_disk_does_not_let_go_is_whole_and_flushed(turn: int) -> None:
    """Each of its three files is refused a new name once; indexes are the log's like batches."""
    fs, partition = filled()
    log, before = partition.log, contents(fs)
    kept = log.segments[0]
    renames = Refusing(turn)
    fs.refuse = lambda kind, path: renames(kind, path) if kind == "rename" else None
    with pytest.raises(DiskFailure):
        log.retire([kept], partition.clock.now_ms())
    fs.refuse = None
    assert {name: data for name, data in contents(fs).items() if ".snapshot" not in name} == {
        name: data for name, data in before.items() if ".snapshot" not in name
    }
    kept.flush()
    fs.sync_directory(log.directory)
    for seed in range(20):
        after = contents(fs.clone_after_crash(seed))
        for path in (kept.path(LOG), kept.path(INDEX), kept.path(TIME_INDEX)):
            name = str(path.relative_to(DATA))
            assert after[name] == before[name]
