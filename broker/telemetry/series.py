"""Reads the payload of a push: OpenTelemetry's MetricsData in, samples out.

    MetricsData > ResourceMetrics > ScopeMetrics > Metric > a gauge's or a sum's data points

The labels of a sample are the attributes of its resource (the group, the transactional id) and
of its data point. Kafka's clients push gauges and sums only; other kinds are ignored. A payload
is read metric by metric to use little memory: every client that may connect may push, with or
without a subscription.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from sys import getsizeof
from typing import TYPE_CHECKING, TypeAlias

from odradek.broker.telemetry.walk import InvalidPayload, PayloadTooLarge, Span, Walk
from odradek.dataclass import dataclass
from odradek.protocol.compression import Codec, DecompressedTooLarge, decompress
from odradek.protocol.errors import ProtocolError

if TYPE_CHECKING:
    from opentelemetry.proto.common.v1.common_pb2 import KeyValue
    from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, NumberDataPoint

# The bounds of a decompressed payload. Those of Kafka's clients are ten times as large as the
# compressed ones, with 2,000 partitions thirty times (zstd); a data point takes some 200 bytes.
# Without the ratio, forty bytes unpack to 80,000 empty metrics, which take the thread 0.2 s.
_RATIO_MAX = 100
_UNPACKED_BYTES_MIN = 16 * 1024
_UNPACKED_BYTES_MAX = 4 * 1024 * 1024
# The samples that one push may bring. A client has some hundred metrics; with one for each topic,
# partition and node there may be thousands. The rest counts as dropped.
SAMPLES_MAX = 10_000
# Kafka's producer uses seven fields for a metric; this number takes a thread 0.2 s.
_FIELDS_MAX = 100_000
# The bound of one parsed metric or resource: empty data points of this size take 10 MB in memory.
_MADE_BYTES_MAX = 256 * 1024
_LABELS_MAX = 16
# A key with its value and its place in a dictionary, and a label, without their texts.
_KEY_BYTES, _LABEL_BYTES = 300, 64
_TEXT_CHARACTERS_MAX = 256
# The kinds of attributes that become labels; printing others could take long.
_LABEL_KINDS = ("string_value", "bool_value", "int_value", "double_value")

Labels: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Key:
    """The identity of a series: its name, its kind and its labels."""

    name: str
    is_counter: bool
    labels: Labels


@dataclass(frozen=True, slots=True)
class Sample:
    """A value, or with `is_delta` the amount added to it since the last push."""

    key: Key
    value: float
    is_delta: bool
    size_bytes: int  # the approximate size of the key in memory


Series: TypeAlias = dict[Key, float]


@dataclass(frozen=True, slots=True)
class Push:
    """The contents of a payload."""

    samples: Sequence[Sample]
    dropped: int  # the number of samples past SAMPLES_MAX


def read_push(data: bytes, codec: Codec, size_max: int) -> Push:
    """Decompress and decode metrics; raises InvalidPayload or PayloadTooLarge.

    `size_max` is the largest compressed size that is accepted. The size of a payload bounds the
    time and memory spent on it.
    """
    from google.protobuf.message import DecodeError

    unpacked_max = max(
        _UNPACKED_BYTES_MIN, min(len(data) * _RATIO_MAX, max(size_max, _UNPACKED_BYTES_MAX))
    )
    samples: list[Sample] = []
    dropped = 0
    try:
        for metric, labels in _metrics(Walk(decompress(codec, data, unpacked_max), _FIELDS_MAX)):
            points = _points(metric)
            taken = points[: SAMPLES_MAX - len(samples)]
            samples += _samples(metric, taken, labels)
            dropped += len(points) - len(taken)
    except DecompressedTooLarge as error:
        raise PayloadTooLarge(str(error)) from error
    except (ProtocolError, DecodeError) as error:
        raise InvalidPayload(str(error)) from error
    return Push(samples, dropped)


def _metrics(walk: Walk) -> Iterator[tuple[Metric, Labels]]:
    """Parse one metric after the other; yield each with the labels of its resource."""
    from opentelemetry.proto.metrics.v1 import metrics_pb2 as messages
    from opentelemetry.proto.resource.v1.resource_pb2 import Resource

    payload, of_resource, of_scope = (
        messages.MetricsData,
        messages.ResourceMetrics,
        messages.ScopeMetrics,
    )
    for group in walk.parts(payload.RESOURCE_METRICS_FIELD_NUMBER, walk.all):
        labels: Labels = ()
        for span in walk.parts(of_resource.RESOURCE_FIELD_NUMBER, group):
            labels = _labels(Resource.FromString(_bytes(walk, span)).attributes)
        for scope in walk.parts(of_resource.SCOPE_METRICS_FIELD_NUMBER, group):
            for span in walk.parts(of_scope.METRICS_FIELD_NUMBER, scope):
                yield messages.Metric.FromString(_bytes(walk, span)), labels


def _bytes(walk: Walk, span: Span) -> bytes:
    start, end = span
    if end - start > _MADE_BYTES_MAX:
        raise PayloadTooLarge(f"a metric of over {_MADE_BYTES_MAX} bytes")
    return walk.data[start:end]


def _points(metric: Metric) -> Sequence[NumberDataPoint]:
    kind = metric.sum if metric.HasField("sum") else metric.gauge
    points: Sequence[NumberDataPoint] = kind.data_points
    return points


def _samples(
    metric: Metric, points: Sequence[NumberDataPoint], labels: Labels
) -> Iterator[Sample]:
    # AGGREGATION_TEMPORALITY_DELTA
    is_delta = metric.HasField("sum") and metric.sum.aggregation_temporality == 1
    is_counter = metric.HasField("sum") and metric.sum.is_monotonic
    for point in points:
        all_labels = tuple(sorted(dict((*labels, *_labels(point.attributes))).items()))
        key = Key(metric.name[:_TEXT_CHARACTERS_MAX], is_counter, all_labels[:_LABELS_MAX])
        yield Sample(key, _value(point), is_delta, _size_bytes(key))


def _size_bytes(key: Key) -> int:
    texts = sum(getsizeof(name) + getsizeof(text) for name, text in key.labels)
    return _KEY_BYTES + getsizeof(key.name) + texts + len(key.labels) * _LABEL_BYTES


def _value(point: NumberDataPoint) -> float:
    return float(point.as_int) if point.HasField("as_int") else point.as_double


def _labels(attributes: Sequence[KeyValue]) -> Labels:
    return tuple(
        (one.key[:_TEXT_CHARACTERS_MAX], _text(one)[:_TEXT_CHARACTERS_MAX])
        for one in attributes[:_LABELS_MAX]
    )


def _text(one: KeyValue) -> str:
    kind = one.value.WhichOneof("value")
    return str(getattr(one.value, kind)) if kind in _LABEL_KINDS else ""
