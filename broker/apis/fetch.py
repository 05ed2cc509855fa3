"""Fetch (1): long-poll for record batches from an offset in each partition.

Behaviour: answered at once when min_bytes are there, when a partition has an error, or when
max_wait_ms is 0; else parked until enough was appended or the time has passed. The first batch
of the first partition with data is returned whole even when it exceeds the limits (KIP-74).
Fetch sessions (KIP-227) are answered as sessionless: session id 0, every partition each time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass

from broker.context import RequestContext
from broker.errors import code_of
from broker.topics import Topic
from protocol.errors import ErrorCode
from protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    PartitionData,
)
from storage.errors import StorageError
from storage.log import Log
from storage.segment import Slice

_TOPIC_IDS_SINCE = 13
_READ_COMMITTED = 1


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
    has_error: bool

    def slices(self) -> list[_Planned]:
        return [planned for _, parts in self.topics for planned in parts if planned.slice]

    def logs(self) -> list[Log]:
        return [planned.log for _, parts in self.topics for planned in parts if planned.log]


def handle(
    context: RequestContext, request: FetchRequest
) -> FetchResponse | Awaitable[FetchResponse]:
    """Read what is there, or wait for more."""
    plan = _plan(context, request)
    missing = request.min_bytes - plan.size_bytes
    logs = plan.logs()
    if missing <= 0 or plan.has_error or request.max_wait_ms <= 0 or not logs:
        return _answer(context, plan)
    return _wait(context, request, logs, missing)


async def _wait(
    context: RequestContext, request: FetchRequest, logs: list[Log], missing: int
) -> FetchResponse:
    purgatory = context.broker.purgatory
    woken = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    waiter = purgatory.park(logs, missing, request.max_wait_ms, wake)
    try:
        await woken
    finally:
        purgatory.cancel(waiter)
    answer = _answer(context, _plan(context, request))
    return answer if isinstance(answer, FetchResponse) else await answer


def _plan(context: RequestContext, request: FetchRequest) -> _Plan:
    """Decide which bytes of which files the response will hold."""
    left = min(request.max_bytes, context.broker.config.fetch_max_bytes)
    plan = _Plan([], 0, False)
    for wanted in request.topics:
        topic = _find(context, wanted)
        parts = []
        for partition in wanted.partitions:
            planned = _plan_partition(context, topic, partition, left, plan.size_bytes == 0)
            if planned.data.error_code:
                plan.has_error = True
            elif planned.slice is not None:
                plan.size_bytes += planned.slice.size
                left -= planned.slice.size
            if request.isolation_level == _READ_COMMITTED and not planned.data.error_code:
                planned.data.aborted_transactions = _no_aborted()
            parts.append(planned)
        plan.topics.append((wanted, parts))
    return plan


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
) -> _Planned:
    index = wanted.partition
    if topic is None:
        by_id = context.api_version >= _TOPIC_IDS_SINCE
        missing = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return _refused(index, missing)
    if not 0 <= index < len(topic.partitions):
        return _refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    log = topic.partitions[index]
    epoch_error = _check_epoch(context, log, wanted.current_leader_epoch, index)
    if epoch_error is not None:
        return epoch_error
    size_max = min(wanted.partition_max_bytes, left)
    try:
        found = log.read(wanted.fetch_offset, size_max, at_least_one=is_first)
    except StorageError as error:
        refused = _refused(index, code_of(error))
        refused.data.log_start_offset = log.log_start_offset
        refused.data.high_watermark = log.high_watermark
        return refused
    data = PartitionData(
        partition_index=index,
        error_code=0,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted_transactions=None,
        records=b"",
    )
    return _Planned(data, log, found)


def _check_epoch(context: RequestContext, log: Log, epoch: int, index: int) -> _Planned | None:
    """Refuse a client that knows another leader epoch than ours (KIP-320)."""
    if epoch in (-1, log.leader_epoch):
        return None
    is_old = epoch < log.leader_epoch
    refused = _refused(
        index, ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
    )
    refused.data.current_leader = LeaderIdAndEpoch(
        leader_id=context.broker.node_id, leader_epoch=log.leader_epoch
    )
    return refused


def _refused(index: int, code: ErrorCode) -> _Planned:
    data = PartitionData(
        partition_index=index,
        error_code=code,
        high_watermark=-1,
        aborted_transactions=None,
        records=b"",
    )
    return _Planned(data, None, None)


def _no_aborted() -> list[AbortedTransaction]:
    # No transaction can be open or aborted: this broker does not coordinate any yet.
    return []


def _answer(context: RequestContext, plan: _Plan) -> FetchResponse | Awaitable[FetchResponse]:
    """Read the planned bytes: from the page cache here, what is not there in a thread."""
    cold = []
    for planned in plan.slices():
        assert planned.slice is not None
        records = planned.slice.read_cached()
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
    for planned in cold:
        assert planned.slice is not None
        try:
            records = await loop.run_in_executor(context.broker.readers, planned.slice.read)
            planned.data.records = records
        except StorageError as error:
            planned.data = _refused(planned.data.partition_index, code_of(error)).data
    return _response(context, plan)


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
        ]
    )
