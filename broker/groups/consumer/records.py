"""The records of consumer groups: each has a kind, a group, and a member or an expression.

Layouts and kinds: protocol/messages/consumer_group_records.py. All values are of version 0.
"""

from __future__ import annotations

import enum
from struct import Struct
from typing import Any

from odradek.dataclass import dataclass
from odradek.protocol.compiler import decode_prefix, encode
from odradek.protocol.errors import ProtocolError
from odradek.protocol.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)

_VALUE_VERSION = 0
_INT16 = Struct(">h")
_VALUE_HEAD = _INT16.pack(_VALUE_VERSION)

KeyValue = tuple[bytes, bytes | None]


class Kind(enum.IntEnum):
    """The subject of a record; the number is that of its key."""

    GROUP = 3
    TOPICS = 4
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8
    EXPRESSION = 16


Value = (
    ConsumerGroupMetadataValue
    | ConsumerGroupMemberMetadataValue
    | ConsumerGroupTargetAssignmentMetadataValue
    | ConsumerGroupTargetAssignmentMemberValue
    | ConsumerGroupCurrentMemberAssignmentValue
    | ConsumerGroupRegularExpressionValue
)


@dataclass(frozen=True, slots=True)
class ConsumerRecord:
    """A record of a consumer group; without a value it removes its subject."""

    kind: Kind
    group_id: str
    # The member or the regular expression, "" for the whole group.
    name: str
    value: Value | None


@dataclass(frozen=True, slots=True)
class _Layout:
    key: type[Any]
    # None if no field of the value is needed.
    value: type[Any] | None
    # The field of the key with the record's name.
    name_field: str | None = None


_LAYOUTS = {
    Kind.GROUP: _Layout(ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    Kind.TOPICS: _Layout(ConsumerGroupPartitionMetadataKey, None),
    Kind.MEMBER: _Layout(
        ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, "member_id"
    ),
    Kind.TARGET_EPOCH: _Layout(
        ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue
    ),
    Kind.TARGET: _Layout(
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupTargetAssignmentMemberValue,
        "member_id",
    ),
    Kind.CURRENT: _Layout(
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupCurrentMemberAssignmentValue,
        "member_id",
    ),
    Kind.EXPRESSION: _Layout(
        ConsumerGroupRegularExpressionKey,
        ConsumerGroupRegularExpressionValue,
        "regular_expression",
    ),
}


def is_kind(number: int) -> bool:
    """Return whether keys of this number belong to consumer groups."""
    return number in _LAYOUTS


def encode_record(record: ConsumerRecord) -> KeyValue:
    """Encode a record as the key and value to append.

    Raises ProtocolError when a string is longer than the format can hold.
    """
    layout = _LAYOUTS[record.kind]
    named: dict[str, str] = {}
    if layout.name_field is not None:
        named[layout.name_field] = record.name
    key = layout.key(group_id=record.group_id, **named)
    head = _INT16.pack(record.kind) + encode(key, record.kind)
    if record.value is None:
        return head, None
    return head, _VALUE_HEAD + encode(record.value, _VALUE_VERSION)


def decode_record(number: int, key: bytes, value: bytes | None) -> ConsumerRecord:
    """Decode a record of one of the kinds; raises ProtocolError for invalid bytes."""
    kind = Kind(number)
    layout = _LAYOUTS[kind]
    # Kafka, too, ignores bytes of a key after the fields that it knows.
    named, _ = decode_prefix(layout.key, number, memoryview(key), _INT16.size)
    name = getattr(named, layout.name_field) if layout.name_field else ""
    return ConsumerRecord(kind, named.group_id, name, _decode_value(layout, value))


def _decode_value(layout: _Layout, value: bytes | None) -> Value | None:
    if value is None:
        return None
    if layout.value is None:
        # Only its existence counts: the record will be removed.
        return ConsumerGroupMetadataValue(epoch=0)
    if value[: _INT16.size] != _VALUE_HEAD:
        raise ProtocolError("a consumer group's record is not of version 0")
    made: Value = decode_prefix(layout.value, _VALUE_VERSION, memoryview(value), _INT16.size)[0]
    return made
