"""TxnOffsetCommit (28): store the offsets up to which a group has read, as part of a transaction
(broker/groups/transactional.py).

Versions 0 to 5. v2: leader epochs; COORDINATOR_LOAD_IN_PROGRESS. v3: flexible; the member and its
generation (KIP-447). v4: TRANSACTION_ABORTABLE. v5: the request adds the group to the transaction,
without AddOffsetsToTxn (KIP-890).
"""

from __future__ import annotations

from dataclasses import replace

from odradek.broker.context import RequestContext
from odradek.broker.groups.parts import commit_in_parts
from odradek.broker.groups.transactional import refusal, refused_topic
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponseTopic,
)
from odradek.protocol.pacing import paced

# Older producers fail for good on the error that a group is being loaded (KAFKA-7296).
_KNOWS_LOADING_VERSION = 2


async def handle(
    services: Services, context: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """Answer when the offsets of existing partitions are stored; refuse the others."""
    problem = _problem(context, request)
    if problem is not ErrorCode.NONE:
        return refusal(request, problem, paced)
    permitted = context.permitted(
        AclOperation.READ, ResourceKind.TOPIC, (topic.name for topic in request.topics)
    )
    groups = services.groups
    known: list[TxnOffsetCommitRequestTopic] = []
    refused: dict[str, TxnOffsetCommitResponseTopic] = {}
    for topic in paced(request.topics):
        if topic.name not in permitted:
            _add(refused, refused_topic(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED, paced))
            continue
        count = groups.topics.partition_count(topic.name)
        there = [p for p in paced(topic.partitions) if 0 <= p.partition_index < count]
        absent = [p for p in paced(topic.partitions) if not 0 <= p.partition_index < count]
        if there:
            known.append(replace(topic, partitions=there))
        if absent or not count:
            rest = replace(topic, partitions=absent)
            _add(refused, refused_topic(rest, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, paced))
    if not known:
        return TxnOffsetCommitResponse(topics=list(refused.values()))
    request.topics = known
    answer = commit_in_parts(
        request, lambda part: groups.commit_in_transaction(part, context)
    )
    response = answer if isinstance(answer, TxnOffsetCommitResponse) else await answer
    for topic_answer in paced(response.topics):
        _add(refused, topic_answer)
    response = TxnOffsetCommitResponse(topics=list(refused.values()))
    return _for_version(response, context.api_version)


def _problem(context: RequestContext, request: TxnOffsetCommitRequest) -> ErrorCode:
    if not context.may(
        AclOperation.WRITE, ResourceKind.TRANSACTIONAL_ID, request.transactional_id
    ):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not context.may(AclOperation.READ, ResourceKind.GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def _add(
    topics: dict[str, TxnOffsetCommitResponseTopic], half: TxnOffsetCommitResponseTopic
) -> None:
    """Merge the halves of a topic's answer."""
    whole = topics.setdefault(half.name, half)
    if whole is not half:
        whole.partitions.extend(half.partitions)


def _for_version(response: TxnOffsetCommitResponse, version: int) -> TxnOffsetCommitResponse:
    if version < _KNOWS_LOADING_VERSION:
        for topic in paced(response.topics):
            for partition in paced(topic.partitions):
                if partition.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    partition.error_code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return response
