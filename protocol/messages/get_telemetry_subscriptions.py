"""GetTelemetrySubscriptions (71): the metrics that a client should push (KIP-714)."""

from __future__ import annotations

from odradek.protocol.schema import field, message
from odradek.protocol.wire import boolean, int8, int16, int32, string, uuid


@message(key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsRequest:
    """The id is zero the first time; the broker then generates one."""

    client_instance_id: uuid


@message(key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsResponse:
    """Prefixes of the names of wanted metrics ("*" for all, empty for none), and the interval.
    """

    throttle_time_ms: int32 = field()
    error_code: int16 = field()
    client_instance_id: uuid = field()
    subscription_id: int32 = field()
    accepted_compression_types: list[int8] = field()
    push_interval_ms: int32 = field()
    telemetry_max_bytes: int32 = field()
    delta_temporality: boolean = field()
    requested_metrics: list[string] = field()
