"""Common parts of ShareFetch and ShareAcknowledge: the rights of clients, and acknowledgements.

Kafka's source: KafkaApis.handleShareFetchRequest, handleAcknowledgements.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Protocol

from odradek.broker.context import RequestContext
from odradek.broker.orders.java import string_length
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.shares.acknowledging import Acknowledgement, AcknowledgeType
from odradek.broker.shares.key import SharePartitionKey
from odradek.broker.shares.outcomes import Failure
from odradek.broker.shares.sessions import TopicPartition
from odradek.broker.shares.shares import Shares
from odradek.broker.topics.registry import Topics
from odradek.protocol.errors import ErrorCode
from odradek.protocol.pacing import paced

# Since this version members may renew the locks of records (KIP-1222).
RENEW_SINCE = 2
_MEMBER_ID_LENGTH_MAX = 36
_LEADER_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

Results = dict[TopicPartition, Failure | None]


class ShareServices(Protocol):
    """The parts of a broker that share groups' requests take."""

    node_id: int
    topics: Topics
    shares: Shares


class Batch(Protocol):
    """A range of offsets that a request acknowledges."""

    @property
    def first_offset(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def acknowledge_types(self) -> Sequence[int]: ...


Given = Mapping[TopicPartition, Sequence[Batch]]


def problem(
    services: ShareServices, context: RequestContext, group_id: str | None, member_id: str | None
) -> ErrorCode:
    """Return the error of a member's request, NONE when the member may ask."""
    if not services.shares.are_enabled:
        return ErrorCode.UNSUPPORTED_VERSION
    if group_id is None:
        return ErrorCode.INVALID_REQUEST
    if not context.may(AclOperation.READ, ResourceKind.GROUP, group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if not member_id:
        return ErrorCode.INVALID_REQUEST
    if string_length(member_id) > _MEMBER_ID_LENGTH_MAX:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def partition_problem(services: ShareServices, partition: TopicPartition) -> ErrorCode:
    """Return NONE when a partition exists, else the error."""
    topic = services.topics.by_id(partition.topic_id)
    if topic is None or not 0 <= partition.partition < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


class Acknowledging:
    """The acknowledgements of one request: refused, or accepted and on their way to be stored."""

    def __init__(self) -> None:
        self._results = Results()
        self._awaited: dict[TopicPartition, Future[Failure | None]] = {}
        self._empty: list[TopicPartition] = []
        self._has_taken = False

    def refuse(self, partition: TopicPartition, failure: Failure) -> None:
        """Refuse the acknowledgements of a partition."""
        self._results[partition] = failure

    def pass_over(self, partition: TopicPartition) -> None:
        """Note a partition without acknowledgements."""
        self._empty.append(partition)

    def take(
        self, partition: TopicPartition, answer: Failure | Future[Failure | None]
    ) -> None:
        """Note the answer to a partition's acknowledgements."""
        self._has_taken = True
        if isinstance(answer, Failure):
            self._results[partition] = answer
        else:
            self._awaited[partition] = answer

    async def results(self) -> Results:
        """Wait until all acknowledgements are stored or have failed; return the results."""
        if self._awaited:
            await asyncio.wait(self._awaited.values())
            for partition, done in paced(self._awaited.items()):
                self._results[partition] = done.result()
        if self._has_taken:
            # As in Kafka, partitions without acknowledgements count only if others have some.
            self._results |= dict.fromkeys(self._empty)
        return self._results


def acknowledge_all(
    services: ShareServices,
    context: RequestContext,
    group_id: str,
    member_id: str,
    given: Given,
    *,
    is_renewal: bool,
) -> Acknowledging:
    """Take the acknowledgements of one request.

    `is_renewal` is whether the request declares that it may renew locks.
    """
    acknowledging = Acknowledging()
    permitted = readable(services, context, given)
    for partition, batches in paced(given.items()):
        error = _given_problem(services, context, partition, batches, permitted, is_renewal)
        if error is not ErrorCode.NONE:
            acknowledging.refuse(partition, Failure(error, ""))
        elif not batches:
            acknowledging.pass_over(partition)
        else:
            taken = [
                Acknowledgement(one.first_offset, one.last_offset, one.acknowledge_types)
                for one in paced(batches)
            ]
            key = SharePartitionKey(group_id, *partition)
            acknowledging.take(
                partition, services.shares.partitions.acknowledge(key, member_id, taken)
            )
    return acknowledging


def readable(
    services: ShareServices, context: RequestContext, partitions: Iterable[TopicPartition]
) -> Set[str]:
    """Return the names of the topics of partitions that the client may read."""
    ids = {partition.topic_id for partition in paced(partitions)}
    topics = (services.topics.by_id(topic_id) for topic_id in paced(ids))
    names = [topic.name for topic in topics if topic is not None]
    return context.permitted(AclOperation.READ, ResourceKind.TOPIC, names)


def code_and_message(failure: Failure | None) -> tuple[ErrorCode, str | None]:
    """Return the error code and the message of a partition's result."""
    if failure is None:
        return ErrorCode.NONE, None
    return failure.error, failure.message or None


def leader_of(
    services: ShareServices, partition: TopicPartition, error: int
) -> tuple[int, int] | None:
    """Return the id and epoch of the leader after errors that mean that it has changed."""
    if error not in _LEADER_ERRORS:
        return None
    topic = services.topics.by_id(partition.topic_id)
    logs = [log for log in topic.logs if log.partition == partition.partition] if topic else []
    return (services.node_id, logs[0].leader_epoch) if logs else None


def _given_problem(
    services: ShareServices,
    context: RequestContext,
    partition: TopicPartition,
    batches: Iterable[Batch],
    permitted: Set[str],
    is_renewal: bool,
) -> ErrorCode:
    topic = services.topics.by_id(partition.topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    type_max = AcknowledgeType.REJECT
    if context.api_version >= RENEW_SINCE:
        type_max = AcknowledgeType.RENEW
    former_last = -1
    for one in batches:
        types = one.acknowledge_types
        if one.first_offset > one.last_offset or one.first_offset < former_last or not types:
            return ErrorCode.INVALID_REQUEST
        if len(types) > 1 and one.last_offset - one.first_offset != len(types) - 1:
            return ErrorCode.INVALID_REQUEST
        if not all(0 <= kind <= type_max for kind in types):
            return ErrorCode.INVALID_REQUEST
        if AcknowledgeType.RENEW in types and not is_renewal:
            return ErrorCode.INVALID_REQUEST
        former_last = one.last_offset
    if topic.name not in permitted:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return partition_problem(services, partition)
