"""The cache of remote files: what is requested, kept and dropped, and what fails."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.errors import code_of
from odradek.protocol.errors import ErrorCode
from odradek.storage.errors import CorruptFile, DiskFailure, NotCached, StorageError, StoreFailure
from odradek.storage.metering import StoreUse, metered
from odradek.storage.objects.cached_files import CachedFiles
from odradek.storage.objects.counting import CountingStore, Request
from odradek.storage.objects.store import ObjectStore
from odradek.storage.real_files import RealFileSystem
from tests.simulation.crashfs import CrashFileSystem
from tests.simulation.faultyfs import DISK_FULL, FaultyFileSystem
from tests.storage.cached_file import BLOCK, PATH, PLENTY, cached, read_on
from tests.storage.object_stores import bucket, s3_server, store
from tests.storage.remote import POSITION, GatedStore, contents, upload
from tests.support.object_store import MemoryStore
from tests.support.waiting import wait_until

__all__ = ["bucket", "s3_server", "store"]  # fixtures

def test_a_file_that_fits_in_a_block_is_fetched_whole_and_once() -> None:
    with cached(BLOCK, of=(bucket := GatedStore())) as (fs, data):
        assert fs.open(PATH).read(3, 2) == data[3:5]
        assert fs.read_bytes(PATH) == data
        assert bytes(fs.open(PATH).read_cached(0, 99) or b"") == data
        assert bucket.ranges == [(0, BLOCK)]
        counters = fs.counters
        assert (counters.hits, counters.misses, counters.requests) == (2, 1, 1)
        assert counters.fetched_bytes == fs.cached_bytes == BLOCK


def test_missing_blocks_next_to_each_other_are_one_request() -> None:
    with cached(20 * BLOCK, of=(bucket := GatedStore())) as (fs, data):
        file = fs.open(PATH)
        assert file.read(8 * BLOCK, 1) == data[8 * BLOCK : 8 * BLOCK + 1]
        assert file.read(6 * BLOCK + 1, 4 * BLOCK) == data[6 * BLOCK + 1 : 10 * BLOCK + 1]
        wait_until(lambda: fs.cached_bytes >= 5 * BLOCK)
        found = sorted(bucket.ranges[1:])[:2]
        assert found == [(6 * BLOCK, 2 * BLOCK), (9 * BLOCK, 2 * BLOCK)]


def test_a_sequential_reader_needs_few_requests_and_each_byte_once() -> None:
    with cached(200 * BLOCK, of=(bucket := GatedStore())) as (fs, data):
        found = b""
        while len(found) < len(data):
            found += read_on(fs, PATH, len(found), 5)
        assert found == data
        assert fs.counters.fetched_bytes == len(data)
        assert len(bucket.ranges) < 200
        assert max(size for _, size in bucket.ranges) == 4 * BLOCK


def test_a_meter_has_the_read_ahead_of_its_reader_and_nobody_else_s() -> None:
    found: list[Request] = []
    with cached(200 * BLOCK, through=lambda one: CountingStore(one, found.append)) as (fs, data):
        fs.open(PATH).read(100 * BLOCK, 1)  # by somebody who has no meter
        assert len(found) == 1
        with metered() as meter:
            read = b""
            while len(read) < len(data):
                read += read_on(fs, PATH, len(read), 5)
            fs.close()
        assert read == data
        assert max(one.received_bytes for one in found) == 4 * BLOCK  # read-ahead
        assert meter.use == StoreUse(
            gets=len(found) - 1, received_bytes=sum(one.received_bytes for one in found[1:])
        )
        assert meter.use.received_bytes == len(data) - BLOCK


def read_whole(fs: CachedFiles, size: int, path: Path = PATH) -> bytes:
    """Read a file from its begin, some blocks at a time."""
    found = b""
    while len(found) < size:
        found += read_on(fs, path, len(found), 5 * BLOCK)
    return found


def test_a_file_that_is_read_twice_is_fetched_once() -> None:
    with cached(200 * BLOCK, memory_bytes_max=40 * BLOCK) as (fs, data):
        with fs.keeping([PATH]):
            read_whole(fs, len(data))
            read_whole(fs, len(data))
        assert fs.counters.fetched_bytes == len(data)


def test_the_next_file_is_read_ahead_before_the_end_of_one() -> None:
    with cached(99 * BLOCK, of=(bucket := GatedStore())) as (fs, data):
        other = PATH.with_name("other.log")
        fs.add_remote(other, upload(bucket, "other", data))
        with fs.keeping([PATH, other]):
            read_whole(fs, 95 * BLOCK)
            wait_until(lambda: fs.counters.fetched_bytes > len(data))
            for path in (PATH, other):
                assert read_whole(fs, len(data), path) == data
        assert fs.counters.fetched_bytes == 2 * len(data)


@pytest.mark.parametrize("bytes_max", [PLENTY, 399 * BLOCK])
def test_blocks_go_to_the_disk_at_once_only_where_all_are_kept(bytes_max: int) -> None:
    with cached(200 * BLOCK, bytes_max, memory_bytes_max=40 * BLOCK) as (fs, _):
        with fs.keeping([PATH]):
            read_on(fs, PATH, 0, 1)
            fs.close()
            assert (fs.cached_bytes > 0) == (bytes_max == PLENTY)
        kept_bytes = fs.cached_bytes
        read_on(fs, PATH, 100 * BLOCK, 1)
        assert fs.cached_bytes == kept_bytes


def test_a_random_reader_gets_what_it_asks_for_and_nothing_else() -> None:
    with cached(400 * BLOCK, of=(bucket := GatedStore())) as (fs, data):
        for block in range(0, 400, 8):
            assert fs.open(PATH).read(block * BLOCK, 4) == data[block * BLOCK :][:4]
        fs.close()
        assert bucket.ranges == [(block * BLOCK, BLOCK) for block in range(0, 400, 8)]


def test_two_readers_of_a_block_make_one_request() -> None:
    with cached(5 * BLOCK, of=(bucket := GatedStore())) as (fs, data):
        bucket.gate.clear()
        with ThreadPoolExecutor(2) as readers:
            first = readers.submit(fs.open(PATH).read, 0, 2 * BLOCK)
            wait_until(lambda: bucket.ranges)
            second = readers.submit(fs.open(PATH).read, BLOCK + 3, BLOCK - 3)
            assert fs.open(PATH).read_cached(0, 1) is None  # the loop waits for neither
            assert fs.open(PATH).size() == len(data)
            bucket.gate.set()
            assert first.result() == data[: 2 * BLOCK]
            assert second.result() == data[BLOCK + 3 : 2 * BLOCK]
        fs.close()
        assert (0, 2 * BLOCK) in bucket.ranges
        assert (BLOCK, BLOCK) not in bucket.ranges


def test_names_change_while_a_request_is_under_way() -> None:
    with cached(5 * BLOCK, of=(bucket := GatedStore())) as (fs, data):
        bucket.gate.clear()
        with ThreadPoolExecutor(1) as readers:
            reading = readers.submit(fs.open(PATH).read, 0, BLOCK)
            wait_until(lambda: bucket.ranges)
            fs.rename(PATH, Path("/other"))
            fs.write_bytes(PATH, b"another file")
            bucket.gate.set()
            assert reading.result() == data[:BLOCK]
        assert fs.read_bytes(PATH) == b"another file"
        assert bytes(fs.open(Path("/other")).read_cached(0, BLOCK) or b"") == data[:BLOCK]


def test_a_file_is_removed_while_a_request_is_under_way() -> None:
    with cached(5 * BLOCK, of=(bucket := GatedStore())) as (fs, data):
        bucket.gate.clear()
        with ThreadPoolExecutor(1) as readers:
            file = fs.open(PATH)
            reading = readers.submit(file.read, 0, BLOCK)
            wait_until(lambda: bucket.ranges)
            fs.remove(PATH)
            bucket.gate.set()
            assert reading.result() == data[:BLOCK]
        assert not fs.exists(PATH)
        assert file.read(0, 99) == data
        assert fs.cached_bytes == 0


# --- the budget -------------------------------------------------------------------------------


def test_blocks_in_use_stay_longer_than_others() -> None:
    with cached(40 * BLOCK, 8 * BLOCK, of=(bucket := GatedStore())) as (fs, data):
        file = fs.open(PATH)
        for block in range(2, 40, 2):  # none follows another: nothing is read ahead
            assert file.read(0, BLOCK) == data[:BLOCK]
            assert file.read(block * BLOCK, BLOCK) == data[block * BLOCK :][:BLOCK]
            assert fs.cached_bytes <= 8 * BLOCK
        fs.close()
        assert [start for start, _ in bucket.ranges].count(0) == 1
        assert fs.counters.dropped_bytes == fs.counters.fetched_bytes - fs.cached_bytes


def test_a_file_without_room_is_read_all_the_same() -> None:
    with cached(10 * BLOCK, BLOCK - 1) as (fs, data):
        assert fs.open(PATH).read(5, 99) == data[5:104]
        assert fs.cached_bytes == 0


def test_dropped_blocks_give_their_space_back(tmp_path: Path) -> None:
    block, data = 64 << 10, contents(40 * (64 << 10))
    fs = CachedFiles(RealFileSystem(), 10 * block, block_bytes=block)
    path = tmp_path / "file.log"
    fs.add_remote(path, upload(MemoryStore(), "pack", data))
    for position in range(0, len(data), block):
        assert fs.open(path).read(position, block) == data[position : position + block]
        assert fs.cached_bytes <= 10 * block
    fs.close()
    assert 0 < path.stat().st_blocks * 512 <= 11 * block  # ext4 has a block of its own for a map
    fs.remove(path)
    assert fs.cached_bytes == 0
    assert not path.exists()


READS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 260), st.integers(0, 120), st.booleans()),
    max_size=60,
)


@given(
    reads=READS,
    bytes_max=st.sampled_from([1, 3 * BLOCK, 20 * BLOCK, PLENTY]),
    memory_bytes_max=st.sampled_from([0, BLOCK, 6 * BLOCK, PLENTY]),
)
def test_reads_equal_the_objects(
    reads: list[tuple[str, int, int, bool]], bytes_max: int, memory_bytes_max: int
) -> None:
    fs = CachedFiles(
        CrashFileSystem(), bytes_max, memory_bytes_max=memory_bytes_max, block_bytes=BLOCK
    )
    files = {name: contents(size, size) for name, size in (("a", 250), ("b", 16 * BLOCK))}
    for name, data in files.items():
        fs.add_remote(Path("/", name), upload(MemoryStore(), name, data))
    for name, position, size, is_cached in reads:
        file, expected = fs.open(Path("/", name)), files[name][position : position + size]
        found = file.read_cached(position, size) if is_cached else file.read(position, size)
        assert found is None or bytes(found) == expected
        assert fs.cached_bytes <= bytes_max
        assert fs.memory_bytes <= memory_bytes_max
    fs.close()


@pytest.mark.parametrize("seed", range(10))
def test_readers_find_the_objects_while_blocks_are_dropped(tmp_path: Path, seed: int) -> None:
    block = 4096
    memory_bytes_max = seed % 3 * 4 * block
    real = RealFileSystem()
    fs = CachedFiles(real, 12 * block, memory_bytes_max=memory_bytes_max, block_bytes=block)
    files = [contents(30 * block - 5, seed), contents(9 * block, seed + 1)]
    paths = [tmp_path / f"{seed}-{at}" for at in range(2)]
    fs.add_remote(paths[0], upload(MemoryStore(), "one", files[0]))
    paths[1].write_bytes(files[1])
    before = fs.open(paths[1]).hold()
    fs.adopt(paths[1], upload(MemoryStore(), "two", files[1]))

    def read(number: int) -> None:
        chance = random.Random(seed + number)
        for _ in range(60):
            at = chance.randrange(2)
            position, size = chance.randrange(len(files[at])), chance.randrange(5 * block)
            expected = files[at][position : position + size]
            file = before if at and chance.random() < 0.5 else fs.open(paths[at])
            found = file.read_cached(position, size)
            assert found is None or bytes(found) == expected
            assert file.read(position, size) == expected

    with ThreadPoolExecutor(4) as readers:
        list(readers.map(read, range(4)))
    fs.close()
    assert fs.cached_bytes <= 12 * block
    assert fs.memory_bytes <= memory_bytes_max
    assert fs.counters.dropped_bytes
    for path in paths:
        fs.remove(path)
    assert fs.cached_bytes == fs.memory_bytes == 0


def test_each_store_serves_blocks(store: ObjectStore, tmp_path: Path) -> None:
    data = contents(300_000)
    fs = CachedFiles(RealFileSystem(), 100_000, block_bytes=10_000)
    fs.add_remote(tmp_path / "log", upload(store, "packs/1", data))
    for position in (0, 250_000, 123_456, 0):
        assert fs.open(tmp_path / "log").read(position, 77_777) == data[position:][:77_777]
    fs.add_remote(tmp_path / "missing", replace(upload(store, "packs/2", data), key="packs/3"))
    with pytest.raises(CorruptFile, match="packs/3"):
        fs.open(tmp_path / "missing").read(0, 1)
    fs.close()


# --- errors -----------------------------------------------------------------------------------


def fails(read: Callable[[], object]) -> StorageError:
    with pytest.raises(StorageError) as failed:
        read()
    return failed.value


@pytest.mark.parametrize("damage", ["missing", "short", "changed"])
def test_a_damaged_object_is_a_damaged_file(damage: str) -> None:
    with cached(3 * BLOCK, of=(bucket := MemoryStore())) as (fs, _):
        whole = bucket.objects.pop("pack")
        if damage == "changed":
            bucket.objects["pack"] = whole[: POSITION + 5] + b"\0" + whole[POSITION + 6 :]
        elif damage == "short":
            bucket.objects["pack"] = whole[: POSITION + 2 * BLOCK + 1]
            assert fs.open(PATH).read(0, BLOCK)
        before = fs.cached_bytes
        error = fails(lambda: fs.open(PATH).read(0, 3 * BLOCK))
        assert isinstance(error, CorruptFile)
        assert str(PATH) in str(error)
        assert "object pack" in str(error)
        assert fs.cached_bytes == before


def test_a_store_that_fails_is_no_disk_and_clients_try_again() -> None:
    now_s = 0.0
    data, bucket = contents(3 * BLOCK), MemoryStore()
    fs = CachedFiles(CrashFileSystem(), PLENTY, block_bytes=BLOCK, clock=lambda: now_s)
    fs.add_remote(PATH, upload(bucket, "pack", data))
    bucket._answers = ["before"]
    error = fails(lambda: fs.open(PATH).read(0, 1))
    assert isinstance(error, StoreFailure)
    assert not isinstance(error, DiskFailure | CorruptFile)
    assert "object pack" in str(error)
    assert code_of(error) == ErrorCode.KAFKA_STORAGE_ERROR
    # For a second that is the answer, also to the event loop, and the store is left alone.
    asked = bucket.requests
    assert fails(lambda: fs.open(PATH).read_cached(0, 1)) is error
    assert fails(lambda: fs.open(PATH).read(0, 1)) is error
    assert bucket.requests == asked
    assert fs.open(PATH).read_cached(BLOCK, 1) is None
    now_s = 1.5
    assert fs.open(PATH).read_cached(0, 1) is None
    assert fs.open(PATH).read(0, 99) == data
    assert (fs.counters.failures, fs.counters.requests) == (1, bucket.requests - 1)
    fs.close()


def test_a_failed_request_fails_all_who_wait_for_it() -> None:
    with cached(5 * BLOCK, of=(bucket := GatedStore())) as (fs, _):
        bucket.gate.clear()
        bucket._answers = ["before"]
        with ThreadPoolExecutor(2) as readers:
            reading = [readers.submit(fs.open(PATH).read, 0, 1) for _ in range(2)]
            wait_until(lambda: bucket.ranges)
            bucket.gate.set()
            errors = [fails(one.result) for one in reading]
        assert all(isinstance(error, StoreFailure) for error in errors)
        assert len(bucket.ranges) == 1


def test_a_read_ahead_that_fails_is_no_error_of_the_reader_that_waits_for_it() -> None:
    with cached(8 * BLOCK, of=(bucket := GatedStore())) as (fs, data):
        bucket.objects["pack"] = bucket.objects["pack"][: POSITION + 3 * BLOCK]
        fs.open(PATH).read(0, BLOCK)
        bucket.gate.clear()
        with ThreadPoolExecutor(2) as readers:
            first = readers.submit(fs.open(PATH).read, BLOCK, BLOCK)
            wait_until(lambda: len(bucket.ranges) == 3)
            assert (2 * BLOCK, 2 * BLOCK) in bucket.ranges, "past the end of the damaged object"
            claim = fs._find(PATH).claims[2]  # type: ignore[union-attr]
            second = readers.submit(fs.open(PATH).read, 2 * BLOCK, BLOCK)
            wait_until(lambda: claim._condition._waiters)  # type: ignore[attr-defined]
            bucket.gate.set()
            assert first.result() + second.result() == data[BLOCK : 3 * BLOCK]
        assert isinstance(fails(lambda: fs.open(PATH).read(3 * BLOCK, 1)), CorruptFile)


def test_a_disk_that_refuses_blocks_is_reported() -> None:
    disk = FaultyFileSystem()
    disk.refuse = lambda kind, path: DISK_FULL if kind == "open" else None
    fs = CachedFiles(disk, PLENTY, block_bytes=BLOCK)  # type: ignore[arg-type]
    fs.add_remote(PATH, upload(MemoryStore(), "pack", contents(BLOCK)))
    for _ in range(2):
        assert isinstance(fails(lambda: fs.open(PATH).read(0, 1)), DiskFailure)
    assert fs.cached_bytes == 0
    fs.close()


def test_a_copy_that_was_cut_from_outside_is_reported(tmp_path: Path) -> None:
    fs, path = CachedFiles(RealFileSystem(), PLENTY, block_bytes=BLOCK), tmp_path / "file"
    fs.add_remote(path, upload(MemoryStore(), "pack", contents(3 * BLOCK)))
    fs.read_bytes(path)
    for size in (BLOCK + 1, 0):
        with path.open("r+b") as copy:
            copy.truncate(size)
        assert fs.open(path).read_cached(0, 2 * BLOCK) is None
        error = fails(lambda: fs.open(path).read(0, 2 * BLOCK))
        assert isinstance(error, DiskFailure)
        assert "start the broker again" in str(error)
    fs.close()


def test_the_event_loop_never_waits_for_the_store() -> None:
    data = contents(3 * BLOCK)
    loop = threading.get_ident()
    fs = CachedFiles(CrashFileSystem(), PLENTY, block_bytes=BLOCK, loop_thread=loop)
    fs.add_remote(PATH, upload(MemoryStore(), "pack", data))
    for read in (lambda: fs.read_bytes(PATH), lambda: fs.open(PATH).read(0, 99)):
        with pytest.raises(NotCached) as refused:
            read()
    with ThreadPoolExecutor(1) as threads:
        threads.submit(refused.value.warm).result()
    assert fs.read_bytes(PATH) == data
    fs.close()
