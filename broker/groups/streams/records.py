"""The records of streams groups: each has a kind, a group, and possibly a member.

Layouts and kinds: protocol/messages/streams_group_records.py. All values are of version 0.
"""

from __future__ import annotations

import enum

from odradek.broker.groups.modern import records
from odradek.broker.groups.modern.records import KeyValue, Layout
from odradek.dataclass import dataclass
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


_LAYOUTS = {
    Kind.GROUP: Layout(StreamsGroupMetadataKey, StreamsGroupMetadataValue),
    Kind.MEMBER: Layout(
        StreamsGroupMemberMetadataKey, StreamsGroupMemberMetadataValue, "member_id"
    ),
    Kind.TARGET_EPOCH: Layout(
        StreamsGroupTargetAssignmentMetadataKey, StreamsGroupTargetAssignmentMetadataValue
    ),
    Kind.TARGET: Layout(
        StreamsGroupTargetAssignmentMemberKey, StreamsGroupTargetAssignmentMemberValue, "member_id"
    ),
    Kind.CURRENT: Layout(
        StreamsGroupCurrentMemberAssignmentKey,
        StreamsGroupCurrentMemberAssignmentValue,
        "member_id",
    ),
    Kind.TOPOLOGY: Layout(StreamsGroupTopologyKey, StreamsGroupTopologyValue),
}


def is_kind(number: int) -> bool:
    """Return whether keys of this number belong to streams groups."""
    return number in _LAYOUTS


def encode_record(record: StreamsRecord) -> KeyValue:
    """Encode a record as the key and value to append.

    Raises ProtocolError when a string is longer than the format can hold.
    """
    return records.encode_record(
        _LAYOUTS[record.kind], record.kind, record.group_id, record.member_id, record.value
    )


def decode_record(kind: int, key: bytes, value: bytes | None) -> StreamsRecord:
    """Decode a record whose key is of a kind of streams groups.

    Raises ProtocolError for bytes that are no such record.
    """
    layout = _LAYOUTS[Kind(kind)]
    group_id, member_id = records.decode_key(layout, kind, key)
    read: Value | None = records.decode_value(layout, kind, value)
    return StreamsRecord(Kind(kind), group_id, member_id, read)
