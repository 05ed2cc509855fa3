"""Acquires records of a share-partition, from the batches that a fetch has read of its log.

Offsets that were never acquired become one batch in flight, as large as the part that was read,
or, when the fetch asks for smaller batches, several along the log's own batches. Available records
are acquired in the batches that they have. Batch-optimised fetches may get more records than they
asked for, up to the end of a batch that is not too large; record-limited ones get at most that
many (KIP-1206).

A record that was delivered often may be the cause of its members' failures: it is delivered with
fewer and fewer others, and at last alone.

Kafka's source: SharePartition.acquire.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from odradek.broker.shares.batches import RecordState
from odradek.broker.shares.in_flight import Delivery, InFlightBatch
from odradek.broker.shares.partition import SharePartition
from odradek.dataclass import dataclass

_THROTTLE_FROM_MIN = 2


class Span(NamedTuple):
    """The offsets of a batch of the log, both ends inclusive."""

    base_offset: int
    last_offset: int


class Acquired(NamedTuple):
    """A range of offsets that a member got, and the number of their deliveries so far."""

    first_offset: int
    last_offset: int
    delivery_count: int

    @property
    def offset_count(self) -> int:
        """The number of offsets in the range."""
        return self.last_offset - self.first_offset + 1


@dataclass(frozen=True, slots=True)
class Asked:
    """A member's request for records of a share-partition."""

    member_id: str
    is_record_limit: bool
    batch_size: int
    records_max: int
    fetch_offset: int
    now_ms: int


def acquire(
    partition: SharePartition, asked: Asked, read: Sequence[Span], aborted: Iterable[Span] = ()
) -> tuple[list[Acquired], int]:
    """Acquire the available records of the batches that were read, except those of `aborted`.

    Return the ranges and the number of records that they count for; the ranges may span more
    offsets than the batches have records.
    """
    if asked.records_max <= 0 or not read or read[-1].last_offset < partition.start_offset:
        return [], 0
    last_offset, records_max = _limits(partition, asked, read[-1].last_offset)
    if records_max <= 0:
        return [], 0
    taking = _Taking(partition, replace(asked, records_max=records_max), read, last_offset)
    taking.take()
    aborted = tuple(aborted)
    if not aborted or not taking.ranges:
        return taking.ranges, taking.count
    for span in aborted:
        at = partition.floor(span.base_offset)
        batches = partition.between(at, span.last_offset)
        partition.archive(
            span.base_offset, span.last_offset + 1, batches, RecordState.ACQUIRED, counts=True
        )
    ranges = _without(taking.ranges, aborted)
    return ranges, sum(one.offset_count for one in ranges)


class _Taking:
    """One acquisition while it is made."""

    __slots__ = ("asked", "count", "last_offset", "partition", "ranges", "read")

    def __init__(
        self, partition: SharePartition, asked: Asked, read: Sequence[Span], last_offset: int
    ) -> None:
        self.partition, self.asked, self.read = partition, asked, read
        self.last_offset = last_offset
        self.ranges: list[Acquired] = []
        self.count = 0

    @property
    def left(self) -> int:
        """The number of records that may still be taken."""
        return self.asked.records_max - self.count

    def take(self) -> None:
        """Take records in flight, in the gaps between them, and after them."""
        partition, first_read = self.partition, self.read[0].base_offset
        partition.archive_unread(self.asked.fetch_offset, first_read)
        base_offset = first_read
        at = partition.floor(base_offset)
        if at < 0:
            base_offset = max(base_offset, partition.start_offset)
        elif partition.batches[at].last_offset >= base_offset:
            base_offset = partition.batches[at].first_offset
        else:
            # All earlier records are done, and the batch that was read may begin before the start.
            base_offset = max(base_offset, partition.start_offset)
            at += 1
        known = partition.between(at, self.last_offset)
        if not known:
            self._take_new(base_offset, self.last_offset)
            return
        is_ended = self._take_known(known, base_offset)
        last_known = known[-1].last_offset
        if not is_ended and self.left > 0 and last_known < self.last_offset:
            self._take_new(last_known + 1, self.last_offset)
        if self.ranges:
            partition.move_gap(self.ranges[-1].last_offset + 1)

    def _take_known(self, known: Sequence[InFlightBatch], base_offset: int) -> bool:
        """Take records of batches in flight; return True when no others may follow them."""
        gap_start = base_offset
        for batch in known:
            if self.left <= 0:
                break
            if self.partition.gap is not None:
                if gap_start < batch.first_offset:
                    self._take_new(gap_start, batch.first_offset - 1)
                gap_start = batch.last_offset + 1
                if self.left <= 0:
                    break
            is_throttled = self._is_throttled(batch)
            if is_throttled and self.count > 0:
                return True
            if self._take_batch(batch, is_throttled=is_throttled) and is_throttled:
                return True
        return False

    def _take_batch(self, batch: InFlightBatch, *, is_throttled: bool) -> int:
        """Take a batch in flight, whole or offset by offset; return the number of records."""
        asked = self.asked
        if batch.by_offset is None:
            delivery = batch.whole
            if not delivery.is_free:
                return 0
            is_whole = (
                batch.first_offset >= self.read[0].base_offset
                and batch.last_offset <= self.last_offset
                and not (asked.is_record_limit and batch.count > self.left)
            )
            if is_whole and not is_throttled:
                self._take_delivery(delivery)
                first, last = batch.first_offset, batch.last_offset
                self.ranges.append(Acquired(first, last, delivery.delivery_count))
                self.count += batch.count
                return batch.count
        taken = self._take_offsets(batch.part())
        self.ranges += _joined(taken)
        self.count += len(taken)
        return len(taken)

    def _take_offsets(self, by_offset: dict[int, Delivery]) -> list[Acquired]:
        first_read, left = self.read[0].base_offset, self.left
        deliveries_max = self.partition.config().deliveries_max
        throttle_from = _throttle_from(deliveries_max)
        throttled_max: int | None = None
        taken: list[Acquired] = []
        for offset, delivery in by_offset.items():
            if offset < first_read:
                continue
            if offset > self.last_offset:
                break
            if not delivery.is_free:
                continue
            count = delivery.delivery_count
            is_last = deliveries_max > _THROTTLE_FROM_MIN and count == deliveries_max - 1
            if is_last and taken:
                break
            if count >= throttle_from and throttled_max is None:
                throttled_max = max(1, len(by_offset) >> (count - throttle_from + 1))
            self._take_delivery(delivery)
            taken.append(Acquired(offset, offset, delivery.delivery_count))
            if is_last or (self.asked.is_record_limit and len(taken) == left):
                break
            if len(taken) == throttled_max:
                break
        return taken

    def _take_delivery(self, delivery: Delivery) -> None:
        is_taken = delivery.acquire(self.asked.member_id)
        assert is_taken, "only free records are taken"
        delivery.lock = self.partition.lock(self.asked.now_ms)

    def _is_throttled(self, batch: InFlightBatch) -> bool:
        """Return whether some free record of a batch was delivered often."""
        throttle_from = _throttle_from(self.partition.config().deliveries_max)
        if batch.by_offset is None:
            return batch.whole.is_free and batch.whole.delivery_count >= throttle_from
        first_read = self.read[0].base_offset
        return any(
            delivery.is_free and delivery.delivery_count >= throttle_from
            for offset, delivery in batch.by_offset.items()
            if first_read <= offset <= self.last_offset
        )

    def _take_new(self, first_offset: int, last_offset: int) -> None:
        """Take offsets that were never acquired."""
        partition, asked, left = self.partition, self.asked, self.left
        first, last = first_offset, last_offset
        if not partition.batches and partition.end_offset > first:
            first = partition.end_offset
        if left < last - first + 1:
            last = _end_of_batch(self.read, first + left - 1)
            last = min(last, first + partition.config().batch_max - 1)
            if partition.gap is not None:
                last = min(last, last_offset)
        ranges = [Acquired(first, last, 1)]
        if not asked.is_record_limit and last - first + 1 > asked.batch_size:
            ranges = _pieces(self.read, first, last, asked.batch_size)
        for one in ranges:
            lock = partition.lock(asked.now_ms)
            delivery = Delivery(RecordState.ACQUIRED, 1, asked.member_id, lock)
            batch = InFlightBatch(one.first_offset, one.last_offset, delivery)
            partition.add(batch)
        if asked.is_record_limit and last - first + 1 > left:
            batch.part_at(first + left - 1)
            partition.must_search = True
            ranges = [Acquired(first, first + left - 1, 1)]
        if partition.batches[0].first_offset == first:
            partition.start_offset = first
        partition.end_offset = max(partition.end_offset, last)
        if asked.is_record_limit:
            last = ranges[0].last_offset
        partition.move_gap(last + 1)
        self.ranges += ranges
        self.count += last - first + 1


def _limits(partition: SharePartition, asked: Asked, last_read: int) -> tuple[int, int]:
    """Return the last offset to acquire, and the largest number of records."""
    config = partition.config()
    wanted = min(asked.records_max, config.batch_max)
    records_max = min(wanted, config.in_flight_max - partition.in_flight_count)
    if records_max > 0 or asked.fetch_offset > partition.end_offset:
        return last_read, records_max
    # There is no room for new records, but records in flight can be acquired again.
    again = partition.end_offset - asked.fetch_offset + 1
    return min(last_read, partition.end_offset), min(wanted, again)


def _throttle_from(deliveries_max: int) -> int:
    """Return the number of deliveries after which a record is delivered with fewer others."""
    return max(_THROTTLE_FROM_MIN, (deliveries_max + 1) // 2)


def _end_of_batch(read: Iterable[Span], offset: int) -> int:
    """Return the end of the log's batch around an offset, or the offset itself without one."""
    former: Span | None = None
    for span in read:
        if offset < span.base_offset:
            break
        former = span
    return former.last_offset if former is not None and offset <= former.last_offset else offset


def _pieces(read: Iterable[Span], first: int, last: int, batch_size: int) -> list[Acquired]:
    """Divide a range at the beginnings of the log's batches, once a piece is large enough."""
    pieces = []
    for span in read:
        if span.base_offset > last:
            break
        if span.base_offset - first >= batch_size:
            pieces.append(Acquired(first, span.base_offset - 1, 1))
            first = span.base_offset
    pieces.append(Acquired(first, last, 1))
    return pieces


def _joined(taken: Iterable[Acquired]) -> list[Acquired]:
    """Join adjacent offsets that have the same number of deliveries."""
    joined: list[Acquired] = []
    for one in taken:
        former = joined[-1] if joined else None
        if (
            former is not None
            and one.first_offset == former.last_offset + 1
            and one.delivery_count == former.delivery_count
        ):
            joined[-1] = former._replace(last_offset=one.last_offset)
        else:
            joined.append(one)
    return joined


def _without(ranges: Iterable[Acquired], spans: Iterable[Span]) -> list[Acquired]:
    """Cut spans out of ranges; both must be in order and without overlaps."""
    left = list(spans)
    kept: list[Acquired] = []
    for one in ranges:
        first = one.first_offset
        for span in left:
            if span.last_offset < first or span.base_offset > one.last_offset:
                continue
            if span.base_offset > first:
                kept.append(one._replace(first_offset=first, last_offset=span.base_offset - 1))
            first = span.last_offset + 1
        if first <= one.last_offset:
            kept.append(one._replace(first_offset=first))
    return kept
