"""When the WAL's open entry is sealed: at once on an idle broker, together under load.

    nothing is under way               at once: a single record waits for nothing
    something is under way             once it has ended, or after the linger, or at full size
    the entry is for the bucket        not before the budget of PUTs a second allows another
                                       one; a full entry does not wait for the budget
    too many entries are under way     not before one of them has ended
"""

from __future__ import annotations

from dataclasses import dataclass

# Less is no wait: the difference of two times has an error of rounding.
_WAIT_MIN_S = 1e-6


@dataclass(frozen=True, slots=True)
class WalLimits:
    """The settings of a WAL."""

    entry_bytes_max: int = 8 * 1024 * 1024
    inline_bytes_max: int = 64 * 1024
    linger_s: float = 0.05
    puts_per_s: float = 6.0
    uploads_max: int = 4


class PutBudget:
    """A bucket of tokens: one for each PUT, `rate` more a second, a second's worth at most."""

    def __init__(self, rate: float, now_s: float) -> None:
        self._rate, self._size = rate, max(rate, 1.0)
        self._tokens, self._at_s = self._size, now_s

    def wait_s(self, now_s: float) -> float:
        """Return the time until a PUT is within the budget, 0 when one is now."""
        self._refill(now_s)
        return max(0.0, (1 - self._tokens) / self._rate)

    def spend(self, now_s: float) -> None:
        """Count a PUT; one over the budget is owed."""
        self._refill(now_s)
        self._tokens -= 1

    def _refill(self, now_s: float) -> None:
        self._tokens = min(self._size, self._tokens + (now_s - self._at_s) * self._rate)
        self._at_s = now_s


def sealing_wait_s(
    limits: WalLimits,
    budget: PutBudget,
    *,
    size_bytes: int,
    age_s: float,
    under_way: int,
    now_s: float,
) -> float | None:
    """Return the time until the open entry is due: 0 now, None once something has ended."""
    if under_way >= limits.uploads_max:
        return None
    if size_bytes >= limits.entry_bytes_max:
        return 0.0
    wait_s = max(0.0, limits.linger_s - age_s) if under_way else 0.0
    if size_bytes > limits.inline_bytes_max:
        wait_s = max(wait_s, budget.wait_s(now_s))
    return wait_s if wait_s >= _WAIT_MIN_S else 0.0
