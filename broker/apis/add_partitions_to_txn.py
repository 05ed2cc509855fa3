"""AddPartitionsToTxn (24): add partitions to transactions, or verify that they were added.

Up to version 3 a client sends the request for its own transaction; from version 4 on a broker
sends it for any number of them. All partitions of a transaction are added, or none: when one
partition fails, the others get OPERATION_NOT_ATTEMPTED.

Versions 0 to 5. v2: PRODUCER_FENCED (KIP-588). v3: flexible. v4: several transactions, sent by
brokers (KIP-890). v5: TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence, Set

from odradek.broker.apis.end_txn import known_error
from odradek.broker.context import RequestContext
from odradek.broker.coordination.effects import Producer
from odradek.broker.orders.maps import grouped_by_name, partition_order
from odradek.broker.orders.scala import table_of
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.broker.services import Services
from odradek.broker.topics import names as topic_names
from odradek.broker.transactions.state import EPOCH_RAISED_SINCE, TopicPartition
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.pacing import paced

# From this version on, clients know PRODUCER_FENCED.
_FENCED_SINCE = 2
_BROKERS_SINCE = 4

Errors = Mapping[TopicPartition, ErrorCode]


async def handle(
    services: Services, context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """Add partitions to each transaction, or verify that they were added."""
    if context.api_version >= _BROKERS_SINCE:
        if not context.may_to_cluster(AclOperation.CLUSTER_ACTION):
            return AddPartitionsToTxnResponse(
                error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            )
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=one.transactional_id,
                    topic_results=await _results(services, context, one),
                )
                for one in paced(request.transactions)
            ]
        )
    only = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    results = await _results(services, context, only)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


async def _results(
    services: Services, context: RequestContext, asked: AddPartitionsToTxnTransaction
) -> list[AddPartitionsToTxnTopicResult]:
    is_client = context.api_version < _BROKERS_SINCE
    if is_client and not context.may(
        AclOperation.WRITE, ResourceKind.TRANSACTIONAL_ID, asked.transactional_id
    ):
        return _alike(asked, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    permitted = _permitted(context, asked) if is_client else None
    errors: dict[TopicPartition, ErrorCode] = {}
    has_failed = False
    for topic in paced(asked.topics):
        for partition in paced(topic.partitions):
            one = TopicPartition(topic.name, partition)
            errors[one] = error = _problem(services, one, permitted)
            has_failed |= error is not ErrorCode.NONE
    if has_failed:
        for one in paced(list(errors)):
            errors[one] = errors[one] or ErrorCode.OPERATION_NOT_ATTEMPTED
        return _by_topic(errors, table_of(errors))
    producer = Producer(asked.producer_id, asked.producer_epoch)
    coordinator = services.transactions
    if asked.verify_only:
        for one in paced(list(errors)):
            errors[one] = coordinator.verify(asked.transactional_id, producer, one)
        return _by_topic(errors, partition_order(errors))
    answer = coordinator.add_partitions(
        asked.transactional_id,
        producer,
        dict.fromkeys(paced(errors)),
        version=EPOCH_RAISED_SINCE if context.api_version >= _BROKERS_SINCE else 0,
    )
    error = await answer if isinstance(answer, Awaitable) else answer
    return _alike(asked, known_error(error, context.api_version, _FENCED_SINCE))


def _permitted(context: RequestContext, asked: AddPartitionsToTxnTransaction) -> Set[str]:
    """Return the topics that a client may write to; internal topics are never among them."""
    # Each partition counts as a reference to its topic.
    names = (topic.name for topic in asked.topics for _ in paced(topic.partitions))
    named = (name for name in paced(names) if name not in topic_names.INTERNAL)
    return context.permitted(AclOperation.WRITE, ResourceKind.TOPIC, named)


def _alike(
    asked: AddPartitionsToTxnTransaction, error: ErrorCode
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        _result(topic.name, [(partition, error) for partition in paced(topic.partitions)])
        for topic in paced(asked.topics)
    ]


def _problem(services: Services, one: TopicPartition, permitted: Set[str] | None) -> ErrorCode:
    if permitted is not None and one.topic not in permitted:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = services.topics.get(one.topic)
    if topic is None or not 0 <= one.partition < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _by_topic(
    errors: Errors, ordered: Sequence[tuple[str, int]]
) -> list[AddPartitionsToTxnTopicResult]:
    """Return each partition's error, grouped by topic, in the order of Kafka's map.

    Topics without partitions are left out, as in Kafka.
    """
    return [
        _result(name, [(one, errors[TopicPartition(name, one)]) for one in paced(partitions)])
        for name, partitions in paced(grouped_by_name(ordered))
    ]


def _result(name: str, errors: Sequence[tuple[int, ErrorCode]]) -> AddPartitionsToTxnTopicResult:
    return AddPartitionsToTxnTopicResult(
        name=name,
        results_by_partition=[
            AddPartitionsToTxnPartitionResult(
                partition_index=partition, partition_error_code=error
            )
            for partition, error in paced(errors)
        ],
    )
