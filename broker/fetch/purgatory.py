"""Delayed fetches: parked with a deadline, woken once enough bytes are appended.

A fetch has the number of bytes that are still missing. Appends to its logs reduce that number, so
that an append takes only a subtraction for each fetch of the log, and no log is read twice. While
a transaction is open, appends do not count for read_committed fetches; once it has ended, the
missing bytes are counted again.

Invariants:

1. A fetch is in the table of each of its logs for as long as it has a deadline.
2. `finish` is called at most once, and never within an append: a wake is scheduled for the next
   step of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from odradek.storage.log import Log


class DelayedFetch:
    """A parked fetch; the purgatory owns it."""

    __slots__ = (
        "deadline",
        "finish",
        "is_committed",
        "is_exact",
        "is_over",
        "logs",
        "missing_bytes",
        "recount",
    )

    def __init__(
        self,
        logs: Iterable[Log],
        missing_bytes: int,
        finish: Callable[[], None],
        recount: Callable[[], int] | None,
        *,
        is_committed: bool,
        is_exact: bool,
    ) -> None:
        # A set, since a request may name a partition twice.
        self.logs = frozenset(logs)
        self.missing_bytes = missing_bytes
        self.finish = finish
        # Counts the missing bytes again, where appends may count for less, or did not count.
        self.recount = recount
        self.is_committed, self.is_exact = is_committed, is_exact
        self.is_over = False  # the wait ends however many bytes are missing
        # None once the fetch is woken or cancelled.
        self.deadline: asyncio.TimerHandle | None = None


class Purgatory:
    """All parked fetches, by log; named as in Kafka. The event loop owns it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._delayed: dict[Log, set[DelayedFetch]] = {}
        self._ready: list[DelayedFetch] = []

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
        is_exact: bool = False,
    ) -> DelayedFetch:
        """Call `finish` once the logs have grown by `missing_bytes`, or `wait_ms` have passed.

        With `recount` the missing bytes are counted again before that. With `is_committed` only
        stable records count. `is_exact` says that appends count for all of their bytes: then they
        are counted again only after some that were not stable.
        """
        fetch = DelayedFetch(
            logs, missing_bytes, finish, recount, is_committed=is_committed, is_exact=is_exact
        )
        for log in fetch.logs:
            self._delayed.setdefault(log, set()).add(fetch)
        fetch.deadline = self._loop.call_later(wait_ms / 1000, self._wake, fetch)
        return fetch

    def has(self, log: Log) -> bool:
        """Return whether a fetch waits for records of a log."""
        return log in self._delayed

    def appended(self, log: Log, size_bytes: int) -> None:
        """Count an append. Fetches that have enough wake once this step of the loop is over."""
        delayed = self._delayed.get(log)
        if not delayed:
            return
        for fetch in delayed:
            if fetch.is_committed and log.last_stable_offset < log.high_watermark:
                fetch.is_exact = False
                continue
            fetch.missing_bytes -= size_bytes
            if fetch.missing_bytes <= 0:
                self._schedule(fetch)

    def reconsider(self, fetch: DelayedFetch) -> None:
        """Count again for a fetch, after a change of something other than a log."""
        self._schedule(fetch)

    def stable(self, log: Log) -> None:
        """Count again for the read_committed fetches of a log in which a transaction has ended."""
        for fetch in self._delayed.get(log, ()):
            if fetch.is_committed:
                fetch.is_exact = False
                self._schedule(fetch)

    def rolled(self, log: Log) -> None:
        """Let the next append wake the fetches of a log, which read to the end of a segment."""
        for fetch in self._delayed.get(log, ()):
            fetch.missing_bytes = 0

    def deleted(self, log: Log) -> None:
        """Wake every fetch of a log that is gone."""
        for fetch in self._delayed.get(log, ()):
            self._end(fetch)

    def wake_all(self) -> None:
        """Wake every fetch; each is answered with the records that are there."""
        for fetch in self._all():
            self._end(fetch)

    def cancel(self, fetch: DelayedFetch) -> None:
        """Remove a fetch whose client is gone; do nothing if it was woken already."""
        if fetch.deadline is None:
            return
        fetch.deadline.cancel()
        fetch.deadline = None
        for log in fetch.logs:
            delayed = self._delayed[log]
            delayed.discard(fetch)
            if not delayed:
                del self._delayed[log]

    def _all(self) -> set[DelayedFetch]:
        return {fetch for delayed in self._delayed.values() for fetch in delayed}

    def _end(self, fetch: DelayedFetch) -> None:
        fetch.is_over = True
        self._schedule(fetch)

    def _schedule(self, fetch: DelayedFetch) -> None:
        if not self._ready:
            self._loop.call_soon(self._wake_ready)
        self._ready.append(fetch)

    def _wake_ready(self) -> None:
        ready, self._ready = self._ready, []
        for fetch in ready:
            must_count = not (fetch.is_exact or fetch.is_over or fetch.deadline is None)
            if must_count and fetch.recount is not None:
                fetch.missing_bytes = fetch.recount()
                if fetch.missing_bytes > 0:
                    continue
            self._wake(fetch)

    def _wake(self, fetch: DelayedFetch) -> None:
        if fetch.deadline is not None:
            self.cancel(fetch)
            fetch.finish()
