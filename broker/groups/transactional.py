"""TxnOffsetCommit: offsets that a producer commits together with its batches (KIP-98).

A request that names its member is checked like an OffsetCommit. A request that does not comes
from a client older than KIP-447 and is accepted, in any state of the group: the producer's epoch,
not the generation, then fences producers that have been replaced.

Kafka's source: OffsetMetadataManager.commitTransactionalOffset, ClassicGroup.validateOffsetCommit.
"""

from __future__ import annotations

from odradek.broker.coordination.effects import Caller, Persist, Producer, Reply
from odradek.broker.groups.commits import CommitTurn
from odradek.broker.groups.effects import UndecidedOffsetsStored
from odradek.broker.groups.records import CommittedOffset, OffsetRecord
from odradek.broker.groups.state import ClassicGroup, GroupState, Turn
from odradek.broker.orders.java import string_length
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from odradek.protocol.pacing import Pace, unpaced


def commit(turn: Turn, request: TxnOffsetCommitRequest, caller: Caller) -> None:
    """Store a request's offsets in its producer's transaction, or refuse it as a whole."""
    group = turn.group
    error = problem(group, request)
    if error is not ErrorCode.NONE:
        turn.reply(caller, refusal(request, error))
    else:
        store(turn, request, caller)


def store(turn: CommitTurn, request: TxnOffsetCommitRequest, caller: Caller) -> None:
    """Store a request's offsets in a group of any kind; the request is checked already."""
    records: list[OffsetRecord] = []
    topics = [_commit_topic(turn, topic, records) for topic in request.topics]
    response = TxnOffsetCommitResponse(topics=topics)
    if not records:
        turn.effects.append(Reply(caller.token, response))
        return
    turn.group.offsets.begin(records)
    producer = Producer(request.producer_id, request.producer_epoch)
    ticket = UndecidedOffsetsStored(tuple(records), caller.token, request, response)
    turn.effects.append(Persist(ticket.records, ticket, producer))


def problem(group: ClassicGroup, request: TxnOffsetCommitRequest) -> ErrorCode:
    """Return the error that forbids a request to commit offsets, NONE without one."""
    generation = request.generation_id
    if group.state is GroupState.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    names_member = generation >= 0 or request.member_id or request.group_instance_id is not None
    if not names_member or (generation < 0 and group.state is GroupState.EMPTY):
        return ErrorCode.NONE
    error = group.membership.check(request.member_id, request.group_instance_id)
    if error is ErrorCode.NONE and generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return error


def refusal(
    request: TxnOffsetCommitRequest, error: ErrorCode, pace: Pace = unpaced
) -> TxnOffsetCommitResponse:
    """Return the refusal of all offsets of a request; handlers pass `paced`."""
    topics = [refused_topic(topic, error, pace) for topic in pace(request.topics)]
    return TxnOffsetCommitResponse(topics=topics)


def refused_topic(
    topic: TxnOffsetCommitRequestTopic, error: ErrorCode, pace: Pace = unpaced
) -> TxnOffsetCommitResponseTopic:
    """Return the refusal of all offsets of a topic; handlers pass `paced`."""
    return _answered(topic, [error] * len(topic.partitions), pace)


def _commit_topic(
    turn: CommitTurn, topic: TxnOffsetCommitRequestTopic, records: list[OffsetRecord]
) -> TxnOffsetCommitResponseTopic:
    """Return the answer for a topic if its records are stored, and add them to `records`."""
    errors = []
    for partition in topic.partitions:
        if string_length(partition.committed_metadata) > turn.config.offset_metadata_max_bytes:
            errors.append(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            continue
        errors.append(ErrorCode.NONE)
        committed = _committed(partition, turn.now_ms)
        group_id, index = turn.group.group_id, partition.partition_index
        records.append(OffsetRecord(group_id, topic.name, index, committed))
    return _answered(topic, errors)


def _committed(partition: TxnOffsetCommitRequestPartition, now_ms: int) -> CommittedOffset:
    # The record has no topic id, as in Kafka 4.3: the request has none either.
    return CommittedOffset(
        offset=partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp_ms=now_ms,
    )


def _answered(
    topic: TxnOffsetCommitRequestTopic, errors: list[ErrorCode], pace: Pace = unpaced
) -> TxnOffsetCommitResponseTopic:
    partitions = [
        TxnOffsetCommitResponsePartition(
            partition_index=partition.partition_index, error_code=error
        )
        for partition, error in pace(zip(topic.partitions, errors, strict=True))
    ]
    return TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions)
