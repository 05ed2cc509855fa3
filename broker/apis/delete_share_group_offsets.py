"""DeleteShareGroupOffsets (92): forget topics of a share group without members.

Kafka's source: GroupCoordinatorService.deleteShareGroupOffsets.
"""

from __future__ import annotations

from broker.authorized_operations import Operation
from broker.context import RequestContext
from broker.coordination.java_orders import computed_ids, put_ids
from broker.security.authorization import ResourceKind
from protocol.errors import ErrorCode
from protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from protocol.pacing import paced


async def handle(
    context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    """Answer when it is stored that the state of the topics is gone."""
    broker = context.broker
    error = ErrorCode.NONE
    if not broker.shares.are_enabled:
        error = ErrorCode.UNSUPPORTED_VERSION
    elif not context.may(Operation.DELETE, ResourceKind.GROUP, request.group_id):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    elif not request.group_id:
        error = ErrorCode.INVALID_GROUP_ID
    if error is not ErrorCode.NONE:
        return DeleteShareGroupOffsetsResponse(error_code=error, error_message=error.sentence)
    asked = [topic.topic_name for topic in request.topics]
    permitted = context.permitted(Operation.READ, ResourceKind.TOPIC, asked)
    names = [name for name in asked if name in permitted]
    deleting, failures = await broker.share_groups.delete_offsets(request.group_id, names)
    if deleting.error is not ErrorCode.NONE:
        return DeleteShareGroupOffsetsResponse(
            error_code=deleting.error, error_message=deleting.message or deleting.error.sentence
        )
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    told = [
        DeleteShareGroupOffsetsResponseTopic(
            topic_name=name, error_code=denied, error_message=denied.sentence
        )
        for name in paced(asked)
        if name not in permitted
    ]
    failed: list[DeleteShareGroupOffsetsResponseTopic] = []
    # In Kafka one map of topics is filled from another, which is looked at for each partition.
    looked_at = (one for one, some in paced(deleting.topics.items()) for _ in some)
    for topic_id in paced(put_ids(computed_ids(looked_at))):
        topic = broker.topics.by_id(topic_id)
        answer = DeleteShareGroupOffsetsResponseTopic(
            topic_name=topic.name if topic else "", topic_id=topic_id
        )
        failure = failures.get(topic_id)
        if failure is not None:
            answer.error_code, answer.error_message = failure.error, failure.told_of("delete")
        (told if failure is None else failed).append(answer)
    for name, (code, message) in paced(deleting.refused.items()):
        told.append(
            DeleteShareGroupOffsetsResponseTopic(
                topic_name=name, error_code=code, error_message=message
            )
        )
    return DeleteShareGroupOffsetsResponse(responses=[*told, *failed])
