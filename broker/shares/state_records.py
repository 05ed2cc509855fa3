"""The records of __share_group_state: snapshots of share-partitions, and updates of them.

A key or value is an int16 and one of Kafka's messages (protocol/messages/share_group_state):

    snapshot   key | 0 | ShareSnapshotKey |   value | 0 | ShareSnapshotValue |   null: deleted
    update     key | 1 | ShareUpdateKey   |   value | 0 | ShareUpdateValue   |
"""

from __future__ import annotations

from struct import Struct

from odradek.broker.shares.batches import StateBatch, flaw_of
from odradek.broker.shares.key import SharePartitionKey
from odradek.dataclass import dataclass
from odradek.protocol.compiler import decode_prefix, encode
from odradek.protocol.errors import ProtocolError
from odradek.protocol.messages import share_group_state as stored
from odradek.protocol.messages.share_group_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
)

_INT16 = Struct(">h")
_SNAPSHOT_KIND, _UPDATE_KIND = 0, 1
_VALUE_VERSION = 0

KeyValue = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class ShareState:
    """The state of a share-partition. A start of -1 is left to the first fetch."""

    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    batches: tuple[StateBatch, ...] = ()
    create_timestamp_ms: int = 0
    write_timestamp_ms: int = 0


@dataclass(frozen=True, slots=True)
class ShareSnapshot:
    """The whole state of a share-partition; None deletes it."""

    key: SharePartitionKey
    state: ShareState | None


@dataclass(frozen=True, slots=True)
class ShareUpdate:
    """A change since the snapshot; a start of -1 means that the start is unchanged."""

    key: SharePartitionKey
    change: ShareState


Record = ShareSnapshot | ShareUpdate


def encode_record(record: Record) -> KeyValue:
    """Encode a record as the key and value to append.

    Raises ProtocolError when a group's id is longer than the format can hold.
    """
    if isinstance(record, ShareUpdate):
        key = _encode_key(_UPDATE_KIND, ShareUpdateKey(**record.key._asdict()))
        change = record.change
        return key, _encode_value(
            ShareUpdateValue(
                snapshot_epoch=change.snapshot_epoch,
                leader_epoch=change.leader_epoch,
                start_offset=change.start_offset,
                delivery_complete_count=change.delivery_complete_count,
                state_batches=_as_stored(change.batches),
            )
        )
    key = _encode_key(_SNAPSHOT_KIND, ShareSnapshotKey(**record.key._asdict()))
    state = record.state
    if state is None:
        return key, None
    return key, _encode_value(
        ShareSnapshotValue(
            snapshot_epoch=state.snapshot_epoch,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
            create_timestamp=state.create_timestamp_ms,
            write_timestamp=state.write_timestamp_ms,
            state_batches=_as_stored(state.batches),
        )
    )


def decode_record(key: bytes, value: bytes | None) -> Record | None:
    """Decode a record; None when it is of a kind that is not kept here.

    Raises ProtocolError for bytes that are no such record.
    """
    kind = _version(key)
    if kind == _SNAPSHOT_KIND:
        whose = _decode_key(ShareSnapshotKey, key)
        return ShareSnapshot(whose, None if value is None else _decode_snapshot(value))
    if kind == _UPDATE_KIND and value is not None:
        return ShareUpdate(_decode_key(ShareUpdateKey, key), _decode_update(value))
    return None


def _decode_key(cls: type[ShareSnapshotKey | ShareUpdateKey], key: bytes) -> SharePartitionKey:
    # Kafka, too, ignores bytes of a key after the fields that it knows.
    name, _ = decode_prefix(cls, _version(key), memoryview(key), _INT16.size)
    return SharePartitionKey(name.group_id, name.topic_id, name.partition)


def _encode_key(kind: int, key: ShareSnapshotKey | ShareUpdateKey) -> bytes:
    return _INT16.pack(kind) + encode(key, kind)


def _encode_value(value: ShareSnapshotValue | ShareUpdateValue) -> bytes:
    return _INT16.pack(_VALUE_VERSION) + encode(value, _VALUE_VERSION)


def _decode_snapshot(data: bytes) -> ShareState:
    value, _ = decode_prefix(ShareSnapshotValue, _version(data), memoryview(data), _INT16.size)
    return ShareState(
        value.snapshot_epoch,
        value.state_epoch,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        _read(value.state_batches),
        value.create_timestamp,
        value.write_timestamp,
    )


def _decode_update(data: bytes) -> ShareState:
    value, _ = decode_prefix(ShareUpdateValue, _version(data), memoryview(data), _INT16.size)
    return ShareState(
        value.snapshot_epoch,
        0,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        _read(value.state_batches),
    )


def _as_stored(batches: tuple[StateBatch, ...]) -> list[stored.StateBatch]:
    return [
        stored.StateBatch(
            first_offset=batch.first_offset,
            last_offset=batch.last_offset,
            delivery_state=batch.state,
            delivery_count=batch.delivery_count,
        )
        for batch in batches
    ]


def _read(batches: list[stored.StateBatch]) -> tuple[StateBatch, ...]:
    read = tuple(
        StateBatch(one.first_offset, one.last_offset, one.delivery_count, one.delivery_state)
        for one in batches
    )
    flaw = flaw_of(read)
    if flaw is not None:
        raise ProtocolError(flaw)
    return read


def _version(data: bytes) -> int:
    if len(data) < _INT16.size:
        raise ProtocolError(f"a record of {len(data)} bytes has no version")
    version: int = _INT16.unpack_from(data)[0]
    return version
