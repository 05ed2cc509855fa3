"""The records of __consumer_offsets: the form of groups and their offsets on disk.

A key or value is an int16 and one of Kafka's messages (protocol/messages/group_metadata):

    offset   key | 1 | OffsetCommitKey  |    value | 4 | OffsetCommitValue  |   null: removed
    group    key | 2 | GroupMetadataKey |    value | 3 | GroupMetadataValue |   null: removed

    consumer groups (KIP-848): broker/groups/consumer/records.py
    streams groups (KIP-1071): broker/groups/streams/records.py

The versions are those that Kafka 4.3 writes (GroupCoordinatorRecordHelpers): an offset whose
commit named a retention time is written as version 1, the only one with an expiry. Older versions
are read; Kafka before 0.9 wrote offsets with keys of kind 0.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple, TypeVar

from odradek.broker.groups.consumer import records as consumer_records
from odradek.broker.groups.consumer.records import ConsumerRecord
from odradek.broker.groups.share import records as share_records
from odradek.broker.groups.share.records import ShareRecord
from odradek.broker.groups.streams import records as streams_records
from odradek.broker.groups.streams.records import StreamsRecord
from odradek.dataclass import dataclass
from odradek.protocol.compiler import decode, decode_prefix, encode
from odradek.protocol.errors import ProtocolError
from odradek.protocol.messages.group_metadata import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from odradek.protocol.wire import ZERO_UUID

T = TypeVar("T")

_OFFSET_KINDS = (0, 1)
_OFFSET_KIND = 1
_GROUP_KIND = 2
_OFFSET_VALUE_VERSION = 4
_EXPIRING_OFFSET_VALUE_VERSION = 1
_GROUP_VALUE_VERSION = 3

_INT16 = Struct(">h")
_INT64 = Struct(">q")
_COMMITTED_HEAD = Struct(">hqiB")
_COMMITTED_MIN = _COMMITTED_HEAD.size + 9
_MORE = 0x80  # another byte of the metadata's size follows
# A whole value with a topic's id and without metadata, like nearly all values.
_COMMITTED = Struct(">hqiBq3s16s")
_SIZE_OF_NOTHING = 1
# The end of an offset's key.
PARTITION = Struct(">i")
_NO_TAGS = b"\0"
_ID_TAG = b"\1\0\x10"
_TOPIC_ID_TAG_SIZE = len(_ID_TAG) + 16
_OFFSET_KEY_HEAD = _INT16.pack(_OFFSET_KIND)
_GROUP_KEY_HEAD = _INT16.pack(_GROUP_KIND)

KeyValue = tuple[bytes, bytes | None]


class CommittedOffset(NamedTuple):
    """The position of a group in a partition: the next offset that it will read.

    A leader epoch or expiry of -1 and a topic id of zeros mean "unknown". It is a tuple, because
    replays create millions.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    topic_id: bytes = ZERO_UUID


@dataclass(frozen=True, slots=True)
class OffsetRecord:
    """A group's offset in a partition; None removes it."""

    group_id: str
    topic: str
    partition: int
    committed: CommittedOffset | None


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """A generation of a group; None removes the group."""

    group_id: str
    value: GroupMetadataValue | None


Record = OffsetRecord | GroupRecord | ConsumerRecord | ShareRecord | StreamsRecord


def encode_record(record: Record) -> KeyValue:
    """Encode a record as the key and value to append.

    Raises ProtocolError when a string is longer than the format can hold.
    """
    if isinstance(record, OffsetRecord):
        return _encode_offset(record)
    if isinstance(record, ConsumerRecord):
        return consumer_records.encode_record(record)
    if isinstance(record, ShareRecord):
        return share_records.encode_record(record)
    if isinstance(record, StreamsRecord):
        return streams_records.encode_record(record)
    key = _GROUP_KEY_HEAD + encode(GroupMetadataKey(group=record.group_id), _GROUP_KIND)
    if record.value is None:
        return key, None
    return key, _INT16.pack(_GROUP_VALUE_VERSION) + encode(record.value, _GROUP_VALUE_VERSION)


def decode_record(key: bytes, value: bytes | None) -> Record | None:
    """Decode a record; None when it is of a kind that is not kept here.

    Raises ProtocolError for bytes that are no such record.
    """
    kind = _version(key)
    if kind in _OFFSET_KINDS:
        name = _decode_key(OffsetCommitKey, kind, key)
        return OffsetRecord(name.group, name.topic, name.partition, _decode_offset(value))
    if kind == _GROUP_KIND:
        group = _decode_key(GroupMetadataKey, kind, key).group
        return GroupRecord(group, _decode_value(GroupMetadataValue, value))
    if consumer_records.is_kind(kind):
        return consumer_records.decode_record(kind, key, value)
    if share_records.is_kind(kind):
        return share_records.decode_record(kind, key, value)
    if streams_records.is_kind(kind):
        return streams_records.decode_record(kind, key, value)
    return None


def read_offset_key(key: bytes) -> OffsetCommitKey | None:
    """Decode the key of an offset; return None for any other key."""
    try:
        is_offset = key.startswith(_OFFSET_KEY_HEAD)
        return decode(OffsetCommitKey, _OFFSET_KIND, key, _INT16.size) if is_offset else None
    except ProtocolError:
        return None


def read_committed(value: bytes) -> CommittedOffset | None:
    """Decode an offset's value as Kafka 4.1 and later write it; return None for any other.

    This is the layout, where the size of short metadata takes one byte:

        | version 4 i16 | offset i64 | leader epoch i32 | size + 1 | metadata | timestamp i64
        | tag count: 0, or 1 | tag 0 | size 16 | topic id |
    """
    size_bytes = len(value)
    if size_bytes == _COMMITTED.size:
        version, offset, epoch, size, timestamp_ms, tag, topic_id = _COMMITTED.unpack(value)
        if version == _OFFSET_VALUE_VERSION and size == _SIZE_OF_NOTHING and tag == _ID_TAG:
            return CommittedOffset(offset, epoch, "", timestamp_ms, -1, topic_id)
    elif size_bytes < _COMMITTED_MIN:
        return None
    version, offset, leader_epoch, size = _COMMITTED_HEAD.unpack_from(value)
    end = _COMMITTED_HEAD.size + size - 1
    if version != _OFFSET_VALUE_VERSION or not 0 < size < _MORE or len(value) < end + 9:
        return None
    tags = value[end + 8 :]
    if tags != _NO_TAGS and (len(tags) != _TOPIC_ID_TAG_SIZE or not tags.startswith(_ID_TAG)):
        return None
    try:
        metadata = value[_COMMITTED_HEAD.size : end].decode() if size > 1 else ""
    except UnicodeDecodeError:
        return None
    (timestamp_ms,) = _INT64.unpack_from(value, end)
    return CommittedOffset(
        offset,
        leader_epoch,
        metadata,
        timestamp_ms,
        -1,
        tags[len(_ID_TAG) :] if len(tags) > 1 else ZERO_UUID,
    )


def _encode_offset(record: OffsetRecord) -> KeyValue:
    name = OffsetCommitKey(group=record.group_id, topic=record.topic, partition=record.partition)
    key = _OFFSET_KEY_HEAD + encode(name, _OFFSET_KIND)
    committed = record.committed
    if committed is None:
        return key, None
    version = (
        _OFFSET_VALUE_VERSION
        if committed.expire_timestamp_ms == -1
        else _EXPIRING_OFFSET_VALUE_VERSION
    )
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
        topic_id=committed.topic_id,
    )
    return key, _INT16.pack(version) + encode(value, version)


def _decode_offset(value: bytes | None) -> CommittedOffset | None:
    stored = _decode_value(OffsetCommitValue, value)
    if stored is None:
        return None
    return CommittedOffset(
        offset=stored.offset,
        leader_epoch=stored.leader_epoch,
        metadata=stored.metadata,
        commit_timestamp_ms=stored.commit_timestamp,
        expire_timestamp_ms=stored.expire_timestamp,
        topic_id=stored.topic_id,
    )


def _decode_key(cls: type[T], kind: int, key: bytes) -> T:
    # Kafka, too, ignores bytes of a key after the fields that it knows.
    return decode_prefix(cls, kind, memoryview(key), _INT16.size)[0]


def _decode_value(cls: type[T], value: bytes | None) -> T | None:
    if value is None:
        return None
    # Bytes after the fields are ignored: a newer Kafka may have added fields at the end.
    return decode_prefix(cls, _version(value), memoryview(value), _INT16.size)[0]


def _version(data: bytes) -> int:
    if len(data) < _INT16.size:
        raise ProtocolError(f"a record of {len(data)} bytes has no version")
    version: int = _INT16.unpack_from(data)[0]
    return version
