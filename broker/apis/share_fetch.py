"""ShareFetch (78): acquire records for a member of a share group, and acknowledge others.

Acknowledgements are taken first. Then the request is answered at once when enough records can be
acquired; otherwise it is parked until that is so or max_wait_ms has passed
(broker/shares/fetching.py). In a session (broker/shares/sessions.py) the answer leaves out
partitions without news. A request that renews locks fetches nothing.

Versions 1 to 2. Both are flexible. v2: the strictness of max_records (KIP-1206); acknowledgements
that renew a lock (KIP-1222).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Set
from functools import partial

from odradek.broker.context import RequestContext
from odradek.broker.counters.topics import count_share_fetch
from odradek.broker.errors import code_of
from odradek.broker.fetch.sessions import FIRST_EPOCH, next_epoch
from odradek.broker.services import Services
from odradek.broker.shares.fetching import Fetched, ShareFetch, Wanted
from odradek.broker.shares.key import SharePartitionKey
from odradek.broker.shares.outcomes import Failure
from odradek.broker.shares.replies import (
    Results,
    acknowledge_all,
    code_and_message,
    leader_of,
    problem,
    readable,
)
from odradek.broker.shares.serving import Served
from odradek.broker.shares.sessions import (
    FINAL_EPOCH,
    MemberKey,
    ShareSession,
    TopicPartition,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from odradek.protocol.pacing import paced
from odradek.storage.errors import StorageError

_MS_PER_S = 1_000
_RECORD_LIMIT = 1
Answers = dict[TopicPartition, PartitionData]


async def handle(
    services: Services, context: RequestContext, request: ShareFetchRequest
) -> ShareFetchResponse:
    """Acknowledge, then acquire the records that are there, or wait for more."""
    error = problem(services, context, request.group_id, request.member_id)
    if error is ErrorCode.NONE and request.is_renew_ack and _wants_records(request):
        error = ErrorCode.INVALID_REQUEST
    if error is not ErrorCode.NONE:
        return ShareFetchResponse(error_code=error)
    member = MemberKey(request.group_id or "", request.member_id or "")
    named = _named(request)
    has_given = any(paced(named.values()))
    session = _session(services, context, request, member, named, has_given=has_given)
    if session is ErrorCode.SHARE_SESSION_LIMIT_REACHED:
        await asyncio.sleep(request.max_wait_ms / _MS_PER_S)
    if isinstance(session, ErrorCode):
        return ShareFetchResponse(error_code=session)
    is_final = request.share_session_epoch == FINAL_EPOCH
    acknowledging = acknowledge_all(
        services, context, *member, named if has_given else {}, is_renewal=request.is_renew_ack
    )
    answers = Answers()
    if not is_final and not request.is_renew_ack:
        answers = await _fetch(services, context, request, member, session)
    results = await acknowledging.results()
    response = _response(services, context, request, session, answers)
    _add_results(response, results)
    if is_final:
        services.shares.end_session(member)
    return response


def _wants_records(request: ShareFetchRequest) -> bool:
    return bool(
        request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms
    )


def _named(request: ShareFetchRequest) -> dict[TopicPartition, list[AcknowledgementBatch]]:
    return {
        TopicPartition(topic.topic_id, one.partition_index): one.acknowledgement_batches
        for topic in paced(request.topics)
        for one in paced(topic.partitions)
    }


def _session(
    services: Services,
    context: RequestContext,
    request: ShareFetchRequest,
    member: MemberKey,
    named: Collection[TopicPartition],
    *,
    has_given: bool,
) -> ShareSession | ErrorCode:
    """Begin, continue or end the member's session."""
    sessions, epoch = services.shares.sessions, request.share_session_epoch
    by_id = services.topics.by_id
    topic_ids = {one.topic_id for one in paced(named)}
    if epoch == FINAL_EPOCH:
        return sessions.get(member) or ErrorCode.SHARE_SESSION_NOT_FOUND
    session: ShareSession | ErrorCode
    if epoch == FIRST_EPOCH:
        if has_given:
            return ErrorCode.INVALID_REQUEST
        client = context.client
        session = (
            sessions.begin(member, named, client) or ErrorCode.SHARE_SESSION_LIMIT_REACHED
        )
        client.on_lost["share sessions"] = partial(sessions.connection_lost, client)
    else:
        forgotten = [
            TopicPartition(topic.topic_id, number)
            for topic in paced(request.forgotten_topics_data)
            for number in paced(topic.partitions)
        ]
        session = sessions.resume(member, epoch, named, forgotten)
    if isinstance(session, ShareSession):
        session.unknown |= {topic_id for topic_id in topic_ids if by_id(topic_id) is None}
    return session


async def _fetch(
    services: Services,
    context: RequestContext,
    request: ShareFetchRequest,
    member: MemberKey,
    session: ShareSession,
) -> Answers:
    """Acquire from all partitions of the session; they take turns at being the first."""
    partitions = list(session.partitions)
    answers = Answers()
    found: list[tuple[TopicPartition, Served | Awaitable[Served | Failure]]] = []
    permitted = readable(services, context, partitions)
    for partition in paced(partitions):
        served = _find(services, member, session, partition, permitted)
        if isinstance(served, Failure):
            answers[partition] = _refused(services, partition, served)
        else:
            found.append((partition, served))
    parts = await _loaded(services, request, _rotated(found, request.share_session_epoch), answers)
    config, settings = services.config, services.shares.settings.of(member.group_id)
    # The bytes that clients have not read yet are bounded: without room the answer has one batch.
    room = max(config.odradek_unsent_bytes_max - services.backpressure.unsent_bytes, 1)
    size_max = min(request.max_bytes, config.fetch_max_bytes, room)
    wanted = Wanted(
        member.member_id,
        is_record_limit=request.share_acquire_mode == _RECORD_LIMIT,
        is_committed=settings.is_committed,
        wait_ms=request.max_wait_ms,
        size_min=min(request.min_bytes, size_max),
        size_max=size_max,
        records_max=request.max_records,
        batch_size=request.batch_size,
    )
    fetch = ShareFetch(wanted, parts, services.purgatory)
    fetched = fetch.run()
    for partition, one in (fetched if isinstance(fetched, dict) else await fetched).items():
        answers[partition] = _answer(services, partition, one)
        topic = services.topics.by_id(partition.topic_id)
        count_share_fetch(services.metrics, topic.name if topic else None, len(one.records))
    return answers


def _find(
    services: Services,
    member: MemberKey,
    session: ShareSession,
    partition: TopicPartition,
    permitted: Set[str],
) -> Served | Awaitable[Served | Failure] | Failure:
    topic = services.topics.by_id(partition.topic_id)
    if topic is None and partition.topic_id in session.unknown:
        return Failure(ErrorCode.UNKNOWN_TOPIC_ID, "")
    if topic is not None and topic.name not in permitted:
        return Failure(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "")
    try:
        log = topic.log(partition.partition) if topic is not None else None
    except StorageError as error:
        return Failure(code_of(error), str(error))
    if log is None:
        return Failure(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    return services.shares.partitions.load(SharePartitionKey(member.group_id, *partition), log)


def _rotated(
    found: list[tuple[TopicPartition, Served | Awaitable[Served | Failure]]], epoch: int
) -> list[tuple[TopicPartition, Served | Awaitable[Served | Failure]]]:
    at = epoch % len(found) if found and epoch > 0 else 0
    return found[at:] + found[:at]


async def _loaded(
    services: Services,
    request: ShareFetchRequest,
    found: list[tuple[TopicPartition, Served | Awaitable[Served | Failure]]],
    answers: Answers,
) -> list[tuple[TopicPartition, Served]]:
    """Wait for share-partitions that are being loaded, for at most the request's max_wait_ms."""
    loading = {
        partition: asyncio.ensure_future(one)
        for partition, one in found
        if not isinstance(one, Served)
    }
    if loading:
        await asyncio.wait(loading.values(), timeout=request.max_wait_ms / _MS_PER_S)
    parts: list[tuple[TopicPartition, Served]] = []
    for partition, one in found:
        if isinstance(one, Served):
            parts.append((partition, one))
            continue
        task = loading[partition]
        if not task.done():
            task.cancel()  # the loading itself continues
            continue
        served = task.result()
        if isinstance(served, Served):
            parts.append((partition, served))
        else:
            answers[partition] = _refused(services, partition, served)
    return parts


def _answer(services: Services, partition: TopicPartition, one: Fetched) -> PartitionData:
    if one.failure is not None:
        return _refused(services, partition, one.failure)
    return PartitionData(
        partition_index=partition.partition,
        records=one.records,
        acquired_records=[
            AcquiredRecords(
                first_offset=acquired.first_offset,
                last_offset=acquired.last_offset,
                delivery_count=acquired.delivery_count,
            )
            for acquired in one.acquired
        ],
    )


def _refused(services: Services, partition: TopicPartition, failure: Failure) -> PartitionData:
    """Answer with an error; as in Kafka, without its sentence.

    After a code that it does not know, Kafka's share consumer fails (ShareFetchCollector). So a
    state that cannot be read for now is answered as a leader that has moved: the consumer looks
    for it, and fetches again.
    """
    error = failure.error
    if error is ErrorCode.COORDINATOR_NOT_AVAILABLE:
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    data = PartitionData(partition_index=partition.partition, error_code=error)
    leader = leader_of(services, partition, error)
    if leader is not None:
        data.current_leader = LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
    return data


def _response(
    services: Services,
    context: RequestContext,
    request: ShareFetchRequest,
    session: ShareSession,
    answers: Answers,
) -> ShareFetchResponse:
    """Build the answer; within a session it leaves out partitions without news."""
    epoch = request.share_session_epoch
    settings = services.shares.settings.of(request.group_id or "")
    response = ShareFetchResponse(
        acquisition_lock_timeout_ms=settings.partition.lock_duration_ms
    )
    if epoch not in (FIRST_EPOCH, FINAL_EPOCH):
        if session.epoch != next_epoch(epoch):  # it continued on another connection
            response.error_code = ErrorCode.INVALID_SHARE_SESSION_EPOCH
            return response
        answers = {
            partition: data
            for partition, data in answers.items()
            if session.note(
                partition, has_records=bool(data.records), has_failed=data.error_code != 0
            )
        }
    topics: dict[bytes, list[PartitionData]] = {}
    for partition, data in paced(answers.items()):
        topics.setdefault(partition.topic_id, []).append(data)
        if data.current_leader != LeaderIdAndEpoch():
            host, port = context.advertised()
            node_id = data.current_leader.leader_id
            response.node_endpoints = [NodeEndpoint(node_id=node_id, host=host, port=port)]
    response.responses = [
        ShareFetchableTopicResponse(topic_id=topic_id, partitions=partitions)
        for topic_id, partitions in paced(topics.items())
    ]
    return response


def _add_results(response: ShareFetchResponse, results: Results) -> None:
    """Add the results of the acknowledgements to the response."""
    topics = {topic.topic_id: topic for topic in paced(response.responses)}
    data_of = {
        TopicPartition(topic.topic_id, one.partition_index): one
        for topic in paced(response.responses)
        for one in paced(topic.partitions)
    }
    for partition, failure in paced(results.items()):
        topic = topics.get(partition.topic_id)
        if topic is None:
            topic = ShareFetchableTopicResponse(topic_id=partition.topic_id)
            topics[partition.topic_id] = topic
            response.responses.append(topic)
        data = data_of.get(partition)
        if data is None:
            data = PartitionData(partition_index=partition.partition)
            topic.partitions.append(data)
        data.acknowledge_error_code, data.acknowledge_error_message = code_and_message(failure)
