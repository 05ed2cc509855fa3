"""Finds in one log the parts of an answer that go with the batches."""

from __future__ import annotations

from odradek.protocol.messages.fetch import AbortedTransaction, EpochEndOffset, FetchPartition
from odradek.storage.errors import OffsetOutOfRange
from odradek.storage.log import Log
from odradek.storage.reading import aborted_within, segment_index
from odradek.storage.segment import Slice

# Most answers have this value, which is never changed.
NO_DIVERGENCE = EpochEndOffset()
_UNDEFINED = -1


def find_divergence(log: Log, request: FetchPartition) -> EpochEndOffset:
    """Find where a log and the reader's copy diverge. Raises OffsetOutOfRange (KIP-595)."""
    epoch, end_offset = log.end_offset_for_epoch(request.last_fetched_epoch)
    if epoch == _UNDEFINED or end_offset == _UNDEFINED:
        raise OffsetOutOfRange(f"{log.name}: no epoch {request.last_fetched_epoch}")
    if request.fetch_offset < log.log_start_offset:
        raise OffsetOutOfRange(f"{log.name}: offset {request.fetch_offset} is before the start")
    if epoch < request.last_fetched_epoch or end_offset < request.fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return NO_DIVERGENCE


def find_aborted(log: Log, offset: int, found: Slice | None) -> list[AbortedTransaction]:
    """Return the aborted transactions among the batches of a slice (KIP-98)."""
    active = log.active
    if found is None or (found.base_offset == active.base_offset and active.transactions.is_empty):
        return []  # as nearly always
    return [
        AbortedTransaction(producer_id=one.producer_id, first_offset=one.first_offset)
        for one in aborted_within(log.segments, offset, found, log.high_watermark)
    ]


def is_behind(log: Log, found: Slice, is_committed: bool) -> bool:
    """Return whether a slice lies in a segment that gets no more appends.

    Then it is useless to wait for more (DelayedFetch, case F).
    """
    if found.base_offset == log.active.base_offset:
        return False
    # The readable part may end in this segment.
    end = log.last_stable_offset if is_committed else log.high_watermark
    return found.base_offset != log.segments[segment_index(log.segments, end)].base_offset
