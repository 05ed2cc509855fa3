"""Reads the batches of a log for a share fetch, and finds those of aborted transactions.

A read ends at the last whole batch. Of its bytes a member gets the batches in which it has
acquired records, and the batches between them.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.broker.shares.acquiring import Acquired, Span
from odradek.dataclass import dataclass
from odradek.protocol.batches import BatchHeader
from odradek.protocol.errors import ProtocolError
from odradek.protocol.legacy import read_stored_header
from odradek.storage.log import Log
from odradek.storage.reading import aborted_within
from odradek.storage.segment import Slice
from odradek.storage.transactions import AbortedTransaction, read_marker

_HEAD_BYTES_MIN = 17  # up to the magic, which gives the length of the head


@dataclass(frozen=True, slots=True)
class Read:
    """Batches of a log, and the position of each in their bytes."""

    data: memoryview
    headers: Sequence[BatchHeader]
    positions: Sequence[int]

    @property
    def spans(self) -> list[Span]:
        """The offsets of the batches."""
        return [Span(one.base_offset, one.last_offset) for one in self.headers]

    def part(self, acquired: Sequence[Acquired]) -> memoryview:
        """Return the bytes of the batches that acquired offsets lie in."""
        first, last = acquired[0].first_offset, acquired[-1].last_offset
        start, end = 0, len(self.data)
        for header, position in zip(self.headers, self.positions, strict=True):
            if header.base_offset <= first:
                start = position
            elif header.base_offset > last:
                end = position
                break
        return self.data[start:end]


def read_batches(data: bytes | bytearray) -> Read:
    """Find the whole batches in bytes of a log; bytes after the last are cut off."""
    view = memoryview(data)
    headers: list[BatchHeader] = []
    positions: list[int] = []
    position = 0
    while position + _HEAD_BYTES_MIN <= len(view):
        try:
            header = read_stored_header(view, position)
        except ProtocolError:
            break  # Its head is incomplete or invalid; the consumer will report it.
        if position + header.size_bytes > len(view):
            break
        headers.append(header)
        positions.append(position)
        position += header.size_bytes
    return Read(view[:position], headers, positions)


def aborted_spans(log: Log, offset: int, found: Slice, read: Read) -> list[Span]:
    """Find the batches of aborted transactions among those read. Raises CorruptFile."""
    transactions = aborted_within(log.segments, offset, found, log.log_end_offset)
    return spans_of_aborted(read, transactions) if transactions else []


def spans_of_aborted(read: Read, transactions: Sequence[AbortedTransaction]) -> list[Span]:
    """Find the batches of aborted transactions: each producer's batches up to its marker."""
    coming = sorted(transactions, reverse=True)
    aborting: set[int] = set()
    spans = []
    for header, position in zip(read.headers, read.positions, strict=True):
        if header.producer_id < 0:
            continue
        while coming and coming[-1].first_offset <= header.last_offset:
            aborting.add(coming.pop().producer_id)
        if header.is_control:
            marker = read_marker(header, read.data[position : position + header.size_bytes])
            if marker is not None and not marker.is_commit:
                aborting.discard(header.producer_id)
                continue
        if header.is_transactional and header.producer_id in aborting:
            spans.append(Span(header.base_offset, header.last_offset))
    return spans
