"""Families of /metrics, declared before they have values: name, meaning, labels.

Each module of this package declares its families as constants, from which docs/metrics.md is
generated (broker/observability/metrics_reference.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prometheus_client.core import Metric

from odradek.dataclass import dataclass

_TOTAL = "_total"


@dataclass(frozen=True, slots=True)
class Family:
    """A metric; `name` is the name of its samples, `text` its meaning and advice."""

    name: str
    kind: str  # in Prometheus' words
    text: str
    labels: tuple[str, ...]

    def one(self, value: float) -> Metric:
        """Return the metric with one value, without labels."""
        metric = self.empty()
        metric.add_sample(self.name, {}, value)
        return metric

    def each(self, rows: Iterable[tuple[Any, ...]]) -> Metric:
        """Return the metric with a value for each row of labels and value; None is left out."""
        metric = self.empty()
        for *labels, value in rows:
            if value is not None:
                by_name = dict(zip(self.labels, map(str, labels), strict=True))
                metric.add_sample(self.name, by_name, value)
        return metric

    def empty(self) -> Metric:
        """Return the metric without values."""
        return Metric(self.name.removesuffix(_TOTAL), self.text, self.kind)


def gauge(name: str, text: str, *labels: str) -> Family:
    """Declare a value that rises and falls."""
    return Family(name, "gauge", text, labels)


def counter(name: str, text: str, *labels: str) -> Family:
    """Declare a value that only rises, until a restart."""
    assert name.endswith(_TOTAL), name
    return Family(name, "counter", text, labels)


def summary(name: str, text: str, *labels: str) -> Family:
    """Declare quantiles, with the samples _count and _sum."""
    return Family(name, "summary", text, (*labels, "quantile"))


def histogram(name: str, text: str, *labels: str) -> Family:
    """Declare counts below bounds, with the samples _bucket, _count and _sum."""
    return Family(name, "histogram", text, (*labels, "le"))
