"""OffsetForLeaderEpoch (23): the end offset of a leader epoch, so that readers find lost records.

After an unclean stop a log may have lost its end. It then continues in a new epoch, and a
consumer that asks for the end of its own epoch finds out which of its records are gone (KIP-320).

Versions 2 to 4. v2: the current leader epoch. v3: the replica's id. v4: flexible.
"""

from __future__ import annotations

from odradek.broker.context import RequestContext
from odradek.broker.errors import code_of
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.broker.topics.topic import Topic
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from odradek.protocol.pacing import paced
from odradek.storage.errors import StorageError
from odradek.storage.log import Log

_NO_EPOCH = -1


def handle(
    services: Services, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Look epochs up, partition by partition."""
    topics = services.topics
    names = {one.topic for one in request.topics}
    if not context.may_to_cluster(AclOperation.CLUSTER_ACTION, logs_denied=False):
        names = set(context.permitted(AclOperation.DESCRIBE, ResourceKind.TOPIC, names))
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=one.topic,
                partitions=[
                    _look_up(topics.get(one.topic), asked)
                    if one.topic in names
                    else EpochEndOffset(
                        partition=asked.partition,
                        error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                    )
                    for asked in paced(one.partitions)
                ],
            )
            for one in paced(request.topics)
        ]
    )


def _look_up(topic: Topic | None, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        log = topic.log(asked.partition) if topic else None
    except StorageError as error:
        return EpochEndOffset(partition=asked.partition, error_code=code_of(error))
    if log is None:
        return EpochEndOffset(
            partition=asked.partition, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
    fenced = _fence(log, asked.current_leader_epoch)
    if fenced:
        return EpochEndOffset(partition=asked.partition, error_code=fenced)
    epoch, end_offset = log.end_offset_for_epoch(asked.leader_epoch)
    return EpochEndOffset(
        partition=asked.partition, error_code=0, leader_epoch=epoch, end_offset=end_offset
    )


def _fence(log: Log, current_leader_epoch: int) -> ErrorCode:
    if current_leader_epoch == _NO_EPOCH or current_leader_epoch == log.leader_epoch:
        return ErrorCode.NONE
    if current_leader_epoch < log.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH
