"""Files of a bucket under names of the file system, and segments and logs of such files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.storage.errors import CorruptFile, NotCached
from odradek.storage.files import FileSystem
from odradek.storage.log import Log
from odradek.storage.objects.cached_files import CachedFiles
from odradek.storage.readable_log import LogIdentity, LogParts, ReadableLog
from odradek.storage.reading import aborted_between
from odradek.storage.real_files import RealFileSystem
from odradek.storage.segment import DELETED, INDEX, LOG, SUFFIXES, Segment
from tests.simulation.crashfs import CrashFileSystem
from tests.simulation.faultyfs import FaultyFileSystem
from tests.storage.partition import TOPIC, TOPIC_ID, Partition, read_all
from tests.storage.remote import MODIFIED_MS, contents, upload, upload_file
from tests.storage.transactional import end, write
from tests.support.object_store import MemoryStore

T = TypeVar("T")

BLOCK = 256
PLENTY = 1 << 20
DATA = Path("/data")


@pytest.fixture(params=["real", "simulated"])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[CachedFiles, Path]]:
    """A cache over a file system, and a directory in it."""
    below: FileSystem = RealFileSystem() if request.param == "real" else CrashFileSystem()
    below.make_directory(tmp_path)
    fs = CachedFiles(below, PLENTY, block_bytes=BLOCK)
    yield fs, tmp_path
    fs.close()


# --- names ------------------------------------------------------------------------------------


def test_a_remote_file_is_a_file(home: tuple[CachedFiles, Path]) -> None:
    fs, path = home
    data = contents(1000)
    fs.write_bytes(path / "local", b"local")
    fs.add_remote(path / "remote", upload(MemoryStore(), "key", data))
    assert fs.list(path) == ["local", "remote"]
    assert fs.exists(path / "remote")
    assert fs.is_regular(path / "remote")
    assert not fs.is_directory(path / "remote")
    assert not fs.is_link(path / "remote")
    assert fs.modified_ms(path / "remote") == MODIFIED_MS
    assert fs.size(path / "remote") == fs.open(path / "remote", write=True).size() == len(data)
    assert fs.counters.requests == 0
    assert fs.read_bytes(path / "remote") == data
    with pytest.raises(CorruptFile):
        fs.read_bytes(path / "remote", 999)
    assert fs.open(path / "remote").read(990, 99) == data[990:]
    assert fs.open(path / "remote").read(1000, 9) == b""
    fs.remove(path / "remote")
    assert fs.list(path) == ["local"]
    fs.remove(path / "remote")


def test_an_empty_remote_file_needs_no_request(home: tuple[CachedFiles, Path]) -> None:
    fs, path = home
    fs.add_remote(path / "empty", upload(MemoryStore(), "key", b""))
    assert fs.read_bytes(path / "empty") == b""
    assert fs.open(path / "empty").read_cached(0, 9) == b""
    assert fs.counters.requests == 0


def test_other_files_are_those_below(home: tuple[CachedFiles, Path]) -> None:
    fs, path = home
    file = fs.open(path / "file", write=True)
    assert file.append(0, [b"ab", b"cd"]) == 4
    file.truncate(3)
    file.sync()
    assert (file.size(), file.read(1, 9), fs.read_bytes(path / "file")) == (3, b"bc", b"abc")
    assert bytes(file.read_cached(0, 2) or b"") == b"ab"
    assert not file.is_fixed
    held = file.hold()
    file.rename(path / "other")
    assert (file.path, fs.list(path)) == (path / "other", ["other"])
    fs.write_atomically(path / "other", b"new")
    assert held.read(0, 9) == b"abc"
    fs.make_directory(path / "sub")
    fs.rename(path / "other", path / "sub" / "name")
    fs.set_modified_ms(path / "sub" / "name", 5)
    assert fs.modified_ms(path / "sub" / "name") == 5
    fs.remove_tree(path / "sub")
    assert fs.list(path) == []


def test_a_local_file_in_the_place_of_a_remote_one_is_not_trusted(
    home: tuple[CachedFiles, Path],
) -> None:
    fs, path = home
    data = contents(600)
    fs.write_bytes(path / "file", bytes(600))
    fs.add_remote(path / "file", upload(MemoryStore(), "key", data))
    assert fs.open(path / "file").read_cached(0, 9) is None
    assert fs.open(path / "file").read(BLOCK, 9) == data[BLOCK : BLOCK + 9]
    assert fs._fs.size(path / "file") == 2 * BLOCK  # and its space is free
    assert fs.read_bytes(path / "file") == data


def test_a_remote_file_is_never_written(home: tuple[CachedFiles, Path]) -> None:
    fs, path = home
    fs.write_bytes(path / "file", b"content")
    opened = fs.open(path / "file", write=True)
    fs.adopt(path / "file", upload(MemoryStore(), "key", b"content"))
    assert opened.is_fixed
    opened.sync()
    assert opened.opened() is None
    for change in (
        lambda: opened.append(0, [b"x"]),
        lambda: opened.truncate(0),
        lambda: opened.free(0, 1),
        lambda: fs.write_bytes(path / "file", b""),
        lambda: fs.write_private(path / "file", b""),
        lambda: fs.set_modified_ms(path / "file", 0),
        lambda: fs.adopt(path / "file", upload(MemoryStore(), "key", b"content")),
    ):
        with pytest.raises(RuntimeError, match="never written"):
            change()
    assert fs.read_bytes(path / "file") == b"content"
    fs.write_atomically(path / "file", b"a new file")
    assert fs.read_bytes(path / "file") == b"a new file"
    assert opened.hold().read(0, 9) == b"content"
    assert fs.cached_bytes == 0


def test_only_a_file_of_the_same_size_is_adopted(home: tuple[CachedFiles, Path]) -> None:
    fs, path = home
    fs.write_bytes(path / "file", b"conten")
    with pytest.raises(CorruptFile, match="object key"):
        fs.adopt(path / "file", upload(MemoryStore(), "key", b"content"))
    assert fs.read_bytes(path / "file") == b"conten"


def test_an_adopted_file_is_dropped_under_its_readers() -> None:
    below, data = CrashFileSystem(), contents(40 * BLOCK)
    below.make_directory(DATA)
    fs = CachedFiles(below, 4 * BLOCK, block_bytes=BLOCK)
    path = DATA / "file"
    opened = fs.open(path, write=True)
    opened.append(0, [data])
    held = opened.hold()
    fs.adopt(path, upload(MemoryStore(), "key", data))
    assert fs.cached_bytes == 4 * BLOCK
    assert below.read_bytes(path) != data
    for file in (opened, held, fs.open(path)):
        assert file.read_cached(0, 2 * BLOCK) is None
        assert file.read(0, len(data)) == data
        assert fs.cached_bytes <= 4 * BLOCK
    fs.close()  # until here the read-ahead may have had no room for the last block
    for file in (opened, held, fs.open(path)):
        assert file.read(39 * BLOCK, 9) == data[39 * BLOCK :][:9]
        assert bytes(file.read_cached(39 * BLOCK, 9) or b"") == data[39 * BLOCK :][:9]


@pytest.mark.parametrize("is_cached", [False, True])
def test_a_read_that_began_before_its_file_was_adopted_finds_no_hole(
    tmp_path: Path, is_cached: bool
) -> None:
    disk, path, data = FaultyFileSystem(), tmp_path / "file", contents(8192)
    fs = CachedFiles(disk, 1, block_bytes=4096)  # type: ignore[arg-type]
    path.write_bytes(data)
    opened = fs.open(path)

    def adopt(kind: str, _: Path) -> None:
        if kind == "read" and not opened.is_fixed:
            fs.adopt(path, upload(MemoryStore(), "key", data))

    disk.refuse = adopt
    if is_cached:
        assert opened.read_cached(0, 99) is None
    else:
        assert opened.read(0, 99) == data[:99]
    assert opened.is_fixed
    fs.close()


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["add", "write", "adopt", "rename", "rename open", "move", "remove", "read", "hold"]
        ),
        st.sampled_from("abc"),
        st.sampled_from("abc"),
        st.integers(0, 900),
    ),
    max_size=40,
)


@given(
    steps=STEPS,
    bytes_max=st.sampled_from([2 * BLOCK, PLENTY]),
    memory_bytes_max=st.sampled_from([0, 3 * BLOCK]),
)
def test_names_lead_to_the_files_that_have_them(
    steps: list[tuple[str, str, str, int]], bytes_max: int, memory_bytes_max: int
) -> None:
    """Any changes of names, beside a dict of bytes; readers go on with the file they hold."""
    with TemporaryDirectory() as root:
        # With one descriptor nearly each use of a file opens it, by the name that it has then.
        below = RealFileSystem(open_files_max=1)
        fs = CachedFiles(below, bytes_max, memory_bytes_max=memory_bytes_max, block_bytes=BLOCK)
        paths = _check_names(fs, below, Path(root), steps)
        assert fs.cached_bytes <= bytes_max
        assert fs.memory_bytes <= memory_bytes_max
        for path in paths:
            fs.remove(path)
        assert fs.cached_bytes == fs.memory_bytes == 0
        fs.close()


def _check_names(
    fs: CachedFiles, below: FileSystem, root: Path, steps: list[tuple[str, str, str, int]]
) -> list[Path]:
    """Change names and compare; return the files that are left."""
    store, directory = MemoryStore(), root / "0"
    below.make_directory(directory)
    model: dict[str, bytes] = {}
    remote: set[str] = set()
    held = []
    for number, (kind, name, other, size) in enumerate(steps):
        path, data = directory / name, contents(size, number)
        if kind == "add":
            fs.add_remote(path, upload(store, str(number), data))
            model[name] = data
            remote.add(name)
        elif kind == "write":
            fs.write_atomically(path, data)
            model[name] = data
            remote.discard(name)
        elif kind == "move":
            directory = root / f"then {number}"
            fs.rename(path.parent, directory)
        elif name not in model:
            continue
        elif kind == "adopt" and name not in remote:
            fs.adopt(path, upload(store, str(number), model[name]))
            remote.add(name)
        elif kind in ("rename", "rename open") and name != other:
            if kind == "rename":
                fs.rename(path, directory / other)
            else:
                fs.open(path).rename(directory / other)
            model[other] = model.pop(name)
            remote.discard(other)
            if name in remote:
                remote.remove(name)
                remote.add(other)
        elif kind == "remove":
            fs.remove(path)
            del model[name]
            remote.discard(name)
        elif kind == "read":
            assert fs.open(path).read(size, 300) == model[name][size : size + 300]
        elif kind == "hold":
            held.append((fs.open(path).hold(), model[name]))
        assert fs.list(directory) == sorted(model)
        assert {name for name in model if fs.open(directory / name).is_fixed} == remote
    for file, data in held:
        assert file.read(0, 999) == data
    for name, data in model.items():
        assert fs.size(directory / name) == len(data)
        assert fs.read_bytes(directory / name) == data
    return [directory / name for name in model]


class Watched(RealFileSystem):
    """Real files, of which one has a descriptor; `renamed` is called after each rename."""

    def __init__(self) -> None:
        super().__init__(open_files_max=1)
        self.renamed: Callable[[], object] = lambda: None

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        self.renamed()


@pytest.mark.parametrize("change", ["remove", "write", "rename over", "remove tree", "move"])
def test_a_copy_that_was_made_after_its_reader_began_is_read_under_any_change(
    tmp_path: Path, change: str
) -> None:
    below, store, data = Watched(), MemoryStore(), contents(3 * BLOCK)
    fs, path = CachedFiles(below, PLENTY, block_bytes=BLOCK), tmp_path / "0" / "file"
    below.make_directory(path.parent)
    fs.add_remote(path, upload(store, "key", data))
    held = fs.open(path).hold()
    assert fs.read_bytes(path) == data
    store.objects.clear()
    other = fs.open(tmp_path / "other", write=True)
    other.append(0, [bytes(999)])  # which has the descriptor now
    below.renamed = lambda: held.read(0, BLOCK)
    if change == "remove":
        fs.remove(path)
    elif change == "write":
        fs.write_atomically(path, bytes(999))
    elif change == "rename over":
        other.rename(path)
    elif change == "remove tree":
        fs.remove_tree(path.parent)
    else:
        fs.rename(path.parent, tmp_path / "1")
        assert fs.read_bytes(tmp_path / "1" / "file") == data
    assert other.read(0, 999) == bytes(999)
    assert held.read(0, 9999) == data
    fs.close()


def test_an_adopted_file_is_renamed_by_its_owner(tmp_path: Path) -> None:
    fs, data = CachedFiles(Watched(), PLENTY, block_bytes=BLOCK), contents(3 * BLOCK)
    (tmp_path / "file").write_bytes(data)
    owner = fs.open(tmp_path / "file", write=True)
    fs.adopt(tmp_path / "file", upload(MemoryStore(), "key", data))
    owner.rename(tmp_path / "renamed")
    fs.open(tmp_path / "other", write=True)  # which has the descriptor now
    assert fs.open(tmp_path / "renamed").read(0, 9999) == data
    assert fs.counters.requests == 0
    fs.close()


# --- segments and logs ------------------------------------------------------------------------


def filled(fs: FileSystem) -> Partition:
    """A log of many segments, with a transaction that was aborted."""
    partition = Partition(fs)
    for at in range(60):
        partition.append([(b"key%d" % (at % 5), bytes(at % 50))] * (at % 3 + 1))
        if at == 20:
            write(partition, 7, 0, 0, b"aborted")
        if at == 30:
            end(partition, 7, 0, commit=False)
        partition.clock.advance(10)
    partition.log.roll(partition.clock.now_ms())
    return partition


def in_thread(operation: Callable[[], T]) -> T:
    """Do what may wait for the store."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(operation).result()


@contextmanager
def elsewhere(
    local: Log, loop_thread: int | None = None, bytes_max: int = PLENTY
) -> Iterator[tuple[CachedFiles, ReadableLog, MemoryStore]]:
    """The sealed segments of a log on another machine, which has none of their bytes."""
    below, store = CrashFileSystem(), MemoryStore()
    fs = CachedFiles(below, bytes_max, block_bytes=BLOCK, loop_thread=loop_thread)
    fs.make_directory(local.directory)
    for segment in local.segments[:-1]:
        for path in map(segment.path, SUFFIXES):
            if segment.fs.exists(path):
                fs.add_remote(path, upload_file(store, segment.fs, path))
    segments = [Segment(fs, local.directory, one.base_offset) for one in local.segments[:-1]]
    parts = LogParts(segments, 0, local.log_end_offset, local._epochs, local.producers)
    identity = LogIdentity(TOPIC, 0, TOPIC_ID)
    log = in_thread(lambda: ReadableLog(local.directory, identity, local.config, parts))
    yield fs, log, store
    fs.close()


@pytest.mark.parametrize("bytes_max", [3 * BLOCK, PLENTY])
@pytest.mark.parametrize("size_max", [1, 500, PLENTY])
def test_a_remote_log_reads_as_the_local_one(size_max: int, bytes_max: int) -> None:
    local = filled(CrashFileSystem()).log
    with elsewhere(local, bytes_max=bytes_max) as (fs, log, _):
        assert len(log.segments) > 3
        assert log.log_end_offset == local.log_end_offset
        assert read_all(log, size_max) == read_all(local, size_max)  # type: ignore[arg-type]
        for batch in read_all(local):
            for record in batch.records:
                for timestamp in (record.timestamp - 1, record.timestamp):
                    found = log.offset_for_timestamp(timestamp)
                    assert found == local.offset_for_timestamp(timestamp)
        assert log.offset_of_max_timestamp() == local.offset_of_max_timestamp()
        for start in range(0, local.log_end_offset, 7):
            ends = start, local.log_end_offset
            assert aborted_between(log.segments, *ends) == aborted_between(local.segments, *ends)
        for one, same in zip(log.segments, local.segments, strict=False):
            assert one.next_offset == same.next_offset
            assert one.max_timestamp == same.max_timestamp
            assert one.first_timestamp() == same.first_timestamp()
            assert list(one.batches()) == list(same.batches())
            one.check_tail()
        assert fs.cached_bytes <= bytes_max


def test_a_remote_segment_is_renamed_and_removed_as_a_local_one() -> None:
    local = filled(CrashFileSystem()).log
    with elsewhere(local) as (fs, log, _):
        first, second = log.segments[:2]
        found = log.read(0, 1, at_least_one=True)
        assert found is not None
        expected = found.read()
        for segment in (first, second):  # one of them was read before
            segment.rename(DELETED)
            assert all(name.endswith(DELETED) for name in fs.list(log.directory)[:3])
            assert found.read() == expected
            segment.remove()
            assert not fs.exists(segment.path(LOG))
        assert found.read() == expected
        fs.rename(log.directory, Path("/gone"))
        last = log.segments[-1]
        last.follow(Path("/gone"))
        assert list(last.batches()) == list(local.segments[-2].batches())
        fs.remove_tree(Path("/gone"))
        fs.close()  # what is read ahead has room until it is dropped
        assert fs.cached_bytes == 0


@pytest.mark.parametrize("damage", ["missing", "lies"])
def test_a_damaged_remote_index_is_rebuilt_from_the_log_and_not_by_the_loop(damage: str) -> None:
    local = filled(CrashFileSystem()).log
    with elsewhere(local, threading.get_ident()) as (fs, log, store):
        segment = log.segments[1]
        path = segment.path(INDEX)
        if damage == "missing":
            del store.objects[path.name]
        else:
            data = bytearray(segment.fs.size(path))
            data[-5] = data[-1] = 9
            fs.add_remote(path, upload(store, "lies", bytes(data)))
        expected = local.read(segment.base_offset + 9, 1, at_least_one=True)
        assert expected is not None
        for _ in range(9):
            try:
                found = log.read(segment.base_offset + 9, 1, at_least_one=True, may_wait=False)
                break
            except NotCached as error:
                in_thread(error.warm)
        assert found is not None
        assert (found.position, found.size) == (expected.position, expected.size)
        assert not fs.open(path).is_fixed
        assert segment.offset_index.entries.damage is None


def test_sealed_segments_of_an_open_log_are_adopted() -> None:
    below, store = CrashFileSystem(), MemoryStore()
    fs = CachedFiles(below, 4 * BLOCK, block_bytes=BLOCK)
    partition = filled(fs)
    log = partition.log
    expected = read_all(log)
    for segment in log.segments[:-1]:
        for kind in SUFFIXES:
            path = segment.path(kind)
            if fs.exists(path):
                remote = upload_file(store, below, path)
                fs.adopt(path, replace(remote, modified_ms=segment.modified_ms))
    assert fs.cached_bytes <= 4 * BLOCK
    assert read_all(log) == expected
    assert fs.counters.requests
    partition.append([(b"key", b"more")])
    assert read_all(log)[:-1] == expected
    fs.close()
