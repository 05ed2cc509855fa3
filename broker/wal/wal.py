"""The WAL of a broker's shared partitions: a record is durable once its entry is committed.

    add --> open entry --> sealed --> uploaded, unless it is small --> committed --> readers wake

Uploads overlap; commits are in the order of the entries, all that are uploaded in one transaction.
An entry whose upload takes unusually long goes into the catalog, as a small one does, so that the
others do not wait for it.

1. The entries of a partition are committed in the order of its offsets.
2. A future of `committed` is done after the commits of all batches that were added before.
3. A commit is repeated with the same entries until the catalog has answered.
4. Once the session is closed nothing is committed, and all futures fail.
5. An object is discarded only if the row of its entry has the entry's body.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Protocol

from odradek.broker.counters.latency import begin_ns
from odradek.broker.counters.sharing import SharedCounts
from odradek.broker.ids import Partition
from odradek.broker.wal.entries import Entry, OpenEntry, Run
from odradek.broker.wal.pacing import (
    CommitShare,
    PutBudget,
    Silence,
    SlowEntries,
    WalLimits,
    sealing_wait_s,
)
from odradek.storage.errors import NotLeader
from odradek.storage.files import Buffer
from odradek.storage.objects.usual_time import UsualTime

logger = logging.getLogger(__name__)

# The loop's clock: to wait for less would turn the loop until it ticks.
_TICK_S = 0.001
# The pauses between tries while the bucket or the catalog is away.
_PAUSE_MIN_S, _PAUSE_MAX_S = 0.05, 2.0
# An upload that takes longer than most is slow: some five of a hundred.
_USUAL_MIN_S, _DEVIATIONS = 0.05, 2.5


class WalLost(NotLeader):
    """The broker's session is closed: other brokers lead its partitions."""


class WalFailure(Exception):
    """The bucket or the catalog did not take an entry; it may take it later."""


class WalBackend(Protocol):
    """The bucket and the catalog, as the WAL uses them. All methods can be repeated."""

    async def upload(self, sequence: int, entry: Entry) -> None:
        """Put an entry into the bucket. Raises WalFailure and WalLost."""

    async def discard(self, sequence: int) -> None:
        """Delete the object of an entry, if it is there. Raises WalFailure."""

    async def commit(self, first: int, entries: Sequence[tuple[Entry, bool]]) -> None:
        """Commit entries with the sequences from `first` on; those with True are inline.

        Raises WalFailure, when the outcome is not known, and WalLost.
        """


class _Sealed:
    """An entry between its sealing and its commit."""

    __slots__ = ("entry", "is_inline", "is_ready", "sealed_ns", "sequence")

    def __init__(self, sequence: int, entry: Entry, *, is_inline: bool) -> None:
        self.sequence, self.entry, self.is_inline = sequence, entry, is_inline
        self.is_ready = is_inline
        self.sealed_ns = begin_ns()


class Wal:
    """Gathers, uploads and commits entries. The event loop owns it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        backend: WalBackend,
        limits: WalLimits,
        on_committed: Callable[[Run], None],
        on_lost: Callable[[WalLost], None] = lambda error: None,
        counts: SharedCounts | None = None,
        brokers: Callable[[], int] = lambda: 1,
    ) -> None:
        """`on_committed` is called for each run of a committed entry, in order.

        `on_lost` is called once when the session is closed, before any future fails. `counts`
        go on from session to session. `brokers` returns how many share the catalog.
        """
        self._counts = SharedCounts() if counts is None else counts
        self._loop, self._backend, self._limits = loop, backend, limits
        self._on_committed, self._on_lost = on_committed, on_lost
        self._puts, self._silence = PutBudget(limits), Silence(limits.linger_s)
        self._commits = CommitShare(limits, brokers)
        self._usual, self._slow = UsualTime(_USUAL_MIN_S, _DEVIATIONS), SlowEntries(limits)
        self._open, self._opened_s, self._grown_s = OpenEntry(), 0.0, 0.0
        self._sealed: deque[_Sealed] = deque()  # by sequence
        self._next_sequence = 0
        # Each with the sequence of the last entry that it waits for.
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Future[None]] = set()
        self._is_committing = False
        # Uploads under way, also of entries that are committed.
        self._upload_count = 0
        self._lost: WalLost | None = None
        # The error of the last try while entries wait for the bucket or the catalog.
        self.failure: WalFailure | None = None
        self.committed_count = 0  # entries
        # Bytes that were added and are not committed yet.
        self.pending_bytes = 0
        self._room: asyncio.Future[None] | None = None

    @property
    def is_lost(self) -> bool:
        """Whether the session is closed."""
        return self._lost is not None

    def add(
        self, partition: Partition, batches: Buffer, base_offset: int, next_offset: int
    ) -> None:
        """Add batches that were appended to the log of a partition; their memory must not change.

        Raises WalLost.
        """
        if self._lost is not None:
            raise self._lost
        self._grown_s = self._loop.time()
        if not self._open.size_bytes:
            self._opened_s = self._grown_s
            # The appends of one request, and of all that arrived with it, share an entry.
            self._loop.call_soon(self._consider)
        self._open.add(partition, batches, base_offset, next_offset)
        self.pending_bytes += len(batches)
        if self._open.size_bytes >= self._limits.entry_bytes_max:
            self._consider()

    def committed(self) -> asyncio.Future[None]:
        """Return a future that is done once all that was added is committed.

        It fails with WalLost.
        """
        done: asyncio.Future[None] = self._loop.create_future()
        if self._lost is not None:
            _fail(done, self._lost)
        elif self._open.size_bytes:
            self._waiters.append((self._next_sequence, done))
        elif self._sealed:
            self._waiters.append((self._next_sequence - 1, done))
        else:
            done.set_result(None)
        return done

    def room(self) -> asyncio.Future[None] | None:
        """Return a future that is done once more may be added; None if that is now."""
        if self.pending_bytes <= self._limits.pending_bytes_max:
            return None
        if self._room is None:
            self._room = self._loop.create_future()
        self._counts.waits += 1
        return self._room

    async def close(self) -> None:
        """Commit all that was added, unless the session is closed, and end."""
        with suppress(WalLost):
            await self.committed()
        for task in self._tasks:  # slow uploads of committed entries
            task.cancel()

    def lose(self, error: WalLost) -> None:
        """Give up all that is not committed: the session is closed."""
        if self._lost is None:
            self._lose(error)

    # --- sealing ---------------------------------------------------------------------------

    def _consider(self) -> None:
        """Seal the open entry if it is due; otherwise come again when it is."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._open.size_bytes:
            return
        now_s = self._loop.time()
        wait_s = sealing_wait_s(
            self._limits,
            self._puts,
            self._commits,
            silence_s=self._silence.needed_s,
            size_bytes=self._open.size_bytes,
            age_s=now_s - self._opened_s,
            quiet_s=now_s - self._grown_s,
            under_way=max(len(self._sealed), self._upload_count),
            now_s=now_s,
        )
        if wait_s == 0:
            self._seal(now_s)
        elif wait_s is not None:
            self._timer = self._loop.call_later(max(wait_s, _TICK_S), self._consider)

    def _seal(self, now_s: float) -> None:
        is_inline = self._open.size_bytes <= self._limits.inline_bytes_max
        sealed = _Sealed(self._next_sequence, self._open.seal(), is_inline=is_inline)
        self._open = OpenEntry()
        self._next_sequence += 1
        self._sealed.append(sealed)
        if is_inline:
            self._commits.take(now_s)
            self._commit_ready()
        else:
            size_bytes = sealed.entry.size_bytes
            if size_bytes < self._limits.entry_bytes_max and self._puts.delay_s(now_s):
                age_s = now_s - self._opened_s
                self._silence.sealed(now_s, self.pending_bytes, size_bytes, age_s)
            self._puts.take(size_bytes, now_s)
            self._start(self._upload(sealed))

    async def _upload(self, sealed: _Sealed) -> None:
        async def put() -> None:
            if not sealed.is_inline:
                await self._backend.upload(sealed.sequence, sealed.entry)

        begun_s = self._loop.time()
        slow = self._start(self._commit_if_slow(sealed))
        self._upload_count += 1
        try:
            await self._insist(put)
        except WalLost as error:
            self._lose(error)
            return
        finally:
            self._upload_count -= 1
            slow.cancel()
        self._usual.learn(self._loop.time() - begun_s)
        if sealed.is_inline:
            self._consider()
            with suppress(WalFailure):  # then broker/shared/orphans.py finds it in the end
                await self._backend.discard(sealed.sequence)
        else:
            sealed.is_ready = True
            self._commit_ready()

    async def _commit_if_slow(self, sealed: _Sealed) -> None:
        """Let the catalog have an entry whose upload takes unusually long."""
        while True:
            await asyncio.sleep(self._usual.longest_s)
            if self._slow.take(sealed.entry.size_bytes, self._loop.time()):
                break
        sealed.is_inline = sealed.is_ready = True
        self._counts.slow_entries += 1
        self._commit_ready()

    # --- committing ------------------------------------------------------------------------

    def _commit_ready(self) -> None:
        if self._sealed and self._sealed[0].is_ready and not self._is_committing:
            self._is_committing = True
            self._start(self._commit())

    async def _commit(self) -> None:
        while self._sealed and self._sealed[0].is_ready:
            ready = []
            for one in self._sealed:
                if not one.is_ready:
                    break
                ready.append(one)
            entries = [(one.entry, one.is_inline) for one in ready]
            first, begun_ns = ready[0].sequence, begin_ns()
            try:
                await self._insist(lambda: self._backend.commit(first, entries))  # noqa: B023
            except WalLost as error:
                self._lose(error)
                return
            self._counts.commits.observe(begun_ns)
            put_s = self._silence.answered(self._loop.time(), self.pending_bytes)
            if put_s is not None:
                self._puts.move_turn(put_s)
            for _ in ready:
                self._settle(self._sealed.popleft())
            self._consider()
        self._is_committing = False

    def _settle(self, sealed: _Sealed) -> None:
        self._count(sealed)
        self._count_off(sealed.entry.size_bytes)
        self.committed_count += 1
        for run in sealed.entry.runs:
            self._on_committed(run)
        while self._waiters and self._waiters[0][0] <= sealed.sequence:
            _, done = self._waiters.popleft()
            if not done.done():  # its client has gone
                done.set_result(None)

    def _lose(self, error: WalLost) -> None:
        self._lost = error
        self._counts.sessions_lost += 1
        self._on_lost(error)
        self._sealed.clear()
        self._open = OpenEntry()
        self._count_off(self.pending_bytes)
        while self._waiters:
            _, done = self._waiters.popleft()
            if not done.done():
                _fail(done, error)
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks - {asyncio.current_task(self._loop)}:
            task.cancel()

    def _count(self, sealed: _Sealed) -> None:
        counts = self._counts
        counts.entries.observe(sealed.sealed_ns)
        if sealed.is_inline:
            counts.inline_entries += 1
            counts.inline_bytes += sealed.entry.size_bytes
        else:
            counts.object_entries += 1
            counts.object_bytes += sealed.entry.size_bytes

    def _count_off(self, size_bytes: int) -> None:
        self.pending_bytes -= size_bytes
        if self._room is not None and self.pending_bytes <= self._limits.pending_bytes_max:
            self._room.set_result(None)
            self._room = None

    # --- parts -----------------------------------------------------------------------------

    async def _insist(self, step: Callable[[], Awaitable[None]]) -> None:
        """Repeat a step until it succeeds, with growing pauses."""
        pause_s = _PAUSE_MIN_S
        while True:
            try:
                await step()
            except WalFailure as error:
                if self.failure is None:
                    logger.error("the WAL waits: %s; it tries again", error)
                self.failure = error
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_MAX_S)
            else:
                self.failure = None
                return

    def _start(self, work: Awaitable[None]) -> asyncio.Future[None]:
        task = asyncio.ensure_future(work, loop=self._loop)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _fail(done: asyncio.Future[None], error: WalLost) -> None:
    """Fail a future, which nobody may wait for: its client has gone."""
    done.set_exception(error)
    done.exception()
