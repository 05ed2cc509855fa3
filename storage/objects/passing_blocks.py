"""Blocks of remote files that were fetched once: in memory, the oldest dropped by a budget.

A reader of all that a topic has passes by each block once. Were its blocks written to the disk,
they would take the place of those that others read again, and the writes would keep producers
waiting. So a block goes to the disk only when it is fetched a second time, before as many bytes as
the disk's budget were fetched. This is the 2Q policy (Johnson and Shasha, VLDB 1994): these blocks
are its queue A1in, the noted times of fetches its A1out.
"""

from __future__ import annotations

from collections import OrderedDict

from odradek.storage.objects.remote_files import BlockFile


class PassingBlocks:
    """The blocks in memory. Changes are made with the lock of the cache held, reads without it."""

    def __init__(self, bytes_max: int, block_bytes: int, kept_bytes_max: int) -> None:
        """`kept_bytes_max` is the budget of the blocks on the disk."""
        self.bytes_max, self._block_bytes = bytes_max, block_bytes
        self._kept_bytes_max = kept_bytes_max
        self.size_bytes = 0
        # By the file and the first block of a request, the bytes of all its blocks: memory is
        # free once no block of them is used.
        self._requests: OrderedDict[tuple[BlockFile, int], memoryview] = OrderedDict()

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
        if len(data) > self.bytes_max:
            return False
        while self.size_bytes + len(data) > self.bytes_max:
            self._drop(*next(iter(self._requests)))
        self._requests[file, first] = data
        self.size_bytes += len(data)
        for start in range(0, len(data), self._block_bytes):
            block = first + start // self._block_bytes
            file.passing[block] = data[start : start + self._block_bytes]
        return True

    def forget(self, file: BlockFile) -> None:
        """Drop the blocks of a file. It takes as long as the file has blocks here."""
        for block in sorted(file.passing):
            if (file, block) in self._requests:
                self._drop(file, block)

    def _drop(self, file: BlockFile, first: int) -> None:
        data = self._requests.pop((file, first))
        self.size_bytes -= len(data)
        for block in range(first, first - (-len(data) // self._block_bytes)):
            del file.passing[block]

    def read(self, file: BlockFile, position: int, end: int) -> memoryview:
        """Return bytes of one block from a position on; NOTHING if it is not here."""
        block, start = divmod(position, self._block_bytes)
        data = file.passing.get(block, memoryview(b""))
        return data[start : start + end - position]
