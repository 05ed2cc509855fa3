"""Blocks of remote files that were fetched once: in memory, the oldest dropped by a budget.

A reader of all that a topic has passes by each block once. Were its blocks written to the disk,
they would take the place of those that others read again, and the writes would keep producers
waiting. So a block goes to the disk only when it is fetched a second time, before as many bytes as
the disk's budget were fetched. This is the 2Q policy (Johnson and Shasha, VLDB 1994): these blocks
are its queue A1in, the noted times of fetches its A1out.
"""

from __future__ import annotations

from collections import OrderedDict

from odradek.storage.objects.remote_files import NOTHING, BlockFile, Fetched


class PassingBlocks:
    """The blocks in memory. Changes are made with the lock of the cache held, reads without it."""

    def __init__(self, bytes_max: int, block_bytes: int, kept_bytes_max: int) -> None:
        """`kept_bytes_max` is the budget of the blocks on the disk."""
        self._bytes_max, self._block_bytes = bytes_max, block_bytes
        self._kept_bytes_max = kept_bytes_max
        self.size_bytes = self._unread_blocks = 0
        # A request is dropped as a whole: memory is free once no block of it is used. Those with
        # blocks that were not read yet are dropped last.
        self._unread: OrderedDict[Fetched, None] = OrderedDict()
        self._read: OrderedDict[Fetched, None] = OrderedDict()

    def note_fetch(self, file: BlockFile, first: int, end: int, fetched_bytes: int) -> bool:
        """Note that blocks were fetched, and return whether one of them was lately before.

        `fetched_bytes` is the sum of all fetches until now.
        """
        blocks = slice(first, end)
        lately = fetched_bytes - self._kept_bytes_max
        is_second = any(at and at >= lately for at in file.fetched[blocks])
        for block in range(first, end):
            file.fetched[block] = fetched_bytes
        return is_second

    def add(self, file: BlockFile, first: int, data: memoryview) -> bool:
        """Take the blocks of a request, and drop older ones; return False if they do not fit."""
        if len(data) > self._bytes_max:
            return False
        while self.size_bytes + len(data) > self._bytes_max:
            self._drop(next(iter(self._read or self._unread)))
        blocks = range(first, first - (-len(data) // self._block_bytes))
        request = Fetched(file, first, data, {one for one in blocks if not file.used[one]})
        (self._unread if request.unread else self._read)[request] = None
        self.size_bytes += len(data)
        self._unread_blocks += len(request.unread)
        file.passing.update(dict.fromkeys(blocks, request))
        return True

    def note_use(self, file: BlockFile, blocks: slice) -> None:
        """Note that blocks are being read."""
        for block in range(blocks.start, blocks.stop):
            request = file.passing.get(block)
            if request is not None and block in request.unread:
                request.unread.discard(block)
                self._unread_blocks -= 1
                if not request.unread:
                    del self._unread[request]
                    self._read[request] = None

    def room(self) -> int:
        """Return how many blocks may be fetched ahead, so that none is dropped before it is read.

        Half of the memory is for those that are not read yet.
        """
        return self._bytes_max // 2 // self._block_bytes - self._unread_blocks

    def forget(self, file: BlockFile) -> None:
        """Drop the blocks of a file. It takes as long as the file has blocks here."""
        for request in set(file.passing.values()):
            self._drop(request)

    def _drop(self, request: Fetched) -> None:
        del (self._unread if request.unread else self._read)[request]
        self.size_bytes -= len(request.data)
        self._unread_blocks -= len(request.unread)
        count = -(-len(request.data) // self._block_bytes)
        for block in range(request.first, request.first + count):
            del request.file.passing[block]

    def read(self, file: BlockFile, position: int, end: int) -> memoryview:
        """Return bytes of one request from a position on; nothing if they are not here."""
        request = file.passing.get(position // self._block_bytes)
        if request is None:
            return NOTHING
        start = request.first * self._block_bytes
        return request.data[position - start : end - start]
