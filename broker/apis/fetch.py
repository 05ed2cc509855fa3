"""Fetch (1): long-poll for record batches from an offset in each partition.

Behaviour: answered at once when min_bytes are there, when a partition cannot be read, when
older segments have more to give, or when max_wait_ms is 0; else parked until enough was
appended, a topic was deleted or the time has passed, or until the client asks something else
behind it. What it is answered with is decided in broker/fetch/plans.py, what a session (KIP-227)
leaves out of the answer in broker/fetch/sessions.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

from broker.context import RequestContext
from broker.errors import code_of
from broker.fetch.counting import count_fetch
from broker.fetch.permissions import denied_topics
from broker.fetch.plans import (
    NO_LEADER,
    Plan,
    Planned,
    Reading,
    accumulated_bytes,
    error_data,
    plan_fetch,
    refused,
    unknown_among,
)
from broker.fetch.sessions import (
    FIRST_EPOCH,
    NO_SESSION,
    Key,
    Session,
    WantedPartition,
    next_epoch,
)
from broker.handlers import Patient
from broker.services import Services
from protocol.errors import ErrorCode
from protocol.frames import body_bytes
from protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
    PartitionData,
)
from protocol.pacing import coding, paced, paced_if_many
from protocol.wire import ZERO_UUID
from storage.errors import NotCached, StorageError
from storage.log import Log
from storage.segment import Slice

_STORAGE_ERROR_SINCE = 6
_TOPIC_IDS_SINCE = 13
_REPLICA_STATE_SINCE = 15
_LEADER_ADDRESS_SINCE = 16
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
# What a broker that moves a partition between its own directories says it is.
_FUTURE_REPLICA = -3
_NO_MORE_REQUESTS = -1  # FetchMetadata.FINAL_EPOCH
# How often a fetch looks again whether what threads have read is in memory.
_WARMING_ROUNDS = 3
# Of more partitions those that are not there are passed over first, with pauses.
_PLANNED_AT_ONCE_MAX = 1_000


@dataclass(slots=True)
class _Fetch:
    """A request that is being served."""

    services: Services
    context: RequestContext
    request: FetchRequest
    reading: Reading
    wanted: dict[Key, WantedPartition]
    session: Session | None  # that it goes on with
    is_hurried: bool = False  # the client waits for something else
    wake: Callable[[], None] | None = None  # while it is parked

    def hurry(self) -> None:
        """Wait for nothing more, unless waiting fetches are to be left alone."""
        if not self.services.config.odradek_fetch_hurry:
            return
        self.is_hurried = True
        if self.wake is not None:
            self.wake()


def handle(
    services: Services, context: RequestContext, request: FetchRequest
) -> FetchResponse | Awaitable[FetchResponse]:
    """Read what is there, or wait for more."""
    by_id = context.api_version >= _TOPIC_IDS_SINCE
    wanted = _wanted(services, request, by_id)
    session = None
    if request.session_epoch in (FIRST_EPOCH, _NO_MORE_REQUESTS):
        services.sessions.end(request.session_id)
    else:
        found = services.sessions.resume(
            request.session_id,
            request.session_epoch,
            wanted,
            [
                (topic.topic_id if by_id else topic.topic, number)
                for topic in paced_if_many(request.forgotten_topics_data)
                for number in paced_if_many(topic.partitions)
            ],
            services.clock.now_ms(),
            uses_topic_ids=by_id,
        )
        if isinstance(found, ErrorCode):
            return FetchResponse(error_code=found, responses=[])
        session = found
    reading = _reading(services, context, request)
    fetch = _Fetch(services, context, request, reading, wanted, session)
    if services.security.authorizer is not None:
        partitions = wanted if session is None else session.partitions
        fetch.reading.denied = denied_topics(
            services.topics,
            context,
            partitions.values(),
            is_follower=fetch.reading.is_follower,
        )
    fresh, idle = _look(fetch)
    unknown: list[Planned] = []
    if len(fresh) > _PLANNED_AT_ONCE_MAX:
        unknown = unknown_among(services, fetch.reading, fresh, paced)
        passed_over = {one.wanted for one in unknown}
        fresh, idle = _look(fetch)  # at one moment with the plan
        fresh = [one for one in fresh if one not in passed_over]
    plan = plan_fetch(services, fetch.reading, fresh)
    plan.unknown = [*unknown, *plan.unknown] if unknown else plan.unknown
    if request.isolation_level not in (_READ_UNCOMMITTED, _READ_COMMITTED) and (
        plan.read or plan.cold or idle
    ):
        return _refuse_all(context, request)
    answer = _find_first(fetch, plan, idle) if plan.cold else _serve(fetch, plan, idle)
    return answer if isinstance(answer, FetchResponse) else Patient(answer, fetch.hurry)


def _wanted(
    services: Services, request: FetchRequest, by_id: bool
) -> dict[Key, WantedPartition]:
    """Return what a request names; the last word counts for what it names twice."""
    if not by_id:
        return {
            (topic.topic, one.partition): WantedPartition(topic.topic, ZERO_UUID, one)
            for topic in paced_if_many(request.topics)
            for one in paced_if_many(topic.partitions)
        }
    wanted: dict[Key, WantedPartition] = {}
    for topic in paced_if_many(request.topics):
        topic_id = topic.topic_id
        known = services.topics.by_id(topic_id)
        name = known.name if known is not None else None
        for one in paced_if_many(topic.partitions):
            wanted[topic_id, one.partition] = WantedPartition(name, topic_id, one)
    return wanted


def _reading(services: Services, context: RequestContext, request: FetchRequest) -> Reading:
    version = context.api_version
    replica_id = request.replica_id
    if version >= _REPLICA_STATE_SINCE:
        replica_id = request.replica_state.replica_id
    is_consumer = replica_id < 0 and replica_id != _FUTURE_REPLICA
    config = services.config
    # What clients have not read yet is bounded: then a fetch is answered with one batch.
    room = config.odradek_unsent_bytes_max - services.backpressure.unsent_bytes
    size_max = min(request.max_bytes, config.fetch_max_bytes, max(room, 0))
    if context.charge is not None:
        size_max = min(size_max, context.charge.fetch_bytes_max())
    return Reading(
        is_committed=is_consumer and request.isolation_level == _READ_COMMITTED,
        is_follower=replica_id >= 0,
        leader_id=services.node_id if version >= _LEADER_ADDRESS_SINCE else None,
        tells_storage_errors=version >= _STORAGE_ERROR_SINCE,
        size_min=min(request.min_bytes, size_max),
        size_max=size_max,
    )


def _look(fetch: _Fetch) -> tuple[Collection[WantedPartition], list[Log]]:
    """Return the partitions to look into, and the logs of those without news."""
    if fetch.session is None:
        return fetch.wanted.values(), []
    reading = fetch.reading
    if reading.size_max < 0:  # an error for the first partition, be there news of it or not
        return fetch.session.look(object())
    generation = fetch.services.topics.generation
    basis = (generation, reading.is_committed, reading.is_follower, reading.denied)
    return fetch.session.look(basis)


def _refuse_all(context: RequestContext, request: FetchRequest) -> FetchResponse:
    """Refuse an isolation level that does not exist, as Kafka does: with no more than a code."""
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    answer = FetchResponse(error_code=code, session_id=request.session_id, responses=[])
    if context.api_version < _TOPIC_IDS_SINCE:
        for topic in request.topics:
            partitions = [error_data(one.partition, code) for one in topic.partitions]
            answer.responses.append(
                FetchableTopicResponse(topic=topic.topic, partitions=partitions)
            )
    return answer


def _serve(
    fetch: _Fetch, plan: Plan, idle: list[Log]
) -> FetchResponse | Awaitable[FetchResponse]:
    logs = [*idle, *plan.logs] if idle else plan.logs
    missing = _missing_bytes(fetch, plan)
    if missing <= 0 or fetch.request.max_wait_ms <= 0 or not logs:
        return _answer(fetch, plan)
    if plan.size_bytes:
        missing = _missing_while_waiting(fetch, plan)
        if missing <= 0:
            return _answer(fetch, plan)
    return _wait(fetch, plan, logs, missing)


async def _find_first(fetch: _Fetch, plan: Plan, idle: list[Log]) -> FetchResponse:
    """Find in threads what would wait for the disk, then serve."""
    answer = _serve(fetch, await _warmed(fetch, plan), idle)
    return answer if isinstance(answer, FetchResponse) else await answer


async def _warmed(fetch: _Fetch, plan: Plan, before: Plan | None = None) -> Plan:
    """Return a plan for all partitions, once threads have read what it takes."""
    for _ in range(_WARMING_ROUNDS):
        if not plan.cold:
            return plan
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(fetch.services.readers, _warm, plan.cold)
        plan = _plan_again(fetch, before)
    # What was read is gone again from a small page cache.
    return _plan_again(fetch, before, may_wait=True) if plan.cold else plan


def _warm(cold: Sequence[NotCached]) -> None:
    for one in cold:
        with contextlib.suppress(StorageError):  # it is met again, and told, by who asked
            one.warm()


def _plan_again(fetch: _Fetch, before: Plan | None, *, may_wait: bool = False) -> Plan:
    """Plan again, after the plan that was made before the request waited, if it has.

    What was unknown then stays unknown.
    """
    if _is_overtaken(fetch):
        return Plan()
    services = fetch.services
    wanted, _ = _look(fetch)
    if before is None:
        return plan_fetch(services, fetch.reading, wanted, may_wait=may_wait)
    if before.unknown:
        unknown = {planned.wanted for planned in before.unknown}
        wanted = [one for one in wanted if one not in unknown]
    plan = plan_fetch(services, fetch.reading, wanted, is_again=True, may_wait=may_wait)
    plan.unknown = before.unknown
    return plan


async def _wait(fetch: _Fetch, before: Plan, logs: list[Log], missing: int) -> FetchResponse:
    purgatory = fetch.services.purgatory
    woken = asyncio.get_running_loop().create_future()

    def wake() -> None:
        if not woken.done():
            woken.set_result(None)

    def recount() -> int:
        return _missing_while_waiting(fetch, _plan_again(fetch, before))

    is_committed = fetch.reading.is_committed
    waiter = purgatory.park(
        logs,
        missing,
        fetch.request.max_wait_ms,
        wake,
        recount if is_committed or _is_limited(fetch) else None,
        is_committed=is_committed,
    )
    fetch.wake = wake
    if fetch.is_hurried:  # before it got here
        wake()
    try:
        await woken
    finally:
        purgatory.cancel(waiter)
    answer = _answer(fetch, await _warmed(fetch, _plan_again(fetch, before), before))
    return answer if isinstance(answer, FetchResponse) else await answer


def _is_limited(fetch: _Fetch) -> bool:
    """Return whether some appends may count less than they have bytes."""
    enough = fetch.reading.size_min
    if enough <= 1:  # as nearly all ask; to look at a thousand partitions takes its time
        return False
    partitions = fetch.wanted if fetch.session is None else fetch.session.partitions
    return any(one.wanted.partition_max_bytes < enough for one in partitions.values())


def _missing_bytes(fetch: _Fetch, plan: Plan) -> int:
    """Return how many bytes are missing for an answer at once."""
    if plan.is_due or plan.cold:
        return 0
    return fetch.reading.size_min - plan.size_bytes


def _missing_while_waiting(fetch: _Fetch, plan: Plan) -> int:
    """Return for how many more bytes to wait."""
    if plan.is_due or plan.cold:
        return 0
    there = accumulated_bytes(plan, fetch.reading)
    return 0 if there is None else fetch.reading.size_min - there


def _answer(fetch: _Fetch, plan: Plan) -> FetchResponse | Awaitable[FetchResponse]:
    """Read the planned bytes: from the page cache here, what is not there in a thread."""
    cold = []
    for planned in plan.slices:
        assert planned.slice is not None
        try:
            records = planned.slice.read_cached()
        except StorageError as error:
            _refuse(fetch, planned, error)
            continue
        if records is None:
            cold.append(planned)
        else:
            planned.data.records = records
    if cold:
        return _answer_cold(fetch, plan, cold)
    return _response(fetch, plan)


async def _answer_cold(fetch: _Fetch, plan: Plan, cold: list[Planned]) -> FetchResponse:
    loop = asyncio.get_running_loop()
    slices = [planned.slice for planned in cold if planned.slice is not None]
    read = await loop.run_in_executor(fetch.services.readers, _read_all, slices)
    for planned, records in zip(cold, read, strict=True):
        if isinstance(records, StorageError):
            _refuse(fetch, planned, records)
        else:
            planned.data.records = records
    return _response(fetch, plan)


def _refuse(fetch: _Fetch, planned: Planned, error: StorageError) -> None:
    """Answer for a partition whose bytes cannot be read."""
    assert planned.log is not None
    fetch.services.disks.note(planned.log, error)
    planned.data = refused(fetch.reading, planned.wanted, code_of(error)).data


def _read_all(slices: list[Slice]) -> list[bytes | StorageError]:
    """Read slices in a thread, waiting for the disk."""
    read: list[bytes | StorageError] = []
    for one in slices:
        try:
            read.append(one.read())
        except StorageError as error:
            read.append(error)
    return read


def _response(fetch: _Fetch, plan: Plan) -> FetchResponse:
    """Put the answer together: within a session without what the client knows already."""
    told = [*plan.read, *plan.unknown] if plan.unknown else plan.read
    session = fetch.session
    session_id = NO_SESSION
    if session is not None:
        session_id = session.id
        if _is_overtaken(fetch):
            return _overtaken(fetch)
    if fetch.context.charge is not None and (throttled := _throttled(fetch, plan, told)):
        return throttled
    if session is not None:
        if _is_overtaken(fetch):  # while the size of the answer was counted
            return _overtaken(fetch)
        told = [one for one in told if session.tell(one.wanted, one.data, one.idle_log)]
    elif fetch.request.session_epoch == FIRST_EPOCH:
        session_id = _begin_session(fetch, told)
    count_fetch(fetch.services.metrics, plan)
    return FetchResponse(
        session_id=session_id,
        responses=_by_topic(told),
        node_endpoints=_leaders(fetch, told) if plan.is_due else [],
    )


def _throttled(fetch: _Fetch, plan: Plan, told: list[Planned]) -> FetchResponse | None:
    """Return an empty answer for a client that has had too much; the session stays as it is."""
    charge, session = fetch.context.charge, fetch.session
    assert charge is not None
    if session is not None:
        told = [one for one in paced_if_many(told) if one.wanted.is_news(one.data)]
    whole = FetchResponse(
        responses=_by_topic(told), node_endpoints=_leaders(fetch, told) if plan.is_due else []
    )
    if not charge.settle_fetch(coding(body_bytes, whole, fetch.context.api_version)):
        return None
    return FetchResponse(session_id=NO_SESSION if session is None else session.id, responses=[])


def _is_overtaken(fetch: _Fetch) -> bool:
    """Return whether the session has gone on, over another connection, while this one waited."""
    session = fetch.session
    return session is not None and session.epoch != next_epoch(fetch.request.session_epoch)


def _overtaken(fetch: _Fetch) -> FetchResponse:
    """Refuse a request whose turn in its session is over."""
    assert fetch.session is not None
    code = ErrorCode.INVALID_FETCH_SESSION_EPOCH
    return FetchResponse(error_code=code, session_id=fetch.session.id, responses=[])


def _begin_session(fetch: _Fetch, told: list[Planned]) -> int:
    by_id = fetch.context.api_version >= _TOPIC_IDS_SINCE
    partitions: dict[Key, WantedPartition] = {}
    for planned in paced_if_many(told):
        one = planned.wanted
        one.note(planned.data, planned.idle_log)
        partitions[one.key(by_id=by_id)] = one
    services = fetch.services
    return services.sessions.begin(
        partitions,
        services.clock.now_ms(),
        is_privileged=fetch.reading.is_follower,
        uses_topic_ids=by_id,
    )


def _by_topic(told: list[Planned]) -> list[FetchableTopicResponse]:
    """Group the partitions of a topic that follow each other."""
    topics: list[FetchableTopicResponse] = []
    last: WantedPartition | None = None
    for planned in paced_if_many(told):
        one = planned.wanted
        if last is None or one.topic_id != last.topic_id or (
            one.topic_id == ZERO_UUID and one.topic != last.topic
        ):
            partitions: list[PartitionData] = []
            topics.append(
                FetchableTopicResponse(
                    topic=one.topic or "", topic_id=one.topic_id, partitions=partitions
                )
            )
            last = one
        partitions.append(planned.data)
    return topics


def _leaders(fetch: _Fetch, told: list[Planned]) -> list[NodeEndpoint]:
    """Return where the leaders are that clients are told of (KIP-951)."""
    is_told = any(
        planned.data.current_leader is not NO_LEADER for planned in paced_if_many(told)
    )
    if not is_told or fetch.reading.is_follower:  # which Kafka expects to know
        return []
    services = fetch.services
    host, port = fetch.context.advertised()
    rack = services.config.broker_rack
    return [NodeEndpoint(node_id=services.node_id, host=host, port=port, rack=rack)]
