"""The deaths of cleaner threads: their number, the wait for a new one, the end of the problem."""

from __future__ import annotations

PROBATION_MS = 3_600_000

_RESTART_MIN_S, _RESTART_MAX_S = 1.0, 60.0
_DOUBLINGS_MAX = 6  # from the minimum to the maximum


class Deaths:
    """The record of threads that died; owned by the event loop.

    A death is a problem until the replacement threads have run for an hour without another
    death. The count stays.
    """

    def __init__(self) -> None:
        self.count = 0
        self.last: str | None = None
        self._in_a_row = 0
        self._replaced_ms: int | None = None

    def add(self, error: BaseException, now_ms: int) -> float:
        """Note a death; return the seconds to wait before the next thread starts."""
        if self._is_over(now_ms):
            self._in_a_row = 0
        delay_s = _RESTART_MIN_S * (1 << min(self._in_a_row, _DOUBLINGS_MAX))
        self.count += 1
        self.last = f"{type(error).__name__}: {error}"
        self._in_a_row += 1
        self._replaced_ms = None
        return min(delay_s, _RESTART_MAX_S)

    def replaced(self, now_ms: int) -> None:
        """Note that all wanted threads run."""
        if self._replaced_ms is None:
            self._replaced_ms = now_ms

    def problem(self, now_ms: int) -> str | None:
        """Return the problem for an operator, None when there is none or it is over."""
        if self._in_a_row == 0 or self._is_over(now_ms):
            return None
        state = "replaced" if self._replaced_ms is not None else "not replaced yet"
        return f"{self._in_a_row} cleaner threads died, the last by {self.last}: {state}"

    def _is_over(self, now_ms: int) -> bool:
        return self._replaced_ms is not None and now_ms - self._replaced_ms >= PROBATION_MS
