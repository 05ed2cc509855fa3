"""IncrementalAlterConfigs (44): change single settings of a resource (KIP-339).

Versions 0 to 1. v1: flexible.
"""

from __future__ import annotations

from functools import partial

from odradek.broker.answers.config_operations import Edit, ResourceEdits, carry_out
from odradek.broker.answers.config_permissions import config_refusal
from odradek.broker.context import RequestContext
from odradek.broker.errors import code_of, message_of
from odradek.broker.security.authorization import AclOperation
from odradek.broker.services import Services
from odradek.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from odradek.protocol.pacing import paced


async def handle(
    services: Services, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Edit settings, resource by resource; each resource changes as a whole or not at all."""
    requested = [
        ResourceEdits(
            one.resource_type,
            one.resource_name,
            [
                Edit(config.name, config.config_operation, config.value)
                for config in paced(one.configs)
            ],
        )
        for one in paced(request.resources)
    ]
    outcomes = await carry_out(
        requested,
        services.configs,
        services.topics,
        partial(config_refusal, context, AclOperation.ALTER_CONFIGS),
        validate_only=request.validate_only,
    )
    return IncrementalAlterConfigsResponse(
        throttle_time_ms=0,
        responses=[
            AlterConfigsResourceResponse(
                error_code=code_of(outcome) if outcome else 0,
                error_message=message_of(outcome) if outcome else None,
                resource_type=edits.resource_type,
                resource_name=edits.resource_name,
            )
            for edits, outcome in paced(zip(requested, outcomes, strict=True))
        ],
    )
