"""DescribeShareGroupOffsets (90): the start offsets of share groups, and their lag.

Kafka's source: GroupCoordinatorService.describeShareGroupOffsets, computeShareGroupLag...

Versions 0 to 1. Both are flexible. v1: the lag (KIP-1226).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from odradek.broker.context import RequestContext
from odradek.broker.counters.lag import share_lag
from odradek.broker.errors import code_of
from odradek.broker.loop.repeats import answer_each
from odradek.broker.orders.maps import computed_ids, computed_numbers
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.broker.shares.batches import UNCHANGED_OFFSET
from odradek.broker.shares.key import SharePartitionKey
from odradek.broker.shares.state_shard import StateAnswer
from odradek.protocol.compiler import encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from odradek.protocol.pacing import paced
from odradek.protocol.wire import ZERO_UUID
from odradek.storage.errors import StorageError

_UNKNOWN_LAG = -1


async def handle(
    services: Services, context: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    """Describe each group."""
    described: dict[Hashable, DescribeShareGroupOffsetsResponseGroup] = {}
    for group in paced(request.groups):
        if _name(group) not in described:
            described[_name(group)] = await _describe(services, context, group)
    groups = answer_each(
        request.groups,
        name=_name,
        answer=lambda group: described[_name(group)],
        size_bytes=lambda group: len(
            encode(DescribeShareGroupOffsetsResponse(groups=[group]), context.api_version)
        ),
    )
    return DescribeShareGroupOffsetsResponse(groups=groups)


def _name(group: DescribeShareGroupOffsetsRequestGroup) -> Hashable:
    """Return the key by which answers are shared: groups without a list of topics share one."""
    return group.group_id if group.topics is None else id(group)


async def _describe(
    services: Services, context: RequestContext, group: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    group_id = group.group_id
    if not services.shares.are_enabled:
        error = ErrorCode.UNSUPPORTED_VERSION
        return DescribeShareGroupOffsetsResponseGroup(group_id=group_id, error_code=error)
    if not context.may(AclOperation.DESCRIBE, ResourceKind.GROUP, group_id):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
        return DescribeShareGroupOffsetsResponseGroup(group_id=group_id, error_code=error)
    unknown: list[DescribeShareGroupOffsetsResponseTopic] = []
    denied: list[DescribeShareGroupOffsetsResponseTopic] = []
    wanted: Mapping[bytes, Sequence[int]] | ErrorCode
    if group.topics is None:
        wanted = services.share_groups.partitions_of(group_id)
        if isinstance(wanted, ErrorCode):
            return _refused(group_id, wanted)
    else:
        permitted = context.permitted(
            AclOperation.DESCRIBE, ResourceKind.TOPIC, (one.topic_name for one in group.topics)
        )
        named: dict[bytes, list[int]] = {}
        is_odd = not group_id
        for topic in paced(group.topics):
            known = services.topics.get(topic.topic_name)
            if topic.topic_name not in permitted:
                denied.append(_denied(topic.topic_name, topic.partitions))
            elif known is None:
                unknown.append(_unknown(topic.topic_name, topic.partitions))
            else:
                named.setdefault(known.topic_id, []).extend(topic.partitions)
                is_odd |= min(topic.partitions, default=-1) < 0
        if named and is_odd:
            # As DefaultStatePersister.validateGroupTopicPartitionData fails.
            return _refused(group_id, ErrorCode.UNKNOWN_SERVER_ERROR)
        wanted = named
    answers = await services.share_groups.summarize(group_id, wanted)
    known_topics = _known(services, answers, await _remote_ends(services, answers))
    names = (topic.topic_name for topic in known_topics)
    described = context.permitted(AclOperation.DESCRIBE, ResourceKind.TOPIC, names)
    known_topics = [topic for topic in known_topics if topic.topic_name in described]
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=group_id, topics=[*known_topics, *unknown, *denied]
    )


def _known(
    services: Services,
    answers: Mapping[SharePartitionKey, StateAnswer],
    ends: Mapping[tuple[bytes, int], int],
) -> list[DescribeShareGroupOffsetsResponseTopic]:
    """Describe topics in Kafka's order: a HashMap of topics, each with a HashMap of partitions."""
    by_id: dict[bytes, dict[int, StateAnswer]] = {}
    for key, answer in paced(answers.items()):
        by_id.setdefault(key.topic_id, {})[key.partition] = answer
    topics = []
    # Kafka looks the topic up for each partition.
    for topic_id in paced(computed_ids(key.topic_id for key in answers)):
        found, of_topic = services.topics.by_id(topic_id), by_id[topic_id]
        if found is not None:
            topics.append(
                DescribeShareGroupOffsetsResponseTopic(
                    topic_name=found.name,
                    topic_id=topic_id,
                    partitions=[
                        _described(services, topic_id, one, of_topic[one], ends)
                        for one in paced(computed_numbers(of_topic))
                    ],
                )
            )
    return topics


async def _remote_ends(
    services: Services, answers: Mapping[SharePartitionKey, StateAnswer]
) -> Mapping[tuple[bytes, int], int]:
    """Return the end offsets of partitions that other brokers lead, as far as they are known."""
    remote = services.share_groups.remote_ends
    if remote is None:
        return {}
    wanted = [
        (key.topic_id, key.partition)
        for key, answer in paced(answers.items())
        if answer.error is ErrorCode.NONE
    ]
    return await remote.find(wanted)


def _refused(group_id: str, error: ErrorCode) -> DescribeShareGroupOffsetsResponseGroup:
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=group_id, error_code=error, error_message=error.sentence
    )


def _unknown(name: str, partitions: Sequence[int]) -> DescribeShareGroupOffsetsResponseTopic:
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=ZERO_UUID,
        partitions=[
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=number, start_offset=UNCHANGED_OFFSET
            )
            for number in paced(partitions)
        ],
    )


def _denied(name: str, partitions: Sequence[int]) -> DescribeShareGroupOffsetsResponseTopic:
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=ZERO_UUID,
        partitions=[
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=number,
                start_offset=UNCHANGED_OFFSET,
                lag=_UNKNOWN_LAG,
                error_code=error,
                error_message=error.sentence,
            )
            for number in paced(partitions)
        ],
    )


def _described(
    services: Services,
    topic_id: bytes,
    partition: int,
    answer: StateAnswer,
    ends: Mapping[tuple[bytes, int], int],
) -> DescribeShareGroupOffsetsResponsePartition:
    """Describe a group's start offset in a partition. It is unknown if the state has an error."""
    state = answer.state
    if answer.error is not ErrorCode.NONE:
        return DescribeShareGroupOffsetsResponsePartition(
            partition_index=partition, start_offset=UNCHANGED_OFFSET
        )
    described = DescribeShareGroupOffsetsResponsePartition(
        partition_index=partition,
        start_offset=state.start_offset,
        leader_epoch=state.leader_epoch,
        lag=_UNKNOWN_LAG,
    )
    if UNCHANGED_OFFSET in (state.start_offset, state.delivery_complete_count):
        return described
    topic = services.topics.by_id(topic_id)
    if topic is not None and topic.other_leader(partition) is not None:
        end_offset = ends.get((topic_id, partition))
        behind = share_lag(end_offset, state.start_offset, state.delivery_complete_count)
        described.lag = _UNKNOWN_LAG if behind is None else behind
        return described
    try:
        log = topic.log(partition) if topic else None
    except StorageError as error:
        return _failed(partition, code_of(error))
    if log is None:
        return _failed(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    behind = share_lag(log.high_watermark, state.start_offset, state.delivery_complete_count)
    described.lag = _UNKNOWN_LAG if behind is None else behind
    return described


def _failed(partition: int, error: ErrorCode) -> DescribeShareGroupOffsetsResponsePartition:
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=partition, error_code=error, error_message=error.sentence
    )
