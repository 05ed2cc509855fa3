"""When the WAL's open entry is sealed: at once on an idle broker, together under load.

    nothing is under way               at once: a single record waits for nothing
    something is under way             once it has ended, or after the linger, or at full size
    the entry is for the bucket        not before the budget of PUTs a second allows another
                                       one; a full entry does not wait for the budget, nor does
                                       one of 1 MiB that has ceased to grow: the producers wait
                                       for it, and a month of its storage costs more than its PUT
    too many entries are under way     not before one of them has ended
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek.broker.loop.rate_limiter import RateLimiter

# A producer with five requests under way sends the next one within this time.
_QUIET_S = 0.01
# Less is no wait: the difference of two times has an error of rounding.
_WAIT_MIN_S = 1e-6


@dataclass(frozen=True, slots=True)
class WalLimits:
    """The settings of a WAL."""

    entry_bytes_max: int = 8 * 1024 * 1024
    inline_bytes_max: int = 64 * 1024
    linger_s: float = 0.05
    puts_per_s: int = 6
    worth_bytes: int = 1024 * 1024
    uploads_max: int = 4
    # Appended and not committed: producers wait while there is more.
    pending_bytes_max: int = 128 * 1024 * 1024


def sealing_wait_s(
    limits: WalLimits,
    puts: RateLimiter,
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
        wait_s = max(wait_s, puts.delay_s(limits.puts_per_s, now_s))
    if size_bytes >= limits.worth_bytes:
        wait_s = min(wait_s, max(0.0, _QUIET_S - quiet_s))
    return wait_s if wait_s >= _WAIT_MIN_S else 0.0
