"""The records of share groups: each has a kind, a group, and possibly a member.

Layouts and kinds: protocol/messages/share_group_metadata.py. All values are of version 0.
"""

from __future__ import annotations

import enum

from odradek.broker.groups.modern import records
from odradek.broker.groups.modern.records import KeyValue, Layout
from odradek.dataclass import dataclass
from odradek.protocol.messages.share_group_metadata import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
)


class Kind(enum.IntEnum):
    """The subject of a record; the number is that of its key."""

    MEMBER = 10
    GROUP = 11
    TARGET_EPOCH = 12
    TARGET = 13
    CURRENT = 14
    PARTITIONS = 15


Value = (
    ShareGroupMemberMetadataValue
    | ShareGroupMetadataValue
    | ShareGroupTargetAssignmentMetadataValue
    | ShareGroupTargetAssignmentMemberValue
    | ShareGroupCurrentMemberAssignmentValue
    | ShareGroupStatePartitionMetadataValue
)


@dataclass(frozen=True, slots=True)
class ShareRecord:
    """A record of a share group; without a value it removes its subject."""

    kind: Kind
    group_id: str
    # "" for a record of the whole group.
    member_id: str
    value: Value | None


_LAYOUTS = {
    Kind.MEMBER: Layout(ShareGroupMemberMetadataKey, ShareGroupMemberMetadataValue, "member_id"),
    Kind.GROUP: Layout(ShareGroupMetadataKey, ShareGroupMetadataValue),
    Kind.TARGET_EPOCH: Layout(
        ShareGroupTargetAssignmentMetadataKey, ShareGroupTargetAssignmentMetadataValue
    ),
    Kind.TARGET: Layout(
        ShareGroupTargetAssignmentMemberKey, ShareGroupTargetAssignmentMemberValue, "member_id"
    ),
    Kind.CURRENT: Layout(
        ShareGroupCurrentMemberAssignmentKey, ShareGroupCurrentMemberAssignmentValue, "member_id"
    ),
    Kind.PARTITIONS: Layout(
        ShareGroupStatePartitionMetadataKey, ShareGroupStatePartitionMetadataValue
    ),
}


def is_kind(number: int) -> bool:
    """Return whether keys of this number belong to share groups."""
    return number in _LAYOUTS


def encode_record(record: ShareRecord) -> KeyValue:
    """Encode a record as the key and value to append.

    Raises ProtocolError when a string is longer than the format can hold.
    """
    return records.encode_record(
        _LAYOUTS[record.kind], record.kind, record.group_id, record.member_id, record.value
    )


def decode_record(kind: int, key: bytes, value: bytes | None) -> ShareRecord:
    """Decode a record whose key is of a kind of share groups.

    Raises ProtocolError for bytes that are no such record.
    """
    layout = _LAYOUTS[Kind(kind)]
    group_id, member_id = records.decode_key(layout, kind, key)
    read: Value | None = records.decode_value(layout, kind, value)
    return ShareRecord(Kind(kind), group_id, member_id, read)
