"""Produce (0): append one batch to each of some partitions.

acks=1 is answered after the write, or after the flush that flush.messages asks for. acks=all is
answered once the batch is on the disk, when log.flush.acks.all is set (the default): one node
has no replica to lean on. acks=0 gets no response; when such a batch is refused, the connection
is closed, as Kafka does, so that the client looks again. A request with batches of a transaction
goes through transactions/admission.py first. Of a partition that is named several times only the
last batch counts, as in Kafka, which keeps them in a map; no client does that.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Sequence, Set

from broker.authorized_operations import Operation
from broker.context import CloseConnection, RequestContext, Staged
from broker.errors import code_of, message_of
from broker.metrics import Metrics
from broker.partitions import OfflinePartition
from broker.security.authorization import ResourceKind
from broker.topic import Topic
from broker.topic_counts import count_refusal
from broker.transactions.admission import (
    TOPIC_IDS_SINCE,
    Refused,
    admit,
    find_topic,
    is_transactional,
)
from protocol.batches import CODEC_MASK
from protocol.compression import Codec
from protocol.errors import ErrorCode
from protocol.frames import PRODUCE_KEY
from protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from storage.errors import InvalidRecord, NotOneBatch, StorageError
from storage.log import Log
from storage.validation import Allowance, read_one

_ZSTD_SINCE = 7
_ACKS = (-1, 0, 1)
# Errors that Kafka tells without the log start offset (ReplicaManager.appendToLocalLog). It also
# leaves it out for what is not one batch (ProduceRequest.validateRecords).
_WITHOUT_START_OFFSET = frozenset(
    (
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
    )
)
_ATTRIBUTES = 22  # where a batch has its codec and kind: the low byte of its attributes
Appended = tuple[Log, PartitionProduceResponse]

# The one client that may write to internal topics (AdminUtils.ADMIN_CLIENT_ID).
_ADMIN_CLIENT_ID = "__admin_client"
_NONE_DENIED: Set[str] = frozenset()


Answer = ProduceResponse | Awaitable[ProduceResponse | None] | None


def handle(context: RequestContext, request: ProduceRequest) -> Answer:
    """Append what can be appended, and answer as `acks` asks."""
    if not _is_one(request.topic_data) and _repeats(request.topic_data):
        request.topic_data = _last_of_each(request.topic_data)
    for data in request.topic_data:
        for partition in data.partition_data:
            if is_transactional(partition.records):
                return _handle_transactional(context, request)
    return _append_all(context, request, {}, _denied(context, request))


def _is_one(topics: Sequence[TopicProduceData]) -> bool:
    """Tell whether there is one batch, of which nothing below has to be asked."""
    return len(topics) == 1 and len(topics[0].partition_data) == 1


def _repeats(topics: Sequence[TopicProduceData]) -> bool:
    """Tell whether a topic or a partition is named several times."""
    for data in topics:
        partitions = data.partition_data
        if len(partitions) > 1 and len({one.index for one in partitions}) < len(partitions):
            return True
    return len(topics) > 1 and len({(one.topic_id, one.name) for one in topics}) < len(topics)


def _last_of_each(topics: Sequence[TopicProduceData]) -> list[TopicProduceData]:
    """Return each topic and partition once, with its last batch."""
    found: dict[tuple[bytes, str], dict[int, PartitionProduceData]] = {}
    for data in topics:
        of_topic = found.setdefault((data.topic_id, data.name), {})
        of_topic.update((one.index, one) for one in data.partition_data)
    return [
        TopicProduceData(name=name, topic_id=topic_id, partition_data=list(partitions.values()))
        for (topic_id, name), partitions in found.items()
    ]


def _handle_transactional(context: RequestContext, request: ProduceRequest) -> Answer:
    """Append once it is known which batches are of a transaction of their producer."""
    if request.transactional_id is None or not context.may(
        Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, request.transactional_id
    ):
        return _refuse_all(request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    denied = _denied(context, request)
    admitted = admit(context, request, request.transactional_id, denied)
    if isinstance(admitted, dict):
        return _append_all(context, request, admitted, denied)
    begun: Future[None] = context.broker.loop.create_future()

    async def go_on() -> ProduceResponse | None:
        try:
            answer = _append_all(context, request, await admitted, denied)
        finally:
            begun.set_result(None)  # requests after it find what this one has appended
        return await answer if isinstance(answer, Awaitable) else answer

    return Staged(go_on(), begun)


def _denied(context: RequestContext, request: ProduceRequest) -> Set[str]:
    """Return the names of the topics that the client may not write to, be they there or not."""
    if context.broker.security.authorizer is None:
        return _NONE_DENIED
    topics = ((data, find_topic(context, data)) for data in request.topic_data)
    names = {data.name if topic is None else topic.name for data, topic in topics}
    if context.api_version >= TOPIC_IDS_SINCE:
        names.discard("")  # of ids that are not known
    return names - context.permitted(Operation.WRITE, ResourceKind.TOPIC, names)


def _refuse_all(request: ProduceRequest, code: ErrorCode) -> ProduceResponse | None:
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=data.name,
                topic_id=data.topic_id,
                partition_responses=[_not_permitted(one, code) for one in data.partition_data],
            )
            for data in request.topic_data
        ]
    )
    if request.acks == 0:
        _close_if_refused(response)
        return None
    return response


def _append_all(
    context: RequestContext, request: ProduceRequest, refused: Refused, denied: Set[str]
) -> Answer:
    """Append all but what is refused."""
    broker = context.broker
    now_ms = broker.clock.now_ms()
    allowance = None if _is_one(request.topic_data) else Allowance()
    touched: list[Appended] = []
    responses = []
    for data in request.topic_data:
        topic = find_topic(context, data)
        if denied and (data.name if topic is None else topic.name) in denied:
            partitions = [
                _not_permitted(one, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                for one in data.partition_data
            ]
        else:
            partitions = [
                _append(context, request, topic, partition, now_ms, allowance, touched, refused)
                for partition in data.partition_data
            ]
        for one in partitions:
            if one.error_code:
                name = topic.name if topic is not None else None
                count_refusal(broker.metrics, name, one.error_code)
        if partitions:
            responses.append(
                TopicProduceResponse(
                    name=data.name, topic_id=data.topic_id, partition_responses=partitions
                )
            )
    response = ProduceResponse(responses=responses)
    if request.acks == -1 and broker.config.log_flush_acks_all:
        to_flush = touched
    else:
        to_flush = [one for one in touched if one[0].must_flush]
    if request.acks == 0:
        for log, _ in to_flush:
            broker.group_commit.flush_in_background(log)
        _close_if_refused(response)
        return None
    return _after_flush(context, response, to_flush) if to_flush else response


def _append(
    context: RequestContext,
    request: ProduceRequest,
    topic: Topic | None,
    partition: PartitionProduceData,
    now_ms: int,
    allowance: Allowance | None,
    touched: list[Appended],
    not_admitted: Refused,
) -> PartitionProduceResponse:
    index = partition.index
    if topic is None:
        by_id = context.api_version >= TOPIC_IDS_SINCE
        missing = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return _refused(index, missing, None)
    if not 0 <= index < len(topic.partitions):
        return _refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    refused = _problem(context, request, topic, partition)
    if refused is not None:
        return refused
    if not_admitted and (problem := not_admitted.get((topic.name, index))) is not None:
        return _refused(index, *problem)
    log = topic.partitions[index]
    if isinstance(log, OfflinePartition):
        return _refused(index, code_of(log.cause), message_of(log.cause))
    assert partition.records is not None
    try:
        appended = log.append(partition.records, now_ms=now_ms, allowance=allowance)
    except StorageError as error:
        context.broker.metrics.refused_batches += 1
        context.broker.disks.note(log, error)
        refused = _refused(index, code_of(error), message_of(error))
        if refused.error_code not in _WITHOUT_START_OFFSET and not isinstance(error, NotOneBatch):
            refused.log_start_offset = log.log_start_offset
        if isinstance(error, InvalidRecord):
            refused.record_errors = [
                BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=text)
                for at, text in error.record_errors
            ]
        return refused
    response = PartitionProduceResponse(
        index=index,
        error_code=0,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=log.log_start_offset,
    )
    touched.append((log, response))
    return response


def _problem(
    context: RequestContext, request: ProduceRequest, topic: Topic, partition: PartitionProduceData
) -> PartitionProduceResponse | None:
    """Refuse what no log has to look at, in the order in which Kafka does."""
    index, records = partition.index, partition.records
    version = context.api_version
    if not records:
        message = f"Produce requests with version {version} must have at least one record batch"
        return _refused(index, ErrorCode.INVALID_RECORD, f"{message} per partition")
    attributes = records[_ATTRIBUTES] if len(records) > _ATTRIBUTES else 0
    if version < _ZSTD_SINCE and attributes & CODEC_MASK == Codec.ZSTD:
        message = f"Produce requests with version {version} are not allowed to use ZStandard"
        return _refused(index, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"{message} compression")
    if request.acks not in _ACKS:
        try:
            read_one(records, f"{topic.name}-{index}")
        except NotOneBatch as error:
            return _refused(index, code_of(error), message_of(error))
        except StorageError:
            pass  # what Kafka's log would find, after this
        return _refused(index, ErrorCode.INVALID_REQUIRED_ACKS, None)
    if topic.is_internal and context.client_id != _ADMIN_CLIENT_ID:
        message = f"Cannot append to internal topic {topic.name}"
        return _refused(index, ErrorCode.INVALID_TOPIC_EXCEPTION, message)
    return None


def _refused(index: int, code: ErrorCode, message: str | None) -> PartitionProduceResponse:
    return PartitionProduceResponse(
        index=index,
        error_code=code,
        base_offset=-1,
        log_append_time_ms=-1,
        log_start_offset=-1,
        error_message=message or code.sentence,
    )


def _not_permitted(
    partition: PartitionProduceData, code: ErrorCode
) -> PartitionProduceResponse:
    refused = _refused(partition.index, code, None)
    refused.error_message = None  # as in Kafka
    return refused


def _close_if_refused(response: ProduceResponse) -> None:
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                raise CloseConnection(
                    f"a batch with acks=0 was refused: {partition.error_message}"
                )


def _after_flush(
    context: RequestContext, response: ProduceResponse, appended: Sequence[Appended]
) -> Future[ProduceResponse]:
    """Answer when the disk has it; where that fails, the append turns into an error.

    Without a task, which would take as long as the append.
    """
    broker = context.broker
    answered: Future[ProduceResponse] = broker.loop.create_future()

    def flushed(future: Future[None]) -> None:
        if answered.done():  # the client has gone
            return
        error = future.exception()
        if error is not None and not isinstance(error, StorageError):
            answered.set_exception(error)
            return
        if error is not None:
            _fail_unflushed(broker.metrics, appended)
        answered.set_result(response)

    broker.group_commit.flush([log for log, _ in appended]).add_done_callback(flushed)
    return answered


def _fail_unflushed(metrics: Metrics, appended: Sequence[Appended]) -> None:
    for log, partition in appended:
        if log.failure is not None:
            refused = _refused(partition.index, code_of(log.failure), message_of(log.failure))
            partition.error_code = refused.error_code
            partition.error_message = refused.error_message
            partition.base_offset = partition.log_append_time_ms = -1
            partition.log_start_offset = -1
            metrics.count_error(PRODUCE_KEY, refused.error_code)
