"""The records of streams groups: each has a kind, a group, and possibly a member.

Layouts and kinds: protocol/messages/streams_group_records.py. All values are of version 0.
"""

from __future__ import annotations

import enum
from struct import Struct
from typing import Any

from odradek.dataclass import dataclass
from odradek.protocol.compiler import decode_prefix, encode
from odradek.protocol.errors import ProtocolError
from odradek.protocol.messages.streams_group_records import (
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTargetAssignmentMemberKey,
    StreamsGroupTargetAssignmentMemberValue,
    StreamsGroupTargetAssignmentMetadataKey,
    StreamsGroupTargetAssignmentMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
)

_VALUE_VERSION = 0
_INT16 = Struct(">h")
_VALUE_HEAD = _INT16.pack(_VALUE_VERSION)

KeyValue = tuple[bytes, bytes | None]


class Kind(enum.IntEnum):
    """The subject of a record; the number is that of its key."""

    GROUP = 17
    MEMBER = 19
    TARGET_EPOCH = 20
    TARGET = 21
    CURRENT = 22
    TOPOLOGY = 23


Value = (
    StreamsGroupMetadataValue
    | StreamsGroupMemberMetadataValue
    | StreamsGroupTargetAssignmentMetadataValue
    | StreamsGroupTargetAssignmentMemberValue
    | StreamsGroupCurrentMemberAssignmentValue
    | StreamsGroupTopologyValue
)


@dataclass(frozen=True, slots=True)
class StreamsRecord:
    """A record of a streams group; without a value it removes its subject."""

    kind: Kind
    group_id: str
    # "" for a record of the whole group.
    member_id: str
    value: Value | None


@dataclass(frozen=True, slots=True)
class _Layout:
    key: type
    value: type
    has_member: bool = False


_LAYOUTS = {
    Kind.GROUP: _Layout(StreamsGroupMetadataKey, StreamsGroupMetadataValue),
    Kind.MEMBER: _Layout(StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue, True),
    Kind.TARGET_EPOCH: _Layout(
        StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTargetAssignmentMetadataValue
    ),
    Kind.TARGET: _Layout(
        StreamsGroupTargetAssignmentMemberKey, StreamsGroupTargetAssignmentMemberValue, True
    ),
    Kind.CURRENT: _Layout(
        StreamsGroupCurrentMemberAssignmentKey, StreamsGroupCurrentMemberAssignmentValue, True
    ),
    Kind.TOPOLOGY: _Layout(StreamsGroupTopologyKey, StreamsGroupTopologyValue),
}


def is_kind(number: int) -> bool:
    """Return whether keys of this number belong to streams groups."""
    return number in _LAYOUTS


def encode_record(record: StreamsRecord) -> KeyValue:
    """Encode a record as the key and value to append.

    Raises ProtocolError when a string is longer than the format can hold.
    """
    layout = _LAYOUTS[record.kind]
    names = {"member_id": record.member_id} if layout.has_member else {}
    made = layout.key(group_id=record.group_id, **names)
    key = _INT16.pack(record.kind) + encode(made, record.kind)
    if record.value is None:
        return key, None
    return key, _VALUE_HEAD + encode(record.value, _VALUE_VERSION)


def decode_record(kind: int, key: bytes, value: bytes | None) -> StreamsRecord:
    """Decode a record whose key is of a kind of streams groups.

    Raises ProtocolError for bytes that are no such record.
    """
    layout = _LAYOUTS[Kind(kind)]
    # Kafka, too, ignores bytes of a key after the fields that it knows.
    name: Any = decode_prefix(layout.key, kind, memoryview(key), _INT16.size)[0]
    member_id = name.member_id if layout.has_member else ""
    if value is None:
        return StreamsRecord(Kind(kind), name.group_id, member_id, None)
    if value[: _INT16.size] != _VALUE_HEAD:
        raise ProtocolError(f"a value of kind {kind} has an unknown version")
    # Bytes after the fields are ignored: a newer Kafka may have added fields at the end.
    read: Value = decode_prefix(layout.value, _VALUE_VERSION, memoryview(value), _INT16.size)[0]
    return StreamsRecord(Kind(kind), name.group_id, member_id, read)
