"""The records of the coordinator of classic groups in __consumer_offsets.

Key and value of each record begin with an int16. In a key it is the kind, which is also the
version to decode with; in a value it is the version of the layout:

    key    | 0 or 1 | OffsetCommitKey            value  | 0-4 | OffsetCommitValue
           | 2      | GroupMetadataKey                  | 0-4 | GroupMetadataValue

A null value is a tombstone: the offset or the group is gone. Kafka's source:
CoordinatorRecordType and GroupCoordinatorRecordHelpers; key kinds from 3 on belong to the
consumer protocol (KIP-848) and its successors.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import ZERO_UUID, int32, int64, octets, string, uuid


@message(versions="0-1", flexible="none")
class OffsetCommitKey:
    """Identifies an offset; Kafka wrote kind 0, of the same layout, before 0.9."""

    group: string
    topic: string
    partition: int32


@message(versions="0-4", flexible="4+")
class OffsetCommitValue:
    """An offset that a group has stored."""

    offset: int64
    leader_epoch: int32 = field("3+", default=-1)
    metadata: string
    commit_timestamp: int64
    expire_timestamp: int64 = field("1", default=-1)
    topic_id: uuid = field("4+", tag=0, default=ZERO_UUID)


@message(versions="2", flexible="none")
class GroupMetadataKey:
    """Identifies a group."""

    group: string


@struct
class MemberMetadata:
    """A member as it was when the generation became stable."""

    member_id: string
    group_instance_id: string | None = field("3+", default=None)
    client_id: string
    client_host: string
    rebalance_timeout: int32 = field("1+", default=-1)
    session_timeout: int32
    subscription: octets
    assignment: octets


@message(versions="0-4", flexible="4+")
class GroupMetadataValue:
    """A generation of a group; the protocol is null while it has no members."""

    protocol_type: string
    generation: int32
    protocol: string | None
    leader: string | None
    current_state_timestamp: int64 = field("2+", default=-1)
    members: list[MemberMetadata]
