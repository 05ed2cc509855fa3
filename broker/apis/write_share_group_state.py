"""WriteShareGroupState (85): store the changes of share-partitions.

Many batches that overlap are refused: no leader can have sent them. Kafka stores them.

Kafka's source: ShareCoordinatorService.writeState.

Versions 0 to 1. Both are flexible. v1: the number of complete deliveries (KIP-1226).
"""

from __future__ import annotations

from odradek.broker.context import RequestContext
from odradek.broker.coordination.runtime import Answer
from odradek.broker.services import Services
from odradek.broker.shares.batches import StateBatch, flaw_of
from odradek.broker.shares.key import SharePartitionKey
from odradek.broker.shares.state_records import ShareState
from odradek.broker.shares.state_requests import ask_each, is_empty
from odradek.broker.shares.state_shard import StateAnswer
from odradek.protocol.messages.write_share_group_state import (
    PartitionData,
    PartitionResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)
from odradek.protocol.pacing import paced


async def handle(
    services: Services, context: RequestContext, request: WriteShareGroupStateRequest
) -> WriteShareGroupStateResponse:
    """Answer when the changes are stored."""
    if is_empty(request):
        return WriteShareGroupStateResponse()
    states = services.shares.states

    def write(key: SharePartitionKey, change: ShareState) -> Answer[StateAnswer]:
        return states.write(key, change, flaw_of(change.batches, paced))

    results = await ask_each(
        context,
        request,
        lambda key, one: write(key, _change(one)),
        lambda partition, answer: PartitionResult(
            partition=partition, error_code=answer.error, error_message=answer.message
        ),
        looks_once=True,
    )
    return WriteShareGroupStateResponse(
        results=[
            WriteStateResult(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in paced(results.items())
        ]
    )


def _change(one: PartitionData) -> ShareState:
    return ShareState(
        0,
        one.state_epoch,
        one.leader_epoch,
        one.start_offset,
        one.delivery_complete_count,
        tuple(
            StateBatch(
                batch.first_offset, batch.last_offset, batch.delivery_count, batch.delivery_state
            )
            for batch in paced(one.state_batches)
        ),
    )
