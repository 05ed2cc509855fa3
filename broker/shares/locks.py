"""What happens when the time is over for which records are kept for who acquired them.

They are available again, or archived when they were delivered often enough. That stands whether
or not it can be stored: a start again would deliver them again all the same.

Kafka's source: SharePartition.releaseAcquisitionLockOnTimeout. There each batch, and each offset
that has parted from its batch, has a timer of its own and is stored by itself; here all that is
due at once is stored together.
"""

from __future__ import annotations

from broker.shares.acknowledging import part_at_start
from broker.shares.batches import RecordState, StateBatch
from broker.shares.in_flight import Delivery
from broker.shares.partition import Outcome, SharePartition, Ticket, Wake


def expire(partition: SharePartition, now_ms: int) -> list[Outcome]:
    """Release what has been acquired for too long."""
    changes: list[tuple[Delivery, StateBatch]] = []
    start, deliveries_max = partition.start_offset, partition.config().deliveries_max
    for batch in partition.batches:
        lock = None if batch.by_offset is not None else batch.whole.lock
        if lock is not None and lock.deadline_ms <= now_ms:
            part_at_start(partition, batch)
        for first, last, delivery in batch.parts():
            lock = delivery.lock
            if lock is None or lock.deadline_ms > now_ms or lock.has_expired:
                continue
            lock.has_expired = True
            state = RecordState.ARCHIVED if last < start else RecordState.AVAILABLE
            if not delivery.leave(state, deliveries_max):
                continue  # a change is on its way
            delivery.lock = None
            changes.append((delivery, batch.stored(first, last, delivery)))
            if delivery.state.is_terminal:
                partition.delivery_complete_count += partition.count_from_start(first, last)
            else:
                partition.must_search = True
    if not changes:
        return []
    return [partition.write(Ticket(changes, is_settled=True)), Wake()]
