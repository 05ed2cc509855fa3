"""Control records: the records that brokers themselves write between those of producers.

A control batch (see protocol/batches.py) holds one record, whose key gives its type. The ones in
a topic's log end a transaction:

    key     version i16 = 0 | type i16: 0 abort, 1 commit
    value   version i16 = 0 | coordinatorEpoch i32

Later versions may append fields, which are ignored. The other types belong to KRaft's metadata
log, which a Kafka data directory may have. Source: Kafka's ControlRecordType and
EndTransactionMarker; KIP-98.
"""

from __future__ import annotations

import struct

from odradek.dataclass import dataclass
from odradek.protocol.batches import Record, encode_batch
from odradek.protocol.codes import OpenCode
from odradek.protocol.errors import ProtocolError

_KEY = struct.Struct(">hh")
_END_TXN_VALUE = struct.Struct(">hi")
_VERSION = 0


class ControlType(OpenCode):
    """The type of a control record. Readers ignore records of unknown types."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class InvalidControlRecord(ProtocolError):
    """A control record without the key or the value that its type requires."""


@dataclass(frozen=True, slots=True)
class ControlRecord:
    """A control record: its type and, for a transaction marker, the coordinator's epoch."""

    type: ControlType
    coordinator_epoch: int | None


def encode_end_txn_marker(
    *,
    commit: bool,
    timestamp: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    base_offset: int = 0,
    leader_epoch: int = 0,
) -> bytes:
    """Encode the control batch that commits or aborts a producer's transaction.

    `timestamp` is in ms (Kafka's MemoryRecords.withEndTransactionMarker).
    """
    marker = Record(
        base_offset,
        timestamp,
        _KEY.pack(_VERSION, ControlType.COMMIT if commit else ControlType.ABORT),
        _END_TXN_VALUE.pack(_VERSION, coordinator_epoch),
    )
    return encode_batch(
        [marker],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
        leader_epoch=leader_epoch,
    )


def decode_control(record: Record) -> ControlRecord:
    """Decode a record of a control batch; raises InvalidControlRecord when it is too short."""
    key = record.key or b""
    if len(key) < _KEY.size:
        raise InvalidControlRecord(f"a control record with a key of {len(key)} bytes")
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidControlRecord(f"version {version} of a control record")
    kind = ControlType(number)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return ControlRecord(kind, None)
    value = record.value or b""
    if len(value) < _END_TXN_VALUE.size:
        raise InvalidControlRecord(f"a transaction marker with a value of {len(value)} bytes")
    version, coordinator_epoch = _END_TXN_VALUE.unpack_from(value)
    if version < 0:
        raise InvalidControlRecord(f"version {version} of a transaction marker")
    return ControlRecord(kind, coordinator_epoch)
