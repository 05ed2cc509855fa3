"""Keeps copies of partitions to a rate (KIP-73, ReplicationQuotaManager)."""

from __future__ import annotations

from collections.abc import Callable


class Throttle:
    """A budget of bytes that grows by a rate, up to that of a second. The event loop owns it.

    A copy takes bytes while the budget is positive, so that a large batch goes through, and the
    next one waits for longer.
    """

    def __init__(self, rate: Callable[[], int], now_s: Callable[[], float]) -> None:
        """`rate` returns the present rate in bytes a second."""
        self._rate, self._now_s = rate, now_s
        self._budget = 0.0
        self._at_s = now_s() - 1.0

    def wait_s(self) -> float:
        """Return the time until bytes may be taken, 0 if they may now."""
        rate, now_s = self._rate(), self._now_s()
        self._budget = min(self._budget + (now_s - self._at_s) * rate, float(rate))
        self._at_s = now_s
        if self._budget > 0:
            return 0.0
        return 1.0 if rate <= 0 else min(-self._budget / rate + 0.001, 1.0)

    def take(self, size_bytes: int) -> None:
        """Take bytes from the budget."""
        self._budget -= size_bytes
