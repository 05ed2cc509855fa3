"""PushTelemetry (72): a client's metrics, which are shown on /metrics."""

from __future__ import annotations

import logging

from broker.context import RequestContext
from broker.errors import Refusal
from broker.telemetry.reader import Busy
from broker.telemetry.walk import InvalidPayload, PayloadTooLarge
from protocol.compression import Codec
from protocol.errors import ErrorCode
from protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from protocol.wire import encode_uuid

logger = logging.getLogger(__name__)


async def handle(context: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
    """Take a client's metrics, or say why not."""
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
        logger.warning(
            "refused telemetry client=%r instance=%s peer=%s: %s",
            context.client_id,
            encode_uuid(request.client_instance_id),
            context.client_host,
            error,
        )
        return PushTelemetryResponse(error_code=ErrorCode.INVALID_RECORD)
    broker.telemetry.keep(request.client_instance_id, pushed)
    return PushTelemetryResponse()
