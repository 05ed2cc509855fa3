"""Fetches of segments that are in a bucket, by a broker whose disk has nothing of them."""

from __future__ import annotations

import threading
from pathlib import Path

from odradek.broker.composition import Broker
from odradek.protocol.errors import ErrorCode
from odradek.storage.log import Log
from odradek.storage.objects.cached_files import CachedFiles
from odradek.storage.real_files import RealFileSystem
from odradek.storage.segment import SUFFIXES
from tests.broker import test_fetch
from tests.broker.live import append, batch, create, live, on_uvloop
from tests.storage.remote import upload_file
from tests.support.object_store import MemoryStore

COUNT = 30


class Pulled(MemoryStore):
    """A store that notes the threads of its reads, and may be away."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[str] = set()
        self.is_away = False

    def read_range(self, key: str, position: int, size_bytes: int) -> bytes:
        self.threads.add(threading.current_thread().name)
        self._answers = ["before"] if self.is_away else []
        return super().read_range(key, position, size_bytes)


async def fetch(broker: Broker, offset: int, isolation: int = 0) -> tuple[int, list[bytes]]:
    asked = test_fetch.request(
        {("orders", bytes(16)): [test_fetch.part(0, offset)]}, isolation=isolation
    )
    (data,) = test_fetch.parts_of(await test_fetch.send(broker, asked))
    return data.error_code, test_fetch.values(data) if data.records else []


def filled(log: Log) -> None:
    for at in range(COUNT):
        append(log, batch(b"%d" % at * 1000))
        if at % 10 == 9:
            log.roll(1_000)


@on_uvloop
async def test_remote_records_are_read_in_threads(tmp_path: Path) -> None:
    fs = CachedFiles(
        RealFileSystem(), 40_000, block_bytes=4096, loop_thread=threading.get_ident()
    )
    store = Pulled()
    async with live(tmp_path, fs=fs) as broker:
        topic = await create(broker, "orders")
        (log,) = topic.logs
        filled(log)
        for segment in log.segments[:-1]:
            for path in map(segment.path, SUFFIXES):
                if fs.exists(path):
                    fs.adopt(path, upload_file(store, fs, path))
        for isolation in (0, 1):
            found: list[bytes] = []
            while len(found) < COUNT:
                code, values = await fetch(broker, len(found), isolation)
                assert (code, bool(values)) == (0, True)
                found += values
            assert found == [b"%d" % at * 1000 for at in range(COUNT)]
            assert fs.cached_bytes <= 40_000
        assert store.threads
        assert all(name.startswith("read") for name in store.threads)
    fs.close()


@on_uvloop
async def test_a_store_that_is_away_is_an_error_to_try_again_and_no_trouble_of_a_disk(
    tmp_path: Path,
) -> None:
    fs = CachedFiles(
        RealFileSystem(), 20_000, block_bytes=4096, loop_thread=threading.get_ident()
    )
    store = Pulled()
    async with live(tmp_path, fs=fs) as broker:
        topic = await create(broker, "orders")
        (log,) = topic.logs
        filled(log)
        first = log.segments[0]
        for segment in log.segments[:-1]:
            path = segment.path(".log")
            fs.adopt(path, upload_file(store, fs, path))
        assert fs.open(first.path(".log")).read_cached(0, 1) is None
        store.is_away = True
        assert await fetch(broker, 0) == (ErrorCode.KAFKA_STORAGE_ERROR, [])
        assert broker.problems() == []
        append(log, batch(b"more"))
        assert await fetch(broker, COUNT) == (0, [b"more"])
    fs.close()
