"""Idempotent producers: no batch twice, none out of order, across restarts."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.batches import BatchHeader
from odradek.storage.errors import CorruptFile, InvalidProducerEpoch, OutOfOrderSequence
from odradek.storage.producers import ProducerStates
from tests.simulation.crashfs import CrashFileSystem
from tests.storage.partition import SMALL, Partition

DATA = Path("/data")
FILES = DATA / "orders-0"


def send(partition: Partition, sequence: int, count: int = 1, epoch: int = 0) -> tuple[int, bool]:
    """Append a batch of producer 1; return its offset, and whether it was there already."""
    done = partition.append([(b"k", b"v")] * count, producer=(1, epoch, sequence))
    return done.base_offset, done.is_duplicate


def restart(partition: Partition, how: str) -> Partition:
    """Go on after a stop: a clean one, one without its snapshots, or the loss of the process."""
    if how == "clean":
        return partition.reopen()
    fs = partition.fs
    assert isinstance(fs, CrashFileSystem)
    if how == "clean, snapshots lost":
        partition.directory.close()
        for name in fs.list(FILES):
            if name.endswith(".snapshot"):
                fs.remove(FILES / name)
        return partition.next_life()
    return partition.next_life(fs.clone_after_kill())


HOWS = ("clean", "clean, snapshots lost", "killed")


@pytest.mark.parametrize("how", [None, *HOWS])
def test_the_last_batch_again_is_answered_as_the_first_time(how: str | None) -> None:
    partition = Partition(CrashFileSystem())
    partition.append([(b"other", b"v")])
    send(partition, 0, 3)
    assert send(partition, 3, 2) == (4, False)
    if how is not None:
        partition = restart(partition, how)
    assert send(partition, 3, 2) == (4, True)
    assert partition.log.log_end_offset == 6
    assert send(partition, 5) == (6, False)


def test_a_repeated_batch_has_the_time_at_which_it_was_first_appended() -> None:
    stamped = Partition(
        CrashFileSystem(), config=replace(SMALL, message_timestamp_type="LogAppendTime")
    )
    first = stamped.append([(b"k", b"v")], producer=(1, 0, 0))
    stamped.clock.advance(1_000)
    again = stamped.append([(b"k", b"v")], producer=(1, 0, 0))
    assert again.log_append_time_ms == first.log_append_time_ms >= 0


def test_any_of_the_last_five_batches_is_known_again() -> None:
    partition = Partition(CrashFileSystem())
    for sequence in range(7):
        send(partition, sequence)
    for sequence in range(2, 7):
        assert send(partition, sequence) == (sequence, True)
    with pytest.raises(OutOfOrderSequence):
        send(partition, 1)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("rolled_before", range(8))
def test_the_last_five_batches_outlive_a_restart_wherever_a_segment_begins(
    how: str, rolled_before: int
) -> None:
    """Appended and flushed is not yet answered: a client may send all five again."""
    partition = Partition(CrashFileSystem())
    for sequence in range(8):
        if sequence == rolled_before:
            partition.log.roll(partition.clock.now_ms())
        send(partition, sequence)
        partition.append([(b"k", b"v")], producer=(2, 0, sequence))
    partition.flush()
    partition.directory.write_checkpoints()
    partition = restart(partition, how)
    for sequence in range(3, 8):
        assert send(partition, sequence) == (2 * sequence, True)
    with pytest.raises(OutOfOrderSequence):
        send(partition, 2)
    assert send(partition, 8) == (16, False)


@pytest.mark.parametrize("how", ["clean", "killed"])
def test_the_last_five_batches_are_known_when_the_log_has_them_no_more(how: str) -> None:
    """Deleted or compacted away before its client has heard that it was appended."""
    partition = Partition(CrashFileSystem())
    for sequence in range(5):
        send(partition, sequence)
    partition.log.roll(partition.clock.now_ms())
    partition.log.delete_segments(1, partition.clock.now_ms())
    partition.flush()
    partition.directory.write_checkpoints()
    partition = restart(partition, how)
    assert not partition.batches()
    for sequence in range(5):
        assert send(partition, sequence) == (sequence, True)


@pytest.mark.parametrize("how", [None, *HOWS])
@pytest.mark.parametrize("sequence", [0, 2, 4, 6, 2**31 - 1])
def test_a_sequence_that_does_not_follow_is_refused(how: str | None, sequence: int) -> None:
    partition = Partition(CrashFileSystem())
    send(partition, 0, 5)
    if how is not None:
        partition = restart(partition, how)
    with pytest.raises(OutOfOrderSequence):
        send(partition, sequence)
    assert send(partition, 5) == (5, False)


def test_part_of_a_batch_is_no_repetition() -> None:
    partition = Partition(CrashFileSystem())
    send(partition, 0, 5)
    with pytest.raises(OutOfOrderSequence):
        send(partition, 0, 3)


@pytest.mark.parametrize("how", [None, *HOWS])
def test_sequences_start_over_after_the_last(how: str | None) -> None:
    partition = Partition(CrashFileSystem())
    send(partition, 2**31 - 3, 2)  # a producer that nothing is known of may begin anywhere
    send(partition, 2**31 - 1, 4)  # 2^31 - 1, 0, 1, 2
    if how is not None:
        partition = restart(partition, how)
    state = partition.log.producers.get(1)
    assert state is not None
    assert (state.batches[-1].first_sequence, state.last_sequence) == (2**31 - 1, 2)
    assert send(partition, 2**31 - 1, 4) == (2, True)
    assert send(partition, 3) == (6, False)


def test_after_the_very_last_sequence_comes_zero() -> None:
    partition = Partition(CrashFileSystem())
    send(partition, 2**31 - 2, 2)
    with pytest.raises(OutOfOrderSequence):
        send(partition, 1)
    assert send(partition, 0) == (2, False)


@pytest.mark.parametrize("how", [None, *HOWS])
def test_a_new_epoch_begins_with_zero_and_fences_the_old(how: str | None) -> None:
    partition = Partition(CrashFileSystem())
    send(partition, 0, 5)
    with pytest.raises(OutOfOrderSequence):
        send(partition, 5, epoch=1)
    send(partition, 0, 2, epoch=1)
    if how is not None:
        partition = restart(partition, how)
    with pytest.raises(InvalidProducerEpoch):
        send(partition, 5)
    with pytest.raises(InvalidProducerEpoch):
        send(partition, 0, 5)
    assert send(partition, 0, 2, epoch=1) == (5, True)


def test_a_batch_that_a_crash_took_is_no_repetition() -> None:
    """A snapshot may tell of batches that never reached the disk; it is not relied on."""
    partition = Partition(CrashFileSystem())
    fs = partition.fs
    assert isinstance(fs, CrashFileSystem)
    send(partition, 0)
    partition.flush()
    send(partition, 1)
    lost = partition.log.active
    partition.log.roll(partition.clock.now_ms())
    send(partition, 2)
    partition.log.active.log.sync()
    fs.sync_directory(FILES)
    fs.open(FILES / f"{2:020d}.snapshot", write=True).sync()
    partition.directory.write_checkpoints()
    after = fs.clone_after_kill()
    after.open(lost.path(".log"), write=True).truncate(lost.locate(1)[0])  # type: ignore[index]
    survived = partition.next_life(after)
    assert [batch.base_offset for batch in survived.batches()] == [0, 2]
    state = survived.log.producers.get(1)
    assert state is not None
    assert [batch.last_sequence for batch in state.batches] == [0, 2]


def test_producers_that_fall_silent_are_forgotten() -> None:
    partition = Partition(CrashFileSystem())
    producers, clock = partition.log.producers, partition.clock
    send(partition, 0)
    clock.advance(500)
    partition.append([(b"k", b"v")], producer=(2, 0, 0))
    clock.advance(500)
    assert producers.expire(clock.now_ms(), 1_001) == 0
    assert producers.expire(clock.now_ms(), 1_000) == 1
    assert producers.get(1) is None
    assert send(partition, 77) == (2, False)


# --- snapshots ------------------------------------------------------------------------------


def test_a_snapshot_to_the_byte() -> None:
    """ProducerSnapshot.json; the CRC covers all that follows it."""
    partition = Partition(CrashFileSystem())
    partition.append([(b"k", b"v")])
    partition.append([(b"k", b"v")] * 3, 1_700_000_000_000, producer=(0x1122, 7, 40))
    partition.append([(b"k", b"v")], 1_700_000_000_001, producer=(0x1122, 7, 43))
    partition.log.roll(partition.clock.now_ms())
    data = partition.fs.read_bytes(FILES / f"{5:020d}.snapshot")
    entries = bytes.fromhex(
        "00000002"
        "0000000000001122 0007 0000002a 0000000000000003 00000002"
        "0000018bcfe56800 ffffffff ffffffffffffffff"
        "0000000000001122 0007 0000002b 0000000000000004 00000000"
        "0000018bcfe56801 ffffffff ffffffffffffffff"
    )
    assert data == bytes.fromhex("0001") + struct.pack(">I", crc32c(entries)) + entries


def test_a_snapshot_stands_beside_each_segment_and_the_end() -> None:
    partition = Partition(CrashFileSystem())
    for sequence in range(60):
        send(partition, sequence)
    log = partition.log
    bases = [segment.base_offset for segment in log.segments]
    assert log.producers.snapshot_offsets() == bases[1:]
    reopened = partition.reopen().log
    assert reopened.producers.snapshot_offsets() == [*bases[1:], log.log_end_offset]
    reopened.delete_segments(2, partition.clock.now_ms())
    assert reopened.producers.snapshot_offsets() == [*bases[2:], log.log_end_offset]


BATCHES = st.lists(
    st.tuples(
        st.integers(0, 3),  # producer
        st.integers(0, 2**15 - 1),  # epoch
        st.integers(0, 2**31 - 1),  # base sequence
        st.integers(0, 2**31 - 1),  # last offset delta
        st.integers(-1, 2**63 - 1),  # timestamp
    ),
    max_size=20,
)


@given(batches=BATCHES)
def test_a_snapshot_gives_back_each_producers_last_batches(
    batches: list[tuple[int, int, int, int, int]],
) -> None:
    fs = CrashFileSystem()
    written = ProducerStates(fs, Path("/"))
    offset = 0
    for producer_id, epoch, sequence, delta, timestamp in batches:
        header = BatchHeader(
            offset, 100, 0, 2, 0, 0, delta, 0, timestamp, producer_id, epoch, sequence, 1
        )
        written.update(header, header.last_offset)
        offset = header.next_offset
    written.write_snapshot(offset)
    read = ProducerStates(fs, Path("/"))
    read.read_snapshot(offset)
    last = {producer_id: rest for producer_id, *rest in batches}
    assert {
        state.producer_id: [
            state.epoch,
            state.batches[-1].first_sequence,
            state.batches[-1].offset_delta,
            state.last_timestamp,
        ]
        for state in read
    } == last
    assert {s.producer_id: s.batches for s in read} == {
        s.producer_id: s.batches for s in written
    }


@given(st.binary(max_size=120), st.booleans())
def test_any_bytes_are_a_snapshot_or_a_damaged_file(data: bytes, fix_crc: bool) -> None:
    fs = CrashFileSystem()
    if fix_crc and len(data) > 6:
        data = b"\0\1" + struct.pack(">I", crc32c(data[6:])) + data[6:]
    path = Path("/") / f"{9:020d}.snapshot"
    fs.write_bytes(path, data)
    producers = ProducerStates(fs, Path("/"))
    try:
        producers.read_snapshot(9)
    except CorruptFile as error:
        assert error.path == path
