"""Keeps all cleaner threads together below a rate of bytes read and written."""

from __future__ import annotations

import threading
from collections.abc import Callable

# Kafka's Throttler looks at windows as long: bursts within one are not held back.
_BURST_S = 0.3


class Throttle:
    """A shared budget of bytes per second; threads call it without a lock of their own."""

    def __init__(self, clock_s: Callable[[], float], wait: Callable[[float], object]) -> None:
        """`clock_s` never goes back; `wait` waits for seconds, or less when told to stop."""
        self._clock_s, self._wait = clock_s, wait
        self._lock = threading.Lock()
        self._paid_until_s = clock_s()

    def charge(self, size_bytes: int, bytes_per_second: float) -> None:
        """Account for bytes, and wait until the rate allows for them."""
        if bytes_per_second <= 0:
            return
        cost_s = size_bytes / bytes_per_second
        with self._lock:
            now_s = self._clock_s()
            self._paid_until_s = max(self._paid_until_s, now_s - _BURST_S) + cost_s
            ahead_s = self._paid_until_s - now_s
        if ahead_s > 0:
            self._wait(ahead_s)
