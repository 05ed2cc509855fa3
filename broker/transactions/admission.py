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
from typing import TYPE_CHECKING, Protocol

from odradek.broker.clock import Clock
from odradek.broker.context import RequestContext
from odradek.broker.coordination.effects import Producer
from odradek.broker.errors import code_of, message_of
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
    LOW_ATTRIBUTES_POSITION,
    MAGIC,
    MAGIC_BYTE,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL_BIT,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.produce import ProduceRequest, TopicProduceData
from odradek.storage.files import Buffer
from odradek.storage.log import Log
from odradek.storage.validation import CheckedBatch

if TYPE_CHECKING:
    from odradek.broker.transactions.remote import RemoteTransactions

# The versions of Produce from which on requests name topics by id, batches add their partitions to
# the transaction, and clients know TRANSACTION_ABORTABLE.
TOPIC_IDS_SINCE = 13
_ADDS_SINCE = 12
_ABORTABLE_SINCE = 11


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
    # None where the broker is alone: it coordinates all transactions.
    remote_transactions: RemoteTransactions | None

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
    if not records[LOW_ATTRIBUTES_POSITION] & TRANSACTIONAL_BIT:
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
        if not services.transactions.coordinates(transactional_id):
            return _agree(services, context, transactional_id, producer, first, refused)
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
    if not isinstance(log, Log):
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


async def _agree(
    services: AdmissionServices,
    context: RequestContext,
    transactional_id: str,
    producer: Producer,
    first: First,
    refused: Refused,
) -> Refused:
    """Ask the coordinator, which another broker is, and note that it agrees."""
    adds = context.api_version >= _ADDS_SINCE
    assert services.remote_transactions is not None, "a broker that is alone coordinates"
    errors = await services.remote_transactions.add(
        transactional_id, producer, first, verify_only=not adds
    )
    for one in first:
        error = errors.get(one, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if error:
            refused[one] = _produce_error(error, context.api_version)
        else:
            note_agreement(services, producer, one)
    return refused


def note_agreement(
    services: AdmissionServices, producer: Producer, where: TopicPartition
) -> None:
    """Note that another broker, the coordinator, agrees to a producer's first batch."""
    log = log_of(services, where)
    if log is not None:
        log.producers.first_batches.verify(*producer)


def log_of(services: AdmissionServices, where: TopicPartition) -> Log | None:
    """Return the log of a partition, None when this broker does not lead it."""
    topic = services.topics.get(where.topic)
    found = topic.partitions[where.partition] if topic is not None else None
    return found if isinstance(found, Log) else None


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
    if not services.transactions.coordinates(transactional_id):
        log = log_of(services, where)
        if log is not None and log.producers.first_batches.is_verified(*producer):
            return None
        return ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction"
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
    if not services.transactions.coordinates(transactional_id):
        return _agree(services, context, transactional_id, producer, first, refused)
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
