"""When the WAL's open entry is sealed: at once on an idle broker, together under load.

    nothing is under way               at once: a single record waits for nothing
    something is under way             once it has ended, or after the linger, or at full size
    the entry is for the bucket        not before the budget of PUTs a second allows another
                                       one; a full entry does not wait for the budget
    it has ceased to grow              at once if its PUT is worth it: producers wait for it
    too many entries are under way     not before one of them has ended

A PUT is worth it as long as those beside the budget have 256 KiB on the average: they cost no more
than a month of storage of their bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek.broker.loop.rate_limiter import RateLimiter

# A producer with several requests under way sends the next one within this time.
_QUIET_S = 0.003
# Credits that can be saved, each for one PUT.
_CREDITS_MAX = 8.0
# Less is no wait: the difference of two times has an error of rounding.
_WAIT_MIN_S = 1e-6


@dataclass(frozen=True, slots=True)
class WalLimits:
    """The settings of a WAL."""

    entry_bytes_max: int = 8 * 1024 * 1024
    inline_bytes_max: int = 64 * 1024
    linger_s: float = 0.05
    puts_per_s: int = 6
    worth_bytes: int = 256 * 1024
    uploads_max: int = 4
    # Appended and not committed: producers wait while there is more.
    pending_bytes_max: int = 128 * 1024 * 1024


class PutBudget:
    """The PUTs of a WAL: so many a second, and more for large entries."""

    def __init__(self, limits: WalLimits) -> None:
        self._rate, self._worth_bytes = limits.puts_per_s, limits.worth_bytes
        self._turns = RateLimiter()
        self._credits = 0.0

    def delay_s(self, now_s: float) -> float:
        """Return the time until the next PUT of those that each second has."""
        return self._turns.delay_s(self._rate, now_s)

    def is_worth(self, size_bytes: int) -> bool:
        """Return whether a PUT of a size may be made beside them."""
        return self._credits + size_bytes / self._worth_bytes >= 1

    def take(self, size_bytes: int, now_s: float) -> None:
        """Count a PUT. One that did not wait for its turn takes none of the later ones."""
        left = self._credits + size_bytes / self._worth_bytes
        if self.delay_s(now_s):
            left -= 1
        else:
            self._turns.take(self._rate, now_s)
        self._credits = min(max(left, 0.0), _CREDITS_MAX)


def sealing_wait_s(
    limits: WalLimits,
    puts: PutBudget,
    *,
    size_bytes: int,
    age_s: float,
    quiet_s: float,
    under_way: int,
    now_s: float,
) -> float | None:
    """Return the time until the open entry is due: 0 now, None once something has ended.

    `age_s` is the time since the entry was begun, `quiet_s` since it has last grown.
    """
    if under_way >= limits.uploads_max:
        return None
    if size_bytes >= limits.entry_bytes_max:
        return 0.0
    wait_s = max(0.0, limits.linger_s - age_s) if under_way else 0.0
    if size_bytes > limits.inline_bytes_max:
        wait_s = max(wait_s, puts.delay_s(now_s))
        if puts.is_worth(size_bytes):
            wait_s = min(wait_s, max(0.0, _QUIET_S - quiet_s))
    return wait_s if wait_s >= _WAIT_MIN_S else 0.0
