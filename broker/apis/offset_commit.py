"""OffsetCommit (8): store the offsets up to which a group has read (broker/groups/commits.py).

Offsets are kept under both the name and the id of a topic, whichever of the two the request has,
so that the offsets of a deleted topic are not mistaken for those of its successor.

Versions 2 to 10. v3: the throttle time. v5: no retention time. v6: leader epochs. v7: static
members (KIP-345). v8: flexible. v9: members of consumer groups (KIP-848). v10: topics by id.
"""

from __future__ import annotations

from collections.abc import Awaitable, Set
from dataclasses import replace

from odradek.broker.context import RequestContext
from odradek.broker.coordination.seams import Topics
from odradek.broker.groups.commits import refusal, refused_topic
from odradek.broker.groups.parts import commit_in_parts
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponseTopic,
)
from odradek.protocol.pacing import paced

_TOPIC_ID_VERSION = 10


def handle(
    services: Services, context: RequestContext, request: OffsetCommitRequest
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    """Answer when the offsets of existing partitions are stored; refuse the others."""
    if not context.may(AclOperation.READ, ResourceKind.GROUP, request.group_id):
        return refusal(request, ErrorCode.GROUP_AUTHORIZATION_FAILED, paced)
    topics = services.groups.topics
    by_id = context.api_version >= _TOPIC_ID_VERSION
    names = (topics.name_of(one.topic_id) if by_id else one.name for one in request.topics)
    permitted = context.permitted(
        AclOperation.READ,
        ResourceKind.TOPIC,
        (name for name in paced(names) if name is not None),
    )
    known: list[OffsetCommitRequestTopic] = []
    refused: list[OffsetCommitResponseTopic] = []
    for topic in paced(request.topics):
        _sort(topics, topic, known, refused, permitted, by_id=by_id)
    if not known:
        return OffsetCommitResponse(topics=refused)
    request.topics = known
    answer = commit_in_parts(request, lambda part: services.groups.commit(part, context))
    if not refused:
        return answer
    if isinstance(answer, OffsetCommitResponse):
        return _merge(refused, answer)
    return _merge_later(refused, answer)


def _sort(
    topics: Topics,
    topic: OffsetCommitRequestTopic,
    known: list[OffsetCommitRequestTopic],
    refused: list[OffsetCommitResponseTopic],
    permitted: Set[str],
    *,
    by_id: bool,
) -> None:
    """Add a topic, or its partitions, to the known ones or to the refused ones."""
    name = topics.name_of(topic.topic_id) if by_id else topic.name
    topic_id = topic.topic_id if by_id else topics.id_of(topic.name)
    if name is None:
        refused.append(refused_topic(topic, ErrorCode.UNKNOWN_TOPIC_ID, paced))
        return
    if name not in permitted:
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        refused.append(refused_topic(replace(topic, name=name), error, paced))
        return
    count = topics.partition_count(name) if topic_id is not None else 0
    there = [p for p in paced(topic.partitions) if 0 <= p.partition_index < count]
    absent = [p for p in paced(topic.partitions) if not 0 <= p.partition_index < count]
    if there and topic_id is not None:
        known.append(OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=there))
    if absent or topic_id is None:  # each mention of a missing topic gets an answer
        rest = replace(topic, name=name, partitions=absent)
        refused.append(refused_topic(rest, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, paced))


def _merge(
    refused: list[OffsetCommitResponseTopic], stored: OffsetCommitResponse
) -> OffsetCommitResponse:
    """Merge both halves of an answer, each topic once."""
    by_name = {topic.name: topic for topic in paced(refused)}
    for topic in paced(stored.topics):
        half = by_name.get(topic.name)
        if half is None:
            refused.append(topic)
        else:
            half.partitions.extend(topic.partitions)
    return OffsetCommitResponse(topics=refused)


async def _merge_later(
    refused: list[OffsetCommitResponseTopic], answer: Awaitable[OffsetCommitResponse]
) -> OffsetCommitResponse:
    return _merge(refused, await answer)
