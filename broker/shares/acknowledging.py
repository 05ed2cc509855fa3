"""Acknowledgements: members accept, release or reject acquired records, or keep them longer.

An acknowledgement names a range of offsets, with one type for all or one for each. It is taken
as a whole or not at all; only the locks that it renewed before it failed stay renewed.

Kafka's source: SharePartition.acknowledge, releaseAcquiredRecords.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence

from odradek.broker.coordination.effects import Token
from odradek.broker.shares.batches import RecordState, StateBatch
from odradek.broker.shares.in_flight import Delivery, InFlightBatch
from odradek.broker.shares.outcomes import Done, Failure, Outcome
from odradek.broker.shares.partition import SharePartition
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode

_INVALID = ErrorCode.INVALID_RECORD_STATE
_NOT_FOUND = "Batch record not found. The request batch offsets are not found in the cache."
_FIRST_IS_PAST = "Batch record not found. The first offset in request is past acquired records."
_LAST_IS_PAST = "Batch record not found. The last offset in request is past acquired records."
_NOT_ACQUIRED = "The batch cannot be acknowledged. The batch is not in the acquired state."
_SUBSET_NOT_ACQUIRED = (
    "The batch cannot be acknowledged. The subset batch is not in the acquired state."
)
_OFFSET_NOT_ACQUIRED = "The offset cannot be acknowledged. The offset is not acquired."
_CHANGING = "The record state is invalid. The acknowledgement of delivery could not be completed."
_NOT_THE_OWNER = "Member is not the owner of batch record"
_NOT_THE_OWNER_OF_OFFSET = "Member is not the owner of offset"
_NO_RENEWAL = "Renewing acquisition locks is not enabled for the group."


class AcknowledgeType(enum.IntEnum):
    """A member's verdict on a record."""

    GAP = 0  # The record no longer exists.
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4  # The member wants to keep the record longer (KIP-1222).


_STATES = {
    AcknowledgeType.GAP: RecordState.ARCHIVED,
    AcknowledgeType.ACCEPT: RecordState.ACKNOWLEDGED,
    AcknowledgeType.RELEASE: RecordState.AVAILABLE,
    AcknowledgeType.REJECT: RecordState.ARCHIVED,
}


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """Types for a range of offsets, both ends inclusive: one for all, or one for each."""

    first_offset: int
    last_offset: int
    types: Sequence[int]

    def type_of(self, offset: int) -> int:
        """Return the type of an offset."""
        return self.types[offset - self.first_offset if len(self.types) > 1 else 0]


class _Refused(Exception):
    """An acknowledgement cannot be taken."""

    def __init__(self, message: str, error: ErrorCode = _INVALID) -> None:
        super().__init__(message)
        self.failure = Failure(error, message)


def acknowledge(
    partition: SharePartition,
    member_id: str,
    acknowledgements: Sequence[Acknowledgement],
    token: Token,
    now_ms: int,
) -> list[Outcome]:
    """Take a member's acknowledgements, all of them or none."""
    taking = _Taking(partition, member_id, now_ms)
    try:
        for one in acknowledgements:
            if one.last_offset >= partition.start_offset:  # Earlier offsets are done.
                taking.take(one)
    except _Refused as refused:
        partition.take_back(taking.changes)
        return [Done(token, refused.failure)]
    return partition.store(taking.changes, token)


def release(partition: SharePartition, member_id: str, token: Token) -> list[Outcome]:
    """Make all records of a member that has left available again."""
    changes: list[tuple[Delivery, StateBatch]] = []
    start, deliveries_max = partition.start_offset, partition.config().deliveries_max
    for batch in partition.batches:
        part_at_start(partition, batch, member_id)
        for first, last, delivery in batch.parts():
            if delivery.member_id != member_id or delivery.state is not RecordState.ACQUIRED:
                continue
            state = RecordState.ARCHIVED if last < start else RecordState.AVAILABLE
            is_taken = delivery.begin_to_leave(state, deliveries_max)
            assert is_taken, "an acquired record is not changing"
            changes.append((delivery, batch.stored(first, last, delivery)))
            if delivery.state.is_terminal:
                partition.delivery_complete_count += partition.count_from_start(first, last)
    return partition.store(changes, token)


def part_at_start(
    partition: SharePartition, batch: InFlightBatch, member_id: str | None = None
) -> None:
    """Give the offsets of an acquired batch their own deliveries if the start lies within it."""
    if batch.by_offset is not None or batch.whole.state is not RecordState.ACQUIRED:
        return
    is_theirs = member_id is None or batch.whole.member_id == member_id
    if is_theirs and batch.first_offset < partition.start_offset <= batch.last_offset:
        batch.part()


class _Taking:
    """The acknowledgements of one request while they are taken."""

    __slots__ = ("changes", "config", "member_id", "now_ms", "partition")

    def __init__(self, partition: SharePartition, member_id: str, now_ms: int) -> None:
        self.partition, self.member_id, self.now_ms = partition, member_id, now_ms
        self.config = partition.config()
        self.changes: list[tuple[Delivery, StateBatch]] = []

    def take(self, one: Acknowledgement) -> None:
        """Take one acknowledgement; raises _Refused."""
        unknown = [kind for kind in one.types if kind not in set(AcknowledgeType)]
        if unknown:
            message = f"Invalid acknowledge type: {list(one.types)}"
            raise _Refused(message, ErrorCode.INVALID_REQUEST)
        start = self.partition.start_offset
        for batch in self._find(one):
            if batch.last_offset < start:
                continue  # All of the batch is done.
            if batch.by_offset is None:
                self._check_whole(batch)
            is_whole = (
                batch.first_offset >= max(one.first_offset, start)
                and batch.last_offset <= one.last_offset
                and len(one.types) == 1
            )
            if is_whole and batch.by_offset is None:
                self._take_whole(batch, one.types[0])
                continue
            if batch.by_offset is None and batch.whole.state is not RecordState.ACQUIRED:
                raise _Refused(_SUBSET_NOT_ACQUIRED)
            self._take_offsets(batch, one)

    def _find(self, one: Acknowledgement) -> list[InFlightBatch]:
        """Find the batches that contain the offsets of an acknowledgement."""
        partition = self.partition
        at = partition.floor(one.first_offset)
        if at < 0:
            if one.first_offset < partition.start_offset <= one.last_offset:
                at = partition.floor(partition.start_offset)
            if at < 0:
                raise _Refused(_NOT_FOUND)
        found = partition.between(at, one.last_offset)
        if found[-1].last_offset < one.first_offset:
            raise _Refused(_FIRST_IS_PAST, ErrorCode.INVALID_REQUEST)
        if found[-1].last_offset < one.last_offset:
            raise _Refused(_LAST_IS_PAST, ErrorCode.INVALID_REQUEST)
        return found

    def _check_whole(self, batch: InFlightBatch) -> None:
        whole = batch.whole
        if not whole.member_id:
            raise _Refused(_NOT_ACQUIRED)
        if whole.member_id != self.member_id:
            raise _Refused(_NOT_THE_OWNER)
        if whole.is_changing:
            raise _Refused(_CHANGING)

    def _take_whole(self, batch: InFlightBatch, kind: int) -> None:
        if batch.whole.state is not RecordState.ACQUIRED:
            raise _Refused(_NOT_ACQUIRED)
        self._change(batch, batch.first_offset, batch.last_offset, batch.whole, kind)

    def _take_offsets(self, batch: InFlightBatch, one: Acknowledgement) -> None:
        first = max(one.first_offset, self.partition.start_offset, batch.first_offset)
        by_offset = batch.part()
        for offset in range(first, min(one.last_offset, batch.last_offset) + 1):
            delivery = by_offset[offset]
            if delivery.state is not RecordState.ACQUIRED:
                raise _Refused(_OFFSET_NOT_ACQUIRED)
            if delivery.is_changing:
                raise _Refused(_CHANGING)
            if delivery.member_id != self.member_id:
                raise _Refused(_NOT_THE_OWNER_OF_OFFSET)
            self._change(batch, offset, offset, delivery, one.type_of(offset))

    def _change(
        self, batch: InFlightBatch, first: int, last: int, delivery: Delivery, kind: int
    ) -> None:
        partition = self.partition
        if kind == AcknowledgeType.RENEW:
            if not self.config.may_renew:
                raise _Refused(_NO_RENEWAL)
            delivery.lock = partition.lock(self.now_ms)
            return
        state = _STATES[AcknowledgeType(kind)]
        is_taken = delivery.begin_to_leave(state, self.config.deliveries_max)
        assert is_taken, "the delivery was checked before"
        self.changes.append((delivery, batch.stored(first, last, delivery)))
        if delivery.state.is_terminal:
            partition.delivery_complete_count += partition.count_from_start(first, last)
