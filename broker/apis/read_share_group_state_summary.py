"""ReadShareGroupStateSummary (87): read the epochs and start offsets of share-partitions.

Kafka's source: ShareCoordinatorService.readStateSummary.

Versions 0 to 1. Both are flexible. v1: the number of complete deliveries (KIP-1226).
"""

from __future__ import annotations

from odradek.broker.context import RequestContext
from odradek.broker.services import Services
from odradek.broker.shares.state_requests import ask_each, is_empty
from odradek.broker.shares.state_shard import StateAnswer
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.read_share_group_state_summary import (
    PartitionResult,
    ReadShareGroupStateSummaryRequest,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)
from odradek.protocol.pacing import paced


async def handle(
    services: Services, context: RequestContext, request: ReadShareGroupStateSummaryRequest
) -> ReadShareGroupStateSummaryResponse:
    """Answer at once, or when the state that the answer depends on is stored."""
    if is_empty(request):
        return ReadShareGroupStateSummaryResponse()
    states = services.shares.states
    results = await ask_each(
        context,
        request,
        lambda key, _: states.summarize(key),
        _result,
    )
    return ReadShareGroupStateSummaryResponse(
        results=[
            ReadStateSummaryResult(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in paced(results.items())
        ]
    )


def _result(partition: int, answer: StateAnswer) -> PartitionResult:
    if answer.error is not ErrorCode.NONE:
        return PartitionResult(
            partition=partition, error_code=answer.error, error_message=answer.message
        )
    state = answer.state
    return PartitionResult(
        partition=partition,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
    )
