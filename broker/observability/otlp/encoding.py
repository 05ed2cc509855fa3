"""Encodes families of /metrics as OTLP's ExportMetricsServiceRequest, in its JSON form.

    gauge      Gauge                      counter    Sum, cumulative and monotonic
    summary    Summary                    histogram  Histogram, cumulative

Names stay those of /metrics, so that queries for Prometheus also work in other systems behind the
collector. 64-bit integers are strings, as in all JSON of Protocol Buffers.
(https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding)
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import Metric

from odradek.dataclass import dataclass

_CUMULATIVE = 2
# About 1 MB of JSON; collectors refuse requests of more than 20 MB or so.
_POINTS_MAX = 4_000
_QUANTILE, _BOUND = "quantile", "le"


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of the metrics, and the time since which counters count."""

    attributes: Mapping[str, str]
    scope: str
    version: str
    start_ms: int


@dataclass(frozen=True, slots=True)
class _Stream:
    """A metric in OTLP's words, and its points as JSON."""

    name: str
    text: str
    kind: str
    facts: Mapping[str, object]
    points: Iterator[str]


def requests(families: Iterable[Metric], origin: Origin, now_ms: int) -> Iterator[bytes]:
    """Iterate over request bodies with all families, each of a size that collectors accept.

    Points are encoded one by one: one call for megabytes would hold the interpreter's lock, and
    stop the event loop, for a tenth of a second.
    """
    head, tail = _frame(origin)
    times = _Times(f"{origin.start_ms}000000", f"{now_ms}000000")
    metrics: list[str] = []
    room = _POINTS_MAX
    for family in families:
        for stream in _streams(family, times):
            points: list[str] = []
            for point in stream.points:
                points.append(point)
                room -= 1
                if room == 0:
                    metrics.append(_metric(stream, points))
                    yield "".join((head, ",".join(metrics), tail)).encode()
                    metrics, points, room = [], [], _POINTS_MAX
            if points:
                metrics.append(_metric(stream, points))
    if metrics:
        yield "".join((head, ",".join(metrics), tail)).encode()


@dataclass(frozen=True, slots=True)
class _Times:
    """Nanoseconds since the epoch, as strings for JSON."""

    start: str
    now: str


def _frame(origin: Origin) -> tuple[str, str]:
    """Return the text before and after the metrics of a request."""
    resource = json.dumps({"attributes": _attributes(origin.attributes)})
    scope = json.dumps({"name": origin.scope, "version": origin.version})
    head = f'{{"resourceMetrics":[{{"resource":{resource},"scopeMetrics":[{{"scope":{scope},'
    return head + '"metrics":[', "]}]}]}"


def _metric(stream: _Stream, points: Iterable[str]) -> str:
    facts = "".join(f'{json.dumps(key)}:{json.dumps(one)},' for key, one in stream.facts.items())
    return (
        f'{{"name":{json.dumps(stream.name)},"description":{json.dumps(stream.text)},'
        f'"{stream.kind}":{{{facts}"dataPoints":[{",".join(points)}]}}}}'
    )


def _streams(family: Metric, times: _Times) -> Iterator[_Stream]:
    """Iterate over the metrics of a family in OTLP; each name of a family is a metric."""
    if family.type == "histogram":
        points = _grouped(family, _BOUND, times, _histogram)
        facts = {"aggregationTemporality": _CUMULATIVE}
        yield _Stream(family.name, family.documentation, "histogram", facts, points)
        return
    if family.type == "summary":
        points = _grouped(family, _QUANTILE, times, _summary)
        yield _Stream(family.name, family.documentation, "summary", {}, points)
        return
    named: dict[str, list[Any]] = {}
    for sample in family.samples:
        named.setdefault(sample.name, []).append(sample)
    for name, samples in named.items():
        numbers = (_number(one.labels, one.value, times) for one in samples)
        if family.type == "counter":
            facts = {"aggregationTemporality": _CUMULATIVE, "isMonotonic": True}
            yield _Stream(name, family.documentation, "sum", facts, numbers)
        else:
            yield _Stream(name, family.documentation, "gauge", {}, numbers)


def _number(labels: Mapping[str, str], value: float, times: _Times) -> str:
    return json.dumps({**_point(labels, times), "asDouble": _double(value)})


@dataclass(slots=True)
class _Group:
    """The samples of one point: a value for each bound or quantile, the count and the sum."""

    labels: dict[str, str]
    values: list[tuple[float, float]]
    count: float = 0
    total: float = 0


def _grouped(
    family: Metric, apart: str, times: _Times, point: Callable[[_Group], dict[str, object]]
) -> Iterator[str]:
    """Iterate over the points; one point has all samples that differ only in the label `apart`."""
    groups: dict[tuple[tuple[str, str], ...], _Group] = {}
    for sample in family.samples:
        labels = {name: value for name, value in sample.labels.items() if name != apart}
        group = groups.setdefault(tuple(sorted(labels.items())), _Group(labels, []))
        if sample.name == f"{family.name}_count":
            group.count = sample.value
        elif sample.name == f"{family.name}_sum":
            group.total = sample.value
        else:
            group.values.append((float(sample.labels[apart]), sample.value))
    for group in groups.values():
        group.values.sort()
        yield json.dumps({**_point(group.labels, times), **point(group)})


def _histogram(group: _Group) -> dict[str, object]:
    """Convert the cumulative counts below bounds into the counts of the buckets between them."""
    below = [count for _, count in group.values]
    counts = [here - before for here, before in zip(below, [0, *below], strict=False)]
    return {
        "count": _integer(group.count),
        "sum": _double(group.total),
        "bucketCounts": [_integer(count) for count in counts],
        "explicitBounds": [bound for bound, _ in group.values if bound != math.inf],
    }


def _summary(group: _Group) -> dict[str, object]:
    quantiles = [{"quantile": at, "value": _double(value)} for at, value in group.values]
    return {
        "count": _integer(group.count),
        "sum": _double(group.total),
        "quantileValues": quantiles,
    }


def _point(labels: Mapping[str, str], times: _Times) -> dict[str, object]:
    return {
        "attributes": _attributes(labels),
        "startTimeUnixNano": times.start,
        "timeUnixNano": times.now,
    }


def _attributes(labels: Mapping[str, str]) -> list[dict[str, object]]:
    return [{"key": name, "value": {"stringValue": text}} for name, text in labels.items()]


def _integer(value: float) -> str:
    return str(int(value))


def _double(value: float) -> float | str:
    """Return a number for JSON of Protocol Buffers, which has strings for NaN and infinity."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
