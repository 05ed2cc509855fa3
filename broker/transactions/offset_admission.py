"""Admits offsets that are committed in a transaction, once the group's partition is part of it.

As for batches (admission.py), a newer version of the request adds the partition itself (KIP-890).
"""

from __future__ import annotations

from collections.abc import Awaitable

from odradek.broker.coordination.effects import Producer
from odradek.broker.topics import names as topic_names
from odradek.broker.transactions.admission import AdmissionServices, log_of, note_agreement
from odradek.broker.transactions.state import EPOCH_RAISED_SINCE, TopicPartition
from odradek.protocol.batches import NO_SEQUENCE
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from odradek.storage.log import Log

# The versions of TxnOffsetCommit from which on it adds the partition, and clients know
# TRANSACTION_ABORTABLE.
_ADD_SINCE = 5
_ABORTABLE_SINCE = 4


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
    if found is not None:
        if not isinstance(found, Log):
            return ErrorCode.NOT_COORDINATOR
        known = found.producers.get(producer.producer_id)
        if known is not None and producer.epoch < known.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if found.producers.has_open(producer.producer_id, producer.epoch):
            return ErrorCode.NONE
    coordinator = services.transactions
    adds = api_version >= _ADD_SINCE
    if not coordinator.coordinates(request.transactional_id):
        return _admit_elsewhere(services, where, request, producer, api_version)
    if adds:
        added = coordinator.add_partitions(
            request.transactional_id, producer, {where: None}, version=EPOCH_RAISED_SINCE
        )
        if isinstance(added, Awaitable):
            return _await_error(added, api_version)
        return _error(added, api_version)
    if not services.config.transaction_partition_verification_enable:
        return ErrorCode.NONE
    error = coordinator.verify(request.transactional_id, producer, where)
    return _error(error, api_version)


def _admit_elsewhere(
    services: AdmissionServices,
    where: TopicPartition,
    request: TxnOffsetCommitRequest,
    producer: Producer,
    api_version: int,
) -> ErrorCode | Awaitable[ErrorCode]:
    """Do the same where another broker is the coordinator; it has to agree once."""
    log, remote = log_of(services, where), services.remote_transactions
    assert remote is not None, "a broker that is alone coordinates"
    adds = api_version >= _ADD_SINCE
    if log is None:
        return ErrorCode.NOT_COORDINATOR
    if not adds and not services.config.transaction_partition_verification_enable:
        return ErrorCode.NONE
    if log.producers.first_batches.is_verified(*producer):
        return ErrorCode.NONE
    log.producers.first_batches.expect(
        *producer, NO_SEQUENCE, from_0=adds, now_ms=services.clock.now_ms()
    )

    async def ask() -> ErrorCode:
        errors = await remote.add(
            request.transactional_id, producer, [where], verify_only=not adds
        )
        error = errors.get(where, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if not error:
            note_agreement(services, producer, where)
        return _error(error, api_version)

    return ask()


async def _await_error(added: Awaitable[ErrorCode], api_version: int) -> ErrorCode:
    return _error(await added, api_version)


def _error(error: ErrorCode, api_version: int) -> ErrorCode:
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and api_version < _ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    return error
