"""Flipped bits: the directory loads, serves what is intact, and names what is not."""

from __future__ import annotations

import logging
import random
import re
from pathlib import Path

import pytest
from hypothesis import settings

from odradek.storage import checkpoints
from odradek.storage.directory import LogDirectory
from odradek.storage.errors import CorruptFile, UnknownDirectory
from odradek.storage.files import FileSystem
from odradek.storage.meta_properties import META
from tests.simulation.crashfs import CrashFileSystem
from tests.storage.partition import TOPIC, Partition, StoredBatch, make_batch, read_all

DATA = Path("/data")
LOG_FILES = DATA / f"{TOPIC}-0"


@pytest.fixture(scope="module")
def stopped() -> tuple[Partition, list[StoredBatch]]:
    """A log of some segments with producers, stopped cleanly, and its batches."""
    partition = Partition(CrashFileSystem())
    for at in range(60):
        count = at % 3 + 1
        producer = (at % 2 + 1, 0, sum(b % 3 + 1 for b in range(at % 2, at, 2)))
        partition.append([(b"key%d" % at, bytes(at))] * count, producer=producer)
        partition.clock.advance(37)
    partition.flush()
    batches = partition.batches()
    partition.directory.close()
    return partition, batches


def flip(fs: FileSystem, path: Path, position: int, bit: int) -> None:
    """Flip one bit of a file."""
    data = bytearray(fs.read_bytes(path))
    data[position] ^= 1 << bit
    fs.write_bytes(path, bytes(data))


def copy_of(stopped: Partition) -> CrashFileSystem:
    """A copy of what a log left."""
    assert isinstance(stopped.fs, CrashFileSystem)
    return stopped.fs.clone_after_kill()


def flips(stopped: Partition, kinds: str, seed: int) -> list[tuple[CrashFileSystem, Path, int]]:
    """Directories with one flipped bit each, in a file whose name matches; and where."""
    source = random.Random(seed)
    fs = stopped.fs
    assert isinstance(fs, CrashFileSystem)
    names = [name for name in fs.files(DATA) if re.search(kinds, name)]
    damaged = []
    for _ in range(settings().max_examples):
        path = DATA / source.choice(names)
        position = source.randrange(fs.size(path))
        copy = fs.clone_after_kill()
        flip(copy, path, position, source.randrange(8))
        damaged.append((copy, path, position))
    return damaged


def test_a_flipped_bit_in_an_index_is_neither_seen_nor_kept(
    stopped: tuple[Partition, list[StoredBatch]],
) -> None:
    partition, batches = stopped
    records = [record for batch in batches for record in batch.records]
    for fs, path, position in flips(partition, r"\.(time)?index$", 1):
        log = partition.next_life(fs).log
        assert log.log_end_offset == records[-1].offset + 1, (path, position)
        assert log.segments[-1].max_timestamp == records[-1].timestamp
        for batch in batches:
            found = log.read(batch.base_offset, 1, at_least_one=True)
            assert found is not None
            assert found.read() == batch.data, (path, position)
        for record in records:
            wanted = next(r.offset for r in records if r.timestamp >= record.timestamp)
            found_by_time = log.offset_for_timestamp(record.timestamp)
            assert found_by_time is not None
            assert found_by_time.offset == wanted, (path, position)


def test_a_flipped_bit_in_an_index_is_named(
    stopped: tuple[Partition, list[StoredBatch]], caplog: pytest.LogCaptureFixture
) -> None:
    partition, batches = stopped
    fs = copy_of(partition)
    index = LOG_FILES / f"{0:020d}.index"
    flip(fs, index, 8 + 7, 3)  # the position in the second entry
    log = partition.next_life(fs).log
    with caplog.at_level(logging.WARNING):
        assert read_all(log) == batches
        for batch in batches:
            log.read(batch.base_offset, 1, at_least_one=True)
    assert f"{index} is damaged at position 8: no batch that ends at offset" in caplog.text
    caplog.clear()
    assert read_all(partition.next_life(fs.clone_after_kill()).log) == batches
    assert str(index) not in caplog.text


def test_a_flipped_bit_in_a_snapshot_costs_a_look_into_the_log(
    stopped: tuple[Partition, list[StoredBatch]], caplog: pytest.LogCaptureFixture
) -> None:
    partition, batches = stopped
    known = [(s.producer_id, s.epoch, s.last_sequence) for s in partition.log.producers]
    for fs, path, _ in flips(partition, r"\.snapshot$", 2):
        caplog.clear()
        survived = partition.next_life(fs)
        assert [
            (s.producer_id, s.epoch, s.last_sequence) for s in survived.log.producers
        ] == known
        assert survived.batches() == batches
        if path.name == f"{batches[-1].last_offset + 1:020d}.snapshot":  # the one that is read
            assert f"left out a producer snapshot: {path} is damaged at position" in caplog.text


def test_a_flipped_bit_in_a_checkpoint_costs_a_look_into_the_log(
    stopped: tuple[Partition, list[StoredBatch]],
) -> None:
    partition, batches = stopped
    kinds = "|".join((checkpoints.RECOVERY_POINTS, checkpoints.CLEANER_OFFSETS, "leader-epoch"))
    for fs, _, _ in flips(partition, kinds, 3):
        survived = partition.next_life(fs)
        assert survived.batches() == batches
        survived.append([(b"k", b"v")])
        assert survived.reopen().batches()[:-1] == batches


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "1\n0\n",
        "0\n2\norders 0 5\n",
        "0\n1\norders 0\n",
        "0\n1\norders 0 -5\n",
        "0\n1\n\xff",
    ],
)
def test_a_broken_checkpoint_is_named_and_left_out(
    stopped: tuple[Partition, list[StoredBatch]], text: str, caplog: pytest.LogCaptureFixture
) -> None:
    partition, batches = stopped
    fs = copy_of(partition)
    path = DATA / checkpoints.RECOVERY_POINTS
    fs.write_bytes(path, text.encode("latin-1"))
    survived = partition.next_life(fs)
    assert survived.batches() == batches
    assert f"left out a checkpoint: {path} is damaged at position" in caplog.text


def test_an_empty_checkpoint_is_one_without_entries(
    stopped: tuple[Partition, list[StoredBatch]], caplog: pytest.LogCaptureFixture
) -> None:
    # As Kafka leaves it when it is killed before it has written one.
    partition, batches = stopped
    fs = copy_of(partition)
    fs.write_bytes(DATA / checkpoints.RECOVERY_POINTS, b"")
    survived = partition.next_life(fs)
    assert survived.batches() == batches
    assert "damaged" not in caplog.text


def place_of(batches: list[StoredBatch], path: Path, position: int) -> tuple[int, int]:
    """Return which batch has a byte of a log file, and which of its bytes that is."""
    base = int(path.name[:20])
    at = next(at for at, batch in enumerate(batches) if batch.base_offset >= base)
    while position >= len(batches[at].data):
        position -= len(batches[at].data)
        at += 1
    return at, position


def is_outside_the_crc(position: int) -> bool:
    """Return whether a byte is of the base offset or leader epoch, which nothing guards."""
    return position < 8 or 12 <= position < 16


def test_a_flipped_bit_in_the_log_after_a_crash_cuts_it_there(
    stopped: tuple[Partition, list[StoredBatch]], caplog: pytest.LogCaptureFixture
) -> None:
    partition, batches = stopped
    for fs, path, position in flips(partition, r"\.log$", 4):
        fs.remove(DATA / ".kafka_cleanshutdown")
        fs.remove(DATA / checkpoints.RECOVERY_POINTS)
        caplog.clear()
        found = partition.next_life(fs).batches()
        at, within = place_of(batches, path, position)
        assert found[:at] == batches[:at]
        if not is_outside_the_crc(within):
            assert len(found) == at
            assert f"cut a tail file={path} position=" in caplog.text


def test_a_flipped_bit_in_the_log_after_a_clean_stop_spares_the_rest(
    stopped: tuple[Partition, list[StoredBatch]],
) -> None:
    partition, batches = stopped
    for fs, path, position in flips(partition, r"\.log$", 5):
        log = partition.next_life(fs).log
        at, within = place_of(batches, path, position)
        if is_outside_the_crc(within) or path.name == log.active.path(".log").name:
            continue
        damaged = []
        for number, batch in enumerate(batches):
            try:
                found = log.read(batch.base_offset, 1, at_least_one=True)
            except CorruptFile as error:
                assert error.path == path
                damaged.append(number)
            else:
                assert found is not None
                if found.read() != batch.data:
                    damaged.append(number)
        # An index entry is never far: no more than what lies before the next one is lost.
        assert set(damaged) <= set(range(at, at + 6)), (path, position)


@pytest.mark.parametrize(("byte", "bit"), [(8, 1), (10, 0), (11, 0), (11, 6), (16, 3)])
def test_batches_behind_a_damaged_length_or_magic_are_read(
    stopped: tuple[Partition, list[StoredBatch]],
    caplog: pytest.LogCaptureFixture,
    byte: int,
    bit: int,
) -> None:
    partition, batches = stopped
    for segment in partition.log.segments:
        path = segment.path(".log")
        places = [n for n, b in enumerate(batches) if b.data in partition.fs.read_bytes(path)]
        for number in places[:-1]:
            fs = copy_of(partition)
            start = fs.read_bytes(path).index(batches[number].data)
            flip(fs, path, start + byte, bit)
            caplog.clear()
            log = partition.next_life(fs).log
            for batch in (*batches[:number], *batches[number + 1 :]):
                found = log.read(batch.base_offset, 1, at_least_one=True)
                assert found is not None
                assert found.read() == batch.data
            if byte in (8, 16):  # a length that is near the right one may not be noticed
                with pytest.raises(CorruptFile) as raised:
                    log.read(batches[number].base_offset, 1, at_least_one=True)
                assert (raised.value.path, raised.value.position) == (path, start)
                assert f"{path} is damaged at position {start}: " in caplog.text
            logged = caplog.text.count(f"{path} is damaged at position ")
            assert logged < 5, "each of many reads was logged"
            assert log.log_end_offset == partition.log.log_end_offset


def test_a_replay_leaves_out_what_is_damaged_and_nothing_else(
    stopped: tuple[Partition, list[StoredBatch]], caplog: pytest.LogCaptureFixture
) -> None:
    partition, batches = stopped
    for fs, path, position in flips(partition, r"\.log$", 8):
        at, within = place_of(batches, path, position)
        if is_outside_the_crc(within) or at == len(batches) - 1:
            continue
        log = partition.next_life(fs).log
        caplog.clear()
        replayed = [bytes(data) for _, data in log.batches(0)]
        assert replayed == [b.data for n, b in enumerate(batches) if n != at], (path, position)
        assert f"{path} is damaged at position {position - within}: " in caplog.text


def test_the_bytes_of_a_batch_in_a_record_are_not_taken_for_one() -> None:
    partition = Partition(CrashFileSystem())
    nested = make_batch([(b"k", b"nested")], 5, base_offset=1)
    partition.append([(b"k", b"first")])
    partition.append([(b"k", nested)])
    partition.append([(b"k", b"last")])
    batches = partition.batches()
    partition.directory.close()
    path = LOG_FILES / f"{0:020d}.log"
    start = len(batches[0].data)
    flip(partition.fs, path, start + 40, 0)  # its CRC is wrong now, its length is right
    log = partition.next_life().log
    assert [bytes(data) for _, data in log.batches(0)] == [batches[0].data, batches[2].data]


def test_a_cut_tail_after_a_clean_stop_is_noticed(
    stopped: tuple[Partition, list[StoredBatch]], caplog: pytest.LogCaptureFixture
) -> None:
    partition, batches = stopped
    fs = copy_of(partition)
    path = partition.log.active.path(".log")
    size = fs.size(path) - len(batches[-1].data)
    fs.open(path, write=True).truncate(size)  # just between two batches
    index = path.with_suffix(".index")
    fs.write_bytes(index, b"")
    survived = partition.next_life(fs)
    assert survived.batches() == batches[:-1]
    assert survived.log.leader_epoch == partition.log.leader_epoch + 1
    assert "its recovery point is past its end" in caplog.text


def test_a_start_offset_that_the_epochs_do_not_bear_out_hides_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    partition = Partition(CrashFileSystem())
    for _ in range(10):
        partition.append([(b"k", b"v")])
    partition.log.advance_start_offset(4)
    partition = partition.reopen()
    assert partition.log.log_start_offset == 4
    assert "start offset" not in caplog.text
    partition.directory.close()
    checkpoints.write_offsets(partition.fs, DATA / checkpoints.LOG_START_OFFSETS, {(TOPIC, 0): 6})
    survived = partition.next_life()
    assert survived.log.log_start_offset == 4
    assert "left out a log start offset that the leader epochs do not have" in caplog.text


def test_lost_epochs_do_not_bring_deleted_records_back() -> None:
    partition = Partition(CrashFileSystem())
    for _ in range(10):
        partition.append([(b"k", b"v")])
    partition.log.advance_start_offset(4)
    partition.directory.close()
    partition.fs.remove(LOG_FILES / "leader-epoch-checkpoint")
    for _ in range(2):
        partition = partition.next_life()
        assert partition.log.log_start_offset == 4
        partition.directory.close()


def test_a_damaged_tail_after_a_clean_stop_is_recovered_as_after_a_crash(
    stopped: tuple[Partition, list[StoredBatch]], caplog: pytest.LogCaptureFixture
) -> None:
    partition, batches = stopped
    fs = copy_of(partition)
    path = partition.log.active.path(".log")
    start = fs.size(path) - len(batches[-1].data)
    flip(fs, path, start + 8, 0)  # the batch's length
    survived = partition.next_life(fs)
    assert "recovered a log though it was stopped cleanly" in caplog.text
    assert f"cut a tail file={path} position={start} " in caplog.text
    assert survived.batches() == batches[:-1]
    assert survived.log.leader_epoch == 1


def test_a_damaged_topic_id_is_named_and_put_right(
    stopped: tuple[Partition, list[StoredBatch]], caplog: pytest.LogCaptureFixture
) -> None:
    partition, batches = stopped
    path = LOG_FILES / "partition.metadata"
    whole = partition.fs.read_bytes(path)
    for fs, _, position in flips(partition, "partition.metadata", 6):
        caplog.clear()
        survived = partition.next_life(fs)
        assert survived.batches() == batches
        if position < len(whole) - 1:  # Kafka's file ends without a newline
            assert f"repaired a damaged file: {path} is damaged at position {position}: " in (
                caplog.text
            )
            assert fs.read_bytes(path) == whole
    fs = copy_of(partition)
    flip(fs, path, whole.index(b"topic_id") + 12, 7)
    partition.next_life(fs)
    assert f"{path} is damaged at position 0: it has no topic id" in caplog.text


def damaged_properties(stopped: Partition) -> list[tuple[CrashFileSystem, int | None]]:
    """Every single flip, every truncation, several flips, zeros and rubbish."""
    path = DATA / META
    whole = stopped.fs.read_bytes(path)
    assert isinstance(stopped.fs, CrashFileSystem)
    source = random.Random(7)
    texts: list[tuple[bytes, int | None]] = [(whole[:size], size) for size in range(len(whole))]
    for position in range(len(whole)):
        flipped = bytearray(whole)
        flipped[position] ^= 1 << source.randrange(8)
        texts.append((bytes(flipped), position))
        flipped[source.randrange(len(whole))] ^= 1 << source.randrange(8)
        texts.append((bytes(flipped), None))
    texts += [(bytes(len(whole)), 0), (source.randbytes(4096), 0)]
    made = []
    for text, position in texts:
        fs = stopped.fs.clone_after_kill()
        fs.write_bytes(path, text)
        made.append((fs, position))
    return made


def test_damaged_properties_are_repaired_and_named(
    stopped: tuple[Partition, list[StoredBatch]], caplog: pytest.LogCaptureFixture
) -> None:
    partition, batches = stopped
    path = DATA / META
    whole = partition.fs.read_bytes(path)
    seal = whole.index(b"#crc32c")
    directory_id = whole.index(b"directory.id")
    for fs, position in damaged_properties(partition):
        caplog.clear()
        survived = partition.next_life(fs)
        assert survived.batches() == batches
        assert {b"version=1", b"cluster.id=c", b"node.id=1"} <= set(
            fs.read_bytes(path).splitlines()
        )
        if position is not None and position < directory_id:
            assert f"repaired a damaged file: {path} is damaged at position {position}: " in (
                caplog.text
            )
            assert fs.read_bytes(path)[:directory_id] == whole[:directory_id]
        if position is not None and position >= seal:
            assert fs.read_bytes(path) == whole


def test_damage_does_not_open_the_directory_of_somebody_else(
    stopped: tuple[Partition, list[StoredBatch]],
) -> None:
    fs = copy_of(stopped[0])
    before = fs.read_bytes(DATA / META)
    for cluster_id, node_id in (("d", 1), ("c", 2)):
        with pytest.raises(UnknownDirectory, match=META):
            LogDirectory(fs, DATA, cluster_id=cluster_id, node_id=node_id)
    assert fs.read_bytes(DATA / META) == before


def test_a_log_whose_every_batch_is_damaged_is_loaded_and_refuses_reads(
    stopped: tuple[Partition, list[StoredBatch]],
) -> None:
    partition, batches = stopped
    fs = copy_of(partition)
    path = LOG_FILES / f"{0:020d}.log"
    fs.write_bytes(path, b"\xff" * fs.size(path))
    log = partition.next_life(fs).log
    assert log.log_end_offset == batches[-1].last_offset + 1
    for _ in range(2):
        with pytest.raises(CorruptFile, match=r"0\.log is damaged at position 0"):
            log.read(0, 100, at_least_one=True)
        with pytest.raises(CorruptFile):
            log.read(batches[3].base_offset, 100, at_least_one=True)
    assert log.segments[0].next_offset == 0
    assert log.offset_of_max_timestamp() is not None
    assert next(iter(log.batches(0)))[0].base_offset == log.segments[1].base_offset


def test_a_start_offset_past_the_end_is_left_out(
    stopped: tuple[Partition, list[StoredBatch]], caplog: pytest.LogCaptureFixture
) -> None:
    partition, batches = stopped
    fs = copy_of(partition)
    path = DATA / checkpoints.LOG_START_OFFSETS
    checkpoints.write_offsets(fs, path, {(TOPIC, 0): 4_000})
    survived = partition.next_life(fs)
    assert survived.batches() == batches
    assert "left out a log start offset past the log's end" in caplog.text


def test_a_recovery_point_past_the_end_is_not_relied_on(
    stopped: tuple[Partition, list[StoredBatch]], caplog: pytest.LogCaptureFixture
) -> None:
    partition, _ = stopped
    fs = copy_of(partition)
    fs.remove(DATA / ".kafka_cleanshutdown")
    checkpoints.write_offsets(fs, DATA / checkpoints.RECOVERY_POINTS, {(TOPIC, 0): 4_000})
    flip(fs, LOG_FILES / f"{0:020d}.log", 70, 0)
    assert partition.next_life(fs).batches() == []
    assert "re-read a whole log" in caplog.text
