"""Fetch (1): long-poll for record batches from an offset in each partition.

Behaviour: answered at once when min_bytes are there, when a partition cannot be read, when
older segments have more to give, or when max_wait_ms is 0; else parked until enough was
appended, a topic was deleted or the time has passed. The first batch of the first partition
with data is returned whole even when it exceeds the limits (KIP-74). To read_committed readers
only what lies before the last stable offset is there, and they are told which transactions in
it were aborted (KIP-98). Fetch sessions (KIP-227) are never begun: a full request is answered
with session id 0, after which clients name every partition each time, and a request within a
session is told that there is no such session.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field

from broker.context import RequestContext
from broker.errors import code_of
from broker.partitions import OfflinePartition
from broker.topic import Topic
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from storage.errors import NotCached, StorageError
from storage.log import Log
from storage.reading import aborted_within, segment_index
from storage.segment import Slice

_TOPIC_IDS_SINCE = 13
_LEADER_ADDRESS_SINCE = 16
_READ_COMMITTED = 1
# How often a fetch looks again whether what threads have read is in memory.
_WARMING_ROUNDS = 3
# FetchMetadata: a request that names all partitions, to begin a session or to have none.
_FULL_REQUEST_EPOCHS = (0, -1)


@dataclass(slots=True)
class _Planned:
    """A partition's part of the response, before its bytes are read."""

    data: PartitionData
    log: Log | None
    slice: Slice | None


@dataclass(slots=True)
class _Plan:
    topics: list[tuple[FetchTopic, list[_Planned]]]
    size_bytes: int
    is_due: bool  # whatever min_bytes asks for
    # What is to be read before the partitions left out can be planned.
    cold: list[NotCached] = field(default_factory=list)

    def slices(self) -> list[_Planned]:
        return [planned for _, parts in self.topics for planned in parts if planned.slice]

    def logs(self) -> list[Log]:
        return [planned.log for _, parts in self.topics for planned in parts if planned.log]


def handle(
    context: RequestContext, request: FetchRequest
) -> FetchResponse | Awaitable[FetchResponse]:
    """Read what is there, or wait for more."""
    if request.session_epoch not in _FULL_REQUEST_EPOCHS:
        return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND, responses=[])
    plan = _plan(context, request)
    return _find_first(context, request, plan) if plan.cold else _serve(context, request, plan)


def _serve(
    context: RequestContext, request: FetchRequest, plan: _Plan
) -> FetchResponse | Awaitable[FetchResponse]:
    missing = _missing_bytes(context, request, plan)
    logs = plan.logs()
    if missing <= 0 or request.max_wait_ms <= 0 or not logs:
        return _answer(context, plan)
    return _wait(context, request, logs, missing)


async def _find_first(
    context: RequestContext, request: FetchRequest, plan: _Plan
) -> FetchResponse:
    """Find in threads what would wait for the disk, then serve."""
    answer = _serve(context, request, await _warmed(context, request, plan))
    return answer if isinstance(answer, FetchResponse) else await answer


async def _warmed(context: RequestContext, request: FetchRequest, plan: _Plan) -> _Plan:
    """Return a plan for all partitions, once threads have read what it takes."""
    for _ in range(_WARMING_ROUNDS):
        if not plan.cold:
            return plan
        await asyncio.get_running_loop().run_in_executor(context.broker.readers, _warm, plan.cold)
        plan = _plan(context, request)
    # What was read is gone again from a small page cache.
    return _plan(context, request, may_wait=True) if plan.cold else plan


def _warm(cold: Sequence[NotCached]) -> None:
    for one in cold:
        with contextlib.suppress(StorageError):  # it is met again, and told, by who asked
            one.warm()


async def _wait(
    context: RequestContext, request: FetchRequest, logs: list[Log], missing: int
) -> FetchResponse:
    purgatory = context.broker.purgatory
    woken = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    def recount() -> int:
        return _missing_bytes(context, request, _plan(context, request))

    waiter = purgatory.park(
        logs, missing, request.max_wait_ms, wake, recount if _is_committed(request) else None
    )
    try:
        await woken
    finally:
        purgatory.cancel(waiter)
    answer = _answer(context, await _warmed(context, request, _plan(context, request)))
    return answer if isinstance(answer, FetchResponse) else await answer


def _is_committed(request: FetchRequest) -> bool:
    return request.isolation_level == _READ_COMMITTED


def _missing_bytes(context: RequestContext, request: FetchRequest, plan: _Plan) -> int:
    """Return for how many more bytes to wait."""
    if plan.is_due or plan.cold:
        return 0
    return min(request.min_bytes, _size_max(context, request)) - plan.size_bytes


def _size_max(context: RequestContext, request: FetchRequest) -> int:
    broker = context.broker
    room = broker.config.odradek_unsent_bytes_max - broker.backpressure.unsent_bytes
    return min(request.max_bytes, broker.config.fetch_max_bytes, max(room, 0))


def _plan(
    context: RequestContext, request: FetchRequest, *, may_wait: bool = False
) -> _Plan:
    """Decide which bytes of which files the response will hold."""
    left = _size_max(context, request)
    is_committed = _is_committed(request)
    plan = _Plan([], 0, False)
    for wanted in request.topics:
        topic = _find(context, wanted)
        parts = []
        for partition in wanted.partitions:
            is_first = plan.size_bytes == 0
            try:
                planned = _plan_partition(
                    context, topic, partition, left, is_first, is_committed, may_wait
                )
            except NotCached as error:
                plan.cold.append(error)
                continue
            plan.is_due |= _is_due(planned, is_committed)
            if planned.slice is not None:
                plan.size_bytes += planned.slice.size
                left -= planned.slice.size
            parts.append(planned)
        plan.topics.append((wanted, parts))
    return plan


def _is_due(planned: _Planned, is_committed: bool) -> bool:
    """Tell that waiting is of no use: an error, or a segment that is not appended to.

    DelayedFetch calls these cases B, D, E and F. One that asks for an unknown partition beside
    others waits for those, as in Kafka.
    """
    if planned.data.error_code:
        is_offline = planned.data.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        return planned.log is not None or is_offline
    log, found = planned.log, planned.slice
    if log is None or found is None or found.base_offset == log.active.base_offset:
        return False
    if is_committed:  # it may be where the readable part ends
        end = segment_index(log.segments, log.last_stable_offset)
        return found.base_offset != log.segments[end].base_offset
    return True


def _find(context: RequestContext, wanted: FetchTopic) -> Topic | None:
    if context.api_version >= _TOPIC_IDS_SINCE:
        return context.broker.topics.by_id(wanted.topic_id)
    return context.broker.topics.get(wanted.topic)


def _plan_partition(
    context: RequestContext,
    topic: Topic | None,
    wanted: FetchPartition,
    left: int,
    is_first: bool,
    is_committed: bool,
    may_wait: bool,
) -> _Planned:
    index = wanted.partition
    if topic is None:
        by_id = context.api_version >= _TOPIC_IDS_SINCE
        missing = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return _refused(index, missing)
    if not 0 <= index < len(topic.partitions):
        return _refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    log = topic.partitions[index]
    if isinstance(log, OfflinePartition):
        return _refused(index, code_of(log.cause))
    epoch_error = _check_epoch(context, log, wanted.current_leader_epoch, index)
    if epoch_error is not None:
        return epoch_error
    size_max = min(wanted.partition_max_bytes, left)
    offset = wanted.fetch_offset
    aborted = None
    try:
        found = log.read(
            offset,
            size_max,
            at_least_one=is_first,
            is_committed=is_committed,
            may_wait=may_wait,
        )
        if is_committed:
            aborted = _aborted(log, offset, found)
    except StorageError as error:
        context.broker.disks.note(log, error)
        return _refused(index, code_of(error), log)
    data = PartitionData(
        partition_index=index,
        error_code=0,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted_transactions=aborted,
        records=b"",
    )
    return _Planned(data, log, found)


def _aborted(log: Log, offset: int, found: Slice | None) -> list[AbortedTransaction]:
    if found is None:
        return []
    return [
        AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
        for one in aborted_within(log.segments, offset, found, log.log_end_offset)
    ]


def _check_epoch(context: RequestContext, log: Log, epoch: int, index: int) -> _Planned | None:
    """Refuse a client that knows another leader epoch than ours (KIP-320)."""
    if epoch < 0 or epoch == log.leader_epoch:
        return None
    if epoch > log.leader_epoch:
        return _refused(index, ErrorCode.UNKNOWN_LEADER_EPOCH, log)
    refused = _refused(index, ErrorCode.FENCED_LEADER_EPOCH, log)
    if context.api_version >= _LEADER_ADDRESS_SINCE:
        refused.data.current_leader = LeaderIdAndEpoch(
            leader_id=context.broker.node_id, leader_epoch=log.leader_epoch
        )
    return refused


def _refused(index: int, code: ErrorCode, log: Log | None = None) -> _Planned:
    data = PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        # As Kafka does it: null for what could not be read, none for what is not there.
        aborted_transactions=[] if log is None else None,
        records=b"",
    )
    return _Planned(data, log, None)


def _answer(context: RequestContext, plan: _Plan) -> FetchResponse | Awaitable[FetchResponse]:
    """Read the planned bytes: from the page cache here, what is not there in a thread."""
    cold = []
    for planned in plan.slices():
        assert planned.slice is not None
        try:
            records = planned.slice.read_cached()
        except StorageError as error:
            _refuse(context, planned, error)
            continue
        if records is None:
            cold.append(planned)
        else:
            planned.data.records = records
    if cold:
        return _answer_cold(context, plan, cold)
    return _response(context, plan)


async def _answer_cold(
    context: RequestContext, plan: _Plan, cold: list[_Planned]
) -> FetchResponse:
    loop = asyncio.get_running_loop()
    slices = [planned.slice for planned in cold if planned.slice is not None]
    read = await loop.run_in_executor(context.broker.readers, _read_all, slices)
    for planned, records in zip(cold, read, strict=True):
        if isinstance(records, StorageError):
            _refuse(context, planned, records)
        else:
            planned.data.records = records
    return _response(context, plan)


def _refuse(context: RequestContext, planned: _Planned, error: StorageError) -> None:
    """Answer for a partition whose bytes cannot be read."""
    assert planned.log is not None
    context.broker.disks.note(planned.log, error)
    planned.data = _refused(planned.data.partition_index, code_of(error)).data


def _read_all(slices: list[Slice]) -> list[bytes | StorageError]:
    """Read slices in a thread, waiting for the disk."""
    read: list[bytes | StorageError] = []
    for one in slices:
        try:
            read.append(one.read())
        except StorageError as error:
            read.append(error)
    return read


def _response(context: RequestContext, plan: _Plan) -> FetchResponse:
    context.broker.metrics.fetched_bytes += plan.size_bytes
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=wanted.topic,
                topic_id=wanted.topic_id,
                partitions=[planned.data for planned in parts],
            )
            for wanted, parts in plan.topics
        ],
        node_endpoints=_leaders(context, plan),
    )


def _leaders(context: RequestContext, plan: _Plan) -> list[NodeEndpoint]:
    """Return where the leaders are that clients are told of (KIP-951)."""
    if not any(
        planned.data.current_leader.leader_id >= 0 for _, parts in plan.topics for planned in parts
    ):
        return []
    host, port = context.advertised()
    rack = context.broker.config.broker_rack
    return [NodeEndpoint(node_id=context.broker.node_id, host=host, port=port, rack=rack)]
