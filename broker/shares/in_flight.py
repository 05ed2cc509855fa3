"""Records of a share-partition that are in flight: acquired, released, or done ahead of others.

They are kept in batches as they were acquired. As long as all records of a batch go the same
way it has one delivery; when they part each offset gets its own. A change is made at once and
is settled when it is stored, or taken back when it could not be.

Kafka's sources: InFlightBatch, InFlightState.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from broker.shares.batches import RecordState, StateBatch

NOBODY = ""


class Lock:
    """Until when a record is kept for who acquired it."""

    __slots__ = ("deadline_ms", "has_expired")

    def __init__(self, deadline_ms: int) -> None:
        self.deadline_ms = deadline_ms
        # Also when the record was not to be had just then, as a change of it was on its way.
        self.has_expired = False


class _Former(NamedTuple):
    state: RecordState
    delivery_count: int
    member_id: str
    deliveries_max: int


class Delivery:
    """Where a batch or a single record stands; its batch owns it."""

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
        # What it was before a change that is on its way to be stored.
        self._former: _Former | None = None
        # Archived by the broker itself: no failure takes that back.
        self._is_archived = False

    @property
    def is_changing(self) -> bool:
        """Whether a change is on its way to be stored."""
        return self._former is not None

    @property
    def is_free(self) -> bool:
        """Whether it can be acquired."""
        return self.state is RecordState.AVAILABLE and self._former is None

    def acquire(self, member_id: str) -> bool:
        """Give it to a member, once more; False when it cannot be had."""
        if not self.is_free:
            return False
        self.state, self.member_id = RecordState.ACQUIRED, member_id
        self.delivery_count += 1
        return True

    def leave(self, state: RecordState, deliveries_max: int) -> bool:
        """Take it from who has it; what was delivered often enough is not available again."""
        if self._former is not None or self.state is not RecordState.ACQUIRED:
            return False
        if state is RecordState.AVAILABLE and self.delivery_count >= deliveries_max:
            state = RecordState.ARCHIVED
        self.state, self.member_id = state, NOBODY
        return True

    def begin_to_leave(self, state: RecordState, deliveries_max: int) -> bool:
        """Take it from who has it, until it is settled whether that is stored."""
        former = _Former(self.state, self.delivery_count, self.member_id, deliveries_max)
        if not self.leave(state, deliveries_max):
            return False
        self._former = former
        return True

    def settle(self, *, is_stored: bool) -> None:
        """End a change: it is stored, or is taken back."""
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
        """Deliver it no more, whatever becomes of a change that is on its way."""
        self._is_archived = True
        self.state, self.member_id, self.lock = RecordState.ARCHIVED, NOBODY, None


class InFlightBatch:
    """Records that were acquired together; the share-partition owns it."""

    __slots__ = ("_whole", "by_offset", "first_offset", "last_offset")

    def __init__(self, first_offset: int, last_offset: int, delivery: Delivery) -> None:
        self.first_offset, self.last_offset = first_offset, last_offset
        self._whole: Delivery | None = delivery
        # The records' own deliveries, in order, once they have parted.
        self.by_offset: dict[int, Delivery] | None = None

    @property
    def whole(self) -> Delivery:
        """The delivery of all its records, which have not parted."""
        assert self._whole is not None, "each offset has its own"
        return self._whole

    @property
    def count(self) -> int:
        """How many offsets it spans."""
        return self.last_offset - self.first_offset + 1

    def parts(self) -> Iterator[tuple[int, int, Delivery]]:
        """Iterate over first and last offset and the delivery of each of its parts."""
        if self.by_offset is None:
            yield self.first_offset, self.last_offset, self.whole
        else:
            for offset, delivery in self.by_offset.items():
                yield offset, offset, delivery

    def part(self) -> dict[int, Delivery]:
        """Give each offset its own delivery, with the same lock, unless they have one."""
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
        """Give each offset its own delivery; those past an offset are not acquired after all."""
        for offset, delivery in self.part().items():
            if offset > last_offset:
                delivery.state, delivery.member_id = RecordState.AVAILABLE, NOBODY
                delivery.delivery_count -= 1
                delivery.lock = None

    def stored(self, first_offset: int, last_offset: int, delivery: Delivery) -> StateBatch:
        """Tell how a part is stored."""
        return StateBatch(
            first_offset, last_offset, delivery.delivery_count, int(delivery.state)
        )
