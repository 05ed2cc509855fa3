"""A log directory: its files to the byte, its lock, whose it is, and how it stops."""

from __future__ import annotations

import errno
import re
import subprocess
import sys
from pathlib import Path

import pytest

from odradek.storage import checkpoints
from odradek.storage.directory import LogDirectory
from odradek.storage.errors import DirectoryInUse, DiskFailure, UnknownDirectory
from odradek.storage.meta_properties import META, read_cluster_id
from odradek.storage.real_files import RealFileSystem
from tests.simulation.crashfs import CrashFileSystem
from tests.storage.partition import SMALL, TOPIC, TOPIC_ID, Partition

DATA = Path("/data")
FS = RealFileSystem()


def test_files_of_a_stopped_directory_to_the_byte() -> None:
    fs = CrashFileSystem()
    partition = Partition(fs)
    for _ in range(3):
        partition.append([(b"k", b"v")])
    partition.log.advance_start_offset(2)
    partition.directory.cleaner_offsets[TOPIC, 0] = 1
    partition.directory.close()
    files = fs.files(DATA)
    assert {name for name in files if "/" not in name} == {
        ".lock",
        ".kafka_cleanshutdown",
        "meta.properties",
        "cleaner-offset-checkpoint",
        "recovery-point-offset-checkpoint",
        "log-start-offset-checkpoint",
        "replication-offset-checkpoint",
    }
    assert {name.removeprefix("orders-0/") for name in files if "/" in name} == {
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "00000000000000000003.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    }
    assert files[".kafka_cleanshutdown"] == b'{"version":0,"brokerEpoch":-1}'
    assert files["cleaner-offset-checkpoint"] == b"0\n1\norders 0 1\n"
    assert files["recovery-point-offset-checkpoint"] == b"0\n1\norders 0 3\n"
    assert files["log-start-offset-checkpoint"] == b"0\n1\norders 0 2\n"
    assert files["replication-offset-checkpoint"] == b"0\n1\norders 0 3\n"
    assert files["orders-0/leader-epoch-checkpoint"] == b"0\n1\n0 2\n"
    assert files["orders-0/partition.metadata"] == (
        b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n"
    )
    meta = files["meta.properties"].decode()
    assert re.fullmatch(
        r"version=1\ncluster.id=c\nnode.id=1\ndirectory.id=[A-Za-z0-9_-]{22}\n"
        r"#crc32c=[0-9a-f]{8}\n",
        meta,
    )


def test_a_running_directory_is_not_marked_as_stopped() -> None:
    partition = Partition(CrashFileSystem()).reopen()
    assert partition.directory.was_clean
    assert not partition.fs.exists(DATA / ".kafka_cleanshutdown")
    killed = partition.next_life()
    assert not killed.directory.was_clean


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "named"),
    [("other", 1, "cluster.id=c"), ("c", 2, "node.id=1")],
)
def test_a_directory_of_somebody_else_is_refused(
    cluster_id: str, node_id: int, named: str
) -> None:
    fs = CrashFileSystem()
    Partition(fs).directory.close()
    before = fs.files(DATA)
    with pytest.raises(UnknownDirectory, match=named):
        LogDirectory(fs, DATA, cluster_id=cluster_id, node_id=node_id)
    assert fs.files(DATA) == before


def test_a_refused_directory_may_be_opened_by_its_owner() -> None:
    fs = CrashFileSystem()
    Partition(fs).directory.close()
    with pytest.raises(UnknownDirectory):
        LogDirectory(fs, DATA, cluster_id="other", node_id=1)
    assert Partition(fs).directory.was_clean


KAFKAS = (
    "#\n#Tue Mar 03 10:00:00 UTC 2026\ncluster.id = abc\nversion=1\n"
    "directory.id=Lg0cAwyzSRq8kQwLFIHb3w\nnode.id=5\n"
)


def test_properties_that_kafka_wrote_are_read_and_get_a_checksum() -> None:
    fs = CrashFileSystem()
    fs.make_directory(DATA)
    fs.write_bytes(DATA / META, KAFKAS.encode())
    assert read_cluster_id(fs, DATA) == "abc"
    LogDirectory(fs, DATA, cluster_id="abc", node_id=5)
    assert set(fs.read_bytes(DATA / META).decode().splitlines()[:-1]) == {
        "version=1",
        "cluster.id=abc",
        "node.id=5",
        "directory.id=Lg0cAwyzSRq8kQwLFIHb3w",
    }
    assert read_cluster_id(fs, DATA) == "abc"


def test_properties_that_kafka_wrote_for_somebody_else_are_refused() -> None:
    fs = CrashFileSystem()
    fs.make_directory(DATA)
    fs.write_bytes(DATA / META, KAFKAS.encode())
    with pytest.raises(UnknownDirectory, match=r"cluster\.id=abc"):
        LogDirectory(fs, DATA, cluster_id="abd", node_id=5)
    assert fs.read_bytes(DATA / META) == KAFKAS.encode()


def test_a_new_directory_belongs_to_nobody() -> None:
    assert read_cluster_id(CrashFileSystem(), DATA) is None


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("orders-0", ("orders", 0)),
        ("a-b-12", ("a-b", 12)),
        ("-0", None),
        ("orders-", None),
        ("orders-007", None),
        ("orders", None),
        ("orders-1.0123456789abcdef0123456789abcdef-delete", None),
        ("orders-1.0123456789abcdef0123456789abcdef-stray", None),
    ],
)
def test_names_of_partitions_are_recognized(name: str, found: tuple[str, int] | None) -> None:
    fs = CrashFileSystem()
    directory = LogDirectory(fs, DATA, cluster_id="c", node_id=1)
    fs.make_directory(DATA / name)
    assert list(directory.partitions()) == ([found] if found else [])


def test_two_processes_cannot_share_a_directory(tmp_path: Path) -> None:
    held = LogDirectory(FS, tmp_path, cluster_id="c", node_id=1)
    program = (
        "import sys; from pathlib import Path\n"
        "from odradek.storage.directory import LogDirectory\n"
        "from odradek.storage.real_files import RealFileSystem\n"
        "from odradek.storage.errors import DirectoryInUse\n"
        "try: LogDirectory(RealFileSystem(), Path(sys.argv[1]), cluster_id='c', node_id=1)\n"
        "except DirectoryInUse as error: print(error)"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    root = Path(__file__).parents[2]
    other = subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=60)
    assert f"{tmp_path} is in use by another process" in other.stdout, other.stderr
    with pytest.raises(DirectoryInUse):
        LogDirectory(FS, tmp_path, cluster_id="c", node_id=1)
    held.close()
    other = subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=60)
    assert (other.stdout, other.returncode) == ("", 0)


def test_deleting_a_log_takes_its_directory_away_in_two_steps(tmp_path: Path) -> None:
    partition = Partition(FS, tmp_path / "data")
    partition.append([(b"k", b"v")])
    reader = partition.log.read(0, 100, at_least_one=True)
    directory, clock = partition.directory, partition.clock
    directory.cleaner_offsets[TOPIC, 0] = 1
    directory.delete_log(partition.log, clock.now_ms())
    assert partition.log.is_deleted
    assert directory.logs == {}
    assert directory.partitions() == {}
    names = [path.name for path in (tmp_path / "data").glob("orders-*")]
    assert len(names) == 1
    assert re.fullmatch(r"orders-0\.[0-9a-f]{32}-delete", names[0])
    for name in (checkpoints.CLEANER_OFFSETS, checkpoints.RECOVERY_POINTS):
        assert checkpoints.read_offsets(FS, tmp_path / "data" / name) == {}
    # The name is free at once, and readers finish.
    again = directory.create_log(TOPIC, 0, bytes(16), SMALL, now_ms=clock.now_ms())
    assert again.log_end_offset == 0
    assert directory.take_due_removals(clock.advance(SMALL.file_delete_delay_ms - 1)) == []
    due = directory.take_due_removals(clock.advance(1))
    directory.remove(due)
    assert not list((tmp_path / "data").glob("*-delete"))
    assert reader is not None
    assert len(reader.read()) == reader.size


def test_a_log_that_was_being_deleted_is_gone_after_a_restart() -> None:
    partition = Partition(CrashFileSystem())
    partition.directory.delete_log(partition.log, 0)
    fs = partition.fs
    reopened = partition.next_life()
    assert not [name for name in fs.list(DATA) if name.endswith("-delete")]
    assert reopened.log.log_end_offset == 0


def test_a_flush_under_way_survives_the_deletion_of_its_log(tmp_path: Path) -> None:
    partition = Partition(FS, tmp_path)
    partition.append([(b"k", b"v")])
    unflushed = partition.log.unflushed()
    assert unflushed.directory is not None
    partition.directory.delete_log(partition.log, 0)
    unflushed.sync()


def test_a_log_that_cannot_be_closed_leaves_the_others_closed() -> None:
    fs = CrashFileSystem()
    partition = Partition(fs)
    directory = partition.directory
    other = directory.create_log("other", 0, bytes(16), SMALL, now_ms=0)
    partition.append([(b"k", b"v")])
    other.append(_batch(partition), now_ms=partition.clock.now_ms())

    def refuse(kind: str, path: Path) -> OSError | None:
        return OSError(errno.EIO, "I/O error") if path.parent.name == "orders-0" else None

    fs.refuse = refuse
    with pytest.raises(DiskFailure):
        directory.close()
    fs.refuse = None
    assert not fs.exists(DATA / ".kafka_cleanshutdown")
    points = checkpoints.read_offsets(fs, DATA / checkpoints.RECOVERY_POINTS)
    assert points == {(TOPIC, 0): 0, ("other", 0): 1}


def _batch(partition: Partition) -> bytes:
    return partition.batches()[0].data


def test_offsets_of_partitions_that_are_gone_do_not_come_back_with_their_names() -> None:
    partition = Partition(CrashFileSystem())
    fs = partition.fs
    partition.append([(b"k", b"v")] * 5)
    partition.flush()
    partition.log.advance_start_offset(3)
    partition.directory.cleaner_offsets[TOPIC, 0] = 4
    partition.directory.close()
    fs.remove_tree(DATA / "orders-0")
    again = partition.next_life()
    assert (again.log.log_start_offset, again.log.log_end_offset) == (0, 0)
    assert again.directory.cleaner_offsets == {}


def test_notes_on_logs_that_are_not_loaded_yet_stay() -> None:
    """As when the deletion of a topic is finished while the others are still being loaded."""
    partition = Partition(CrashFileSystem())
    partition.append([(b"k", b"v")] * 5)
    partition.log.advance_start_offset(3)
    other = partition.directory.create_log("other", 0, bytes(16), SMALL, now_ms=0)
    partition.directory.close()
    partition.directory._lock = None
    directory = LogDirectory(partition.fs, DATA, cluster_id="c", node_id=1)
    loaded = directory.create_log("other", 0, bytes(16), SMALL, now_ms=0)
    assert loaded.name == other.name
    directory.delete_log(loaded, 0)
    log = directory.create_log(TOPIC, 0, TOPIC_ID, SMALL, now_ms=0)
    assert (log.log_start_offset, log.leader_epoch) == (3, 0)


@pytest.mark.parametrize("first_stop", ["clean", "killed"])
def test_a_stop_before_all_is_loaded_says_nothing_of_the_rest(first_stop: str) -> None:
    partition = Partition(CrashFileSystem())
    fs = partition.fs
    partition.append([(b"k", b"v")] * 5)
    partition.flush()
    partition.directory.write_checkpoints()
    if first_stop == "clean":
        partition.directory.close()
    partition.directory._lock = None
    LogDirectory(fs, DATA, cluster_id="c", node_id=1).close()  # loads nothing
    again = partition.next_life()
    assert again.directory.was_clean
    assert again.log.leader_epoch == (0 if first_stop == "clean" else 1)
    assert len(again.records()) == 5


def test_an_id_that_is_not_known_yet_is_written_at_the_next_load() -> None:
    fs = CrashFileSystem()
    partition = Partition(fs)
    partition.directory.close()
    fs.remove(DATA / "orders-0" / "partition.metadata")
    reopened = partition.next_life()
    assert reopened.directory.partitions() == {(TOPIC, 0): TOPIC_ID}


def test_a_damaged_checksum_does_not_make_damaged_properties_somebody_elses() -> None:
    fs = CrashFileSystem()
    Partition(fs).directory.close()
    whole = fs.read_bytes(DATA / META)
    for at in range(whole.index(b"#crc"), len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[at] ^= 1 << bit
            damaged[whole.index(b"cluster.id=c") + len("cluster.id=")] ^= 1
            fs.write_bytes(DATA / META, bytes(damaged))
            LogDirectory(fs, DATA, cluster_id="c", node_id=1)
            assert fs.read_bytes(DATA / META) == whole
