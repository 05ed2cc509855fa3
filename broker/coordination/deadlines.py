"""Deadlines of many timers in one heap, made for timers that are mostly moved later.

A heartbeat moves its member's deadline; thousands do so every few seconds. Moving one later
only notes it beside the heap: the old entry, when it comes up, is put back at the new time.
Cancelling removes the note. When most entries are of timers that no longer exist, the heap is
rebuilt: it holds about one entry a timer, however fast timers come and go.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

# The heap is not rebuilt for fewer entries without a timer.
_STALE_MIN = 1_000


class Deadlines(Generic[K]):
    """Timers by key, each with one deadline; owned by the object that advances the clock."""

    __slots__ = ("_at", "_heap", "_order", "_queued")

    def __init__(self) -> None:
        self._at: dict[K, float] = {}
        # The earliest entry of each key in the heap: a later deadline needs no entry.
        self._queued: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = count()  # Equal deadlines fire in the order in which they were set.

    def __len__(self) -> int:
        return len(self._at)

    def __contains__(self, key: K) -> bool:
        return key in self._at

    def __iter__(self) -> Iterator[K]:
        """Iterate over the keys that have a deadline."""
        return iter(self._at)

    def set(self, key: K, at: float) -> None:
        """Set or move a deadline."""
        self._at[key] = at
        queued = self._queued.get(key)
        if queued is None or at < queued:
            self._push(key, at)

    def cancel(self, key: K) -> None:
        """Remove a deadline, if it is set."""
        self._at.pop(key, None)
        self._tidy()

    def next(self) -> float | None:
        """Return the time of the next `pop`: the first deadline, or somewhat before it."""
        return self._heap[0][0] if self._heap else None

    def pop(self, now: float) -> K | None:
        """Remove and return the key with the earliest past deadline, None when there is none."""
        while self._heap and self._heap[0][0] <= now:
            queued, _, key = heappop(self._heap)
            if self._queued.get(key) != queued:
                continue  # It was set again for an earlier time, and that entry has come up.
            del self._queued[key]
            at = self._at.get(key)
            if at is None:
                continue
            if at <= now:
                del self._at[key]
                return key
            self._push(key, at)
        return None

    def _push(self, key: K, at: float) -> None:
        self._queued[key] = at
        heappush(self._heap, (at, next(self._order), key))
        self._tidy()

    def _tidy(self) -> None:
        """Drop the entries without a timer when they are the majority."""
        if len(self._heap) <= _STALE_MIN + 2 * len(self._at):
            return
        self._queued = {key: at for key, at in self._queued.items() if key in self._at}
        self._heap = [entry for entry in self._heap if self._queued.get(entry[2]) == entry[0]]
        heapify(self._heap)
