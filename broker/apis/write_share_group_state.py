"""WriteShareGroupState (85): store what has changed in share-partitions.

What no leader can have sent is refused; Kafka stores it.

Kafka's source: ShareCoordinatorService.writeState.
"""

from __future__ import annotations

from broker.context import RequestContext
from broker.coordination.runtime import Answer
from broker.errors import code_of
from broker.shares.batches import StateBatch, flaw_of
from broker.shares.key import SharePartitionKey
from broker.shares.state_records import ShareState
from broker.shares.state_requests import ask_each, is_empty
from broker.shares.state_shard import StateAnswer
from protocol.messages.write_share_group_state import (
    PartitionData,
    PartitionResult,
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
    WriteStateResult,
)
from storage.errors import StorageError


async def handle(
    context: RequestContext, request: WriteShareGroupStateRequest
) -> WriteShareGroupStateResponse:
    """Answer when the changes are stored."""
    if is_empty(request):
        return WriteShareGroupStateResponse()
    results = await ask_each(
        context,
        request,
        lambda key, one: _write(context, key, _change(one)),
        lambda partition, answer: PartitionResult(
            partition=partition, error_code=answer.error, error_message=answer.message
        ),
    )
    return WriteShareGroupStateResponse(
        results=[
            WriteStateResult(topic_id=topic_id, partitions=partitions)
            for topic_id, partitions in results.items()
        ]
    )


def _write(
    context: RequestContext, key: SharePartitionKey, change: ShareState
) -> Answer[StateAnswer]:
    topic = context.broker.topics.by_id(key.topic_id)
    try:
        log = topic.log(key.partition) if topic is not None else None
    except StorageError as error:
        return StateAnswer(code_of(error), str(error))
    flaw = None if log is None else flaw_of(change.batches, log.log_end_offset)
    return context.broker.shares.states.write(key, change, flaw)


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
            for batch in one.state_batches
        ),
    )
