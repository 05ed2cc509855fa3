"""Produce (0): append one batch to each partition of the request.

Threads check the batches that take long to check (broker/produce/appending.py).
acks=1 is answered after the write, or after the flush that flush.messages asks for. acks=all is
answered once the batch is on the disk, when log.flush.acks.all is set (the default): one node
has no replica to rely on. acks=0 gets no response; when such a batch is refused, the broker closes
the connection, as Kafka does, so that the client refreshes its metadata. A request with batches of
a transaction goes through transactions/admission.py first. When a request names a partition
several times, only the last batch counts, as in Kafka, which keeps batches in a map; no client
does that.

Versions 3 to 13. v5: the log start offset. v7: zstd (KIP-110). v8: the records that spoil a batch
(KIP-467). v9: flexible. v10: the leader's address (KIP-951). v11: TRANSACTION_ABORTABLE; v12: a
batch adds its partition to the transaction (KIP-890). v13: topics by id (KIP-516).
"""

from __future__ import annotations

from asyncio import Future, ensure_future, shield, wait
from collections.abc import Awaitable, Callable, Sequence, Set
from functools import partial

from odradek.broker.context import RequestContext
from odradek.broker.errors import CloseConnection
from odradek.broker.handlers import Staged
from odradek.broker.produce.appending import Appended, Appending, must_be_durable
from odradek.broker.produce.outcomes import all_refused, fail_unflushed, not_permitted
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.broker.transactions.admission import (
    TOPIC_IDS_SINCE,
    Refused,
    admit,
    find_topic,
    is_transactional,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from odradek.protocol.pacing import Pace, paced, paced_if_many, unpaced
from odradek.storage.errors import StorageError

_NONE_DENIED: Set[str] = frozenset()

Answer = ProduceResponse | Awaitable[ProduceResponse | None] | None


def handle(services: Services, context: RequestContext, request: ProduceRequest) -> Answer:
    """Append each batch where possible, and answer according to `acks`."""
    room = services.group_commit.room()
    if room is not None:
        return _wait_for_room(services, context, request, room)
    return _begin(services, context, request)


def _wait_for_room(
    services: Services, context: RequestContext, request: ProduceRequest, first: Future[None]
) -> Answer:
    """Append once the WAL has committed more: the bytes that wait for it are bounded."""
    begun: Future[None] = services.loop.create_future()

    async def go_on() -> ProduceResponse | None:
        room: Future[None] | None = first
        try:
            while room is not None:
                await shield(room)
                room = services.group_commit.room()
            answer = _begin(services, context, request)
            if isinstance(answer, Staged):
                answered = ensure_future(answer)
                await wait([answer.begun])
                answer = answered
        finally:
            begun.set_result(None)
        return await answer if isinstance(answer, Awaitable) else answer

    return Staged(go_on(), begun)


def _begin(services: Services, context: RequestContext, request: ProduceRequest) -> Answer:
    if not _is_one(request.topic_data) and _repeats(request.topic_data):
        request.topic_data = _last_of_each(request.topic_data)
    for data in paced_if_many(request.topic_data):
        for partition in paced_if_many(data.partition_data):
            if is_transactional(partition.records):
                return _handle_transactional(services, context, request)
    return _append_all(services, context, request, {}, _denied(services, context, request), paced)


def _is_one(topics: Sequence[TopicProduceData]) -> bool:
    """Return whether there is one batch, so that the search for repeats can be skipped."""
    return len(topics) == 1 and len(topics[0].partition_data) == 1


def _repeats(topics: Sequence[TopicProduceData]) -> bool:
    """Return whether a topic or a partition is named several times."""
    for data in paced_if_many(topics):
        partitions = data.partition_data
        if len(partitions) > 1:
            indexes = {one.index for one in paced_if_many(partitions)}
            if len(indexes) < len(partitions):
                return True
    if len(topics) == 1:
        return False
    return len({(one.topic_id, one.name) for one in paced_if_many(topics)}) < len(topics)


def _last_of_each(topics: Sequence[TopicProduceData]) -> list[TopicProduceData]:
    """Return each topic and partition once, with its last batch."""
    found: dict[tuple[bytes, str], dict[int, PartitionProduceData]] = {}
    for data in paced(topics):
        of_topic = found.setdefault((data.topic_id, data.name), {})
        for one in paced(data.partition_data):
            of_topic[one.index] = one
    return [
        TopicProduceData(name=name, topic_id=topic_id, partition_data=list(partitions.values()))
        for (topic_id, name), partitions in paced(found.items())
    ]


def _handle_transactional(
    services: Services, context: RequestContext, request: ProduceRequest
) -> Answer:
    """Append once the coordinator has verified which batches belong to a transaction."""
    if request.transactional_id is None or not context.may(
        AclOperation.WRITE, ResourceKind.TRANSACTIONAL_ID, request.transactional_id
    ):
        return _refuse_all(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    denied = _denied(services, context, request)
    admitted = admit(services, context, request, request.transactional_id, denied)
    if isinstance(admitted, dict):
        return _append_all(services, context, request, admitted, denied)
    append = partial(_append_admitted, services, context, request, admitted, denied)
    return _stage(services, append, request.acks)


async def _append_admitted(
    services: Services,
    context: RequestContext,
    request: ProduceRequest,
    admitted: Awaitable[Refused],
    denied: Set[str],
) -> Appending:
    appending = Appending(services, context, request, await admitted, denied)
    if not appending.begin():
        await appending.finish()
    return appending


async def _finish(appending: Appending) -> Appending:
    await appending.finish()
    return appending


def _stage(services: Services, append: Callable[[], Awaitable[Appending]], acks: int) -> Answer:
    """Answer once all is appended. Later requests wait until then, so that they find it."""
    begun: Future[None] = services.loop.create_future()

    async def go_on() -> ProduceResponse | None:
        try:
            appending = await append()
        finally:
            begun.set_result(None)
        answer = _answer(services, appending, acks)
        return await answer if isinstance(answer, Awaitable) else answer

    return Staged(go_on(), begun)


def _denied(services: Services, context: RequestContext, request: ProduceRequest) -> Set[str]:
    """Return the topics that the client may not write to, by name, whether they exist or not."""
    if context.authorizer is None:
        return _NONE_DENIED
    topics = ((data, find_topic(services, context, data)) for data in request.topic_data)
    names = {data.name if topic is None else topic.name for data, topic in paced(topics)}
    if context.api_version >= TOPIC_IDS_SINCE:
        names.discard("")  # the name of an unknown id
    return names - context.permitted(AclOperation.WRITE, ResourceKind.TOPIC, names)


def _refuse_all(request: ProduceRequest, code: ErrorCode) -> ProduceResponse | None:
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=data.name,
                topic_id=data.topic_id,
                partition_responses=[
                    not_permitted(one, code) for one in paced(data.partition_data)
                ],
            )
            for data in paced(request.topic_data)
        ]
    )
    if request.acks == 0:
        _close_if_refused(response)
        return None
    return response


def _append_all(
    services: Services,
    context: RequestContext,
    request: ProduceRequest,
    refused: Refused,
    denied: Set[str],
    pace: Pace = unpaced,
) -> Answer:
    """Append all batches that are not refused."""
    appending = Appending(services, context, request, refused, denied)
    if appending.begin(pace):
        return _answer(services, appending, request.acks)
    return _stage(services, partial(_finish, appending), request.acks)


def _answer(services: Services, appending: Appending, acks: int) -> Answer:
    """Answer when the batches are as durable as `acks` and the topics ask."""
    response, config = appending.response, services.config
    to_flush = [one for one in appending.touched if must_be_durable(one[0], acks, config)]
    if acks == 0:
        for log, _ in to_flush:
            services.group_commit.flush_in_background(log)
        _close_if_refused(response)
        return None
    return _after_flush(services, response, to_flush) if to_flush else response


def _close_if_refused(response: ProduceResponse) -> None:
    for partition in all_refused(response):
        raise CloseConnection(f"a batch with acks=0 was refused: {partition.error_message}")


def _after_flush(
    services: Services, response: ProduceResponse, appended: Sequence[Appended]
) -> Future[ProduceResponse]:
    """Answer when the batches are on the disk; after a failed flush the answer is an error.

    It does so without a task, which would take as long as the append.
    """
    answered: Future[ProduceResponse] = services.loop.create_future()

    def flushed(future: Future[None]) -> None:
        if answered.done():  # the client has gone
            return
        error = future.exception()
        if error is not None and not isinstance(error, StorageError):
            answered.set_exception(error)
            return
        if error is not None:
            fail_unflushed(services.metrics, appended)
        answered.set_result(response)

    services.group_commit.flush([log for log, _ in appended]).add_done_callback(flushed)
    return answered
