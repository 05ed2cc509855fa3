"""A clock that stands still until a test moves it."""

from __future__ import annotations


class SimulatedClock:
    """Milliseconds since the epoch, as the broker's own clock gives them."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        """Return the time."""
        return self._now_ms

    def advance(self, by_ms: int) -> int:
        """Move the time on, and return it."""
        self._now_ms += by_ms
        return self._now_ms
