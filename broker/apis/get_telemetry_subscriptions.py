"""GetTelemetrySubscriptions (71): the metrics that a client shall push.

Version 0 only.
"""

from __future__ import annotations

from odradek.broker.context import RequestContext
from odradek.broker.errors import Refusal
from odradek.broker.services import Services
from odradek.protocol.compression import Codec
from odradek.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)

# In the order of preference.
_CODECS = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)


def handle(
    services: Services, context: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    """Return the client's id, its subscription and the rules for its pushes."""
    try:
        instance_id, wanted = services.telemetry.subscribe(context, request.client_instance_id)
    except Refusal as refusal:
        return GetTelemetrySubscriptionsResponse(error_code=refusal.code)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=wanted.subscription_id,
        accepted_compression_types=[int(codec) for codec in _CODECS],
        push_interval_ms=wanted.interval_ms,
        telemetry_max_bytes=services.config.telemetry_max_bytes,
        delta_temporality=True,
        requested_metrics=list(wanted.metrics),
    )
