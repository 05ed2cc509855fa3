"""Keeps the books of the object store: its load of late, its contents and its costs.

Every broker counts its own requests. The bytes that the bucket holds are read from the catalog
once a minute, by the broker that frees the WAL: it alone shows them, and their price.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress

from odradek.broker.catalog.lines import Line
from odradek.broker.catalog.stored_sizes import StoredSizes, stored_sizes
from odradek.broker.counters.object_requests import PURPOSES, ObjectRequests, Tally
from odradek.broker.errors import MetadataError
from odradek.broker.loop.tasks import start_task
from odradek.broker.shared.bill import Prices, bill, per_month

_LOOK_S = 5.0
_MEASURE_S = 60.0
# The times over which requests a second, and costs a month, are taken.
_RATE_S, _PACE_S = 60.0, 300.0


class Accounting:
    """Owned by the event loop."""

    def __init__(
        self,
        requests: ObjectRequests,
        prices: Prices,
        line: Line,
        is_due: Callable[[], bool],
        now_s: Callable[[], float],
    ) -> None:
        """`is_due` returns whether this broker measures the contents of the bucket."""
        self._requests, self._prices, self._line = requests, prices, line
        self._is_due, self._now_s = is_due, now_s
        self._tallies: deque[tuple[float, Tally]] = deque([(now_s(), requests.tally())])
        # None where another broker measures it, and until it is known.
        self.stored: StoredSizes | None = None
        self._measured_s = 0.0
        self._byte_seconds = 0.0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look now and then."""
        self._task = start_task("account for the object store", self._run())

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def note(self) -> None:
        """Note the counts of now."""
        now_s = self._now_s()
        self._tallies.append((now_s, self._requests.tally()))
        # One that is as old as a pace stays.
        while len(self._tallies) > 1 and self._tallies[1][0] <= now_s - _PACE_S:
            self._tallies.popleft()

    async def measure(self) -> None:
        """Read the sizes of the bucket's contents, if that is due. Raises MetadataError."""
        now_s = self._now_s()
        if not self._is_due():
            self._charge(now_s)
            self.stored = None
        elif self.stored is None or now_s - self._measured_s >= _MEASURE_S:
            found = await self._line.read(stored_sizes)
            now_s = self._now_s()
            self._charge(now_s)
            self.stored, self._measured_s = found, now_s

    def rates(self) -> dict[str, float]:
        """Return the requests a second by purpose, of the last minute."""
        passed_s, before, now = self._since(_RATE_S)
        counts = dict.fromkeys(PURPOSES, 0)
        for key, count in now.requests.items():
            counts[key[0]] += count - before.requests.get(key, 0)
        return {purpose: count / max(passed_s, _RATE_S) for purpose, count in counts.items()}

    def bill(self) -> Mapping[str, float]:
        """Return the costs since the start, by kind."""
        byte_seconds = self._byte_seconds + self._not_charged(self._now_s())
        return bill(self._prices, self._requests.tally(), byte_seconds)

    def per_month(self) -> Mapping[str, float]:
        """Return the costs of a month at the pace of the last minutes, by kind."""
        passed_s, before, now = self._since(_PACE_S)
        stored_bytes = 0 if self.stored is None else self.stored.bucket_bytes
        return per_month(self._prices, before, now, passed_s, stored_bytes)

    # --- parts -----------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self.note()
            with suppress(MetadataError):  # which the membership and the janitor report
                await self.measure()
            await asyncio.sleep(_LOOK_S)

    def _since(self, seconds: float) -> tuple[float, Tally, Tally]:
        """Return the time since a tally that is so old, or the oldest, with it and one of now."""
        now_s = self._now_s()
        begin_s, before = self._tallies[0]
        for at_s, tally in self._tallies:
            if at_s > now_s - seconds:
                break
            begin_s, before = at_s, tally
        return now_s - begin_s, before, self._requests.tally()

    def _not_charged(self, now_s: float) -> float:
        if self.stored is None:
            return 0.0
        return self.stored.bucket_bytes * (now_s - self._measured_s)

    def _charge(self, now_s: float) -> None:
        self._byte_seconds += self._not_charged(now_s)
        self._measured_s = now_s
