"""ReadShareGroupState (84): read the state of share-partitions, to continue from it.

Kafka's source: ShareCoordinatorService.readState.

Version 0 only.
"""

from __future__ import annotations

from odradek.broker.context import RequestContext
from odradek.broker.services import Services
from odradek.broker.shares.state_requests import ask_each, is_empty
from odradek.broker.shares.state_shard import StateAnswer
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.read_share_group_state import (
    PartitionResult,
    ReadShareGroupStateRequest,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)
from odradek.protocol.pacing import paced


async def handle(
    services: Services, context: RequestContext, request: ReadShareGroupStateRequest
) -> ReadShareGroupStateResponse:
    """Answer at once, or when a new leader's epoch is stored."""
    if is_empty(request):
        return ReadShareGroupStateResponse()
    states = services.shares.states
    results = await ask_each(
        context,
        request,
        lambda key, one: states.read(key, one.leader_epoch),
        _result,
    )
    return ReadShareGroupStateResponse(
        results=[
            ReadStateResult(topic_id=topic_id, partitions=partitions)
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
        start_offset=state.start_offset,
        state_batches=[
            StateBatch(
                first_offset=batch.first_offset,
                last_offset=batch.last_offset,
                delivery_state=batch.state,
                delivery_count=batch.delivery_count,
            )
            for batch in state.batches
        ],
    )
