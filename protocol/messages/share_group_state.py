"""The records of the coordinator of share groups' state in __share_group_state (KIP-932).

Key and value of each record begin with an int16. In a key it is the kind, which is also the
version to decode with; in a value it is the version of the layout:

    key    | 0 | ShareSnapshotKey        value  | 0 | ShareSnapshotValue    null: deleted
           | 1 | ShareUpdateKey                 | 0 | ShareUpdateValue

A snapshot is the whole state of a share-partition; the updates after it have its changes.
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import int8, int16, int32, int64, string, uuid


@message(versions="0", flexible="none")
class ShareSnapshotKey:
    """Identifies the share-partition of a state."""

    group_id: string
    topic_id: uuid
    partition: int32


@struct
class StateBatch:
    """Offsets in one state: 0 available, 2 acknowledged, 4 archived."""

    first_offset: int64
    last_offset: int64
    delivery_state: int8
    delivery_count: int16


@message(versions="0", flexible="0+")
class ShareSnapshotValue:
    """The state of a share-partition."""

    snapshot_epoch: int32
    state_epoch: int32
    leader_epoch: int32
    start_offset: int64
    delivery_complete_count: int32 = field(tag=0, default=-1)
    create_timestamp: int64
    write_timestamp: int64
    state_batches: list[StateBatch]


@message(versions="1", flexible="none")
class ShareUpdateKey:
    """Identifies the share-partition of a change."""

    group_id: string
    topic_id: uuid
    partition: int32


@message(versions="0", flexible="0+")
class ShareUpdateValue:
    """A change of the state; a start of -1 means no change of the start."""

    snapshot_epoch: int32
    leader_epoch: int32
    start_offset: int64
    delivery_complete_count: int32 = field(tag=0, default=-1)
    state_batches: list[StateBatch]
