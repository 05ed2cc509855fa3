"""A copy of a log, fetched piece by piece through crashes, is the log in all that counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config.topic import TopicConfig
from odradek.storage.copied_log import (
    CopiedLog,
    Owner,
    begin_copy,
    discard_copies,
    find_copies,
    has_moved,
    mark_moved,
    resume_copy,
    take_copies,
)
from odradek.storage.directory import LogDirectory
from odradek.storage.errors import CorruptBatch
from odradek.storage.log import Log
from odradek.storage.readable_log import LogIdentity
from odradek.storage.reading import aborted_within
from odradek.storage.transactions import Marker
from tests.simulation.crashfs import CrashFileSystem
from tests.storage.partition import TOPIC_ID, make_batch

SOURCE, TARGET = Path("/source"), Path("/target")
IDENTITY = LogIdentity("orders", 0, TOPIC_ID)
KEY = (IDENTITY.topic, IDENTITY.partition)
CONFIG = TopicConfig(internal_segment_bytes=600, index_interval_bytes=100)
CLUSTER = "4L6g3nShT-eMCtK--X86sw"
NODE = 2
OWNER = Owner(NODE, 7)

# The steps of a run: appends to the source, its changes, and pieces of the copy.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("plain"), st.integers(1, 4)),
        st.tuples(st.just("idempotent"), st.integers(0, 2)),
        st.tuples(st.just("transaction"), st.integers(3, 5)),
        st.tuples(st.just("end"), st.integers(3, 5), st.booleans()),
        st.tuples(st.just("epoch"), st.integers(1, 3)),
        st.tuples(st.just("remove"), st.integers(0, 5)),
        st.tuples(st.just("copy"), st.integers(1, 2_000)),
        st.tuples(st.just("crash"), st.integers(0, 2**32 - 1)),
        st.tuples(st.just("kill")),
    ),
    max_size=40,
)


class World:
    """A log, and the machine that copies it."""

    def __init__(self) -> None:
        self.source_fs, self.fs = CrashFileSystem(), CrashFileSystem()
        home = LogDirectory(self.source_fs, SOURCE, cluster_id=CLUSTER, node_id=1)
        self.log = home.create_log(*KEY, TOPIC_ID, CONFIG, now_ms=1_000)
        self.home = self._open()
        self.copy: CopiedLog | None = None
        self._sequences: dict[int, int] = {}
        self._open_transactions: set[int] = set()

    def _open(self) -> LogDirectory:
        return LogDirectory(self.fs, TARGET, cluster_id=CLUSTER, node_id=NODE)

    def plain(self, count: int) -> None:
        self._append(make_batch([(b"k%d" % n, b"v" * 20) for n in range(count)], 1_000))

    def idempotent(self, producer_id: int) -> None:
        self._append(make_batch([(b"k", b"v")], 1_000, producer=self._next(producer_id)))

    def transaction(self, producer_id: int) -> None:
        batch = make_batch(
            [(b"k", b"v")], 1_000, producer=self._next(producer_id), is_transactional=True
        )
        self._append(batch)
        self._open_transactions.add(producer_id)

    def end(self, producer_id: int, is_commit: bool) -> None:
        if producer_id in self._open_transactions:
            self._open_transactions.remove(producer_id)
            self.log.append_marker(Marker(producer_id, 0, 0, is_commit, 1_000))

    def epoch(self, step: int) -> None:
        self.log.raise_epoch(self.log.leader_epoch + step)

    def remove(self, count: int) -> None:
        """Delete records from the start on, as retention does."""
        removed = min(count, len(self.log.segments) - 1)
        if removed:
            self.log.delete_segments(removed, 1_000)

    def copy_piece(self, size_bytes: int) -> None:
        """Do as a follower does with one answer of its leader."""
        log, copy = self.log, self.copy
        offset = log.log_start_offset if copy is None else copy.end_offset
        if offset < log.log_start_offset:
            self.copy = copy = None
            offset = log.log_start_offset
        found = log.read(offset, size_bytes, at_least_one=True)
        records = b"" if found is None else found.read()
        if copy is None:
            discard_copies(self.fs, [self.home], IDENTITY)
            self.copy = copy = begin_copy(
                self.fs, self.home, IDENTITY, OWNER, CONFIG, offset, 1_000
            )
        if records:
            copy.append(records, 1_000)

    def crash(self, seed: int) -> None:
        """Lose power, and continue: all that was appended is there."""
        self._restart(self.fs.clone_after_crash(seed))

    def kill(self) -> None:
        self._restart(self.fs.clone_after_kill())

    def _restart(self, fs: CrashFileSystem) -> None:
        end_offset = None if self.copy is None else self.copy.end_offset
        self.fs = fs
        self.home = self._open()
        self.copy = resume_copy(fs, self.home, IDENTITY, OWNER, CONFIG, 2_000)
        assert (None if self.copy is None else self.copy.end_offset) == end_offset

    def finish(self) -> Log:
        """Copy the rest, and use the copy as the log."""
        while self.copy is None or self.copy.end_offset < self.log.log_end_offset:
            self.copy_piece(1_000)
        left = self.copy.close(self.log.log_start_offset)
        (directory,) = take_copies(self.fs, [self.home], {KEY: TOPIC_ID})
        assert directory == TARGET / self.log.name
        assert not find_copies(self.fs, self.home)
        return self.home.open_log(
            IDENTITY,
            CONFIG,
            now_ms=3_000,
            left=left,
            leader_epoch_min=self.log.leader_epoch + 1,
        )

    def _next(self, producer_id: int) -> tuple[int, int, int]:
        sequence = self._sequences.get(producer_id, 0)
        self._sequences[producer_id] = sequence + 1
        return producer_id, 0, sequence

    def _append(self, batch: bytes) -> None:
        self.log.append(bytearray(batch), now_ms=1_000)


def content(log: Log) -> list[bytes]:
    return [bytes(data) for _, data in log.batches(log.log_start_offset)]


def producers(log: Log) -> dict[int, tuple[object, ...]]:
    """Return the producers as far as their batches are in the log."""
    return {
        one.producer_id: (one.epoch, one.last_sequence, one.transaction_first_offset)
        for one in log.producers
        if one.last_data_offset >= log.log_start_offset
    }


def aborted(log: Log) -> set[object]:
    found = log.read(log.log_start_offset, 1 << 30, at_least_one=True)
    if found is None:
        return set()
    return set(aborted_within(log.segments, log.log_start_offset, found, log.log_end_offset))


@given(STEPS)
def test_a_copy_is_the_log(steps: list[tuple[object, ...]]) -> None:
    world = World()
    for name, *arguments in steps:
        step = "copy_piece" if name == "copy" else str(name)
        getattr(world, step)(*arguments)
    log, moved = world.log, world.finish()
    assert content(moved) == content(log)
    assert (moved.log_start_offset, moved.log_end_offset) == (
        log.log_start_offset,
        log.log_end_offset,
    )
    assert moved.last_stable_offset == log.last_stable_offset
    assert producers(moved) == producers(log)
    assert aborted(moved) == aborted(log)
    assert moved.leader_epoch == log.leader_epoch + 1
    for offset in range(log.log_start_offset, log.log_end_offset):
        # No reader finds its last record after the end of the record's epoch.
        epoch = log.epoch_of(offset)
        assert moved.end_offset_for_epoch(epoch)[1] > offset
    moved.append(bytearray(make_batch([(b"k", b"v")], 4_000)), now_ms=4_000)
    assert moved.log_end_offset == log.log_end_offset + 1


@pytest.mark.parametrize("seed", range(5))
def test_a_crash_takes_nothing_from_a_copy(seed: int) -> None:
    world = World()
    for number in range(20):
        world.plain(2)
        world.copy_piece(1_000)
        world.crash(100 * seed + number)  # which checks that
    assert content(world.finish()) == content(world.log)


def test_a_copy_keeps_the_gaps_of_compaction() -> None:
    world = World()
    world.plain(2)
    world.copy_piece(10_000)
    assert world.copy is not None
    far = 2**40
    world.copy.append(make_batch([(b"k", b"v")], 1_000, base_offset=far, leader_epoch=3), 1_000)
    assert world.copy.end_offset == far + 1 and world.copy.last_epoch == 3
    world.kill()
    assert world.copy is not None and world.copy.last_epoch == 3


def test_damaged_and_overlapping_batches_are_refused() -> None:
    world = World()
    world.plain(3)
    world.copy_piece(10_000)
    assert world.copy is not None
    end_offset = world.copy.end_offset
    batch = bytearray(make_batch([(b"k", b"v")], 1_000, base_offset=end_offset))
    batch[-1] ^= 1
    with pytest.raises(CorruptBatch, match="wrong CRC"):
        world.copy.append(bytes(batch), 1_000)
    overlapping = make_batch([(b"k", b"v")] * 3, 1_000, base_offset=end_offset - 1)
    with pytest.raises(CorruptBatch, match="overlaps"):
        world.copy.append(overlapping, 1_000)
    with pytest.raises(CorruptBatch, match="no batch"):
        world.copy.append(overlapping[:20], 1_000)


def test_a_copy_takes_the_place_of_older_files() -> None:
    """The host served the partition once, and a crash kept it from removing the files."""
    world = World()
    old = world.home.create_log(*KEY, TOPIC_ID, CONFIG, now_ms=1_000)
    old.append(bytearray(make_batch([(b"old", b"v")], 1_000)), now_ms=1_000)
    old.close()
    mark_moved(world.fs, old.directory, 7)
    world.home.logs.clear()
    world.plain(2)
    moved = world.finish()
    assert content(moved) == content(world.log)
    assert not has_moved(world.fs, moved.directory, 7)


def test_a_mark_has_the_epoch_since_when_a_log_is_elsewhere() -> None:
    world = World()
    log = world.home.create_log(*KEY, TOPIC_ID, CONFIG, now_ms=1_000)
    assert not has_moved(world.fs, log.directory, 7)
    mark_moved(world.fs, log.directory, 7)
    fs = world.fs.clone_after_crash(1)
    assert has_moved(fs, log.directory, 7) and has_moved(fs, log.directory, 8)
    assert not has_moved(fs, log.directory, 6)  # the move did not take place


def test_other_copies_are_left_alone() -> None:
    world = World()
    world.plain(1)
    world.copy_piece(1_000)
    other = LogIdentity("orders", 0, bytes(16))
    discard_copies(world.fs, [world.home], other)
    assert take_copies(world.fs, [world.home], {KEY: bytes(16)}) == {}
    for owner in (Owner(NODE + 1, 7), Owner(NODE, 8)):
        assert resume_copy(world.fs, world.home, IDENTITY, owner, CONFIG, 1_000) is None
    (found,) = find_copies(world.fs, world.home)
    assert found.is_of(IDENTITY) and found.owner == OWNER
