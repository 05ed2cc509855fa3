"""The records of __transaction_state: the form of transactional ids on disk.

A key or value is an int16 and one of Kafka's messages (protocol/messages/transaction_log):

    key | 0 | TransactionLogKey    value | 0 or 1 | TransactionLogValue    null: expired

As in Kafka 4.3 the version of values follows the cluster's transaction version: 1 from version 1
on. In the state Empty the partitions are null.
"""

from __future__ import annotations

from struct import Struct

from odradek.broker.orders.maps import collected_by_name, partition_order
from odradek.broker.transactions.state import TopicPartition, Transaction, TransactionState
from odradek.dataclass import dataclass
from odradek.protocol.compiler import decode_prefix, encode
from odradek.protocol.errors import ProtocolError
from odradek.protocol.messages.transaction_log import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from odradek.protocol.pacing import unpaced

KeyValue = tuple[bytes, bytes | None]

_KIND = 0
_KEY_VERSION = 0
_INT16 = Struct(">h")
_KEY_HEAD = _INT16.pack(_KIND)
_VALUE_VERSIONS = (0, 1)


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """A transactional id's state; None removes the id."""

    transactional_id: str
    value: Transaction | None


def encode_record(record: TransactionRecord, transaction_version: int) -> KeyValue:
    """Encode a record as a key and a value, in the format of a transaction version.

    Raises ProtocolError when a string is longer than the format can hold.
    """
    key = TransactionLogKey(transactional_id=record.transactional_id)
    key_bytes = _KEY_HEAD + encode(key, _KEY_VERSION)
    if record.value is None:
        return key_bytes, None
    version = 1 if transaction_version >= 1 else 0
    return key_bytes, _INT16.pack(version) + encode(_value(record.value), version)


def decode_record(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """Decode a record; None when it is of a kind that is not kept here.

    Raises ProtocolError for bytes that are no such record.
    """
    if _version(key) != _KIND:
        return None
    # Kafka, too, ignores bytes of a key after the fields that it knows.
    name, _ = decode_prefix(TransactionLogKey, _KEY_VERSION, memoryview(key), _INT16.size)
    transactional_id = name.transactional_id
    if value is None:
        return TransactionRecord(transactional_id, None)
    version = _version(value)
    if version not in _VALUE_VERSIONS:
        return None
    # Bytes after the fields are ignored: a newer Kafka may have added fields at the end.
    stored, _ = decode_prefix(TransactionLogValue, version, memoryview(value), _INT16.size)
    return TransactionRecord(transactional_id, _transaction(stored))


def _value(transaction: Transaction) -> TransactionLogValue:
    # In Kafka's order (TransactionLog.valueToBytes), on which the order after a restart depends.
    in_order = partition_order(transaction.partitions, unpaced)
    schemas = [
        PartitionsSchema(topic=topic, partition_ids=partitions)
        for topic, partitions in collected_by_name(in_order)
    ]
    return TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None if transaction.state is TransactionState.EMPTY else schemas,
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
        client_transaction_version=transaction.client_version,
    )


def _transaction(stored: TransactionLogValue) -> Transaction:
    try:
        state = TransactionState(stored.transaction_status)  # type: ignore[call-arg]
    except ValueError as error:
        raise ProtocolError(f"there is no state {stored.transaction_status}") from error
    schemas = stored.transaction_partitions
    if state is TransactionState.EMPTY:
        schemas = []  # Kafka ignores them, too.
    if schemas is None:
        raise ProtocolError(f"there are no partitions in the state {state.word}")
    return Transaction(
        producer_id=stored.producer_id,
        timeout_ms=stored.transaction_timeout_ms,
        updated_ms=stored.transaction_last_update_timestamp_ms,
        previous_producer_id=stored.previous_producer_id,
        next_producer_id=stored.next_producer_id,
        epoch=stored.producer_epoch,
        state=state,
        partitions=dict.fromkeys(
            TopicPartition(one.topic, partition)
            for one in schemas
            for partition in one.partition_ids
        ),
        started_ms=stored.transaction_start_timestamp_ms,
        client_version=stored.client_transaction_version,
    )


def _version(data: bytes) -> int:
    if len(data) < _INT16.size:
        raise ProtocolError(f"a record of {len(data)} bytes has no version")
    version: int = _INT16.unpack_from(data)[0]
    return version
