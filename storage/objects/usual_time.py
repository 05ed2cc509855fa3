"""The time that requests to an object store usually take: their mean, and some deviations more.

As the timeout of RFC 6298, with a smaller weight of each time, since there are many.
"""

from __future__ import annotations

from odradek.dataclass import dataclass

# Until there are enough times.
_FIRST_S = 1.0
_TIMES_MIN = 16
_WEIGHT = 1 / 16


@dataclass(slots=True)
class UsualTime:
    """An estimate for requests of one kind."""

    least_s: float
    deviations: float
    mean_s: float = 0.0
    deviation_s: float = 0.0
    count: int = 0

    @property
    def longest_s(self) -> float:
        """The time after which a request is unusually slow."""
        if self.count < _TIMES_MIN:
            return _FIRST_S
        return max(self.least_s, self.mean_s + self.deviations * self.deviation_s)

    def learn(self, passed_s: float) -> None:
        """Learn from a request; one that hangs counts as twice the longest."""
        passed_s = min(passed_s, 2 * self.longest_s)
        if not self.count:
            self.mean_s, self.deviation_s = passed_s, passed_s / 2
        self.deviation_s += _WEIGHT * (abs(passed_s - self.mean_s) - self.deviation_s)
        self.mean_s += _WEIGHT * (passed_s - self.mean_s)
        self.count += 1
