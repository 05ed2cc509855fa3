"""Records of a share-partition that are in flight: acquired, released, or done ahead of others.

They are kept in the batches in which they were acquired. While all records of a batch are in the
same state, the batch has one delivery; when their states differ, each offset gets its own. A
change is made at once; it is settled when it is stored, or undone when it could not be stored.

Kafka's sources: InFlightBatch, InFlightState.

Invariants:

1. A delivery has at most one change on its way to be stored.
2. A batch has either one delivery, or one for each of its offsets.
3. A record that the broker has archived stays archived, whether changes can be stored or not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from odradek.broker.shares.batches import RecordState, StateBatch

NOBODY = ""


class Lock:
    """The deadline until which a record belongs to the member that acquired it."""

    __slots__ = ("deadline_ms", "has_expired")

    def __init__(self, deadline_ms: int) -> None:
        self.deadline_ms = deadline_ms
        # True also if the record could not be released then, because a change was on its way.
        self.has_expired = False


class _Former(NamedTuple):
    state: RecordState
    delivery_count: int
    member_id: str
    deliveries_max: int


class Delivery:
    """The state of a batch or of a single record; the batch owns it."""

    __slots__ = ("_former", "_is_archived", "delivery_count", "lock", "member_id", "state")

    def __init__(
        self,
        state: RecordState,
        delivery_count: int,
        member_id: str = NOBODY,
        lock: Lock | None = None,
    ) -> None:
        self.state, self.delivery_count = state, delivery_count
        self.member_id, self.lock = member_id, lock
        # The state before a change that is on its way to be stored.
        self._former: _Former | None = None
        # Whether the broker itself has archived the records, which no failure undoes.
        self._is_archived = False

    @property
    def is_changing(self) -> bool:
        """Whether a change is on its way to be stored."""
        return self._former is not None

    @property
    def is_free(self) -> bool:
        """Whether a member can acquire the records."""
        return self.state is RecordState.AVAILABLE and self._former is None

    def acquire(self, member_id: str) -> bool:
        """Give the records to a member and count a delivery; return False if they are not free."""
        if not self.is_free:
            return False
        self.state, self.member_id = RecordState.ACQUIRED, member_id
        self.delivery_count += 1
        return True

    def leave(self, state: RecordState, deliveries_max: int) -> bool:
        """Take the records from their member, archiving them after the last allowed delivery.

        Return False when they are not acquired, or a change is on its way.
        """
        if self._former is not None or self.state is not RecordState.ACQUIRED:
            return False
        if state is RecordState.AVAILABLE and self.delivery_count >= deliveries_max:
            state = RecordState.ARCHIVED
        self.state, self.member_id = state, NOBODY
        return True

    def begin_to_leave(self, state: RecordState, deliveries_max: int) -> bool:
        """Take the records from their member, and keep the former state until `settle`."""
        former = _Former(self.state, self.delivery_count, self.member_id, deliveries_max)
        if not self.leave(state, deliveries_max):
            return False
        self._former = former
        return True

    def settle(self, *, is_stored: bool) -> None:
        """End a change: keep it if it is stored, else undo it."""
        former, self._former = self._former, None
        if is_stored or self._is_archived or former is None:
            self.lock = None
        elif self.lock is not None and self.lock.has_expired:
            is_last = former.delivery_count >= former.deliveries_max
            self.state = RecordState.ARCHIVED if is_last else RecordState.AVAILABLE
            self.member_id, self.lock = NOBODY, None
        else:
            self.state, self.member_id = former.state, former.member_id

    def archive(self) -> None:
        """Archive the records for good, even if a change is on its way."""
        self._is_archived = True
        self.state, self.member_id, self.lock = RecordState.ARCHIVED, NOBODY, None


class InFlightBatch:
    """Records that were acquired together; the share-partition owns it."""

    __slots__ = ("_whole", "by_offset", "first_offset", "last_offset")

    def __init__(self, first_offset: int, last_offset: int, delivery: Delivery) -> None:
        self.first_offset, self.last_offset = first_offset, last_offset
        self._whole: Delivery | None = delivery
        # The records' own deliveries, in order, once they have separate ones.
        self.by_offset: dict[int, Delivery] | None = None

    @property
    def whole(self) -> Delivery:
        """The delivery of all its records, while they share one."""
        assert self._whole is not None, "each offset has its own delivery"
        return self._whole

    @property
    def count(self) -> int:
        """The number of offsets in the batch."""
        return self.last_offset - self.first_offset + 1

    def parts(self) -> Iterator[tuple[int, int, Delivery]]:
        """Iterate over the parts: the first offset, the last offset and the delivery of each."""
        if self.by_offset is None:
            yield self.first_offset, self.last_offset, self.whole
        else:
            for offset, delivery in self.by_offset.items():
                yield offset, offset, delivery

    def part(self) -> dict[int, Delivery]:
        """Give each offset its own delivery, with the same deadline, unless it has one."""
        if self.by_offset is None:
            whole = self.whole
            state, count, member_id = whole.state, whole.delivery_count, whole.member_id
            deadline_ms = whole.lock.deadline_ms if whole.lock is not None else None
            self.by_offset = {
                offset: Delivery(
                    state, count, member_id, None if deadline_ms is None else Lock(deadline_ms)
                )
                for offset in range(self.first_offset, self.last_offset + 1)
            }
            self._whole = None
        return self.by_offset

    def part_at(self, last_offset: int) -> None:
        """Give each offset its own delivery, and undo the acquisition past an offset."""
        for offset, delivery in self.part().items():
            if offset > last_offset:
                delivery.state, delivery.member_id = RecordState.AVAILABLE, NOBODY
                delivery.delivery_count -= 1
                delivery.lock = None

    def stored(self, first_offset: int, last_offset: int, delivery: Delivery) -> StateBatch:
        """Return a part as a StateBatch to store."""
        return StateBatch(
            first_offset, last_offset, delivery.delivery_count, int(delivery.state)
        )
