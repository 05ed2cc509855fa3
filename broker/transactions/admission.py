"""Admits batches of a transaction to a partition, once the partition is part of the transaction.

Only the first batch of a transaction in a partition is checked; later ones find the transaction
open in the log. Up to version 11 of Produce the partition must have been added before (KIP-890's
first part). From 12 on the batch itself adds the partition, and waits until the log of
transactions has it.

The error codes depend on the version of the request. Kafka's source: ReplicaManager and
AddPartitionsToTxnManager.
"""

from __future__ import annotations

from collections.abc import Awaitable, Set
from typing import Protocol

from odradek.broker.clock import Clock
from odradek.broker.context import RequestContext
from odradek.broker.coordination.effects import Producer
from odradek.broker.errors import code_of, message_of
from odradek.broker.topics import names as topic_names
from odradek.broker.topics.partitions import OfflinePartition
from odradek.broker.topics.registry import Topics
from odradek.broker.topics.topic import Topic
from odradek.broker.transactions.coordinator import TransactionCoordinator
from odradek.broker.transactions.state import EPOCH_RAISED_SINCE, TopicPartition
from odradek.config.broker import BrokerConfig
from odradek.protocol.batches import (
    BASE_SEQUENCE,
    HEADER,
    HEADER_SIZE,
    LENGTH,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_BYTE,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL_BIT,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.produce import ProduceRequest, TopicProduceData
from odradek.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from odradek.storage.files import Buffer
from odradek.storage.log import Log
from odradek.storage.validation import CheckedBatch

# The versions of Produce from which on requests name topics by id, batches add their partitions to
# the transaction, and clients know TRANSACTION_ABORTABLE.
TOPIC_IDS_SINCE = 13
_ADDS_SINCE = 12
_ABORTABLE_SINCE = 11

# The versions of TxnOffsetCommit from which on it adds the partition, and clients know
# TRANSACTION_ABORTABLE.
_OFFSETS_ADD_SINCE = 5
_OFFSETS_ABORTABLE_SINCE = 4

_LOW_ATTRIBUTES = 22  # offset of the low byte of a batch's attributes

# Errors after which a retry helps; producers know them only as NOT_ENOUGH_REPLICAS.
_UNVERIFIED = frozenset(
    (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)

class AdmissionServices(Protocol):
    """The parts of a broker that the admission of batches to a transaction takes."""

    clock: Clock
    topics: Topics
    transactions: TransactionCoordinator

    @property
    def config(self) -> BrokerConfig:
        """The settings in force."""


Refused = dict[tuple[str, int], tuple[ErrorCode, str | None]]
"""Errors of partitions that must not be appended to, by topic and index."""

First = dict[TopicPartition, None]


def is_transactional(records: Buffer | None) -> bool:
    """Return whether bytes are a batch that claims to be part of a transaction."""
    if records is None or len(records) < HEADER_SIZE:
        return False
    if not records[_LOW_ATTRIBUTES] & TRANSACTIONAL_BIT:
        return False
    header = HEADER.unpack_from(records)
    size_bytes: int = header[LENGTH] + LOG_OVERHEAD
    return header[MAGIC_BYTE] == MAGIC and HEADER_SIZE <= size_bytes <= len(records)


def find_topic(
    services: AdmissionServices, context: RequestContext, data: TopicProduceData
) -> Topic | None:
    """Return the topic that a request writes to, None when it does not exist."""
    if context.api_version >= TOPIC_IDS_SINCE:
        return services.topics.by_id(data.topic_id)
    return services.topics.get(data.name)


def admit(
    services: AdmissionServices,
    context: RequestContext,
    request: ProduceRequest,
    transactional_id: str,
    denied: Set[str],
) -> Refused | Awaitable[Refused]:
    """Return the partitions that must not be appended to, of a request with transactional batches.

    Partitions of topics denied to the client do not become part of the transaction.
    """
    producers: set[Producer] = set()
    refused: Refused = {}
    first: First = {}
    adds = context.api_version >= _ADDS_SINCE
    for data in request.topic_data:
        topic = find_topic(services, context, data)
        for partition in data.partition_data:
            if topic is None or not 0 <= partition.index < len(topic.partitions):
                continue
            if topic.name in denied:
                continue
            records = partition.records
            if records is None or not is_transactional(records):
                continue
            header = HEADER.unpack_from(records)
            producer = Producer(header[PRODUCER_ID], header[PRODUCER_EPOCH])
            producers.add(producer)
            where = TopicPartition(topic.name, partition.index)
            problem = _look(services, topic, where, producer, header[BASE_SEQUENCE], first, adds)
            if problem is not None:
                refused[where] = problem
    if len(producers) > 1:
        return _all(services, context, request, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if not first:
        return refused
    (producer,) = producers
    if adds:
        return _add(services, context, transactional_id, producer, first, refused)
    if services.config.transaction_partition_verification_enable:
        refused |= _verify(services, context, transactional_id, producer, first)
    return refused


def _look(
    services: AdmissionServices,
    topic: Topic,
    where: TopicPartition,
    producer: Producer,
    sequence: int,
    first: First,
    adds: bool,
) -> tuple[ErrorCode, str | None] | None:
    """Note a partition without batches of the transaction; return the error that forbids any."""
    log = topic.partitions[where.partition]
    if isinstance(log, OfflinePartition):
        return code_of(log.cause), message_of(log.cause)
    known = log.producers.get(producer.producer_id)
    if known is not None and producer.epoch < known.epoch:
        return ErrorCode.INVALID_PRODUCER_EPOCH, None
    if log.producers.has_open(producer.producer_id, producer.epoch):
        return None
    if adds or services.config.transaction_partition_verification_enable:
        now_ms = services.clock.now_ms()
        log.producers.first_batches.expect(*producer, sequence, from_0=adds, now_ms=now_ms)
    first[where] = None
    return None


def _verify(
    services: AdmissionServices,
    context: RequestContext,
    transactional_id: str,
    producer: Producer,
    first: First,
) -> Refused:
    coordinator = services.transactions
    errors = {one: coordinator.verify(transactional_id, producer, one) for one in first}
    version = context.api_version
    return {one: _produce_error(code, version) for one, code in errors.items() if code}


def admit_offsets(
    services: AdmissionServices, partition: int, request: TxnOffsetCommitRequest, api_version: int
) -> ErrorCode | Awaitable[ErrorCode]:
    """Return NONE when offsets may be committed to a partition in a producer's transaction.

    A caller that has awaited the answer must ask again: the transaction may have ended since.
    """
    producer = Producer(request.producer_id, request.producer_epoch)
    where = TopicPartition(topic_names.CONSUMER_OFFSETS, partition)
    topic = services.topics.get(where.topic)
    found = topic.partitions[partition] if topic is not None else None
    if isinstance(found, OfflinePartition):
        return ErrorCode.NOT_COORDINATOR
    if found is not None:
        known = found.producers.get(producer.producer_id)
        if known is not None and producer.epoch < known.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if found.producers.has_open(producer.producer_id, producer.epoch):
            return ErrorCode.NONE
    coordinator = services.transactions
    if api_version >= _OFFSETS_ADD_SINCE:
        added = coordinator.add_partitions(
            request.transactional_id, producer, {where: None}, version=EPOCH_RAISED_SINCE
        )
        if isinstance(added, Awaitable):
            return _await_offsets_error(added, api_version)
        return _offsets_error(added, api_version)
    if not services.config.transaction_partition_verification_enable:
        return ErrorCode.NONE
    error = coordinator.verify(request.transactional_id, producer, where)
    return _offsets_error(error, api_version)


async def _await_offsets_error(added: Awaitable[ErrorCode], api_version: int) -> ErrorCode:
    return _offsets_error(await added, api_version)


def _offsets_error(error: ErrorCode, api_version: int) -> ErrorCode:
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and api_version < _OFFSETS_ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    return error


async def _join(
    services: AdmissionServices,
    context: RequestContext,
    transactional_id: str,
    producer: Producer,
    first: First,
    refused: Refused,
    added: Awaitable[ErrorCode],
) -> Refused:
    error = await added
    if error is not ErrorCode.NONE:
        return refused | dict.fromkeys(first, _produce_error(error, context.api_version))
    for one in first:
        problem = _verify_again(services, transactional_id, producer, one)
        if problem is not None:
            refused[one] = problem
    return refused


def forbid_ended(
    services: AdmissionServices,
    context: RequestContext,
    transactional_id: str | None,
    log: Log,
    checked: CheckedBatch,
) -> tuple[ErrorCode, str | None] | None:
    """Return the error of an admitted batch whose transaction has ended since, else None."""
    header = checked.header
    if not header.is_transactional or transactional_id is None:
        return None
    producer = Producer(header.producer_id, header.producer_epoch)
    if log.producers.has_open(*producer):
        return None
    adds = context.api_version >= _ADDS_SINCE
    if not adds and not services.config.transaction_partition_verification_enable:
        return None
    where = TopicPartition(log.topic, log.partition)
    return _verify_again(services, transactional_id, producer, where)


def _verify_again(
    services: AdmissionServices, transactional_id: str, producer: Producer, where: TopicPartition
) -> tuple[ErrorCode, str | None] | None:
    """Return the error that forbids an append: a transaction's markers are written only once."""
    error = services.transactions.verify(transactional_id, producer, where)
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH, None
    if error is not ErrorCode.NONE:
        return ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction"
    return None


def _add(
    services: AdmissionServices,
    context: RequestContext,
    transactional_id: str,
    producer: Producer,
    first: First,
    refused: Refused,
) -> Refused | Awaitable[Refused]:
    added = services.transactions.add_partitions(
        transactional_id, producer, first, version=EPOCH_RAISED_SINCE
    )
    if isinstance(added, Awaitable):
        return _join(services, context, transactional_id, producer, first, refused, added)
    if added is not ErrorCode.NONE:
        refused |= dict.fromkeys(first, _produce_error(added, context.api_version))
    return refused


def _produce_error(error: ErrorCode, api_version: int) -> tuple[ErrorCode, str | None]:
    """Return the producer's error code and message for a coordinator's error."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH, None
    if error is ErrorCode.TRANSACTION_ABORTABLE and api_version < _ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE, "Partition was not added to the transaction"
    is_concurrent = error is ErrorCode.CONCURRENT_TRANSACTIONS and api_version < _ADDS_SINCE
    if error in _UNVERIFIED or is_concurrent:
        head = "Unable to verify the partition has been added to the transaction."
        return ErrorCode.NOT_ENOUGH_REPLICAS, f"{head} Underlying error: {error.name}"
    return error, None


def _all(
    services: AdmissionServices, context: RequestContext, request: ProduceRequest, error: ErrorCode
) -> Refused:
    refused: Refused = {}
    for data in request.topic_data:
        topic = find_topic(services, context, data)
        if topic is not None:
            for partition in data.partition_data:
                refused[topic.name, partition.index] = error, None
    return refused
