"""The consumers that a leader has lately sent to a broker of their rack."""

from __future__ import annotations

from collections.abc import Callable

# A consumer that comes back so soon could not read there.
_FAILED_S = 60.0
_REFERRALS_MAX = 10_000

Consumer = tuple[str, str, str, int]
"""A client id, its rack, a topic and a partition."""


class Referrals:
    """The latest ones. The event loop owns it."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._at_s: dict[Consumer, float] = {}

    def note(self, consumer: Consumer) -> bool:
        """Note that a consumer is sent away; return False if it has just come back."""
        now_s, at_s = self._now_s(), self._at_s.get(consumer)
        if at_s is not None and now_s - at_s < _FAILED_S:
            return False
        self._at_s.pop(consumer, None)
        self._at_s[consumer] = now_s
        if len(self._at_s) > _REFERRALS_MAX:
            del self._at_s[next(iter(self._at_s))]
        return True
