"""Fetches that wait for data: parked with a deadline, woken once enough bytes are appended.

A waiter has the number of bytes that are still missing. Appends to its logs reduce that number, so
that an append takes only a subtraction for each waiter of the log, and no log is read twice. While
a transaction is open, appends do not count for read_committed waiters; once it has ended, the
missing bytes are counted again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from odradek.storage.log import Log


class Waiter:
    """One parked fetch; the purgatory owns it."""

    __slots__ = (
        "deadline", "finish", "is_committed", "is_over", "logs", "missing_bytes", "recount",
    )  # fmt: skip

    def __init__(
        self,
        logs: Iterable[Log],
        missing_bytes: int,
        finish: Callable[[], None],
        recount: Callable[[], int] | None,
        is_committed: bool,
    ):
        # A set, since a request may name a partition twice.
        self.logs = frozenset(logs)
        self.missing_bytes = missing_bytes
        self.finish = finish
        # Counts the missing bytes again, for waiters to which appends may count for less.
        self.recount = recount
        self.is_committed = is_committed
        self.is_over = False  # the wait ends however many bytes are missing
        # None once the waiter is woken or cancelled.
        self.deadline: asyncio.TimerHandle | None = None


class Purgatory:
    """All parked fetches, by log; named as in Kafka. The event loop owns it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiters: dict[Log, set[Waiter]] = {}
        self._ready: list[Waiter] = []

    def __len__(self) -> int:
        return len(self._all())

    def park(
        self,
        logs: Iterable[Log],
        missing_bytes: int,
        wait_ms: int,
        finish: Callable[[], None],
        recount: Callable[[], int] | None = None,
        *,
        is_committed: bool = False,
    ) -> Waiter:
        """Call `finish` once the logs have grown by `missing_bytes`, or `wait_ms` have passed.

        With `recount` the missing bytes are counted again before that. With `is_committed` only
        stable records count.
        """
        waiter = Waiter(logs, missing_bytes, finish, recount, is_committed)
        for log in waiter.logs:
            self._waiters.setdefault(log, set()).add(waiter)
        waiter.deadline = self._loop.call_later(wait_ms / 1000, self._wake, waiter)
        return waiter

    def appended(self, log: Log, size_bytes: int) -> None:
        """Count an append. Waiters that have enough wake once this step of the loop is over."""
        waiters = self._waiters.get(log)
        if not waiters:
            return
        for waiter in waiters:
            if waiter.is_committed and log.last_stable_offset < log.log_end_offset:
                continue
            waiter.missing_bytes -= size_bytes
            if waiter.missing_bytes <= 0:
                self._schedule(waiter)

    def reconsider(self, waiter: Waiter) -> None:
        """Count again for a waiter, after a change of something other than a log."""
        self._schedule(waiter)

    def stable(self, log: Log) -> None:
        """Count again for the read_committed fetches of a log in which a transaction has ended."""
        for waiter in self._waiters.get(log, ()):
            if waiter.is_committed:
                self._schedule(waiter)

    def rolled(self, log: Log) -> None:
        """Let the next append wake the fetches of a log, which read to the end of a segment."""
        for waiter in self._waiters.get(log, ()):
            waiter.missing_bytes = 0

    def deleted(self, log: Log) -> None:
        """Wake every fetch of a log that is gone."""
        for waiter in self._waiters.get(log, ()):
            self._end(waiter)

    def wake_all(self) -> None:
        """Wake every fetch; each is answered with the records that are there."""
        for waiter in self._all():
            self._end(waiter)

    def cancel(self, waiter: Waiter) -> None:
        """Remove a waiter whose client is gone; do nothing if it was woken already."""
        if waiter.deadline is None:
            return
        waiter.deadline.cancel()
        waiter.deadline = None
        for log in waiter.logs:
            waiters = self._waiters[log]
            waiters.discard(waiter)
            if not waiters:
                del self._waiters[log]

    def _all(self) -> set[Waiter]:
        return {waiter for waiters in self._waiters.values() for waiter in waiters}

    def _end(self, waiter: Waiter) -> None:
        waiter.is_over = True
        self._schedule(waiter)

    def _schedule(self, waiter: Waiter) -> None:
        if not self._ready:
            self._loop.call_soon(self._wake_ready)
        self._ready.append(waiter)

    def _wake_ready(self) -> None:
        ready, self._ready = self._ready, []
        for waiter in ready:
            if waiter.recount is not None and waiter.deadline is not None and not waiter.is_over:
                waiter.missing_bytes = waiter.recount()
                if waiter.missing_bytes > 0:
                    continue
            self._wake(waiter)

    def _wake(self, waiter: Waiter) -> None:
        if waiter.deadline is not None:
            self.cancel(waiter)
            waiter.finish()
