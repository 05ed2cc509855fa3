"""IncrementalAlterConfigs (44): change single settings of a resource (KIP-339)."""

from __future__ import annotations

from broker.config_operations import Operation, Wish, carry_out
from broker.context import RequestContext
from broker.errors import code_of, message_of
from protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


async def handle(
    context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Change settings, resource by resource; each changes wholly or not at all."""
    wishes = [
        Wish(
            one.resource_type,
            one.resource_name,
            [
                Operation(config.name, config.config_operation, config.value)
                for config in one.configs
            ],
        )
        for one in request.resources
    ]
    broker = context.broker
    outcomes = await carry_out(
        wishes, broker.configs, broker.topics, validate_only=request.validate_only
    )
    return IncrementalAlterConfigsResponse(
        throttle_time_ms=0,
        responses=[
            AlterConfigsResourceResponse(
                error_code=code_of(outcome) if outcome else 0,
                error_message=message_of(outcome) if outcome else None,
                resource_type=wish.resource_type,
                resource_name=wish.resource_name,
            )
            for wish, outcome in zip(wishes, outcomes, strict=True)
        ],
    )
