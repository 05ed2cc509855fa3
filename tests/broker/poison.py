"""Hostile batches for internal topics, as adopted files and clients with the right to may bring.

A case is about one group, transactional id or share-partition, in a partition of its own: there
are sound records about it before the hostile ones and after them.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from odradek.protocol.batches import Record, batch_crc, encode_batch
from odradek.protocol.compiler import encode
from odradek.protocol.compression import Codec
from odradek.protocol.control import encode_end_txn_marker
from odradek.protocol.messages import share_group_metadata
from odradek.protocol.messages.consumer_group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
)
from odradek.protocol.messages.group_metadata import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from odradek.protocol.messages.share_group_state import ShareSnapshotKey
from odradek.protocol.messages.transaction_log import TransactionLogKey
from odradek.protocol.schema import info_of

Entry = tuple[bytes | None, bytes | None]
Batches = Sequence[bytes]
Case = Callable[[str], Batches]
"""Returns the hostile batches for the name of a group or transactional id."""

NOW_MS = time.time_ns() // 1_000_000
TOPIC = "orders"
PRODUCER_ID = 4_000
LONG_MS = 3_600_000  # longer than the tests run
_INT16 = struct.Struct(">h")


def entry(key: Any, value: Any | None) -> tuple[bytes, bytes | None]:
    """Encode a record's key and value, each in its latest version."""
    kind = info_of(type(key)).versions.last
    key_bytes = _INT16.pack(kind) + encode(key, kind)
    if value is None:
        return key_bytes, None
    version = info_of(type(value)).versions.last
    return key_bytes, _INT16.pack(version) + encode(value, version)


def batch(*entries: Entry, **fields: Any) -> bytes:
    """Encode a batch of records."""
    records = [Record(at, NOW_MS, key, value) for at, (key, value) in enumerate(entries)]
    return encode_batch(records, **fields)


def offset(group: str, partition: int, number: int, **fields: Any) -> tuple[bytes, bytes]:
    """Return a stored offset."""
    value = OffsetCommitValue(
        offset=number, leader_epoch=-1, metadata="", commit_timestamp=NOW_MS, **fields
    )
    key, stored = entry(OffsetCommitKey(group=group, topic=TOPIC, partition=partition), value)
    assert stored is not None
    return key, stored


# --- groups --------------------------------------------------------------------------------------


def classic(group: str, *members: str, **fields: Any) -> Entry:
    """Return a generation of a classic group."""
    known = {
        "protocol_type": "consumer", "generation": 3, "protocol": "range",
        "leader": members[0] if members else None, "current_state_timestamp": NOW_MS,
    }  # fmt: skip
    value = GroupMetadataValue(
        **{**known, **fields},
        members=[
            MemberMetadata(
                member_id=one, client_id="a", client_host="/127.0.0.1", rebalance_timeout=LONG_MS,
                session_timeout=LONG_MS, subscription=b"", assignment=b"",
            )
            for one in members
        ],
    )  # fmt: skip
    return entry(GroupMetadataKey(group=group), value)


def consumer(group: str, epoch: int = 5) -> list[Entry]:
    """Return a consumer group of the new protocol, without members."""
    return [
        entry(ConsumerGroupMetadataKey(group_id=group), ConsumerGroupMetadataValue(epoch=epoch)),
        entry(
            ConsumerGroupTargetAssignmentMetadataKey(group_id=group),
            ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch),
        ),
    ]


def member(group: str, name: str) -> Entry:
    """Return a member of a consumer group."""
    value = ConsumerGroupMemberMetadataValue(
        instance_id=None, rack_id=None, client_id="a", client_host="/127.0.0.1",
        subscribed_topic_names=[TOPIC], subscribed_topic_regex=None,
        rebalance_timeout_ms=LONG_MS, server_assignor=None, classic_member_metadata=None,
    )  # fmt: skip
    return entry(ConsumerGroupMemberMetadataKey(group_id=group, member_id=name), value)


def current(group: str, name: str, epoch: int, state: int) -> Entry:
    """Return what a member of a consumer group has, which is nothing."""
    return entry(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group, member_id=name),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=epoch, previous_member_epoch=epoch, state=state,
            assigned_partitions=[], partitions_pending_revocation=[],
        ),
    )  # fmt: skip


def share_group(group: str) -> Entry:
    """Return a share group."""
    return entry(
        share_group_metadata.ShareGroupMetadataKey(group_id=group),
        share_group_metadata.ShareGroupMetadataValue(epoch=5, metadata_hash=0),
    )


def key(kind: int, rest: bytes = b"") -> bytes:
    """Return a number, as keys and values begin with, and what follows it."""
    return _INT16.pack(kind) + rest


def _valued(group: str, value: bytes) -> bytes:
    return batch((offset(group, 7, 1)[0], value))


def marker(*, commit: bool, producer_id: int = PRODUCER_ID) -> bytes:
    """Return the end of a transaction."""
    return encode_end_txn_marker(
        commit=commit, timestamp=NOW_MS, producer_id=producer_id, producer_epoch=0,
        coordinator_epoch=0,
    )  # fmt: skip


def pending(group: str, partition: int, number: int, producer_id: int = PRODUCER_ID) -> bytes:
    """Return an offset that is stored as part of a transaction."""
    return batch(
        offset(group, partition, number),
        producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True,
    )  # fmt: skip


def with_count(data: bytes, count: int) -> bytes:
    """Return a batch that claims so many records."""
    made = bytearray(data)
    struct.pack_into(">i", made, 57, count)
    struct.pack_into(">I", made, 17, batch_crc(made, 0, len(made)))
    return bytes(made)


GROUP_CASES: Mapping[str, Case] = {
    "sound": lambda group: [],
    "a key of an unknown kind": lambda group: [batch((key(99), b"x"))],
    "a key of a negative kind": lambda group: [batch((key(-1), b"x"))],
    "a null key": lambda group: [batch((None, b"x"))],
    "an empty key": lambda group: [batch((b"", b"x"))],
    "a key cut off": lambda group: [batch((offset(group, 1, 1)[0][:9], b"x"))],
    "a key with a negative size": lambda group: [batch((key(1, b"\xff\xfe\0\0\0\0"), b"x"))],
    "a key that goes on": lambda group: [batch((offset(group, 8, 4)[0] + b"more",
                                               offset(group, 8, 4)[1]))],
    "a key of a transaction": lambda group: [
        batch((entry(TransactionLogKey(transactional_id=group), None)[0], b"x"))
    ],
    "a key of a share-partition": lambda group: [
        batch(entry(ShareSnapshotKey(group_id=group, topic_id=bytes(16), partition=0), None))
    ],
    "a value of an unknown version": lambda group: [_valued(group, key(77, bytes(40)))],
    "a value of a negative version": lambda group: [_valued(group, key(-3, bytes(40)))],
    "an empty value": lambda group: [_valued(group, b"")],
    "a value cut off": lambda group: [_valued(group, offset(group, 7, 1)[1][:12])],
    "a value with a negative size": lambda group: [_valued(group, key(3, bytes(12) + b"\xff\xf0"
                                                                       + bytes(8)))],
    "a negative offset": lambda group: [batch(offset(group, 9, -5))],
    "a negative partition": lambda group: [batch(offset(group, -2, 6))],
    "a tombstone of an offset": lambda group: [batch((offset(group, 0, 1)[0], None))],
    "a tombstone of a live group": lambda group: [
        batch(classic(group, "m")), batch(entry(GroupMetadataKey(group=group), None))
    ],
    "a tombstone of no group": lambda group: [
        batch(entry(GroupMetadataKey(group=group), None)),
        batch(entry(ConsumerGroupMetadataKey(group_id=group), None)),
        batch(entry(ConsumerGroupMemberMetadataKey(group_id=group, member_id="m"), None)),
    ],
    "a live classic group": lambda group: [batch(classic(group, "m", "n"))],
    "members of one id": lambda group: [batch(classic(group, "m", "m"))],
    "a leader that is no member": lambda group: [batch(classic(group, "m", leader="other"))],
    "a group without a protocol": lambda group: [batch(classic(group, "m", protocol=None))],
    "a negative generation": lambda group: [batch(classic(group, "m", generation=-7))],
    "an empty classic group": lambda group: [batch(classic(group, protocol=None))],
    "a consumer group": lambda group: [
        batch(*consumer(group), member(group, "m"), current(group, "m", 5, 0))
    ],
    "a member of no consumer group": lambda group: [batch(member(group, "m"))],
    "an assignment of no member": lambda group: [
        batch(*consumer(group), current(group, "nobody", 5, 0))
    ],
    "a negative member epoch": lambda group: [
        batch(*consumer(group), member(group, "m"), current(group, "m", -9, 0))
    ],
    "a member in no known state": lambda group: [
        batch(*consumer(group), member(group, "m"), current(group, "m", 5, 99))
    ],
    "a consumer group that was classic": lambda group: [
        batch(classic(group, "m")), batch(*consumer(group))
    ],
    "a consumer group that was empty": lambda group: [
        batch(classic(group, protocol=None)), batch(*consumer(group))
    ],
    "a consumer group with a tombstone of a classic one": lambda group: [
        batch(*consumer(group)), batch(entry(GroupMetadataKey(group=group), None))
    ],
    "a consumer group that turns classic": lambda group: [
        batch(*consumer(group)), batch(classic(group, "m"))
    ],
    "a share group": lambda group: [batch(share_group(group))],
    "a share group that was classic": lambda group: [
        batch(classic(group, "m")), batch(share_group(group))
    ],
    "a share group that turns into a consumer group": lambda group: [
        batch(share_group(group)), batch(*consumer(group))
    ],
    "a compressed batch": lambda group: [
        batch(offset(group, 5, 55), offset(group, 6, 66), codec=Codec.GZIP)
    ],
    "more records claimed than there are": lambda group: [
        with_count(batch(offset(group, 5, 55)), 3)
    ],
    "a marker of no transaction": lambda group: [marker(commit=True), marker(commit=False)],
    "an open transaction": lambda group: [pending(group, 4, 44)],
    "a committed transaction": lambda group: [pending(group, 4, 44), marker(commit=True)],
    "an aborted transaction": lambda group: [pending(group, 4, 44), marker(commit=False)],
    "another's marker": lambda group: [
        pending(group, 4, 44), marker(commit=True, producer_id=PRODUCER_ID + 1)
    ],
}  # fmt: skip
