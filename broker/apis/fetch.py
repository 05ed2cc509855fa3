"""Fetch (1): long-poll for record batches from an offset in each partition.

A request is answered at once when min_bytes are there, when a partition cannot be read, when
older segments have more to give, or when max_wait_ms is 0. Otherwise it is parked until enough is
appended, a topic is deleted, the time has passed, or the client sends another request behind it.
broker/fetch/plans.py decides the content of the answer; broker/fetch/sessions.py decides which
partitions a session (KIP-227) leaves out.

Versions 4 to 18. v5: the log start offset. v6: KAFKA_STORAGE_ERROR. v7: sessions (KIP-227). v9:
the current leader epoch, to fence clients (KIP-320). v11: the rack and a preferred replica
(KIP-392). v12: flexible; the last fetched epoch (KIP-595). v13: topics by id (KIP-516). v15: the
replica's id in a tagged field (KIP-903). v16: the leader's address (KIP-951). v17: a follower's
directory id (KIP-853). v18: its high watermark.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

from odradek.broker.context import RequestContext
from odradek.broker.errors import code_of
from odradek.broker.fetch.closest import Missing, missing_replicas
from odradek.broker.fetch.counting import count_fetch
from odradek.broker.fetch.disk import read_all, warm
from odradek.broker.fetch.permissions import denied_topics
from odradek.broker.fetch.plans import (
    NO_LEADER,
    Plan,
    Planned,
    accumulated_bytes,
    may_count_less,
    plan_fetch,
    refused,
    unknown_among,
)
from odradek.broker.fetch.reading import READ_COMMITTED, READ_UNCOMMITTED, Reading, reading_of
from odradek.broker.fetch.responses import by_topic, refuse_all, refuse_overtaken
from odradek.broker.fetch.sessions import (
    FIRST_EPOCH,
    NO_SESSION,
    Key,
    Session,
    WantedPartition,
    next_epoch,
)
from odradek.broker.fetch.wanted import wanted_partitions
from odradek.broker.handlers import Patient
from odradek.broker.services import Services
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode
from odradek.protocol.frames import body_bytes
from odradek.protocol.messages.fetch import (
    FetchRequest,
    FetchResponse,
    NodeEndpoint,
)
from odradek.protocol.pacing import coding, paced, paced_if_many
from odradek.storage.errors import StorageError
from odradek.storage.log import Log

_TOPIC_IDS_SINCE = 13
_NO_MORE_REQUESTS = -1  # FetchMetadata.FINAL_EPOCH
# The number of times that a fetch plans again to find in memory the bytes that threads have read:
# each segment of a compacted log in which nothing is left takes one.
_WARMING_ROUNDS = 10
# With more partitions, those that do not exist are passed over first, with pauses.
_PLANNED_AT_ONCE_MAX = 1_000


@dataclass(slots=True)
class _Fetch:
    """A request that is being served."""

    services: Services
    context: RequestContext
    request: FetchRequest
    reading: Reading
    wanted: dict[Key, WantedPartition]
    session: Session | None  # the session that the request continues
    is_hurried: bool = False  # the client waits for another answer
    wake: Callable[[], None] | None = None  # set while the request is parked

    def hurry(self) -> None:
        """Stop waiting, unless `odradek.fetch.hurry` is off."""
        if not self.services.config.odradek_fetch_hurry:
            return
        self.is_hurried = True
        if self.wake is not None:
            self.wake()


def handle(
    services: Services, context: RequestContext, request: FetchRequest
) -> FetchResponse | Awaitable[FetchResponse]:
    """Read the records that are there, or wait for more."""
    by_id = context.api_version >= _TOPIC_IDS_SINCE
    wanted = wanted_partitions(services.topics, request, by_id)
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
    reading = reading_of(services, context, request)
    fetch = _Fetch(services, context, request, reading, wanted, session)
    if context.authorizer is not None:
        partitions = wanted if session is None else session.partitions
        fetch.reading.denied = denied_topics(
            services.topics,
            context,
            partitions.values(),
            is_follower=fetch.reading.is_follower,
        )
    missing = _missing(fetch) if fetch.reading.rack else {}
    answer = _prepare_first(fetch, missing) if missing else _begin(fetch)
    return answer if isinstance(answer, FetchResponse) else Patient(answer, fetch.hurry)


async def _prepare_first(fetch: _Fetch, missing: Missing) -> FetchResponse:
    """Open the logs of other leaders, then serve the request."""
    await _prepare(fetch, missing)
    answer = _begin(fetch)
    return answer if isinstance(answer, FetchResponse) else await answer


def _missing(fetch: _Fetch) -> Missing:
    return missing_replicas(fetch.services, fetch.reading, _look(fetch)[0])


async def _prepare(fetch: _Fetch, missing: Missing) -> None:
    if missing and fetch.services.replicas is not None:
        await fetch.services.replicas.prepare(missing)


def _begin(fetch: _Fetch) -> FetchResponse | Awaitable[FetchResponse]:
    """Answer at once, or return the answer to wait for."""
    services, request = fetch.services, fetch.request
    fresh, idle = _look(fetch)
    unknown: list[Planned] = []
    if len(fresh) > _PLANNED_AT_ONCE_MAX:
        unknown = unknown_among(services, fetch.reading, fresh, paced)
        passed_over = {one.wanted for one in unknown}
        fresh, idle = _look(fetch)  # at the same moment as the plan
        fresh = [one for one in fresh if one not in passed_over]
    plan = plan_fetch(services, fetch.reading, fresh)
    plan.unknown = [*unknown, *plan.unknown] if unknown else plan.unknown
    if request.isolation_level not in (READ_UNCOMMITTED, READ_COMMITTED) and (
        plan.read or plan.cold or idle
    ):
        return refuse_all(request, fetch.context.api_version >= _TOPIC_IDS_SINCE)
    return _find_first(fetch, plan, idle) if plan.cold else _serve(fetch, plan, idle)


def _look(fetch: _Fetch) -> tuple[Collection[WantedPartition], list[Log]]:
    """Return the partitions to read, and the logs of the partitions without news."""
    if fetch.session is None:
        return fetch.wanted.values(), []
    reading = fetch.reading
    if reading.size_max < 0:  # the first partition gets an error, whether it has news or not
        return fetch.session.look(object())
    services = fetch.services
    retired = services.replicas.generation if services.replicas is not None else 0
    generation = services.topics.generation, retired
    basis = (generation, reading.is_committed, reading.is_follower, reading.denied)
    return fetch.session.look(basis)


def _serve(
    fetch: _Fetch, plan: Plan, idle: list[Log]
) -> FetchResponse | Awaitable[FetchResponse]:
    logs = [*idle, *plan.logs] if idle else plan.logs
    missing = _missing_bytes(fetch, plan)
    if missing <= 0 or fetch.request.max_wait_ms <= 0 or not logs:
        return _answer(fetch, plan)
    if plan.size_bytes:
        missing = _missing_while_delayed(fetch, plan)
        if missing <= 0:
            return _answer(fetch, plan)
    return _wait(fetch, plan, logs, missing)


async def _find_first(fetch: _Fetch, plan: Plan, idle: list[Log]) -> FetchResponse:
    """Do the reads that would wait for the disk in threads, then serve."""
    answer = _serve(fetch, await _warmed(fetch, plan), idle)
    return answer if isinstance(answer, FetchResponse) else await answer


async def _warmed(fetch: _Fetch, plan: Plan, before: Plan | None = None) -> Plan:
    """Return a plan for all partitions, once threads have read the bytes that it needs."""
    for _ in range(_WARMING_ROUNDS):
        if not plan.cold:
            return plan
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(fetch.services.readers, warm, plan.cold)
        plan = _plan_again(fetch, before)
    # A small page cache has dropped the bytes again.
    return _plan_again(fetch, before, may_wait=True) if plan.cold else plan


def _plan_again(fetch: _Fetch, before: Plan | None, *, may_wait: bool = False) -> Plan:
    """Plan again. `before` is the plan from before the request waited, if it has waited.

    Partitions that were unknown then stay unknown.
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
        return _missing_while_delayed(fetch, _plan_again(fetch, before))

    partitions = fetch.wanted if fetch.session is None else fetch.session.partitions
    counts_less = may_count_less(partitions.values(), fetch.reading.size_min)
    delayed = purgatory.park(
        logs,
        missing,
        fetch.request.max_wait_ms,
        wake,
        recount,
        is_committed=fetch.reading.is_committed,
        is_exact=not counts_less,
    )
    fetch.wake = wake
    if fetch.is_hurried:  # already, before it was parked
        wake()
    try:
        await woken
    finally:
        purgatory.cancel(delayed)
    if fetch.reading.rack:
        await _prepare(fetch, _missing(fetch))
    answer = _answer(fetch, await _warmed(fetch, _plan_again(fetch, before), before))
    return answer if isinstance(answer, FetchResponse) else await answer


def _missing_bytes(fetch: _Fetch, plan: Plan) -> int:
    """Return the number of bytes that are missing for an answer at once."""
    if plan.is_due or plan.cold:
        return 0
    return fetch.reading.size_min - plan.size_bytes


def _missing_while_delayed(fetch: _Fetch, plan: Plan) -> int:
    """Return the number of bytes to wait for."""
    if plan.is_due or plan.cold:
        return 0
    there = accumulated_bytes(plan, fetch.reading)
    return 0 if there is None else fetch.reading.size_min - there


def _answer(fetch: _Fetch, plan: Plan) -> FetchResponse | Awaitable[FetchResponse]:
    """Read the planned bytes: here from the page cache, in a thread from the disk."""
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
    read = await loop.run_in_executor(fetch.services.readers, read_all, slices)
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


def _response(fetch: _Fetch, plan: Plan) -> FetchResponse:
    """Build the answer; within a session it leaves out partitions without news."""
    answered = [*plan.read, *plan.unknown] if plan.unknown else plan.read
    session = fetch.session
    session_id = NO_SESSION
    if session is not None:
        session_id = session.id
        if _is_overtaken(fetch):
            return refuse_overtaken(session)
    if throttled := _throttled(fetch, plan, answered):
        return throttled
    if session is not None:
        if _is_overtaken(fetch):  # again, because the count of the answer's bytes takes time
            return refuse_overtaken(session)
        answered = [one for one in answered if session.note(one.wanted, one.data, one.idle_log)]
    elif fetch.request.session_epoch == FIRST_EPOCH:
        session_id = _begin_session(fetch, answered)
    count_fetch(fetch.services.metrics, plan)
    return FetchResponse(
        session_id=session_id,
        responses=by_topic(answered),
        node_endpoints=_leaders(fetch, answered) if plan.is_due else [],
    )


def _throttled(fetch: _Fetch, plan: Plan, answered: list[Planned]) -> FetchResponse | None:
    """Return an empty answer for a client over its quota, else None; the session is unchanged."""
    charge, session = fetch.context.charge, fetch.session
    if charge is None or fetch.reading.is_follower:
        return None
    if session is not None:
        answered = [one for one in paced_if_many(answered) if one.wanted.is_news(one.data)]
    whole = FetchResponse(
        responses=by_topic(answered),
        node_endpoints=_leaders(fetch, answered) if plan.is_due else [],
    )
    if not charge.settle_fetch(coding(body_bytes, whole, fetch.context.api_version)):
        return None
    return FetchResponse(session_id=NO_SESSION if session is None else session.id, responses=[])


def _is_overtaken(fetch: _Fetch) -> bool:
    """Return whether the session continued on another connection while this request waited."""
    session = fetch.session
    return session is not None and session.epoch != next_epoch(fetch.request.session_epoch)


def _begin_session(fetch: _Fetch, answered: list[Planned]) -> int:
    by_id = fetch.context.api_version >= _TOPIC_IDS_SINCE
    partitions: dict[Key, WantedPartition] = {}
    for planned in paced_if_many(answered):
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


def _leaders(fetch: _Fetch, answered: list[Planned]) -> list[NodeEndpoint]:
    """Return the endpoints of the leaders that the response names (KIP-951)."""
    named = {
        planned.data.current_leader.leader_id: None
        for planned in paced_if_many(answered)
        if planned.data.current_leader is not NO_LEADER
    }
    if not named or fetch.reading.is_follower:  # Kafka expects a follower to know them
        return []
    found = (fetch.services.brokers.address(one, fetch.context.listener) for one in named)
    return [
        NodeEndpoint(node_id=one.node_id, host=one.host, port=one.port, rack=one.rack)
        for one in found
        if one is not None
    ]
