"""Histograms of times, from the counts of broker/counters/latency.py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import accumulate

from prometheus_client.core import Metric

from odradek.broker.counters.latency import BUCKETS_PER_OCTAVE, Counts, bound_us
from odradek.broker.observability.exposition.families import Family

# From 64 us to 34 s in powers of two.
_BOUNDS = range(6 * BUCKETS_PER_OCTAVE, 26 * BUCKETS_PER_OCTAVE, BUCKETS_PER_OCTAVE)


def as_histogram(family: Family, rows: Iterable[tuple[str, Counts, int]]) -> Metric:
    """Return a family in seconds.

    Each row has the value of the family's first label, the counts, and the sum in microseconds.
    """
    metric, label = family.empty(), family.labels[0]
    for value, counts, total_us in rows:
        of = {label: value}
        for bound, count in _buckets(counts):
            metric.add_sample(f"{family.name}_bucket", of | {"le": bound}, count)
        metric.add_sample(f"{family.name}_count", of, sum(counts))
        metric.add_sample(f"{family.name}_sum", of, total_us / 1e6)
    return metric


def _buckets(counts: Counts) -> Iterator[tuple[str, int]]:
    below = list(accumulate(counts))
    yield from ((f"{bound_us(bucket) / 1e6:g}", below[bucket]) for bucket in _BOUNDS)
    yield "+Inf", below[-1]
