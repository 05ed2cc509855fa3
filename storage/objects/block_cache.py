"""Blocks of remote files: fetched when they are read, then kept, within two budgets.

They are in memory after the first fetch (storage/objects/passing_blocks.py), then on the disk.

1. A block that is here is read without the lock. Dropping it from the disk first changes `present`
   and `drops`, then punches the hole: a reader for which `drops` has not changed has read no hole.
2. The lock is never held during a request to the store, nor while bytes are read or written.
3. One thread claims a block to fetch or drop it, and never waits while it has a claim. Others
   wait for the claim: a block is requested once, however many readers need it.
4. The first missing blocks of a read are fetched in its own thread: a store that is slow for one
   reader delays nobody else. Those after them, and blocks that sequential readers need next, are
   fetched by storage/objects/read_ahead.py, if one of its threads is free.
"""

from __future__ import annotations

import errno
import logging
import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

from odradek.dataclass import dataclass
from odradek.storage.errors import DiskFailure, NotCached, StorageError, StoreFailure
from odradek.storage.files import Buffer, File
from odradek.storage.objects.passing_blocks import PassingBlocks
from odradek.storage.objects.read_ahead import REQUEST_BLOCKS_MAX, ReadAhead
from odradek.storage.objects.remote_files import NOTHING, BlockFile, Claim, RemoteFile

logger = logging.getLogger(__name__)

# A block that has been dropped, and whose space is still to be freed.
Dropped: TypeAlias = tuple[BlockFile, Claim]

# The clock's hand passes by so many used blocks at a time: others wait for the lock.
_SECOND_CHANCES_MAX = 1000
# For so long the error of a fetch is the answer to all readers of its blocks: the event loop gets
# it after a thread has tried, and the store is not asked again at once.
_FAILURE_SHOWN_S = 1.0
_LOG_INTERVAL_S = 30.0


@dataclass(slots=True)
class CacheCounters:
    """Sums since the start. A read is a hit if all its bytes were here."""

    hits: int = 0
    misses: int = 0
    requests: int = 0
    failures: int = 0
    fetched_bytes: int = 0
    dropped_bytes: int = 0


class BlockCache:
    """The blocks of all remote files, within a budget; threads share it."""

    def __init__(
        self,
        create: Callable[[Path], File],
        bytes_max: int,
        memory_bytes_max: int,
        block_bytes: int,
        loop_thread: int | None,
        clock: Callable[[], float],
    ) -> None:
        """`create` creates an empty file in the place of any other; `clock` counts seconds.

        With a `memory_bytes_max` of 0, each block that is fetched goes to the disk.
        """
        self._create, self._bytes_max, self._block_bytes = create, bytes_max, block_bytes
        self._loop_thread, self._clock = loop_thread, clock
        # Held while files get local copies, and while they get other names: no copy is created
        # under a name that the file has no longer.
        self.lock = threading.RLock()
        # The blocks on the disk that may be dropped, by the clock algorithm.
        self._blocks: OrderedDict[tuple[BlockFile, int], None] = OrderedDict()
        self.size_bytes = 0  # of these, and of the blocks that are being written
        self._passing = PassingBlocks(memory_bytes_max, block_bytes, bytes_max)
        self.counters, self._next_log_s = CacheCounters(), 0.0
        # A quarter of a small budget at most: blocks must not be dropped before they are read.
        ahead_max = (memory_bytes_max or bytes_max) // 4 // block_bytes
        room = self._passing.room if memory_bytes_max else None
        self._ahead = ReadAhead(self._fetch_ahead, ahead_max, room)

    @property
    def memory_bytes(self) -> int:
        """The size of the blocks in memory."""
        return self._passing.size_bytes

    def close(self) -> None:
        """Wait for the read-ahead that is under way, and start no other."""
        self._ahead.close()

    # --- reading --------------------------------------------------------------------------

    def read(self, file: BlockFile, held: File | None, position: int, size: int) -> bytes:
        """Read up to `size` bytes, fetching the missing blocks; `held` is the copy, if it is held.

        In the thread of the event loop it raises NotCached instead of fetching. Raises CorruptFile
        for a damaged or missing object, StoreFailure if the store does not serve it.
        """
        end = min(position + size, file.size_bytes)
        if position >= end:
            return b""
        self._note_use(file, position, end)
        parts: list[Buffer] = []
        is_hit, at = True, position
        while at < end:
            part = self._read_here(file, held, at, end, may_wait=True)
            if not part:
                is_hit = False
                self._raise_failure(file, at // self._block_bytes)
                if threading.get_ident() == self._loop_thread:
                    raise NotCached(partial(self.read, file, held, position, size))
                part = self._obtain(file, at, end)
            if part:
                parts.append(part)
                at += len(part)
        with self.lock:
            self.counters.hits += is_hit
            self.counters.misses += not is_hit
        return b"".join(parts)  # which copies no bytes that are the only ones

    def read_cached(
        self, file: BlockFile, held: File | None, position: int, size: int
    ) -> bytes | bytearray | None:
        """Read as read() does, or return None when that would wait for the store or the disk.

        Raises the error of a fetch that has failed just before.
        """
        end = min(position + size, file.size_bytes)
        if position >= end:
            return b""
        parts: list[Buffer] = []
        at = position
        while at < end:
            part = self._read_here(file, held, at, end, may_wait=False)
            if not part:
                self._raise_failure(file, at // self._block_bytes)
                return None
            parts.append(part)
            at += len(part)
        self._note_use(file, position, end)
        self.counters.hits += 1  # by the event loop only
        whole = parts[0]
        return whole if len(parts) == 1 and not isinstance(whole, memoryview) else b"".join(parts)

    def _blocks_of(self, position: int, end: int) -> slice:
        return slice(position // self._block_bytes, (end - 1) // self._block_bytes + 1)

    def _read_here(
        self, file: BlockFile, held: File | None, position: int, end: int, *, may_wait: bool
    ) -> Buffer:
        """Read from a position on, in memory or on the disk.

        Returns nothing if the first block is missing, or if the disk would have to be waited for.
        """
        blocks = self._blocks_of(position, end)
        drops = file.drops[blocks]
        missing = file.present.find(0, blocks.start, blocks.stop)
        if missing == blocks.start:
            return self._passing.read(file, position, end)
        if missing >= 0:
            end = missing * self._block_bytes
        copy = held or file.local
        assert copy is not None, "its blocks are present"
        read = copy.read if may_wait else copy.read_cached
        found = read(position, end - position)
        if found is None or file.drops[blocks] != drops:
            return NOTHING
        if may_wait and len(found) < end - position:
            raise DiskFailure(file.path, OSError(errno.EIO, "it was cut; start the broker again"))
        return found if len(found) == end - position else NOTHING

    def _obtain(self, file: BlockFile, position: int, end: int) -> Buffer:
        """Fetch a missing block and those after it, or wait for the thread that does.

        Returns b"" when the caller must look again.
        """
        blocks = self._blocks_of(position, end)
        with self.lock:
            if file.has(blocks.start):
                return b""
            claim = file.claims.get(blocks.start)
            is_own = claim is None
            claim = claim or self._claim(file, blocks.start, blocks.stop)
            self._ahead.expect(file, blocks.stop)
        if is_own:
            self._ahead.begin(file, claim.end, blocks.stop)
            self._fetch(file, claim)
        data = claim.result()
        start = position - claim.first * self._block_bytes
        return data[start : start + end - position]

    def _raise_failure(self, file: BlockFile, block: int) -> None:
        failure = file.failures.get(block)
        if failure is not None and self._clock() < failure[1]:
            raise failure[0].with_traceback(None)

    # --- fetching -------------------------------------------------------------------------

    def _claim(self, file: BlockFile, first: int, end: int) -> Claim:
        """Claim the missing blocks from the first on, for one request; with the lock held."""
        stop, end = first + 1, min(end, first + REQUEST_BLOCKS_MAX)
        while stop < end and not file.has(stop) and stop not in file.claims:
            stop += 1
        claim = Claim(first, stop)
        file.claims.update(dict.fromkeys(range(first, stop), claim))
        return claim

    def _unclaim(self, file: BlockFile, claim: Claim) -> None:
        with self.lock:
            for block in range(claim.first, claim.end):
                if file.claims.get(block) is claim:
                    del file.claims[block]

    def _fetch(self, file: BlockFile, claim: Claim, *, is_ahead: bool = False) -> None:
        """Fetch the blocks of a claim; raises the error, which also settles the claim."""
        try:
            data = self._download(file, claim)
        except BaseException as error:
            if not is_ahead and isinstance(error, StorageError):
                self._note_failure(file, claim, error)
            self._unclaim(file, claim)
            if is_ahead:  # a reader may need other blocks than these, and tries by itself
                claim.set_result(NOTHING)
            else:
                claim.set_exception(error)
            raise
        for block in range(claim.first, claim.end):
            file.failures.pop(block, None)
        claim.set_result(data)  # now: readers need not wait for the disk
        try:
            self._keep(file, claim, data)
        finally:
            self._unclaim(file, claim)

    def _download(self, file: BlockFile, claim: Claim) -> memoryview:
        assert file.remote is not None
        start = claim.first * self._block_bytes
        size = min(claim.end * self._block_bytes, file.remote.size_bytes) - start
        with self.lock:
            self.counters.requests += 1
        data = file.remote.read(file.path, start, size)
        with self.lock:
            self.counters.fetched_bytes += size
        return data

    def _note_failure(self, file: BlockFile, claim: Claim, error: StorageError) -> None:
        now_s = self._clock()
        failure = error, now_s + _FAILURE_SHOWN_S
        file.failures.update(dict.fromkeys(range(claim.first, claim.end), failure))
        with self.lock:
            self.counters.failures += 1
            is_due = isinstance(error, StoreFailure) and now_s >= self._next_log_s
            if is_due:
                self._next_log_s = now_s + _LOG_INTERVAL_S
        if is_due:
            logger.error("records in the object store cannot be read: %s", error)

    def _keep(self, file: BlockFile, claim: Claim, data: memoryview) -> None:
        """Keep fetched blocks in memory, or write them to the copy, if there is room for them."""
        size = len(data)
        with self.lock:
            if self._is_passing(file, claim, data):
                return
            copy = self._copy_of(file)
            dropped = [] if copy is None else self._make_room(size)
            is_kept = copy is not None and self.size_bytes + size <= self._bytes_max
            self.size_bytes += size * is_kept
        is_written = False
        try:
            self.punch(dropped)
            if is_kept and copy is not None:
                copy.append(claim.first * self._block_bytes, (data,))
                is_written = True
        finally:
            with self.lock:
                if is_written and not file.is_removed:
                    for block in range(claim.first, claim.end):
                        # Not used yet where it is: one that is read once is dropped before others.
                        file.present[block], file.used[block] = 1, 0
                        self._blocks[file, block] = None
                    self._unclaim(file, claim)  # before another thread can drop them
                elif is_kept:
                    self.size_bytes -= size

    def _is_passing(self, file: BlockFile, claim: Claim, data: memoryview) -> bool:
        """Keep blocks in memory that were not fetched lately; with the lock held."""
        passing, sum_bytes = self._passing, self.counters.fetched_bytes
        is_second = passing.note_fetch(file, claim.first, claim.end, sum_bytes) or file.is_kept
        return not (is_second or file.is_removed) and passing.add(file, claim.first, data)

    def _copy_of(self, file: BlockFile) -> File | None:
        """Return the copy, held; None for a removed file, whose name another may have."""
        if file.is_removed:
            return None
        if file.local is None:
            file.local = self._create(file.path)
        return file.local.hold()

    # --- reading ahead --------------------------------------------------------------------

    def _note_use(self, file: BlockFile, position: int, end: int) -> None:
        """Mark blocks as used, and read ahead of sequential readers."""
        blocks = self._blocks_of(position, end)
        file.used[blocks] = b"\1" * (blocks.stop - blocks.start)
        if file.passing:
            with self.lock:
                self._passing.note_use(file, blocks)
        self._ahead.note_use(file, blocks)

    def _fetch_ahead(self, file: BlockFile, first: int, fetched: array[int]) -> None:
        """Fetch the blocks that no other thread fetches; their readers meet the errors.

        Those fetched since `fetched` was noted may have been read, and dropped after that.
        """
        at, end = first, first + len(fetched)
        with suppress(StorageError):
            while at < end:
                with self.lock:
                    late = (b for b in range(at, end) if file.fetched[b] != fetched[b - first])
                    stop = next(late, end)
                    if stop == at or file.has(at) or at in file.claims:
                        at += 1
                        continue
                    claim = self._claim(file, at, stop)
                self._fetch(file, claim, is_ahead=True)
                at = claim.end

    # --- the budget -----------------------------------------------------------------------

    def adopt(self, file: BlockFile, local: File, remote: RemoteFile) -> Sequence[Dropped]:
        """Take a whole local file as the copy of a remote one; the caller calls punch()."""
        with self.lock:
            file.local = local
            file.make_remote(remote, self._block_bytes, is_present=True)
            self._blocks.update(((file, block), None) for block in range(len(file.present)))
            self.size_bytes += remote.size_bytes
            return self._make_room(0)

    def forget(self, file: BlockFile) -> None:
        """Count no longer a file that is about to be removed. Its readers go on."""
        with self.lock:
            file.is_removed = True
            self._passing.forget(file)
            for block in range(len(file.present)):
                if (file, block) in self._blocks:
                    del self._blocks[file, block]
                    self.size_bytes -= self._size_of(file, block)
            if file.local is not None:
                file.local = file.local.hold()

    def _make_room(self, size: int) -> Sequence[Dropped]:
        """Drop the blocks not used lately until `size` more bytes fit; with the lock held.

        The caller calls punch().
        """
        dropped: list[Dropped] = []
        second_chances = min(len(self._blocks), _SECOND_CHANCES_MAX)
        while self._blocks and self.size_bytes + size > self._bytes_max >= size:
            file, block = next(iter(self._blocks))
            if file.used[block] and second_chances:
                second_chances -= 1
                file.used[block] = 0
                self._blocks.move_to_end((file, block))
                continue
            claim = Claim(block, block + 1)
            dropped.append((file, claim))
            del self._blocks[file, block]
            file.claims[block] = claim
            file.present[block] = 0
            file.drops[block] += 1
            freed = self._size_of(file, block)
            self.size_bytes -= freed
            self.counters.dropped_bytes += freed
        return dropped

    def punch(self, dropped: Sequence[Dropped]) -> None:
        """Free the space of dropped blocks, and end their claims; raises the last error."""
        failure: StorageError | None = None
        for file, claim in dropped:
            assert file.local is not None, "it had the block"
            try:
                file.local.free(claim.first * self._block_bytes, self._block_bytes)
            except StorageError as error:
                failure = error if not file.is_removed else failure
            self._unclaim(file, claim)
            claim.set_result(NOTHING)
        if failure is not None:
            raise failure

    def _size_of(self, file: BlockFile, block: int) -> int:
        return min(self._block_bytes, file.size_bytes - block * self._block_bytes)
