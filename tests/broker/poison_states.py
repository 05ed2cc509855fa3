"""Hostile batches for __transaction_state and __share_group_state, as poison.py has for groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from odradek.protocol.compression import Codec
from odradek.protocol.messages.share_group_state import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    StateBatch,
)
from odradek.protocol.messages.transaction_log import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)
from tests.broker.poison import (
    LONG_MS,
    NOW_MS,
    TOPIC,
    Batches,
    Case,
    Entry,
    batch,
    classic,
    entry,
    key,
    marker,
    offset,
    with_count,
)

ShareCase = Callable[[str, bytes], Batches]
"""Returns the hostile batches for the state of a group in the first partition of a topic."""

def transaction(name: str, **fields: Any) -> tuple[bytes, bytes]:
    """Return the state of a transactional id."""
    known = {
        "producer_id": 7_000, "previous_producer_id": -1, "next_producer_id": -1,
        "producer_epoch": 3, "next_producer_epoch": -1, "transaction_timeout_ms": LONG_MS,
        "transaction_status": 0, "transaction_partitions": None,
        "transaction_last_update_timestamp_ms": NOW_MS, "transaction_start_timestamp_ms": -1,
        "client_transaction_version": 0,
    }  # fmt: skip
    value = TransactionLogValue(**{**known, **fields})
    name_bytes, stored = entry(TransactionLogKey(transactional_id=name), value)
    assert stored is not None
    return name_bytes, stored


OPEN = {"transaction_status": 1, "transaction_start_timestamp_ms": NOW_MS}


def _with_partitions(name: str, status: int, topic: str = TOPIC, **fields: Any) -> bytes:
    partitions = [PartitionsSchema(topic=topic, partition_ids=[0, 1])]
    return batch(
        transaction(
            name, transaction_status=status, transaction_partitions=partitions,
            transaction_start_timestamp_ms=NOW_MS, **fields,
        )
    )  # fmt: skip


def _stated(name: str, value: bytes) -> bytes:
    return batch((transaction(name)[0], value))


TRANSACTION_CASES: Mapping[str, Case] = {
    "sound": lambda name: [],
    "a key of an unknown kind": lambda name: [batch((key(9), b"x"))],
    "a null key": lambda name: [batch((None, b"x"))],
    "an empty key": lambda name: [batch((b"", b"x"))],
    "a key cut off": lambda name: [batch((transaction(name)[0][:5], b"x"))],
    "a key of an offset": lambda name: [batch(offset(name, 0, 1))],
    "a value of an unknown version": lambda name: [_stated(name, key(77, bytes(60)))],
    "an empty value": lambda name: [_stated(name, b"")],
    "a value cut off": lambda name: [_stated(name, transaction(name)[1][:15])],
    "an impossible state": lambda name: [batch(transaction(name, transaction_status=9))],
    "a dead one": lambda name: [_with_partitions(name, 6)],
    "a fence": lambda name: [_with_partitions(name, 7)],
    "negative numbers": lambda name: [
        batch(transaction(name, producer_id=-5, producer_epoch=-9, transaction_timeout_ms=-1))
    ],
    "an empty one with partitions": lambda name: [_with_partitions(name, 0)],
    "an open one": lambda name: [_with_partitions(name, 1)],
    "an open one without partitions": lambda name: [
        batch(transaction(name, **OPEN, transaction_partitions=[]))
    ],
    "an open one with null partitions": lambda name: [
        batch(transaction(name, **OPEN, transaction_partitions=None))
    ],
    "a prepared one of no topic": lambda name: [_with_partitions(name, 2, "no-such-topic")],
    "a prepared one without partitions": lambda name: [
        batch(transaction(name, transaction_status=3, transaction_partitions=[]))
    ],
    "the last epoch": lambda name: [batch(transaction(name, producer_epoch=32_767))],
    "the producer of another": lambda name: [batch(transaction(f"{name}-other"))],
    "a tombstone": lambda name: [batch((transaction(name)[0], None))],
    "a compressed batch": lambda name: [
        batch(transaction(name, producer_epoch=8), codec=Codec.GZIP)
    ],
    "more records claimed than there are": lambda name: [
        with_count(batch(transaction(name, producer_epoch=8)), 3)
    ],
    "a marker": lambda name: [marker(commit=True)],
}  # fmt: skip


# --- share-partitions ----------------------------------------------------------------------------


def snapshot(group: str, topic_id: bytes, **fields: Any) -> tuple[bytes, bytes | None]:
    """Return the state of a share-partition, whose number is 0."""
    known = {
        "snapshot_epoch": 1, "state_epoch": 2, "leader_epoch": 0, "start_offset": 10,
        "delivery_complete_count": 0, "create_timestamp": NOW_MS, "write_timestamp": NOW_MS,
        "state_batches": [],
    }  # fmt: skip
    whose = ShareSnapshotKey(group_id=group, topic_id=topic_id, partition=0)
    return entry(whose, ShareSnapshotValue(**{**known, **fields}))


def update(group: str, topic_id: bytes, **fields: Any) -> Entry:
    """Return a change of a share-partition's state."""
    known = {
        "snapshot_epoch": 1, "leader_epoch": 0, "start_offset": -1,
        "delivery_complete_count": 0, "state_batches": [],
    }  # fmt: skip
    whose = ShareUpdateKey(group_id=group, topic_id=topic_id, partition=0)
    return entry(whose, ShareUpdateValue(**{**known, **fields}))


def _batches(first: int, last: int, state: int = 2, count: int = 1) -> list[StateBatch]:
    return [
        StateBatch(
            first_offset=first, last_offset=last, delivery_state=state, delivery_count=count
        )
    ]


SHARE_CASES: Mapping[str, ShareCase] = {
    "sound": lambda group, topic: [],
    "a key of an unknown kind": lambda group, topic: [batch((key(9), b"x"))],
    "a null key": lambda group, topic: [batch((None, b"x"))],
    "an empty key": lambda group, topic: [batch((b"", b"x"))],
    "a key cut off": lambda group, topic: [batch((snapshot(group, topic)[0][:9], b"x"))],
    "a key of a group": lambda group, topic: [batch(classic(group, "m"))],
    "a value of an unknown version": lambda group, topic: [
        batch((snapshot(group, topic)[0], key(77, bytes(60))))
    ],
    "a value cut off": lambda group, topic: [
        batch((snapshot(group, topic)[0], (snapshot(group, topic)[1] or b"")[:20]))
    ],
    "an update": lambda group, topic: [
        batch(update(group, topic, start_offset=12, state_batches=_batches(12, 15)))
    ],
    "an update of nothing": lambda group, topic: [
        batch(update(f"{group}-x", topic, start_offset=12))
    ],
    "an update of another epoch": lambda group, topic: [
        batch(update(group, topic, snapshot_epoch=9, leader_epoch=-4, start_offset=13))
    ],
    "a batch that ends before it begins": lambda group, topic: [
        batch(update(group, topic, state_batches=_batches(20, 11)))
    ],
    "a negative batch": lambda group, topic: [
        batch(update(group, topic, state_batches=_batches(-9, -3)))
    ],
    "a batch in an impossible state": lambda group, topic: [
        batch(update(group, topic, state_batches=_batches(11, 12, 77, -5)))
    ],
    "batches that overlap": lambda group, topic: [
        batch(update(group, topic, state_batches=[*_batches(11, 20), *_batches(15, 30, 0)]))
    ],
    "negative numbers": lambda group, topic: [
        batch(snapshot(group, topic, snapshot_epoch=-1, state_epoch=-2, start_offset=-7))
    ],
    "a tombstone": lambda group, topic: [batch((snapshot(group, topic)[0], None))],
    "a compressed batch": lambda group, topic: [
        batch(snapshot(group, topic, start_offset=11), codec=Codec.GZIP)
    ],
    "a marker": lambda group, topic: [marker(commit=True)],
}
