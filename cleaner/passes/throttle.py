"""Keeps all cleaner threads together below a rate of bytes read and written."""

from __future__ import annotations

import threading
from collections.abc import Callable

from cleaner.errors import CleaningAborted

# Kafka's Throttler looks at windows as long: bursts within one are not held back.
_BURST_S = 0.3
# Less is not worth a wait: it stays owed.
_WAIT_MIN_S = 0.001
# How soon a thread that is held back notices that it is to stop.
_WAIT_STEP_S = 0.2


class Throttle:
    """A debt of bytes that shrinks at the rate allowed; threads share it without a lock."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        """`clock_s` never goes back."""
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._settled_s = clock_s()
        self._rate: float | None = None
        self._debt_bytes = 0.0

    def charge(self, size_bytes: int, bytes_per_second: float) -> float:
        """Account for bytes; return the seconds to wait before more are read or written.

        Who waits in steps, and charges nothing in between, notices a rate that has changed.
        """
        with self._lock:
            now_s = self._clock_s()
            # The time that has passed counts at the rate that was in force.
            paid_bytes = (now_s - self._settled_s) * (self._rate or bytes_per_second)
            credit_bytes = _BURST_S * bytes_per_second
            self._settled_s, self._rate = now_s, bytes_per_second
            self._debt_bytes = max(self._debt_bytes - paid_bytes, -credit_bytes) + size_bytes
            wait_s = self._debt_bytes / bytes_per_second
            return wait_s if wait_s >= _WAIT_MIN_S else 0.0


class Pace:
    """What a thread is told before it reads or writes: to wait, or to stop."""

    def __init__(
        self,
        charge: Callable[[int], float],
        stopping: threading.Event,
        must_stop: Callable[[], bool],
    ) -> None:
        """`charge` takes the bytes of a read or write, and returns the seconds to wait."""
        self._charge, self._stopping, self._must_stop = charge, stopping, must_stop

    def stop(self) -> None:
        """Have the thread stop, and whoever else waits for the same event."""
        self._stopping.set()

    def before_io(self, size_bytes: int) -> None:
        """Wait as long as the throttle wants; raises CleaningAborted when it is to stop."""
        wait_s = self._charge(size_bytes)
        while not (self._must_stop() or self._stopping.is_set()):
            if wait_s <= 0:
                return
            self._stopping.wait(min(wait_s, _WAIT_STEP_S))
            wait_s = self._charge(0)
        raise CleaningAborted("it was aborted")
