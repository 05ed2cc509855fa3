"""OffsetFetch (9): read the offsets that groups have stored (broker/groups/commits.py).

Up to version 7 a request asks for one group, and the response has the fields of one.

Versions 1 to 10. v2: null asks for all topics; an error for all. v3: the throttle time. v5: leader
epochs. v6: flexible. v7: require_stable (KIP-447). v8: several groups (KIP-709). v9: a member and
its epoch (KIP-848). v10: topics by id.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Awaitable, Collection, Iterable, Set
from dataclasses import replace

from odradek.broker.context import RequestContext
from odradek.broker.coordination.seams import Topics
from odradek.broker.loop.repeats import Repeats, answer_each
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.protocol.compiler import encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from odradek.protocol.pacing import paced

_GROUP_ERROR_VERSION = 2
_GROUPS_VERSION = 8
_TOPIC_ID_VERSION = 10
_NO_OFFSET = -1


def handle(
    services: Services, context: RequestContext, request: OffsetFetchRequest
) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    """Answer for each group; require_stable waits for offsets that are being stored."""
    groups = request.groups if context.api_version >= _GROUPS_VERSION else [_as_group(request)]
    permitted = context.permitted(
        AclOperation.DESCRIBE, ResourceKind.GROUP, (group.group_id for group in groups)
    )
    if request.require_stable:
        # Other groups are not waited for: the delay would reveal that they store offsets.
        unstored = services.groups.unstored(permitted)
        if unstored:
            return _respond_later(services, context, groups, permitted, unstored)
    return _respond(services, context, groups, permitted, require_stable=request.require_stable)


async def _respond_later(
    services: Services,
    context: RequestContext,
    groups: list[OffsetFetchRequestGroup],
    permitted: Set[str],
    unstored: Collection[Future[None]],
) -> OffsetFetchResponse:
    await asyncio.wait(unstored)
    return _respond(services, context, groups, permitted, require_stable=True)


def _respond(
    services: Services,
    context: RequestContext,
    groups: list[OffsetFetchRequestGroup],
    permitted: Set[str],
    *,
    require_stable: bool,
) -> OffsetFetchResponse:
    version = context.api_version
    fetched = answer_each(
        groups,
        name=lambda group: group.group_id if group.topics is None else id(group),
        answer=lambda group: (
            _fetch(services, context, group, require_stable=require_stable)
            if group.group_id in permitted
            else _denied(group)
        ),
        size_bytes=lambda group: len(encode(OffsetFetchResponse(groups=[group]), version)),
    )
    _count_notes(zip(groups, fetched, strict=True))
    if version < _GROUPS_VERSION:
        return _as_one(context, groups[0], fetched[0])
    return OffsetFetchResponse(topics=[], error_code=ErrorCode.NONE, groups=fetched)


def _fetch(
    services: Services,
    context: RequestContext,
    group: OffsetFetchRequestGroup,
    *,
    require_stable: bool,
) -> OffsetFetchResponseGroup:
    coordinator = services.groups
    by_id = context.api_version >= _TOPIC_ID_VERSION
    asked, hidden = group, []
    unknown: list[OffsetFetchRequestTopics] = []
    if group.topics is not None:
        named = group.topics
        if by_id:
            named, unknown = _named(coordinator.topics, group.topics)
        permitted = _describable(context, named)
        hidden = [topic for topic in named if topic.name not in permitted]
        if by_id or hidden:
            asked = replace(group, topics=[one for one in named if one.name in permitted])
    answer = coordinator.fetch(asked, require_stable=require_stable)
    if answer.error_code != ErrorCode.NONE:
        return answer
    if group.topics is None:
        permitted = _describable(context, answer.topics)
        answer.topics = [topic for topic in answer.topics if topic.name in permitted]
    if by_id and group.topics is None:
        _identify(coordinator.topics, answer)
    missing, denied = ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    answer.topics += [_failed_topic(topic, missing) for topic in paced(unknown)]
    answer.topics += [_failed_topic(topic, denied) for topic in paced(hidden)]
    return answer


def _denied(group: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(
        group_id=group.group_id, topics=[], error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED
    )


def _describable(
    context: RequestContext,
    topics: Iterable[OffsetFetchRequestTopics] | Iterable[OffsetFetchResponseTopics],
) -> Set[str]:
    names = (topic.name for topic in topics)
    return context.permitted(AclOperation.DESCRIBE, ResourceKind.TOPIC, names)


def _count_notes(
    answers: Iterable[tuple[OffsetFetchRequestGroup, OffsetFetchResponseGroup]]
) -> None:
    """Count the metadata of partitions that are named several times. Raises CloseConnection."""
    repeats = Repeats()
    seen: set[tuple[str, str, int]] = set()
    for group, answer in paced(answers):
        for topic in answer.topics if group.topics is not None else ():
            for one in paced(topic.partitions):
                if one.metadata:
                    place = group.group_id, topic.name, one.partition_index
                    repeats.add(len(one.metadata) if place in seen else 0)
                    seen.add(place)


def _named(
    topics: Topics, asked: list[OffsetFetchRequestTopics]
) -> tuple[list[OffsetFetchRequestTopics], list[OffsetFetchRequestTopics]]:
    """Look up the names of topics that a request names by id; return unknown topics apart."""
    named: list[OffsetFetchRequestTopics] = []
    unknown: list[OffsetFetchRequestTopics] = []
    for topic in paced(asked):
        name = topics.name_of(topic.topic_id)
        if name is None:
            unknown.append(topic)
        else:
            named.append(replace(topic, name=name))
    return named, unknown


def _identify(topics: Topics, answer: OffsetFetchResponseGroup) -> None:
    """Add ids to an answer's topics; leave out topics that do not exist."""
    for topic in paced(answer.topics):
        topic.topic_id = topics.id_of(topic.name) or topic.topic_id
    answer.topics = [t for t in answer.topics if topics.name_of(t.topic_id) == t.name]


def _failed_topic(topic: OffsetFetchRequestTopics, error: int) -> OffsetFetchResponseTopics:
    partitions = [
        OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=_NO_OFFSET, metadata="", error_code=error
        )
        for index in paced(topic.partition_indexes)
    ]
    return OffsetFetchResponseTopics(
        name=topic.name, topic_id=topic.topic_id, partitions=partitions
    )


def _as_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = None
    if request.topics is not None:
        topics = [
            OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ]
    return OffsetFetchRequestGroup(group_id=request.group_id, topics=topics)


def _as_one(
    context: RequestContext, asked: OffsetFetchRequestGroup, fetched: OffsetFetchResponseGroup
) -> OffsetFetchResponse:
    topics = fetched.topics
    if fetched.error_code != ErrorCode.NONE and context.api_version < _GROUP_ERROR_VERSION:
        # Where the response has no error of its own, each partition has it.
        topics = [
            _failed_topic(topic, fetched.error_code) for topic in paced(asked.topics or ())
        ]
    return OffsetFetchResponse(
        error_code=fetched.error_code,
        groups=[],
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name, partitions=[_as_old(p) for p in paced(topic.partitions)]
            )
            for topic in paced(topics)
        ],
    )


def _as_old(partition: OffsetFetchResponsePartitions) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=partition.partition_index,
        committed_offset=partition.committed_offset,
        committed_leader_epoch=partition.committed_leader_epoch,
        metadata=partition.metadata,
        error_code=partition.error_code,
    )
