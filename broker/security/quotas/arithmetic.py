"""Measures rates, and computes how long to wait until a rate meets its limit, as Kafka does.

A rate is a sum over a ring of samples, divided by the time that they span:

    | sample | sample | … | current     samples, each of window_ms; one more than are counted,
                                        since the oldest may begin before the span

A ring that is younger than the span counts as if all samples but the current one had passed, so
that a new client may begin with a burst (Rate, SampledStat). A token bucket fills at a rate, and
its tokens may be spent at once (TokenBucket). Nothing here reads a clock.
"""

from __future__ import annotations

import math

from odradek.config.values import INT32_MAX
from odradek.dataclass import dataclass

# The defaults of metrics.num.samples and metrics.sample.window.ms, which Kafka's averages use.
_AVERAGE_SAMPLES, _AVERAGE_WINDOW_MS = 2, 30_000


@dataclass(frozen=True, slots=True)
class Window:
    """The time that a rate covers: a number of samples of a number of milliseconds."""

    samples: int
    sample_ms: int

    @property
    def span_ms(self) -> int:
        """The age from which a sample does not count any more."""
        return self.samples * self.sample_ms

    @property
    def full_seconds(self) -> float:
        """The time over which a burst at the beginning is spread."""
        return (self.samples - 1) * self.sample_ms / 1000


class _Sample:
    __slots__ = ("count", "last_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.value = 0.0
        self.count = 0
        self.start_ms = self.last_ms = now_ms


class Samples:
    """A ring of samples (SampledStat)."""

    __slots__ = ("_at", "_ring", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._ring: list[_Sample] = []
        self._at = 0

    def record(self, value: float, now_ms: int) -> None:
        """Add to the current sample, or begin the next one when it is full."""
        if not self._ring:
            self._ring.append(_Sample(now_ms))
        sample = self._ring[self._at]
        if now_ms - sample.start_ms >= self._window.sample_ms:
            sample = self._advance(now_ms)
        sample.value += value
        sample.count += 1
        sample.last_ms = now_ms

    def total(self, now_ms: int) -> float:
        """Return the sum of the values in the span."""
        self._forget_old(now_ms)
        return sum(sample.value for sample in self._ring)

    def average(self, now_ms: int) -> float:
        """Return the average of the values in the span, 0 when there are none."""
        total = self.total(now_ms)
        count = sum(sample.count for sample in self._ring)
        return total / count if count else 0.0

    def span_ms(self, now_ms: int) -> int:
        """Return the time by which a sum is divided for its rate (Rate.windowSize)."""
        self._forget_old(now_ms)
        if not self._ring:
            self._ring.append(_Sample(now_ms))
        elapsed_ms = now_ms - min(sample.start_ms for sample in self._ring)
        window = self._window
        missing = window.samples - 1 - elapsed_ms // window.sample_ms
        if missing > 0:
            elapsed_ms += missing * window.sample_ms
        return max(elapsed_ms, 1)

    def _advance(self, now_ms: int) -> _Sample:
        self._at = (self._at + 1) % (self._window.samples + 1)
        if self._at == len(self._ring):
            self._ring.append(_Sample(now_ms))
        else:
            self._ring[self._at].reset(now_ms)
        return self._ring[self._at]

    def _forget_old(self, now_ms: int) -> None:
        span_ms = self._window.span_ms
        for sample in self._ring:
            if now_ms - sample.last_ms >= span_ms:
                sample.reset(now_ms)


class Rate:
    """An amount per second (Rate over WindowedSum)."""

    __slots__ = ("_samples",)

    def __init__(self, window: Window) -> None:
        self._samples = Samples(window)

    def record(self, value: float, now_ms: int) -> None:
        """Count an amount; a negative one takes an amount back."""
        self._samples.record(value, now_ms)

    def measure(self, now_ms: int) -> float:
        """Return the rate per second."""
        return self._samples.total(now_ms) / (self._samples.span_ms(now_ms) / 1000)

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return how long to wait until the rate is back at the limit (QuotaUtils).

        With O observed over W and T as the limit, O * W / (W + X) = T gives X = (O - T) / T * W.
        """
        observed = self.measure(now_ms)
        if observed <= limit:
            return 0
        return round_ms((observed - limit) / limit * self._samples.span_ms(now_ms))


class TokenBucket:
    """Tokens that arrive at a rate and accumulate up to a burst (KIP-599)."""

    __slots__ = ("_tokens", "_updated_ms", "_window")

    def __init__(self, window: Window) -> None:
        self._window = window
        self._tokens = 0.0
        self._updated_ms = -math.inf  # it is full at first

    def record(self, value: float, limit: float, now_ms: int) -> None:
        """Take tokens; the number of tokens may fall below zero."""
        burst = self._refill(limit, now_ms)
        self._tokens = min(burst, self._tokens - value)

    def measure(self, limit: float, now_ms: int) -> float:
        """Return the number of tokens; a negative number is owed."""
        self._refill(limit, now_ms)
        return self._tokens

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return how long it takes until no token is owed."""
        tokens = self.measure(limit, now_ms)
        return round_ms(-tokens / limit * 1000) if tokens < 0 else 0

    def _refill(self, limit: float, now_ms: int) -> float:
        burst = self._window.samples * (self._window.sample_ms / 1000) * limit
        came = limit * ((now_ms - self._updated_ms) / 1000)
        self._tokens = min(burst, self._tokens + came)
        self._updated_ms = now_ms
        return burst


class Average:
    """The average of recent values, as in Kafka's metrics (Avg)."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples = Samples(Window(_AVERAGE_SAMPLES, _AVERAGE_WINDOW_MS))

    def record(self, value: float, now_ms: int) -> None:
        """Count a value."""
        self._samples.record(value, now_ms)

    def measure(self, now_ms: int) -> float:
        """Return the average of recent values, 0 when there are none."""
        return self._samples.average(now_ms)


def round_ms(time_ms: float) -> int:
    """Round as Math.round() does, to at most the largest number in a response."""
    if not time_ms < INT32_MAX:  # too large, or not a number
        return 0 if math.isnan(time_ms) else INT32_MAX
    return math.floor(time_ms + 0.5)
