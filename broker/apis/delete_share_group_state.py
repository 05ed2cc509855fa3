"""DeleteShareGroupState (86): delete the state of share-partitions.

Kafka's source: ShareCoordinatorService.deleteState.

Version 0 only.
"""

from __future__ import annotations

from odradek.broker.context import RequestContext
from odradek.broker.services import Services
from odradek.broker.shares.state_requests import ask_each, is_empty
from odradek.protocol.messages.delete_share_group_state import (
    DeleteShareGroupStateRequest,
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionResult,
)
from odradek.protocol.pacing import paced


async def handle(
    services: Services, context: RequestContext, request: DeleteShareGroupStateRequest
) -> DeleteShareGroupStateResponse:
    """Answer when the deletion is stored."""
    if is_empty(request):
        return DeleteShareGroupStateResponse()
    states = services.shares.states
    results = await ask_each(
        context,
        request,
        lambda key, _: states.delete(key),
        lambda partition, answer: PartitionResult(
            partition=partition, error_code=answer.error, error_message=answer.message
        ),
    )
    return DeleteShareGroupStateResponse(
        results=[
            DeleteStateResult(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in paced(results.items())
        ]
    )
