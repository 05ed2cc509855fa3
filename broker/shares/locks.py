"""Releases acquired records when their locks expire.

The records become available again, or are archived after the last allowed delivery. The release
stands even if it cannot be stored: after a restart the records would be delivered again anyway.

Kafka's source: SharePartition.releaseAcquisitionLockOnTimeout. In Kafka each batch, and each
offset with its own delivery, has a timer and is stored by itself; here all records that are due
at the same time are stored together.
"""

from __future__ import annotations

from odradek.broker.shares.acknowledging import part_at_start
from odradek.broker.shares.batches import RecordState, StateBatch
from odradek.broker.shares.in_flight import Delivery
from odradek.broker.shares.outcomes import Outcome, Ticket, Wake
from odradek.broker.shares.partition import SharePartition


def expire(partition: SharePartition, now_ms: int) -> list[Outcome]:
    """Release the records whose locks have expired."""
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
                continue  # A change is on its way.
            delivery.lock = None
            changes.append((delivery, batch.stored(first, last, delivery)))
            if delivery.state.is_terminal:
                partition.delivery_complete_count += partition.count_from_start(first, last)
            else:
                partition.must_search = True
    if not changes:
        return []
    return [partition.write(Ticket(changes, is_settled=True)), Wake()]
