"""The rule that decides which batches and records survive a cleaning, as two truth tables.

The tables are judge_batch() and keep_record(). A record with key K is obsolete if a later record
with key K exists. A tombstone hides its key's earlier values and is itself removed once its delete
horizon has passed. Sources: Cleaner.shouldRetainRecord and Cleaner.cleanInto of Kafka 4.3; KIP-534
for the horizon.

1. The latest committed record of each key stays if it has a value, and until its horizon if it
   has none.
2. No record after the offsets that the offset map covers is taken to be obsolete.
3. An active producer's last batch, and the last batch of the range, keep at least their headers.

cleaner/passes/judging.py has keep_record() as compiled loops; a property test ensures that the
two agree.
"""

from __future__ import annotations

from enum import Enum

from odradek.dataclass import dataclass


class Retention(Enum):
    """The fate of a batch, before its records are judged (Kafka's BatchRetention)."""

    DELETE = "all of it goes"
    DELETE_EMPTY = "it goes if no record of it is kept"
    RETAIN_EMPTY = "its header stays if no record of it is kept"


@dataclass(frozen=True, slots=True)
class BatchFacts:
    """The facts that decide on a batch."""

    is_control: bool
    # The batch is of an aborted transaction, or the marker of one that has no batch left.
    can_discard: bool
    delete_horizon_ms: int | None
    is_producers_last: bool  # the last batch of a producer that is still active
    ends_range: bool  # the last batch of the cleaned range


@dataclass(frozen=True, slots=True)
class BatchVerdict:
    """The decision on a batch."""

    retention: Retention
    discards_records: bool
    # No batch of the transaction is left: consumers have delete.retention.ms to read the marker.
    is_marker_of_empty_transaction: bool


def judge_batch(batch: BatchFacts, now_ms: int) -> BatchVerdict:
    """Decide on a batch.

    A marker whose transaction has no batch left stays until its delete horizon, set by the first
    cleaning that finds it so, has passed. An active producer's last batch stays, at least as a
    header, because its sequence reveals duplicates; the last batch of the range stays because
    its last offset is the range's.
    """
    discards = batch.can_discard
    if batch.is_control:
        horizon_ms = batch.delete_horizon_ms
        discards = discards and horizon_ms is not None and horizon_ms <= now_ms
    if batch.is_producers_last or batch.ends_range:
        retention = Retention.RETAIN_EMPTY
    elif discards:
        retention = Retention.DELETE
    else:
        retention = Retention.DELETE_EMPTY
    return BatchVerdict(retention, discards, batch.can_discard and batch.is_control)


def is_last_of_producer(
    *,
    last_offset: int,
    is_control: bool,
    epoch: int,
    producer_last_offset: int | None,
    producer_epoch: int,
) -> bool:
    """Return whether a batch is the last one of its producer, which is still active.

    If no data of the producer is left (`producer_last_offset` is None), its last marker is kept
    for its epoch, which fences zombies.
    """
    if producer_last_offset is not None:
        return last_offset == producer_last_offset
    return is_control and epoch == producer_epoch


def keep_record(
    *,
    offset: int,
    has_key: bool,
    has_value: bool,
    mapped_offset: int | None,
    latest_offset: int,
    delete_horizon_ms: int | None,
    now_ms: int,
) -> bool:
    """Decide whether a record of a data batch is kept.

    `mapped_offset` is the last offset of the record's key in the offset map, None when the key
    is not there; the map covers offsets up to `latest_offset`, and later records are kept.
    """
    if offset > latest_offset:
        return True
    if not has_key:
        return False
    if mapped_offset is not None and offset < mapped_offset:
        return False
    return has_value or delete_horizon_ms is None or now_ms < delete_horizon_ms


def must_stamp(
    *, keeps_tombstones: bool, verdict: BatchVerdict, delete_horizon_ms: int | None
) -> bool:
    """Return whether a batch that keeps records gets a delete horizon now."""
    if delete_horizon_ms is not None:
        return False
    return keeps_tombstones or verdict.is_marker_of_empty_transaction
