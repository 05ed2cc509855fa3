"""The times of requests: a histogram for each API, with one addition for each request.

A bucket ends at each fourth root of a power of two, in microseconds, so that it is 19% wide: the
number of bits of t⁴ is the bucket of a time t.

    bucket   4      5      6      7      8      9   …    40   …      108
    up to  2 us   2.4    2.8    3.4      4    4.8   …   1 ms  …   134 s, and all above
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from operator import add, sub
from time import perf_counter_ns

BUCKETS_PER_OCTAVE = 4
# Longer times only show that something waited, and need no more buckets.
_OCTAVES = 27
BUCKET_COUNT = BUCKETS_PER_OCTAVE * _OCTAVES + 1
# Kafka's percentiles weigh the last five minutes (Yammer's ExponentiallyDecayingSample).
_MINUTES = 5

Counts = Sequence[int]

begin_ns = perf_counter_ns


class Times:
    """The times of one kind of requests; the event loop owns it, or a lock protects it."""

    __slots__ = ("_before", "counts", "total_us")

    def __init__(self) -> None:
        self.counts = [0] * BUCKET_COUNT
        self.total_us = 0
        # The `counts` of a minute ago, two minutes ago and so on, the oldest first.
        self._before: deque[Counts] = deque([[0] * BUCKET_COUNT], _MINUTES)

    def observe(self, begun_ns: int) -> None:
        """Count a request that ends now, and began at a time of begin_ns().

        With both readings of the clock this takes a quarter of a microsecond.
        """
        took_us = (perf_counter_ns() - begun_ns) // 1000
        self.total_us += took_us
        squared = took_us * took_us
        bucket = (squared * squared).bit_length()
        self.counts[bucket if bucket < BUCKET_COUNT else -1] += 1

    def turn_minute(self) -> None:
        """Note that a minute has passed."""
        self._before.append(self.counts.copy())

    def recent(self) -> list[int]:
        """Return the counts of the last minutes."""
        return minus(self.counts, self._before[0])


def bound_us(bucket: int) -> float:
    """Return the upper bound of a bucket's times, in microseconds."""
    return float(2.0 ** (bucket / BUCKETS_PER_OCTAVE))


def plus(one: Counts, other: Counts) -> list[int]:
    """Add two histograms."""
    return list(map(add, one, other))


def minus(later: Counts, earlier: Counts) -> list[int]:
    """Subtract an earlier histogram from a later one."""
    return list(map(sub, later, earlier))


def quantile_us(counts: Counts, quantile: float) -> float | None:
    """Return the time below which a share of all requests stays; None without requests.

    The error is 19% at most: times are assumed to be spread evenly within their bucket.
    """
    rank = quantile * sum(counts)
    if rank == 0:
        return None
    below = 0
    for bucket, count in enumerate(counts):
        if below + count >= rank:
            start = bound_us(bucket - 1) if bucket else 0.0
            return start + (bound_us(bucket) - start) * (rank - below) / count
        below += count
    raise AssertionError("a quantile is at most 1")
