"""PushTelemetry (72): a client's metrics, which are shown on /metrics."""

from __future__ import annotations

import asyncio

from broker.context import RequestContext
from broker.errors import Refusal
from broker.observability.telemetry.reader import Busy
from broker.observability.telemetry.walk import InvalidPayload, PayloadTooLarge
from protocol.compression import Codec
from protocol.errors import ErrorCode
from protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

# The number of samples stored in one step of the event loop: with 16 labels each it takes 2 ms.
_KEPT_AT_ONCE = 500


async def handle(context: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
    """Take a client's metrics, or answer why not."""
    broker = context.broker
    size_max = broker.config.telemetry_max_bytes
    try:
        broker.telemetry.admit(context, request, size_max)
    except Refusal as refusal:
        return PushTelemetryResponse(error_code=refusal.code)
    if not request.metrics or not broker.telemetry.wants(request.client_instance_id):
        return PushTelemetryResponse()
    try:
        pushed = await broker.telemetry.reader.read(
            bytes(request.metrics), Codec(request.compression_type), size_max
        )
    except Busy:
        return PushTelemetryResponse(error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    except PayloadTooLarge:
        return PushTelemetryResponse(error_code=ErrorCode.TELEMETRY_TOO_LARGE)
    except InvalidPayload as error:
        broker.telemetry.complain(context, request.client_instance_id, error)
        return PushTelemetryResponse(error_code=ErrorCode.INVALID_RECORD)
    broker.telemetry.dropped_series += pushed.dropped
    samples = pushed.samples
    for start in range(0, len(samples), _KEPT_AT_ONCE):
        broker.telemetry.keep(request.client_instance_id, samples[start : start + _KEPT_AT_ONCE])
        await asyncio.sleep(0)
    return PushTelemetryResponse()
