"""ListOffsets (2): the first and last offsets of partitions, or the offset at a time.

Special timestamps: -1 latest, -2 earliest, -3 the record with the largest timestamp (v7,
KIP-734), -4 earliest on local disk (v8, KIP-405), -5 latest in remote storage (v9, KIP-1005),
-6 earliest not yet uploaded (v11, KIP-1023). There is no remote storage: -4 is the log start
offset, -5 and -6 find nothing, as in a Kafka broker without it.

An offset that the log keeps in memory is answered at once. A search by time reads batches in a
thread, where it may wait for the disk. Two requests search at a time, and take turns with others,
since fetches read in the same threads. A search ends where the client may read no further: for
read_committed consumers at the last stable offset. Each partition has one answer; a partition that
is named twice is refused. Topics that the client may not describe come last, in the order of the
request; the others come in the order of the maps of Kafka's ReplicaManager.fetchOffset.

Versions 1 to 11. v2: the isolation level. v4: leader epochs. v6: flexible. v10: a timeout of
remote searches (KIP-1075).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Hashable
from weakref import ref

from odradek.broker.context import RequestContext
from odradek.broker.errors import code_of
from odradek.broker.handlers import Holds
from odradek.broker.hosts.listener import Listener
from odradek.broker.orders.scala import grouped_order
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from odradek.protocol.pacing import paced, paced_if_many
from odradek.storage.errors import StorageError
from odradek.storage.log import Log
from odradek.storage.reading import TimestampedOffset

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6

_SINCE_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
_NEVER = 1 << 15
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
_CONSUMER = -1
# The time that searches of one request run in a thread before it is another request's turn. One
# search unpacks a batch, of up to max.decompressed.message.bytes, and is not divided.
_SLICE_S = 0.05

_Found = TimestampedOffset | StorageError | None


@dataclass(slots=True)
class _Search:
    """A search of a partition by time, and the response that takes its result."""

    log: Log
    timestamp: int
    end_offset: int  # the client may read up to here
    response: ListOffsetsPartitionResponse


def stamp(services: Services, listener: Listener) -> Hashable:
    """Return the generation of the topics, None where clients have rights."""
    return services.topics.generation if services.security.authorizer is None else None


def grounds(services: Services, request: ListOffsetsRequest) -> Holds:
    """Return whether the logs of an answer have the same offsets."""
    seen = []
    for topic in paced_if_many(request.topics):
        found = services.topics.get(topic.name)
        for one in paced_if_many(topic.partitions):
            try:
                log = found.log(one.partition_index) if found else None
            except StorageError:
                continue  # with another generation it is led by this broker, or in order
            if log is not None:
                seen.append((ref(log), _offsets(log)))

    def hold() -> bool:
        for refer, offsets in seen:
            log = refer()
            if log is None or _offsets(log) != offsets:
                return False
        return True

    return hold


def _offsets(log: Log) -> tuple[int, ...]:
    """Return all of a log that an answer without a search depends on."""
    return (
        log.high_watermark, log.last_stable_offset, log.log_start_offset, log.leader_epoch,
    )  # fmt: skip


def handle(
    services: Services, context: RequestContext, request: ListOffsetsRequest
) -> ListOffsetsResponse | Awaitable[ListOffsetsResponse]:
    """Look the offsets up."""
    permitted = context.permitted(
        AclOperation.DESCRIBE, ResourceKind.TOPIC, (topic.name for topic in request.topics)
    )
    if permitted and request.isolation_level not in (_READ_UNCOMMITTED, _READ_COMMITTED):
        error = ErrorCode.UNKNOWN_SERVER_ERROR
        return ListOffsetsResponse(
            topics=[_alike(topic, error) for topic in paced(request.topics)]
        )
    searches: list[_Search] = []
    denied: list[ListOffsetsTopicResponse] = []
    found: dict[tuple[str, int], ListOffsetsPartitionResponse] = {}
    for topic in paced_if_many(request.topics):
        if topic.name not in permitted:
            denied.append(_alike(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        for one in paced_if_many(topic.partitions):
            key = topic.name, one.partition_index
            if key in found:
                found[key] = _refused(one.partition_index, ErrorCode.INVALID_REQUEST)
            else:
                found[key] = _list(services, context, request, topic.name, one, searches)
    response = ListOffsetsResponse(
        topics=[
            *(
                ListOffsetsTopicResponse(
                    name=name, partitions=[found[name, index] for index in indexes]
                )
                for name, indexes in paced(grouped_order(found))
            ),
            *denied,
        ]
    )
    return _search(services, response, searches) if searches else response


def _alike(topic: ListOffsetsTopic, code: ErrorCode) -> ListOffsetsTopicResponse:
    partitions = [_refused(one.partition_index, code) for one in topic.partitions]
    return ListOffsetsTopicResponse(name=topic.name, partitions=partitions)


def _list(
    services: Services,
    context: RequestContext,
    request: ListOffsetsRequest,
    topic_name: str,
    wanted: ListOffsetsPartition,
    searches: list[_Search],
) -> ListOffsetsPartitionResponse:
    index, timestamp = wanted.partition_index, wanted.timestamp
    if timestamp < 0 and context.api_version < _SINCE_VERSION.get(timestamp, _NEVER):
        return _refused(index, ErrorCode.UNSUPPORTED_VERSION)
    topic = services.topics.get(topic_name)
    try:
        log = topic.log(index) if topic else None
    except StorageError as error:
        return _refused(index, code_of(error))
    if log is None:
        return _refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if wanted.current_leader_epoch not in (-1, log.leader_epoch):
        is_old = wanted.current_leader_epoch < log.leader_epoch
        fenced, unknown = ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH
        return _refused(index, fenced if is_old else unknown)
    is_consumer = request.replica_id == _CONSUMER
    is_committed = is_consumer and request.isolation_level == _READ_COMMITTED
    end_offset = log.last_stable_offset if is_committed else log.high_watermark
    if timestamp >= 0 or timestamp == MAX_TIMESTAMP:
        # The active segment reads its timestamps when first asked. That must not happen in a
        # thread, where it could overwrite the timestamp of an append made meanwhile.
        _ = log.active.max_timestamp
        response = _refused(index, ErrorCode.NONE)
        searches.append(_Search(log, timestamp, end_offset, response))
        return response
    if timestamp == LATEST:
        return _found(index, end_offset, log.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        start_offset = log.log_start_offset
        return _found(index, start_offset, log.epoch_of(start_offset))
    return _refused(index, ErrorCode.NONE)


async def _search(
    services: Services, response: ListOffsetsResponse, searches: list[_Search]
) -> ListOffsetsResponse:
    loop = asyncio.get_running_loop()
    left = searches
    while left:
        async with services.searches:
            readers = services.readers
            results = await loop.run_in_executor(readers, _search_some, left)
        _take(services, left, results)
        left = left[len(results) :]
    return response


def _take(services: Services, searches: list[_Search], results: list[_Found]) -> None:
    """Put the results of the first searches into the response."""
    for one, result in paced(zip(searches, results, strict=False)):
        if isinstance(result, StorageError):
            services.disks.note(one.log, result)
            one.response.error_code = code_of(result)
        elif result is not None and result.offset < one.end_offset:
            one.response.timestamp = result.timestamp
            one.response.offset = result.offset
            one.response.leader_epoch = result.leader_epoch


def _search_some(searches: list[_Search]) -> list[_Found]:
    """Search in a thread until the slice of time is over; the rest waits for its next turn.

    The searches use only parts of a log that are replaced as a whole, or read by position.
    """
    end_s = time.monotonic() + _SLICE_S
    results: list[_Found] = []
    for one in searches:
        try:
            if one.timestamp == MAX_TIMESTAMP:
                results.append(one.log.offset_of_max_timestamp())
            else:
                results.append(one.log.offset_for_timestamp(one.timestamp))
        except StorageError as error:
            results.append(error)
        if time.monotonic() >= end_s:
            break
    return results


def _found(index: int, offset: int, leader_epoch: int) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=index, error_code=0, timestamp=-1, offset=offset, leader_epoch=leader_epoch
    )


def _refused(index: int, code: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(
        partition_index=index, error_code=code, timestamp=-1, offset=-1, leader_epoch=-1
    )
