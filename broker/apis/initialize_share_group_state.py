"""InitializeShareGroupState (83): create the state of share-partitions.

Kafka's source: ShareCoordinatorService.initializeState.

Version 0 only.
"""

from __future__ import annotations

from odradek.broker.context import RequestContext
from odradek.broker.services import Services
from odradek.broker.shares.state_requests import ask_each
from odradek.protocol.messages.initialize_share_group_state import (
    InitializeShareGroupStateRequest,
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionResult,
)
from odradek.protocol.pacing import paced


async def handle(
    services: Services, context: RequestContext, request: InitializeShareGroupStateRequest
) -> InitializeShareGroupStateResponse:
    """Answer when the states are stored."""
    if not request.group_id or not request.topics:
        return InitializeShareGroupStateResponse()
    states = services.shares.states
    results = await ask_each(
        context,
        request,
        lambda key, one: states.initialize(key, one.state_epoch, one.start_offset),
        lambda partition, answer: PartitionResult(
            partition=partition, error_code=answer.error, error_message=answer.message
        ),
    )
    return InitializeShareGroupStateResponse(
        results=[
            InitializeStateResult(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in paced(results.items())
        ]
    )
