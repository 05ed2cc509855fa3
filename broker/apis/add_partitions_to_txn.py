"""AddPartitionsToTxn (24): make partitions part of transactions, or look whether they are.

Up to version 3 it is a client's request about its own transaction, from 4 on a broker's about any
number. All partitions of a transaction are added, or none: when one is not to be had, the others
have not been attempted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence, Set

from broker import topic_names
from broker.apis.end_txn import told
from broker.authorized_operations import Operation
from broker.context import RequestContext
from broker.coordination.effects import Producer
from broker.coordination.java_orders import grouped_by_name, partition_order
from broker.coordination.scala_orders import table_of
from broker.security.authorization import ResourceKind
from broker.transactions.state import EPOCH_RAISED_SINCE, TopicPartition
from protocol.errors import ErrorCode
from protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from protocol.pacing import paced

# Clients of this version and later know PRODUCER_FENCED.
_FENCED_SINCE = 2
_BROKERS_SINCE = 4

Errors = Mapping[TopicPartition, ErrorCode]


async def handle(
    context: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """Add partitions to each transaction."""
    if context.api_version >= _BROKERS_SINCE:
        if not context.may_to_cluster(Operation.CLUSTER_ACTION):
            return AddPartitionsToTxnResponse(
                error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            )
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=one.transactional_id,
                    topic_results=await _results(context, one),
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
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=await _results(context, only))


async def _results(
    context: RequestContext, asked: AddPartitionsToTxnTransaction
) -> list[AddPartitionsToTxnTopicResult]:
    partitions = [
        TopicPartition(topic.name, partition)
        for topic in paced(asked.topics)
        for partition in paced(topic.partitions)
    ]
    is_client = context.api_version < _BROKERS_SINCE
    if is_client and not context.may(
        Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, asked.transactional_id
    ):
        return _alike(asked, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    names = {one.topic for one in partitions}
    if is_client:
        # Not even an administrator adds internal ones, as in Kafka.
        clients = [one.topic for one in partitions if one.topic not in topic_names.INTERNAL]
        names = set(context.permitted(Operation.WRITE, ResourceKind.TOPIC, clients))
    unknown = {
        one: error
        for one in paced(partitions)
        if (error := _problem(context, one, names)) is not ErrorCode.NONE
    }
    if unknown:
        errors = {one: unknown.get(one, ErrorCode.OPERATION_NOT_ATTEMPTED) for one in partitions}
        return _told_apart(errors, table_of(errors))
    producer = Producer(asked.producer_id, asked.producer_epoch)
    coordinator = context.broker.transactions
    if asked.verify_only:
        verified = {
            one: coordinator.verify(asked.transactional_id, producer, one)
            for one in paced(partitions)
        }
        return _told_apart(verified, partition_order(verified))
    added = coordinator.add_partitions(
        asked.transactional_id,
        producer,
        dict.fromkeys(partitions),
        version=EPOCH_RAISED_SINCE if context.api_version >= _BROKERS_SINCE else 0,
    )
    error = await added if isinstance(added, Awaitable) else added
    return _alike(asked, told(error, context.api_version, _FENCED_SINCE))


def _alike(
    asked: AddPartitionsToTxnTransaction, error: ErrorCode
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        _result(topic.name, [(partition, error) for partition in topic.partitions])
        for topic in paced(asked.topics)
    ]


def _problem(context: RequestContext, one: TopicPartition, permitted: Set[str]) -> ErrorCode:
    if one.topic not in permitted:
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    topic = context.broker.topics.get(one.topic)
    if topic is None or not 0 <= one.partition < len(topic.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _told_apart(
    errors: Errors, ordered: Sequence[tuple[str, int]]
) -> list[AddPartitionsToTxnTopicResult]:
    """Tell each partition's error, in the order of Kafka's map of them, by topic.

    Topics without partitions are left out, as in Kafka.
    """
    return [
        _result(name, [(one, errors[TopicPartition(name, one)]) for one in partitions])
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
