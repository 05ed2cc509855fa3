"""Keeps all cleaner threads together below a rate of bytes read and written."""

from __future__ import annotations

import threading
from collections.abc import Callable

from odradek.cleaner.errors import CleaningAborted

# The window of Kafka's Throttler: bursts within one are not held back.
_BURST_S = 0.3
# A shorter wait is not worthwhile: the debt stays.
_WAIT_MIN_S = 0.001
# The time within which a waiting thread notices that it must stop.
_WAIT_STEP_S = 0.2


class Throttle:
    """A debt of bytes that shrinks at the allowed rate; threads share it, under its own lock."""

    def __init__(self, clock_s: Callable[[], float]) -> None:
        """`clock_s` never goes back."""
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._settled_s = clock_s()
        self._rate: float | None = None
        self._debt_bytes = 0.0

    def charge(self, size_bytes: int, bytes_per_second: float) -> float:
        """Account for bytes; return the seconds to wait before the next read or write.

        A caller that waits in steps, and charges 0 bytes in between, notices a changed rate.
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
    """Makes a thread wait or stop before it reads or writes."""

    def __init__(
        self,
        charge: Callable[[int], float],
        stopping: threading.Event,
        must_stop: Callable[[], bool],
    ) -> None:
        """`charge` takes the bytes of a read or write, and returns the seconds to wait."""
        self._charge, self._stopping, self._must_stop = charge, stopping, must_stop

    def stop(self) -> None:
        """Stop the thread, and all others that share the same event."""
        self._stopping.set()

    def before_io(self, size_bytes: int) -> None:
        """Wait as long as the throttle asks for; raises CleaningAborted to stop the thread."""
        wait_s = self._charge(size_bytes)
        while not (self._must_stop() or self._stopping.is_set()):
            if wait_s <= 0:
                return
            self._stopping.wait(min(wait_s, _WAIT_STEP_S))
            wait_s = self._charge(0)
        raise CleaningAborted("it was aborted")
