"""What the coordinator of share groups' state stores in __share_group_state (KIP-932).

Key and value of each record begin with an int16; of a key it tells the kind, here the version to
decode with, of a value the version of its layout:

    key    | 0 | ShareSnapshotKey        value  | 0 | ShareSnapshotValue    null: forgotten
           | 1 | ShareUpdateKey                 | 0 | ShareUpdateValue

A snapshot is the whole state of a share-partition; the updates after it tell what has changed.
"""

from __future__ import annotations

from protocol.schema import field, message, struct
from protocol.wire import int8, int16, int32, int64, string, uuid


@message(versions="0", flexible="none")
class ShareSnapshotKey:
    """Whose state it is."""

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
    """Whose state has changed."""

    group_id: string
    topic_id: uuid
    partition: int32


@message(versions="0", flexible="0+")
class ShareUpdateValue:
    """What has changed; a start of -1 has not."""

    snapshot_epoch: int32
    leader_epoch: int32
    start_offset: int64
    delivery_complete_count: int32 = field(tag=0, default=-1)
    state_batches: list[StateBatch]
