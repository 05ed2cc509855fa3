"""DescribeProducers (61): the state that partitions keep of their producers.

Version 0 only.
"""

from __future__ import annotations

from collections.abc import Hashable
from itertools import islice

from odradek.broker.context import RequestContext
from odradek.broker.errors import Refusal, code_of
from odradek.broker.loop.repeats import answer_each
from odradek.broker.orders.java import hash_places, place_order
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.broker.topics import names as topic_names
from odradek.broker.topics.topic import Topic
from odradek.protocol.compiler import encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from odradek.protocol.pacing import paced
from odradek.storage import producers
from odradek.storage.errors import StorageError


def handle(
    services: Services, context: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """Describe the producers of each partition."""
    names = {topic.name for topic in paced(request.topics)}
    found = {name: _find(services, context, name) for name in paced(names)}

    def subject(asked: tuple[str, int]) -> Hashable:
        name, _ = asked  # a refusal repeats the name
        return name if isinstance(found[name], Refusal) else asked

    answers = iter(
        answer_each(
            ((topic.name, index) for topic in request.topics for index in topic.partition_indexes),
            name=lambda asked: asked,
            answer=lambda asked: _partition(found[asked[0]], asked[1]),
            size_bytes=lambda state: len(
                encode(
                    DescribeProducersResponse(topics=[TopicResponse(name="", partitions=[state])]),
                    context.api_version,
                )
            ),
            subject=subject,
        )
    )
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name, partitions=list(islice(answers, len(topic.partition_indexes)))
            )
            for topic in paced(request.topics)
        ]
    )


def _find(services: Services, context: RequestContext, name: str) -> Topic | Refusal:
    problem = topic_names.problem(name)
    if problem is not None:
        return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if not context.may(AclOperation.READ, ResourceKind.TOPIC, name):
        return Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return services.topics.get(name) or Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def _partition(topic: Topic | Refusal, index: int) -> PartitionResponse:
    if isinstance(topic, Refusal):
        return _refused(index, topic.code, str(topic))
    try:
        log = topic.log(index)
    except StorageError as error:
        return _refused(index, code_of(error), None)
    if log is None:
        return _refused(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    return PartitionResponse(
        partition_index=index,
        error_code=ErrorCode.NONE,
        active_producers=[_producer(state) for state in paced(_in_order(log.producers))],
    )


def _in_order(states: producers.ProducerStates) -> list[producers.ProducerState]:
    """Return producers in the order of the HashMap in Kafka's ProducerStateManager.

    (Kafka's table does not shrink when producers expire, until the log is loaded again.)
    """
    return place_order(
        states,
        lambda one: one.producer_id ^ one.producer_id >> 32,  # Long.hashCode()
        hash_places(len(states)),
        paced,
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
