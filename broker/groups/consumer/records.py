"""The records of consumer groups: each has a kind, a group, and a member or an expression.

Layouts and kinds: protocol/messages/consumer_group_records.py. All values are of version 0.
"""

from __future__ import annotations

import enum

from odradek.broker.groups.modern import records
from odradek.broker.groups.modern.records import KeyValue, Layout
from odradek.dataclass import dataclass
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


_LAYOUTS = {
    Kind.GROUP: Layout(ConsumerGroupMetadataKey, ConsumerGroupMetadataValue),
    Kind.TOPICS: Layout(ConsumerGroupPartitionMetadataKey, None),
    Kind.MEMBER: Layout(
        ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, "member_id"
    ),
    Kind.TARGET_EPOCH: Layout(
        ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue
    ),
    Kind.TARGET: Layout(
        ConsumerGroupTargetAssignmentMemberKey,
        ConsumerGroupTargetAssignmentMemberValue,
        "member_id",
    ),
    Kind.CURRENT: Layout(
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupCurrentMemberAssignmentValue,
        "member_id",
    ),
    Kind.EXPRESSION: Layout(
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
    return records.encode_record(
        _LAYOUTS[record.kind], record.kind, record.group_id, record.name, record.value
    )


def decode_record(number: int, key: bytes, value: bytes | None) -> ConsumerRecord:
    """Decode a record of one of the kinds; raises ProtocolError for invalid bytes."""
    kind = Kind(number)
    layout = _LAYOUTS[kind]
    group_id, name = records.decode_key(layout, kind, key)
    read: Value | None
    if layout.value is None:
        # Only its existence counts: the record will be removed.
        read = None if value is None else ConsumerGroupMetadataValue(epoch=0)
    else:
        read = records.decode_value(layout, kind, value)
    return ConsumerRecord(kind, group_id, name, read)
