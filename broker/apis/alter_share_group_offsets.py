"""AlterShareGroupOffsets (91): set the start offsets of a share group without members.

Kafka's sources: KafkaApis.handleAlterShareGroupOffsetsRequest,
GroupCoordinatorService.alterShareGroupOffsets.

Version 0 only.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from odradek.broker.context import RequestContext
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.broker.topics.registry import Topics
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from odradek.protocol.pacing import paced
from odradek.protocol.wire import ZERO_UUID

_UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


async def handle(
    services: Services, context: RequestContext, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    """Answer when the new starts are stored."""
    error = ErrorCode.NONE
    if not services.shares.are_enabled:
        error = ErrorCode.UNSUPPORTED_VERSION
    elif not context.may(AclOperation.READ, ResourceKind.GROUP, request.group_id):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    elif not request.group_id:
        error = ErrorCode.INVALID_GROUP_ID
    if error is not ErrorCode.NONE:
        return AlterShareGroupOffsetsResponse(error_code=error, error_message=error.sentence)
    permitted = context.permitted(
        AclOperation.READ, ResourceKind.TOPIC, (topic.topic_name for topic in request.topics)
    )
    wanted = _wanted(services.topics, request.topics, permitted)
    altered, failures = await services.share_groups.alter_offsets(replace(request, topics=wanted))
    if altered.error is not ErrorCode.NONE:
        return AlterShareGroupOffsetsResponse(
            error_code=altered.error, error_message=altered.message or altered.error.sentence
        )
    refused: list[AlterShareGroupOffsetsResponseTopic] = []
    responses: list[AlterShareGroupOffsetsResponseTopic] = []
    for topic in paced(request.topics):
        # Kafka returns the id of a refused topic, too, and so reveals that the topic exists.
        is_permitted = topic.topic_name in permitted
        known = services.topics.get(topic.topic_name) if is_permitted else None
        if known is None and not topic.partitions:
            continue  # Kafka lists a refused topic once per partition
        topic_id = known.topic_id if known else ZERO_UUID
        topic_answer = AlterShareGroupOffsetsResponseTopic(
            topic_name=topic.topic_name, topic_id=topic_id
        )
        for one in paced(topic.partitions):
            answer = AlterShareGroupOffsetsResponsePartition(partition_index=one.partition_index)
            failure = failures.get((topic_id, one.partition_index))
            if not is_permitted:
                answer.error_code, answer.error_message = _DENIED, _DENIED.sentence
            elif one.partition_index not in altered.starts.get(topic_id, ()):
                answer.error_code, answer.error_message = _UNKNOWN, _UNKNOWN.sentence
            elif failure is not None:
                answer.error_code = failure.error
                answer.error_message = failure.error_message("initialize")
            topic_answer.partitions.append(answer)
        (refused if known is None else responses).append(topic_answer)
    return AlterShareGroupOffsetsResponse(responses=[*refused, *responses])


def _wanted(
    topics: Topics, asked: Sequence[AlterShareGroupOffsetsRequestTopic], permitted: Set[str]
) -> list[AlterShareGroupOffsetsRequestTopic]:
    """Return the topics that decide the outcome, which is found in one piece, without pauses.

    The first partition below zero makes Kafka refuse the whole request. Otherwise all existing
    partitions count, each where the request names it last; so does an empty topic after others.
    """
    wanted: dict[str, list[AlterShareGroupOffsetsRequestTopic]] = {}
    for topic in paced(asked):
        known = topics.get(topic.topic_name) if topic.topic_name in permitted else None
        if known is None:
            continue
        partitions = {}
        for one in paced(topic.partitions):
            if one.partition_index < 0:
                return [replace(topic, partitions=[one])]
            if one.partition_index < len(known.partitions):
                partitions[one.partition_index] = one
        last = replace(topic, partitions=list(partitions.values()))
        before = wanted.get(topic.topic_name, ()) if not partitions else ()
        wanted[topic.topic_name] = [*before[:1], last]
    return [topic for some in wanted.values() for topic in some]
