"""When the WAL's open entry is sealed: at once on an idle broker, together under load.

    nothing is under way               at once: a single record waits for nothing
    something is under way             once it has ended, or after the linger, or at full size
    the entry is for the catalog       not before the broker's share of commits a second allows
                                       another one
    the entry is for the bucket        not before the budget of PUTs a second allows another
                                       one; a full entry does not wait for the budget
    all producers wait for answers     at once if its PUT is worth it
    too many entries are under way     not before one of them has ended

A PUT is worth it as long as those beside the budget have 256 KiB on the average: they cost no more
than a month of storage of their bytes. Producers are taken to wait once nothing has come for some
milliseconds, longer where more came before an answer; such a PUT is one of the budget after all.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.broker.loop.rate_limiter import RateLimiter
from odradek.dataclass import dataclass

# A producer with several requests under way sends the next one within this time.
_SILENCE_MIN_S = 0.003
# Records that come at this part of the pace before show that producers did not wait.
_PACE_PART = 0.25
_LONGER, _SHORTER = 2.0, 0.9
# A load that did not wait once will be silent by chance, too.
_DOUBTS = 16
# Credits that can be saved, each for one PUT.
_CREDITS_MAX = 8.0
# Less is no wait: the difference of two times has an error of rounding.
_WAIT_MIN_S = 1e-6


@dataclass(frozen=True, slots=True)
class WalLimits:
    """The settings of a WAL."""

    entry_bytes_max: int = 2 * 1024 * 1024
    inline_bytes_max: int = 64 * 1024
    linger_s: float = 0.05
    puts_per_s: int = 5
    worth_bytes: int = 256 * 1024
    uploads_max: int = 4
    # Appended and not committed: producers wait while there is more.
    pending_bytes_max: int = 128 * 1024 * 1024
    # Of entries whose uploads are slow, which the catalog has instead.
    slow_bytes_per_s: int = 512 * 1024
    # Of small entries of all brokers.
    commits_per_s: int = 10_000


class PutBudget:
    """The PUTs of a WAL: so many a second, and more for large entries."""

    def __init__(self, limits: WalLimits) -> None:
        self._rate, self._worth_bytes = limits.puts_per_s, limits.worth_bytes
        self._turns = RateLimiter()
        self._credits = 0.0

    def delay_s(self, now_s: float) -> float:
        """Return the time until the next PUT of those that each second has."""
        delay_s = self._turns.delay_s(self._rate, now_s)
        return delay_s if delay_s >= _WAIT_MIN_S else 0.0

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

    def move_turn(self, put_s: float) -> None:
        """Let a PUT that did not wait for its turn have had it."""
        self._turns.move(self._rate, put_s)


class CommitShare:
    """A broker's share of the small entries that the catalog takes a second from all brokers."""

    def __init__(self, limits: WalLimits, brokers: Callable[[], int]) -> None:
        """`brokers` returns the number of brokers."""
        self._commits_per_s, self._brokers = limits.commits_per_s, brokers
        self._turns = RateLimiter()

    def delay_s(self, now_s: float) -> float:
        """Return the time until the next commit."""
        return self._turns.delay_s(self._rate, now_s)

    def take(self, now_s: float) -> None:
        """Count a commit."""
        self._turns.take(self._rate, now_s)

    @property
    def _rate(self) -> int:
        return max(1, self._commits_per_s // self._brokers())


class SlowEntries:
    """The bytes of slow uploads that the catalog may have: a rate, and two entries at once."""

    def __init__(self, limits: WalLimits) -> None:
        self._rate = limits.slow_bytes_per_s
        self._most = 2.0 * limits.entry_bytes_max if self._rate else 0.0
        self._left, self._noted_s = self._most, 0.0

    def take(self, size_bytes: int, now_s: float) -> bool:
        """Take the bytes of an entry, unless there are fewer."""
        self._left = min(self._left + self._rate * (now_s - self._noted_s), self._most)
        self._noted_s = now_s
        if self._left < size_bytes:
            return False
        self._left -= size_bytes
        return True


class Silence:
    """The time without new records after which all producers are taken to wait for answers."""

    def __init__(self, longest_s: float) -> None:
        self.needed_s, self._longest_s = _SILENCE_MIN_S, longest_s
        self._sealed_s: float | None = None
        self._doubts = 0  # silences, of those to come, that may be chance
        self._pace = self._pending_bytes = 0.0

    def sealed(self, now_s: float, pending_bytes: int, size_bytes: int, age_s: float) -> None:
        """Note that an entry was sealed for a silence; `pending_bytes` count all that came."""
        if self._sealed_s is None:
            self._pace = size_bytes / max(age_s, _SILENCE_MIN_S)
            self._sealed_s, self._pending_bytes = now_s, pending_bytes

    def answered(self, now_s: float, pending_bytes: int) -> float | None:
        """Learn from the bytes that came before the first answer since the sealing.

        Returns the time of the sealing if producers did not wait then, or shortly before.
        """
        if self._sealed_s is None:
            return None
        came_bytes = pending_bytes - self._pending_bytes
        is_more = came_bytes > _PACE_PART * self._pace * (now_s - self._sealed_s)
        self.needed_s *= _LONGER if is_more else _SHORTER
        self.needed_s = min(max(self.needed_s, _SILENCE_MIN_S), self._longest_s)
        self._doubts = _DOUBTS if is_more else max(0, self._doubts - 1)
        sealed_s, self._sealed_s = self._sealed_s, None
        return sealed_s if self._doubts else None


def sealing_wait_s(
    limits: WalLimits,
    puts: PutBudget,
    commits: CommitShare,
    *,
    silence_s: float,
    size_bytes: int,
    age_s: float,
    quiet_s: float,
    under_way: int,
    now_s: float,
) -> float | None:
    """Return the time until the open entry is due: 0 now, None once something has ended.

    `age_s` is the time since the entry was begun, `quiet_s` since it has last grown; after
    `silence_s` without growth all producers wait.
    """
    if under_way >= limits.uploads_max:
        return None
    if size_bytes >= limits.entry_bytes_max:
        return 0.0
    wait_s = max(0.0, limits.linger_s - age_s) if under_way else 0.0
    if size_bytes > limits.inline_bytes_max:
        wait_s = max(wait_s, puts.delay_s(now_s))
        if puts.is_worth(size_bytes):
            wait_s = min(wait_s, max(0.0, silence_s - quiet_s))
    else:
        wait_s = max(wait_s, commits.delay_s(now_s))
    return wait_s if wait_s >= _WAIT_MIN_S else 0.0
