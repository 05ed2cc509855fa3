"""PushTelemetry (72): a client's metrics, which are shown on /metrics.

Version 0 only.
"""

from __future__ import annotations

import asyncio

from odradek.broker.context import RequestContext
from odradek.broker.errors import Refusal
from odradek.broker.services import Services
from odradek.broker.telemetry.reader import Busy
from odradek.broker.telemetry.walk import InvalidPayload, PayloadTooLarge
from odradek.protocol.compression import Codec
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

# The number of samples stored in one step of the event loop: with 16 labels each it takes 2 ms.
_KEPT_AT_ONCE = 500


async def handle(
    services: Services, context: RequestContext, request: PushTelemetryRequest
) -> PushTelemetryResponse:
    """Take a client's metrics, or answer why not."""
    size_max = services.config.telemetry_max_bytes
    try:
        services.telemetry.admit(context, request, size_max)
    except Refusal as refusal:
        return PushTelemetryResponse(error_code=refusal.code)
    if not request.metrics or not services.telemetry.wants(request.client_instance_id):
        return PushTelemetryResponse()
    try:
        pushed = await services.telemetry.reader.read(
            bytes(request.metrics), Codec(request.compression_type), size_max
        )
    except Busy:
        return PushTelemetryResponse(error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    except PayloadTooLarge:
        return PushTelemetryResponse(error_code=ErrorCode.TELEMETRY_TOO_LARGE)
    except InvalidPayload as error:
        services.telemetry.complain(context, request.client_instance_id, error)
        return PushTelemetryResponse(error_code=ErrorCode.INVALID_RECORD)
    services.telemetry.dropped_series += pushed.dropped
    samples = pushed.samples
    for start in range(0, len(samples), _KEPT_AT_ONCE):
        services.telemetry.keep(request.client_instance_id, samples[start : start + _KEPT_AT_ONCE])
        await asyncio.sleep(0)
    return PushTelemetryResponse()
