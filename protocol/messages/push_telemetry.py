"""PushTelemetry (72): a client's metrics, encoded as in OpenTelemetry (KIP-714)."""

from __future__ import annotations

from odradek.protocol.schema import field, message
from odradek.protocol.wire import boolean, int8, int16, int32, octets, uuid


@message(key=72, versions="0", flexible="0+")
class PushTelemetryRequest:
    """The metrics are a compressed MetricsData of OpenTelemetry's protocol."""

    client_instance_id: uuid
    subscription_id: int32
    terminating: boolean
    compression_type: int8
    metrics: octets


@message(key=72, versions="0", flexible="0+")
class PushTelemetryResponse:
    """Whether the metrics were accepted."""

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
