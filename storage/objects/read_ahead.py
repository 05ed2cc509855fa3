"""Blocks that sequential readers of remote files need next, fetched by a few threads.

No request waits in a queue: one is begun if a thread is free, and while there is room for its
blocks. Else the reader fetches its blocks itself, when it needs them. The requests count for the
meter of the reader (storage/metering.py).
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

from odradek.storage.objects.remote_files import BlockFile

# A larger request would be no faster: stores serve several requests at the same time.
REQUEST_BLOCKS_MAX = 4
# The most blocks that are fetched ahead of a sequential reader.
_AHEAD_BLOCKS_MAX = 16
_THREADS = 8
# Sequential readers of one file. With more of them, all begin with a small read-ahead again.
_STREAMS_MAX = 16


class ReadAhead:
    """The sequential readers of all files, and the threads that fetch for them."""

    def __init__(
        self,
        fetch: Callable[[BlockFile, int, array[int]], None],
        blocks_max: int,
        room: Callable[[], int] | None,
    ) -> None:
        """`fetch` fetches blocks from the first on, but those fetched since `fetched` was noted.

        It raises nothing. At most `blocks_max` are fetched ahead of a reader, and in all as many
        as `room` returns, those under way included, unless it is None.
        """
        self._fetch, self._blocks_max = fetch, min(_AHEAD_BLOCKS_MAX, blocks_max)
        self._room, self._under_way = room, 0
        self._threads = ThreadPoolExecutor(_THREADS, "read-ahead")
        self._free_threads = threading.Semaphore(_THREADS)
        self._lock = threading.Lock()

    def close(self) -> None:
        """Wait for the requests that are under way, and begin no other."""
        if self._blocks_max:
            self._blocks_max = 0
            for _ in range(_THREADS):
                self._free_threads.acquire()
        self._threads.shutdown()

    def expect(self, file: BlockFile, next_block: int) -> None:
        """Take the reader of the blocks before this one for a sequential one.

        The caller holds the lock of the cache.
        """
        if len(file.streams) >= _STREAMS_MAX:
            file.streams.clear()
        file.streams.setdefault(next_block, (next_block, 1))

    def note_use(self, file: BlockFile, blocks: slice) -> None:
        """Read ahead of a sequential reader, which reads these blocks now."""
        if not file.streams:
            return
        stream, count = None, blocks.stop - blocks.start
        for block in range(blocks.start, blocks.stop):
            stream = file.streams.pop(block, stream)
        if stream is not None:
            begun_end, size = stream[0], min(2 * max(stream[1], count), self._blocks_max)
            start, end = max(begun_end, blocks.stop), min(blocks.stop + size, file.block_count)
            if start > blocks.stop:
                end = _by_requests(file, start, end)
            begun_end = self.begin(file, start, end)
            file.streams[blocks.stop] = begun_end, size
            if file.follower is not None and begun_end == file.block_count:
                self._begin_next(file.follower, blocks.stop + size - begun_end, size)

    def _begin_next(self, file: BlockFile, end: int, size: int) -> None:
        """Read ahead of a reader that will come to the first block of this file."""
        start, _ = file.streams.get(0, (0, size))
        end = _by_requests(file, start, min(end, file.block_count))
        file.streams[0] = self.begin(file, start, end), size

    def begin(self, file: BlockFile, start: int, end: int) -> int:
        """Begin requests in free threads; return the end of their blocks."""
        if self._room is not None:
            # Half of the room, so that other readers have some, too; by whole requests.
            room = (self._room() - self._under_way) // 2
            if end - start > room:
                end = start + max(room - room % REQUEST_BLOCKS_MAX, 0)
        while start < end and self._blocks_max and self._free_threads.acquire(blocking=False):
            stop = min(start + REQUEST_BLOCKS_MAX, end)
            self._count(stop - start)
            fetched = file.note_fetches(start, stop)
            self._threads.submit(
                copy_context().run, self._fetch_and_release, file, start, fetched
            )
            start = stop
        return start

    def _count(self, blocks: int) -> None:
        with self._lock:
            self._under_way += blocks

    def _fetch_and_release(self, file: BlockFile, first: int, fetched: array[int]) -> None:
        try:
            self._fetch(file, first, fetched)
        finally:
            self._count(-len(fetched))
            self._free_threads.release()


def _by_requests(file: BlockFile, start: int, end: int) -> int:
    """Return the end of the last whole request, or of the file."""
    if start < end < file.block_count:
        end -= (end - start) % REQUEST_BLOCKS_MAX
    return end
