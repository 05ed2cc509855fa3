"""A share-partition: the records of a partition that a share group's members have or may get.

It is a state machine without clock or I/O. All records before its start offset are done. It knows
the records from there to its end offset, the last that was ever acquired:

    start offset                                   end offset
    | done | acquired by a | available | acquired by b |  not acquired yet ...
    `------------------- in flight --------------------'

acquiring.py acquires records, acknowledging.py acknowledges and releases them, and locks.py
releases those whose locks have expired. Changes are made at once. `Write` asks the caller to store
them, and to call `written` with its ticket when they are stored, or could not be.

Kafka's source: SharePartition.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence

from odradek.broker.coordination.effects import Token
from odradek.broker.shares.batches import RecordState, StateBatch
from odradek.broker.shares.in_flight import Delivery, InFlightBatch, Lock
from odradek.broker.shares.outcomes import Done, Failure, Outcome, Ticket, Wake, Write
from odradek.broker.shares.state_records import ShareState
from odradek.dataclass import dataclass

NO_OFFSET = -1
# The most that a group may set for group.share.partition.max.record.locks.
_BATCH_MAX = 10_000


@dataclass(frozen=True, slots=True)
class PartitionConfig:
    """The settings of a group for its share-partitions, with Kafka's defaults."""

    lock_duration_ms: int = 30_000
    deliveries_max: int = 5
    in_flight_max: int = 2_000
    may_renew: bool = True
    # The most offsets of a batch in flight, as each may get its own delivery: batches of the log
    # and of stored states may span millions. Kafka has no limit.
    batch_max: int = _BATCH_MAX


@dataclass(slots=True)
class _Gap:
    """Offsets between stored batches without a stored state; `start` is the first of them."""

    start: int
    end_offset: int  # the partition's end offset, as long as the gap counts


class SharePartition:
    """The records in flight of one share-partition; its Served owns it."""

    __slots__ = (
        "_gap", "batches", "config", "delivery_complete_count", "end_offset", "leader_epoch",
        "must_search", "start_offset", "state_epoch",
    )  # fmt: skip

    def __init__(
        self,
        state: ShareState,
        start_offset: int,
        leader_epoch: int,
        config: Callable[[], PartitionConfig],
    ) -> None:
        """Continue from a stored state, at a start offset.

        Raises ValueError for an invalid state.
        """
        self.config = config
        self.leader_epoch, self.state_epoch = leader_epoch, state.state_epoch
        self.start_offset = self.end_offset = start_offset
        # In the order of their offsets, without overlaps.
        self.batches: list[InFlightBatch] = []
        self.delivery_complete_count = 0
        # Whether a record before the end may be available.
        self.must_search = False
        self._gap: _Gap | None = None
        self._restore(state.batches)

    # --- queries --------------------------------------------------------------------------

    @property
    def in_flight_count(self) -> int:
        """The number of offsets in flight."""
        return self.end_offset - self.start_offset + 1 if self.batches else 0

    @property
    def gap(self) -> _Gap | None:
        """The gap, None once it no longer counts."""
        gap = self._gap
        return gap if gap is not None and gap.end_offset == self.end_offset else None

    def can_acquire(self) -> bool:
        """Return whether a member may get more records."""
        if self.next_fetch_offset() != self.end_offset + 1:
            return True
        return self.in_flight_count < self.config().in_flight_max

    def next_fetch_offset(self) -> int:
        """Return the offset to read from, that of the next record that can be acquired."""
        is_past_all = not self.batches or self.start_offset > self.batches[-1].last_offset
        if self.must_search and not is_past_all:
            found = self._first_available()
            if found is not None:
                return found
        self.must_search = False
        return self.end_offset if is_past_all else self.end_offset + 1

    def floor(self, offset: int) -> int:
        """Return the index of the last batch that begins at or before an offset, -1 for none."""
        return bisect_right(self.batches, offset, key=_first_offset_of) - 1

    def between(self, at: int, last_offset: int) -> list[InFlightBatch]:
        """Return the batches from an index on that begin at or before an offset."""
        return self.batches[max(at, 0) : self.floor(last_offset) + 1]

    def count_from_start(self, first_offset: int, last_offset: int) -> int:
        """Count the offsets of a range that are not before the start."""
        return max(last_offset - max(self.start_offset, first_offset) + 1, 0)

    def next_deadline_ms(self) -> int | None:
        """Return the earliest deadline of a lock, None without locks."""
        locks = (
            delivery.lock.deadline_ms
            for batch in self.batches
            for _, _, delivery in batch.parts()
            if delivery.lock is not None and not delivery.lock.has_expired
        )
        return min(locks, default=None)

    # --- changing -------------------------------------------------------------------------

    def add(self, batch: InFlightBatch) -> None:
        """Add a batch in order; replace a batch with the same first offset."""
        at = self.floor(batch.first_offset)
        if at >= 0 and self.batches[at].first_offset == batch.first_offset:
            self.batches[at] = batch
        else:
            self.batches.insert(at + 1, batch)

    def lock(self, now_ms: int) -> Lock:
        """Create the lock of a record that is acquired now."""
        return Lock(now_ms + self.config().lock_duration_ms)

    def move_gap(self, offset: int) -> None:
        """Move the start of the gap to an offset: the offsets before it are known now."""
        gap = self._gap
        if gap is None:
            return
        if gap.end_offset == self.end_offset and offset <= gap.end_offset:
            gap.start = offset
        else:
            self._gap = None

    def store(self, changes: list[tuple[Delivery, StateBatch]], token: Token) -> list[Outcome]:
        """Return the outcome that stores changes, or the answer when there are none."""
        if not changes:
            return [Done(token)]
        return [self.write(Ticket(changes, token))]

    def write(self, ticket: Ticket) -> Write:
        """Return the request to store a ticket's changes."""
        change = ShareState(
            0,
            self.state_epoch,
            self.leader_epoch,
            self.start_offset,
            self.delivery_complete_count,
            tuple(batch for _, batch in ticket.changes),
        )
        return Write(change, ticket)

    def take_back(self, changes: Iterable[tuple[Delivery, StateBatch]]) -> None:
        """Undo changes that were refused, or could not be stored."""
        for delivery, batch in changes:
            delivery.settle(is_stored=False)
            self.must_search |= delivery.state is RecordState.AVAILABLE
            if RecordState(batch.state).is_terminal and not delivery.state.is_terminal:
                count = self.count_from_start(batch.first_offset, batch.last_offset)
                self.delivery_complete_count -= count

    def written(self, ticket: Ticket, failure: Failure | None) -> Sequence[Outcome]:
        """Continue after changes are stored, or could not be stored."""
        if ticket.is_settled:
            self._move_start()
            return ()
        if failure is not None:
            self.take_back(ticket.changes)
            return [Done(ticket.token, failure)]
        is_news = False
        for delivery, _ in ticket.changes:
            delivery.settle(is_stored=True)
            is_news |= delivery.state is RecordState.AVAILABLE
        self.must_search |= is_news
        is_news |= self._move_start()
        done = Done(ticket.token)
        return [done, Wake()] if is_news else [done]

    def log_begins_at(self, offset: int) -> None:
        """Follow the log's start: records before it are no longer available."""
        if offset <= self.start_offset:
            return
        if not self.batches:
            self.start_offset = self.end_offset = offset
            self.delivery_complete_count = 0
            return
        self.delivery_complete_count -= self._count_terminal(offset)
        self.archive(self.start_offset, offset, self.batches, RecordState.AVAILABLE, counts=False)
        self.start_offset = offset
        self.end_offset = max(self.end_offset, offset)
        if self._gap is not None:
            # Otherwise the next fetch would look before the start, where there are no records.
            self._gap.start = max(self._gap.start, offset)

    def archive_unread(self, fetch_offset: int, base_offset: int) -> None:
        """Archive available offsets that a fetch asked for and the log no longer has."""
        if not self.batches or fetch_offset >= base_offset:
            return
        at = self.floor(fetch_offset)
        if at < 0 or self.batches[at].last_offset < fetch_offset:
            at += 1
        stale = self.between(at, base_offset - 1)
        self.archive(fetch_offset, base_offset, stale, RecordState.AVAILABLE, counts=True)

    def archive(
        self,
        start: int,
        end: int,
        batches: Iterable[InFlightBatch],
        state: RecordState,
        *,
        counts: bool,
    ) -> None:
        """Archive the records of a range of offsets (without its end) that are in one state."""
        for batch in batches:
            if batch.first_offset >= end:
                break
            is_within = batch.first_offset >= start and batch.last_offset < end
            if batch.by_offset is None and not is_within:
                if batch.whole.state is not state:
                    continue
                batch.part()
            for first, last, delivery in batch.parts():
                if first >= start and last < end and delivery.state is state:
                    delivery.archive()
                    self.must_search |= state is RecordState.AVAILABLE
                    if counts:
                        self.delivery_complete_count += last - first + 1

    # --- within ---------------------------------------------------------------------------

    def _restore(self, stored: Sequence[StateBatch]) -> None:
        gap_start, former_last = NO_OFFSET, self.start_offset - 1
        for one in stored:
            if one.first_offset < self.start_offset or one.last_offset < one.first_offset:
                raise ValueError(f"Invalid state batch found: {one}, start {self.start_offset}")
            if gap_start == NO_OFFSET and one.first_offset > former_last + 1:
                gap_start = former_last + 1
            former_last = one.last_offset
            state = RecordState(one.state)
            batch_max = self.config().batch_max
            for first in range(one.first_offset, one.last_offset + 1, batch_max):
                last = min(first + batch_max - 1, one.last_offset)
                self.add(InFlightBatch(first, last, Delivery(state, one.delivery_count)))
            if state.is_terminal:
                self.delivery_complete_count += one.last_offset - one.first_offset + 1
        if self.batches:
            self.must_search = True
            self.end_offset = self.batches[-1].last_offset
            if gap_start != NO_OFFSET:
                self._gap = _Gap(gap_start, self.end_offset)
            self._move_start()

    def _first_available(self) -> int | None:
        gap = self.gap
        gap_start = NO_OFFSET if gap is None else gap.start
        for batch in self.batches:
            if gap is not None:
                if batch.first_offset > gap_start:
                    return gap_start
                gap_start = max(batch.last_offset + 1, gap_start)
            for first, last, delivery in batch.parts():
                if delivery.is_free and last >= self.start_offset:
                    return max(first, self.start_offset)
        return None

    def _count_terminal(self, end: int) -> int:
        """Count the records that are done from the start up to an offset."""
        count = 0
        for batch in self.batches:
            if batch.first_offset >= end:
                break
            for first, last, delivery in batch.parts():
                if delivery.state.is_terminal:
                    count += self.count_from_start(first, min(last, end - 1))
        return count

    def _move_start(self) -> bool:
        """Move the start past records that are done; return whether it moved."""
        if not self._can_move_start():
            return False
        last_done, count = self._last_done()
        if last_done == NO_OFFSET:
            return False
        batches = self.batches
        if last_done == batches[-1].last_offset:
            self.start_offset = self.end_offset = last_done + 1
            batches.clear()
            self.delivery_complete_count = 0
            return True
        at = self.floor(last_done)
        if last_done == batches[at].last_offset:
            self.start_offset = max(self.start_offset, batches[at + 1].first_offset)
            if self.gap is not None:
                self.start_offset = min(self.start_offset, self.gap.start)
            removed = at + 1
        else:
            self.start_offset = max(self.start_offset, last_done + 1)
            removed = at
        self.delivery_complete_count -= count
        del batches[:removed]
        return True

    def _can_move_start(self) -> bool:
        at = self.floor(self.start_offset)
        if at < 0:
            return False  # A gap at the beginning can be acquired.
        batch = self.batches[at]
        if batch.by_offset is None:
            delivery = batch.whole
        else:  # The log's start may have moved past the batch.
            delivery = batch.by_offset[min(self.start_offset, batch.last_offset)]
        return not delivery.is_changing and delivery.state.is_terminal

    def _last_done(self) -> tuple[int, int]:
        """Return the last offset up to which all is done, and the count of offsets to it."""
        last_done, count = NO_OFFSET, 0
        for first, last, delivery in self._parts_before_gap():
            if delivery.is_changing or not delivery.state.is_terminal:
                break
            last_done = last
            count += self.count_from_start(first, last)
        return last_done, count

    def _parts_before_gap(self) -> Iterator[tuple[int, int, Delivery]]:
        gap = self.gap
        for batch in self.batches:
            if gap is not None and batch.last_offset >= gap.start:
                return
            yield from batch.parts()


def _first_offset_of(batch: InFlightBatch) -> int:
    return batch.first_offset
