"""What clients push, read: OpenTelemetry's MetricsData in, samples out.

    MetricsData > ResourceMetrics > ScopeMetrics > Metric > a gauge's or a sum's data points

The labels of a sample are the attributes of its resource (the group, the transactional id) and
of its data point. Kafka's clients push gauges and sums only; what else there may be is passed
over. A payload is read in a thread: a large one takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from protocol.compression import Codec, DecompressedTooLarge, decompress
from protocol.errors import ProtocolError

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import KeyValue
    from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint

# A payload of the largest size that is accepted may be so many times that when decompressed;
# those of Kafka's clients shrink to a tenth.
_RATIO_MAX = 32
_LABELS_MAX = 16
_TEXT_CHARACTERS_MAX = 256

Labels: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Key:
    """What a sample is of."""

    name: str
    is_counter: bool
    labels: Labels


@dataclass(frozen=True, slots=True)
class Sample:
    """A value, or with `is_delta` what has been added to one since the last push."""

    key: Key
    value: float
    is_delta: bool


Series: TypeAlias = dict[Key, float]


class InvalidPayload(Exception):
    """Bytes that are no metrics."""


class PayloadTooLarge(Exception):
    """Metrics that would be too large when decompressed."""


def read_samples(data: bytes, codec: Codec, size_max: int) -> Sequence[Sample]:
    """Decompress and decode metrics; raises InvalidPayload or PayloadTooLarge.

    `size_max` is the largest compressed size that is accepted.
    """
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    try:
        metrics = MetricsData.FromString(decompress(codec, data, size_max * _RATIO_MAX))
    except DecompressedTooLarge as error:
        raise PayloadTooLarge(str(error)) from error
    except (ProtocolError, DecodeError) as error:
        raise InvalidPayload(str(error)) from error
    return [
        sample
        for resource in metrics.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for sample in _samples(metric, _labels(resource.resource.attributes))
    ]


def _samples(metric: Metric, labels: Labels) -> Iterator[Sample]:
    # AGGREGATION_TEMPORALITY_DELTA
    is_delta = metric.HasField("sum") and metric.sum.aggregation_temporality == 1
    is_counter = metric.HasField("sum") and metric.sum.is_monotonic
    points = metric.sum.data_points if metric.HasField("sum") else metric.gauge.data_points
    for point in points:
        told = tuple(sorted(dict((*labels, *_labels(point.attributes))).items()))
        key = Key(metric.name[:_TEXT_CHARACTERS_MAX], is_counter, told[:_LABELS_MAX])
        yield Sample(key, _value(point), is_delta)


def _value(point: NumberDataPoint) -> float:
    return float(point.as_int) if point.HasField("as_int") else point.as_double


def _labels(attributes: Sequence[KeyValue]) -> Labels:
    return tuple(
        (one.key[:_TEXT_CHARACTERS_MAX], _text(one)[:_TEXT_CHARACTERS_MAX])
        for one in attributes[:_LABELS_MAX]
    )


def _text(one: KeyValue) -> str:
    kind = one.value.WhichOneof("value")
    return "" if kind is None else str(getattr(one.value, kind))
