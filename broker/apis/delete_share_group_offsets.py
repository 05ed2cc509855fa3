"""DeleteShareGroupOffsets (92): delete the offsets of a share group without members, by topic.

Kafka's source: GroupCoordinatorService.deleteShareGroupOffsets.

Version 0 only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from odradek.broker.context import RequestContext
from odradek.broker.orders.maps import computed_ids, put_ids
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from odradek.protocol.pacing import paced


async def handle(
    services: Services, context: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    """Answer when the deletion of the topics' state is stored."""
    error = ErrorCode.NONE
    if not services.shares.are_enabled:
        error = ErrorCode.UNSUPPORTED_VERSION
    elif not context.may(AclOperation.DELETE, ResourceKind.GROUP, request.group_id):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    elif not request.group_id:
        error = ErrorCode.INVALID_GROUP_ID
    if error is not ErrorCode.NONE:
        return DeleteShareGroupOffsetsResponse(error_code=error, error_message=error.sentence)
    asked = [topic.topic_name for topic in paced(request.topics)]
    permitted = context.permitted(AclOperation.READ, ResourceKind.TOPIC, asked)
    names = [name for name in paced(asked) if name in permitted]
    # Unknown topics are left out: the coordinator decides without a pause, and should be fast.
    known = _once_or_twice(name for name in paced(names) if services.topics.get(name) is not None)
    deleting, failures = await services.share_groups.delete_offsets(request.group_id, known)
    if deleting.error is not ErrorCode.NONE:
        return DeleteShareGroupOffsetsResponse(
            error_code=deleting.error, error_message=deleting.message or deleting.error.sentence
        )
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    results = [
        DeleteShareGroupOffsetsResponseTopic(
            topic_name=name, error_code=denied, error_message=denied.sentence
        )
        for name in paced(asked)
        if name not in permitted
    ]
    failed: list[DeleteShareGroupOffsetsResponseTopic] = []
    # Kafka fills one map of topics from another, and looks a topic up for each of its partitions.
    looked_at = (
        topic_id for topic_id, partitions in paced(deleting.topics.items()) for _ in partitions
    )
    for topic_id in paced(put_ids(computed_ids(looked_at))):
        topic = services.topics.by_id(topic_id)
        answer = DeleteShareGroupOffsetsResponseTopic(
            topic_name=topic.name if topic else "", topic_id=topic_id
        )
        failure = failures.get(topic_id)
        if failure is not None:
            answer.error_code = failure.error
            answer.error_message = failure.error_message("delete")
        (results if failure is None else failed).append(answer)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    refused = dict(deleting.refused)
    if deleting.has_state:
        is_known = set(known)
        refused = {
            name: deleting.refused.get(name, (unknown, unknown.sentence))
            for name in paced(names)
            if name in deleting.refused or name not in is_known
        }
    for name, (code, message) in paced(refused.items()):
        results.append(
            DeleteShareGroupOffsetsResponseTopic(
                topic_name=name, error_code=code, error_message=message
            )
        )
    return DeleteShareGroupOffsetsResponse(responses=[*results, *failed])


def _once_or_twice(names: Iterable[str]) -> list[str]:
    """Drop a name from its third mention on, which would change nothing.

    The second mention counts, as in Kafka: it deletes a topic that is already being deleted.
    """
    times: Counter[str] = Counter()
    kept = []
    for name in paced(names):
        times[name] += 1
        if times[name] <= 2:
            kept.append(name)
    return kept
