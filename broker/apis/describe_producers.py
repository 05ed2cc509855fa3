"""DescribeProducers (61): what partitions know of the producers that write to them."""

from __future__ import annotations

from broker import topic_names
from broker.authorized_operations import Operation
from broker.context import RequestContext
from broker.errors import code_of
from broker.security.authorization import ResourceKind
from broker.topic import Topic
from protocol.errors import ErrorCode
from protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)
from storage import producers
from storage.errors import StorageError


def handle(
    context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """Describe the producers of each partition."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(name=asked.name, partitions=_partitions(context, asked))
            for asked in request.topics
        ]
    )


def _partitions(context: RequestContext, asked: TopicRequest) -> list[PartitionResponse]:
    problem = topic_names.problem(asked.name)
    topic = context.broker.topics.get(asked.name)
    if problem is not None:
        error, message = ErrorCode.INVALID_TOPIC_EXCEPTION, problem
    elif not context.may(Operation.READ, ResourceKind.TOPIC, asked.name):
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        message = error.sentence
    elif topic is None:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        message = error.sentence
    else:
        return [_partition(topic, index) for index in asked.partition_indexes]
    return [_refused(index, error, message) for index in asked.partition_indexes]


def _partition(topic: Topic, index: int) -> PartitionResponse:
    try:
        log = topic.log(index)
    except StorageError as error:
        return _refused(index, code_of(error), None)
    if log is None:
        return _refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    return PartitionResponse(
        partition_index=index,
        error_code=ErrorCode.NONE,
        active_producers=[_producer(state) for state in log.producers],
    )


def _producer(state: producers.ProducerState) -> ProducerState:
    return ProducerState(
        producer_id=state.producer_id,
        producer_epoch=state.epoch,
        last_sequence=state.last_sequence,
        last_timestamp=state.last_timestamp,
        coordinator_epoch=state.coordinator_epoch,
        current_txn_start_offset=state.transaction_first_offset,
    )


def _refused(index: int, error: ErrorCode, message: str | None) -> PartitionResponse:
    return PartitionResponse(
        partition_index=index, error_code=error, error_message=message, active_producers=[]
    )
