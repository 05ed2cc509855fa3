"""Blocks of remote files that are fetched once stay in memory, others go to the disk."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from odradek.storage.objects.cached_files import CachedFiles
from tests.storage import cached_file
from tests.storage.cached_file import BLOCK, PATH, PLENTY, read_on
from tests.storage.remote import GatedStore, upload
from tests.support.object_store import MemoryStore
from tests.support.waiting import wait_until


@contextmanager
def cached(
    blocks: int, memory_blocks: int, bytes_max: int = PLENTY
) -> Iterator[tuple[CachedFiles, bytes, GatedStore]]:
    """A file of some blocks in a bucket, its bytes, and the bucket."""
    bucket, memory_bytes = GatedStore(), memory_blocks * BLOCK
    with cached_file.cached(
        blocks * BLOCK, bytes_max, memory_bytes_max=memory_bytes, of=bucket
    ) as (fs, data):
        yield fs, data, bucket


def read_as_a_consumer(fs: CachedFiles, size: int, piece: int = 5) -> bytes:
    found = b""
    while len(found) < size:
        found += read_on(fs, PATH, len(found), piece)
    return found


def test_a_consumer_that_catches_up_leaves_the_disk_alone() -> None:
    with cached(500, 64) as (fs, data, bucket):
        assert read_as_a_consumer(fs, len(data)) == data
        assert sum(size for _, size in bucket.ranges) == len(data)
        assert fs.cached_bytes == 0
        assert 0 < fs.memory_bytes <= 64 * BLOCK
        assert not fs._fs.exists(PATH)


def test_the_oldest_blocks_are_dropped_from_memory() -> None:
    with cached(9, 3) as (fs, data, bucket):
        for block in (0, 2, 4, 6):  # not sequential: one request each
            assert fs.open(PATH).read(block * BLOCK, BLOCK) == data[block * BLOCK :][:BLOCK]
        for block in (2, 4, 6):
            found = fs.open(PATH).read_cached(block * BLOCK + 3, 4)
            assert bytes(found or b"") == data[block * BLOCK + 3 :][:4]
        assert fs.open(PATH).read_cached(0, 4) is None
        assert len(bucket.ranges) == 4


def test_a_block_that_is_fetched_again_goes_to_the_disk() -> None:
    with cached(9, 1) as (fs, data, bucket):
        for block in (0, 4, 0, 8, 4):
            assert fs.open(PATH).read(block * BLOCK, BLOCK) == data[block * BLOCK :][:BLOCK]
        assert fs.cached_bytes == 2 * BLOCK
        asked = len(bucket.ranges)
        for block in (0, 4, 8):
            found = fs.open(PATH).read_cached(block * BLOCK, BLOCK)
            assert bytes(found or b"") == data[block * BLOCK :][:BLOCK]
        assert len(bucket.ranges) == asked


def test_a_block_that_is_fetched_again_after_more_than_the_budget_is_still_a_passing_one() -> None:
    with cached(60, 1, 10 * BLOCK) as (fs, data, _):
        for block in (0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 0):
            assert fs.open(PATH).read(block * BLOCK, BLOCK) == data[block * BLOCK :][:BLOCK]
        assert fs.cached_bytes == 0


def test_one_read_joins_blocks_of_the_memory_the_disk_and_the_bucket() -> None:
    with cached(9, 3) as (fs, data, bucket):
        for block in (0, 7, 2, 5, 0):
            fs.open(PATH).read(block * BLOCK, BLOCK)
        assert fs.cached_bytes == BLOCK
        assert fs.memory_bytes == 3 * BLOCK
        assert fs.open(PATH).read_cached(0, 3 * BLOCK) is None
        assert fs.open(PATH).read(3, 3 * BLOCK - 4) == data[3 : 3 * BLOCK - 1]
        assert bucket.ranges[-1] == (BLOCK, BLOCK)


def test_a_removed_file_has_no_blocks_in_memory() -> None:
    with cached(20, 8) as (fs, data, _):
        held = fs.open(PATH).hold()
        assert held.read(0, 3 * BLOCK) == data[: 3 * BLOCK]
        fs.add_remote(Path("/other"), upload(MemoryStore(), "other", data))
        assert fs.open(Path("/other")).read(0, BLOCK) == data[:BLOCK]
        before = fs.memory_bytes
        fs.remove(PATH)
        assert 0 < fs.memory_bytes < before
        assert held.read(0, len(data)) == data
        fs.remove(Path("/other"))
        assert fs.memory_bytes == fs.cached_bytes == 0


def test_many_consumers_come_to_the_end_with_little_memory() -> None:
    with cached(200, 8) as (fs, data, _), ThreadPoolExecutor(6) as readers:
        reading = [
            readers.submit(read_as_a_consumer, fs, len(data), piece) for piece in range(3, 27, 4)
        ]
        assert all(one.result() == data for one in reading)
        assert fs.memory_bytes <= 8 * BLOCK


def test_consumers_side_by_side_fetch_each_byte_once_and_leave_the_disk_alone() -> None:
    with cached(100, 96) as (fs, data, bucket):
        paths = [Path(f"/{number}") for number in range(6)]
        for path in paths:
            fs.add_remote(path, upload(bucket, path.name, data))
        found = dict.fromkeys(paths, b"")
        while len(found[paths[-1]]) < len(data):
            for path in paths:
                found[path] += read_on(fs, path, len(found[path]), 20)
        assert all(one == data for one in found.values())
        assert sum(size for _, size in bucket.ranges) == 6 * len(data)
        assert fs.cached_bytes == 0


def test_a_thread_that_begins_late_does_not_fetch_again_blocks_that_were_here() -> None:
    with cached(30, 8) as (fs, data, bucket):
        ahead, late = fs._blocks._ahead, []
        fetch = ahead._fetch
        ahead._fetch = lambda *work: late.append(work)
        fs.open(PATH).read(2 * BLOCK, BLOCK)
        assert fs.open(PATH).read(0, 4 * BLOCK) == data[: 4 * BLOCK]
        for block in range(10, 26, 2):  # these take the place of the first ones
            fs.open(PATH).read(block * BLOCK, BLOCK)
        wait_until(lambda: not ahead._under_way)
        assert any(first <= 2 < first + len(fetched) for _, first, fetched in late)
        asked = list(bucket.ranges)
        for work in late:
            fetch(*work)
        assert not [one for one in bucket.ranges[len(asked) :] if one[0] < 4 * BLOCK]


def test_blocks_that_were_read_are_dropped_before_those_that_wait_for_their_reader() -> None:
    with cached(30, 8) as (fs, data, bucket):
        fs.open(PATH).read(0, BLOCK)
        fs.open(PATH).read(BLOCK, BLOCK)
        wait_until(lambda: fs.memory_bytes == 4 * BLOCK)  # two of them ahead
        for block in range(12, 28, 2):
            fs.open(PATH).read(block * BLOCK, BLOCK)
        asked = len(bucket.ranges)
        assert fs.open(PATH).read(2 * BLOCK, 2 * BLOCK) == data[2 * BLOCK : 4 * BLOCK]
        assert (2 * BLOCK, 2 * BLOCK) not in bucket.ranges[asked:]
