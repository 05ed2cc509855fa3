"""What a start makes of what a stop left: torn tails, lost files, half-done exchanges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from odradek.storage.segment import CLEANED, DELETED, INDEX, LOG, SWAP, TIME_INDEX
from tests.simulation.crashfs import CrashFileSystem
from tests.storage.partition import (
    SMALL,
    TOPIC,
    TOPIC_ID,
    Partition,
    StoredBatch,
    clean,
    make_batch,
)

FILES = Path("/data/orders-0")
CONFIG = replace(SMALL, internal_segment_bytes=1000)


def filled(batches: int = 40) -> tuple[CrashFileSystem, Partition, list[StoredBatch]]:
    """A log of some segments that is on the disk, and its batches."""
    fs = CrashFileSystem()
    partition = Partition(fs, config=CONFIG)
    for at in range(batches):
        partition.append([(b"key%d" % (at % 5), bytes(at % 11))] * 2)
        partition.clock.advance(10)
    return fs, partition, partition.batches()


def killed(partition: Partition) -> CrashFileSystem:
    assert isinstance(partition.fs, CrashFileSystem)
    return partition.fs.clone_after_kill()


@pytest.mark.parametrize("left", [0, 1, 11, 12, 17, 60, 61, 70])
def test_a_torn_last_batch_is_cut_off(left: int, caplog: pytest.LogCaptureFixture) -> None:
    _, partition, batches = filled(5)
    fs = killed(partition)
    path = partition.log.active.path(LOG)
    start = fs.size(path) - len(batches[-1].data)
    fs.open(path, write=True).truncate(start + left)
    survived = partition.next_life(fs)
    assert survived.batches() == batches[:-1]
    assert survived.log.log_end_offset == batches[-1].base_offset
    assert fs.size(path) == start
    assert (f"cut a tail file={path} position={start} bytes={left} " in caplog.text) == (left > 0)
    assert survived.append([(b"k", b"v")]).base_offset == batches[-1].base_offset


@pytest.mark.parametrize("size", [1, 60, 4096])
def test_zeros_after_the_last_batch_are_cut_off(size: int) -> None:
    """As a file system leaves them when it grew the file before it wrote."""
    _, partition, batches = filled(5)
    fs = killed(partition)
    file = fs.open(partition.log.active.path(LOG), write=True)
    file.append(file.size(), (bytes(size),))
    assert partition.next_life(fs).batches() == batches


def test_batches_after_a_torn_batch_go_too() -> None:
    """Offsets in a log have no gap that a cleaning did not make."""
    _, partition, batches = filled()
    fs = killed(partition)
    torn = partition.log.segments[1]
    fs.open(torn.path(LOG), write=True).truncate(torn.size_bytes - 1)
    survived = partition.next_life(fs)
    kept = [batch for batch in batches if batch.last_offset < survived.log.log_end_offset]
    assert survived.batches() == kept
    assert kept[-1].last_offset + 1 == batches[len(kept)].base_offset
    assert len(survived.log.segments) == 2
    assert sorted(fs.list(FILES)) == sorted(
        [s.path(kind).name for s in survived.log.segments for kind in (LOG, INDEX, TIME_INDEX)]
        + [f"{survived.log.active.base_offset:020d}.snapshot"]
        + ["leader-epoch-checkpoint", "partition.metadata"]
    )


def test_segments_before_the_recovery_point_are_not_read_again() -> None:
    _, partition, batches = filled()
    partition.flush()
    partition.directory.write_checkpoints()
    fs = killed(partition)
    touched = partition.log.segments[0]
    data = bytearray(fs.read_bytes(touched.path(LOG)))
    data[70] ^= 1  # a record of the first batch; its CRC would tell
    fs.write_bytes(touched.path(LOG), bytes(data))
    survived = partition.next_life(fs)
    assert len(survived.batches()) == len(batches)
    assert survived.batches()[1:] == batches[1:]


@pytest.mark.parametrize("kind", [INDEX, TIME_INDEX])
@pytest.mark.parametrize("stop", ["clean", "killed"])
def test_a_missing_index_is_made_again(
    kind: str, stop: str, caplog: pytest.LogCaptureFixture
) -> None:
    fs, partition, batches = filled()
    partition.flush()
    partition.directory.write_checkpoints()
    if stop == "clean":
        partition.directory.close()
    fs = killed(partition)
    path = partition.log.segments[1].path(kind)
    fs.remove(path)
    survived = partition.next_life(fs)
    assert survived.batches() == batches
    assert fs.exists(path)
    assert f"{path} is damaged at position 0: missing" in caplog.text


def test_recovery_writes_the_indexes_that_appending_wrote() -> None:
    fs, partition, _ = filled()
    for segment in partition.log.segments[:-1]:
        segment.flush()
    after = killed(partition)
    for name in after.list(FILES):
        if name.endswith((INDEX, TIME_INDEX)):
            after.write_bytes(FILES / name, b"rubbish")
    partition.next_life(after)
    for segment in partition.log.segments[:-1]:
        for kind in (INDEX, TIME_INDEX):
            assert after.read_bytes(segment.path(kind)) == fs.read_bytes(segment.path(kind))


# --- leader epochs --------------------------------------------------------------------------


def test_a_clean_restart_keeps_the_epoch_and_a_crash_begins_the_next() -> None:
    _, partition, batches = filled(5)
    assert partition.log.leader_epoch == 0
    reopened = partition.reopen()
    assert reopened.log.leader_epoch == 0
    survived = reopened.next_life(killed(reopened))
    assert survived.log.leader_epoch == 1
    assert survived.log.end_offset_for_epoch(0) == (0, batches[-1].last_offset + 1)
    survived.append([(b"k", b"v")])
    assert survived.log.end_offset_for_epoch(1) == (1, survived.log.log_end_offset)
    assert survived.log.epoch_of(survived.log.log_end_offset - 1) == 1


def test_an_epoch_is_never_used_for_other_records() -> None:
    """What epoch 1 wrote is lost; who has read it must see that (KIP-320)."""
    _, partition, _ = filled(5)
    partition.flush()
    second = partition.next_life(killed(partition))
    assert second.log.leader_epoch == 1
    second.flush()
    end = second.log.log_end_offset
    after = killed(second)
    after.write_bytes(
        FILES / "leader-epoch-checkpoint", f"0\n3\n0 0\n1 {end}\n2 {end + 7}\n".encode()
    )
    third = second.next_life(after)
    assert third.log.log_end_offset == end
    assert third.log.leader_epoch == 3
    assert third.log.end_offset_for_epoch(2) == (0, end)


def test_lost_epochs_are_read_from_the_log(caplog: pytest.LogCaptureFixture) -> None:
    """An epoch that went back would strand consumers, who wait for the one they have seen."""
    fs = CrashFileSystem()
    partition = Partition(fs, config=CONFIG)
    for epoch in (0, 0, 3, 3, 8):
        log = partition.log
        batch = make_batch([(b"k", b"v")], 1, base_offset=log.log_end_offset, leader_epoch=epoch)
        log.active.append((batch,), len(batch), log.log_end_offset, 1, 200)
        log.log_end_offset += 1
    partition.directory.close()
    path = FILES / "leader-epoch-checkpoint"
    assert fs.read_bytes(path) == b"0\n1\n0 0\n"
    for content in (None, b"0\n1\n0 zero\n", b"0\n2\n3 0\n1 5\n"):
        after = killed(partition)
        if content is None:
            after.remove(path)
        else:
            after.write_bytes(path, content)
        survived = partition.next_life(after)
        assert after.read_bytes(path) == b"0\n3\n0 0\n3 2\n8 4\n"
        assert survived.log.leader_epoch == 8
    assert f"{path} is damaged at position 3" in caplog.text


# --- exchanges ------------------------------------------------------------------------------


def exchanged() -> tuple[CrashFileSystem, Partition, list[StoredBatch], CrashFileSystem]:
    """A log before and after an exchange of its second to fourth segment."""
    fs, partition, _ = filled(60)
    partition.flush()
    before = fs.clone_after_kill()
    batches = partition.batches()
    clean(partition, 1, 3, {batch.base_offset for batch in batches[::3]})
    return before, partition, partition.batches(), fs


def put(fs: CrashFileSystem, source: CrashFileSystem, name: str, suffix: str) -> None:
    for kind in (LOG, INDEX, TIME_INDEX):
        data = source.read_bytes(FILES / (name + kind))
        fs.write_bytes(FILES / (name + kind + suffix), data)


@pytest.mark.parametrize("suffix", [CLEANED, DELETED])
def test_files_that_are_not_part_of_the_log_are_removed(suffix: str) -> None:
    before, partition, _, fs = exchanged()
    put(before, fs, f"{partition.log.segments[1].base_offset:020d}", suffix)
    before.write_bytes(FILES / "leader-epoch-checkpoint.tmp", b"0\n")
    expected = partition.next_life(before.clone_after_kill()).batches()
    assert partition.next_life(before).batches() == expected
    assert not [name for name in before.list(FILES) if name.endswith((suffix, ".tmp"))]


def test_an_offered_segment_takes_the_place_of_its_originals() -> None:
    before, partition, after, fs = exchanged()
    put(before, fs, f"{partition.log.segments[1].base_offset:020d}", SWAP)
    assert partition.next_life(before).batches() == after


def test_an_offered_segment_whose_fellow_is_not_offered_is_removed() -> None:
    before, partition, _, fs = exchanged()
    expected = partition.next_life(before.clone_after_kill()).batches()
    name = f"{partition.log.segments[1].base_offset:020d}"
    put(before, fs, name, SWAP)
    put(before, fs, name, CLEANED)
    assert partition.next_life(before).batches() == expected


def test_indexes_without_a_log_are_removed() -> None:
    fs, partition, batches = filled(5)
    partition.directory.close()
    stray = FILES / f"{77:020d}.index"
    fs.write_bytes(stray, b"")
    assert partition.next_life(fs).batches() == batches
    assert not fs.exists(stray)


# --- large batches and start offsets --------------------------------------------------------


def test_a_batch_larger_than_what_is_read_at_once_is_recovered() -> None:
    fs = CrashFileSystem()
    large = replace(SMALL, internal_segment_bytes=None, max_message_bytes=10_000_000)
    partition = Partition(fs, config=large)
    partition.append([(b"small", b"v")])
    partition.append([(b"large", bytes(5 << 20))])
    partition.append([(b"small", b"w")])
    batches = partition.batches()
    survived = partition.next_life(killed(partition))
    assert survived.batches() == batches
    torn = killed(partition)
    torn.open(partition.log.active.path(LOG), write=True).truncate(4 << 20)
    assert partition.next_life(torn).batches() == batches[:1]


def test_the_start_offset_is_noted_no_further_than_the_log_is_durable() -> None:
    _, partition, batches = filled(10)
    partition.log.advance_start_offset(20)
    partition.directory.write_checkpoints()
    survived = partition.next_life(killed(partition))
    assert (survived.log.log_start_offset, survived.batches()) == (0, batches)
    survived.log.advance_start_offset(5)
    survived.directory.write_checkpoints()
    again = survived.next_life(killed(survived))
    assert (again.log.log_start_offset, again.log.log_end_offset) == (5, 20)
    assert again.batches() == batches[2:]


def test_an_empty_log_keeps_its_offsets() -> None:
    _, partition, _ = filled(10)
    partition.log.delete_segments(99, partition.clock.now_ms())
    ends = partition.log.log_start_offset, partition.log.log_end_offset
    assert ends == (20, 20)
    reopened = partition.reopen()
    assert (reopened.log.log_start_offset, reopened.log.log_end_offset) == ends
    assert reopened.append([(b"k", b"v")]).base_offset == 20


def test_a_directory_that_kafka_left_is_loaded() -> None:
    """Its active indexes are preallocated, and it knows of no recovery point."""
    fs = CrashFileSystem()
    partition = Partition(fs, config=replace(CONFIG, internal_segment_bytes=10_000))
    for _ in range(30):
        partition.append([(b"k", b"v")] * 3)
    batches = partition.batches()
    partition.directory.close()
    active = partition.log.active
    for kind in (INDEX, TIME_INDEX):
        fs.write_bytes(active.path(kind), fs.read_bytes(active.path(kind)) + bytes(1200))
    fs.remove(Path("/data/recovery-point-offset-checkpoint"))
    survived = partition.next_life(fs)
    assert survived.batches() == batches
    survived.append([(b"k", b"v")])
    assert survived.reopen().batches()[:-1] == batches


def test_partitions_of_one_directory_are_loaded_each_for_itself() -> None:
    fs, partition, batches = filled(5)
    other = partition.directory.create_log(TOPIC, 1, TOPIC_ID, CONFIG, now_ms=0)
    fs.write_bytes(other.active.path(LOG), b"rubbish")
    survived = partition.next_life(killed(partition))
    assert survived.batches() == batches
    again = survived.directory.create_log(TOPIC, 1, TOPIC_ID, CONFIG, now_ms=0)
    assert again.log_end_offset == 0
