"""Limits events, such as new connections, to a rate per second."""

from __future__ import annotations

from odradek.config.values import INT32_MAX

# With a rate of 0, the time after which the caller checks whether the rate has changed.
_NEVER_S = 1.0
# As many events as the rate allows in this time may come at once.
_BURST_S = 1.0


class RateLimiter:
    """Gives turns at a rate that the caller passes each time; the event loop owns it.

    A rate of INT32_MAX means no limit.
    """

    __slots__ = ("_next_s",)

    def __init__(self) -> None:
        self._next_s = 0.0

    def delay_s(self, rate: int, now_s: float) -> float:
        """Return the time to wait for the next turn, 0 if it can be taken now."""
        if rate == INT32_MAX:
            return 0.0
        if rate == 0:
            return _NEVER_S
        return max(0.0, self._next_s - now_s)

    def take(self, rate: int, now_s: float) -> None:
        """Take a turn."""
        if 0 < rate < INT32_MAX:
            self._next_s = max(self._next_s, now_s - _BURST_S) + 1 / rate

    def move(self, rate: int, event_s: float) -> None:
        """Let an event that did not wait for its turn have had it; the next one follows it."""
        if 0 < rate < INT32_MAX:
            self._next_s = max(self._next_s, event_s + 1 / rate)

    def give_back(self, rate: int) -> None:
        """Undo take()."""
        if 0 < rate < INT32_MAX:
            self._next_s -= 1 / rate
