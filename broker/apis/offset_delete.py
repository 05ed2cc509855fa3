"""OffsetDelete (47): remove offsets that a group has stored (broker/groups/deletion.py).

Version 0 only.
"""

from __future__ import annotations

from dataclasses import replace

from odradek.broker.context import RequestContext
from odradek.broker.groups.deletion import answered
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponseTopic,
)
from odradek.protocol.pacing import paced


async def handle(
    services: Services, context: RequestContext, request: OffsetDeleteRequest
) -> OffsetDeleteResponse:
    """Answer when the tombstones are stored; refuse partitions that do not exist.

    An error of the group is reported even when none of the partitions exists.
    """
    if not context.may(AclOperation.DELETE, ResourceKind.GROUP, request.group_id):
        return OffsetDeleteResponse(
            error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED, topics=[]
        )
    permitted = context.permitted(
        AclOperation.READ, ResourceKind.TOPIC, (topic.name for topic in request.topics)
    )
    groups = services.groups
    known: list[OffsetDeleteRequestTopic] = []
    # The answer is built here, where it can be paced, and keeps partitions that are named twice.
    answers: list[OffsetDeleteResponseTopic] = []
    refused: dict[str, OffsetDeleteResponseTopic] = {}
    for topic in paced(request.topics):
        if topic.name not in permitted:
            _add(refused, answered(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED, paced))
            continue
        count = groups.topics.partition_count(topic.name)
        there = [p for p in paced(topic.partitions) if 0 <= p.partition_index < count]
        absent = [p for p in paced(topic.partitions) if not 0 <= p.partition_index < count]
        if there:
            once = {p.partition_index: p for p in paced(there)}
            known.append(replace(topic, partitions=list(once.values())))
            answers.append(answered(replace(topic, partitions=there), ErrorCode.NONE, paced))
        if absent or not count:
            rest = replace(topic, partitions=absent)
            _add(refused, answered(rest, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, paced))
    answer = groups.delete_offsets(replace(request, topics=known), answers)
    response = answer if isinstance(answer, OffsetDeleteResponse) else await answer
    if response.error_code != ErrorCode.NONE or not refused:
        return response
    for stored in paced(response.topics):
        _add(refused, stored)
    return OffsetDeleteResponse(topics=list(refused.values()))


def _add(topics: dict[str, OffsetDeleteResponseTopic], half: OffsetDeleteResponseTopic) -> None:
    """Merge the halves of a topic's answer."""
    whole = topics.setdefault(half.name, half)
    if whole is not half:
        whole.partitions.extend(half.partitions)
