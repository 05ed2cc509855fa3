"""Families of /metrics that have one value, or one for each partition."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


def counter(name: str, text: str, value: float) -> Metric:
    """Return a counter of one value."""
    return CounterMetricFamily(name, text, value=value)


def gauge(name: str, text: str, value: float) -> Metric:
    """Return a gauge of one value."""
    return GaugeMetricFamily(name, text, value=value)


def by_partition(
    make: type[CounterMetricFamily] | type[GaugeMetricFamily],
    name: str,
    text: str,
    values: Iterable[tuple[str, int, float | None]],
) -> Metric:
    """Return a family with a value for each topic and partition that has one."""
    family = make(name, text, labels=["topic", "partition"])
    for topic, partition, value in values:
        if value is not None:
            family.add_metric([topic, str(partition)], value)
    return family
