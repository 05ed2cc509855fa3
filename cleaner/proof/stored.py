"""The batches in a segment's file, read one by one in plain Python and checked.

For proofs and look-ups: this module shares no code with the kernels that clean.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from odradek.dataclass import dataclass
from odradek.protocol.batches import BatchHeader, Record
from odradek.protocol.errors import ProtocolError
from odradek.protocol.legacy import iterate_stored, stored_crc
from odradek.storage.errors import CorruptFile
from odradek.storage.scan import Batches
from odradek.storage.segment import LOG, Segment
from odradek.storage.transactions import AbortedTransaction


@dataclass(frozen=True, slots=True)
class Stored:
    """A batch, or an entry of an older format, with a correct CRC."""

    path: Path
    position: int
    header: BatchHeader
    data: memoryview

    def records(self, decompressed_bytes_max: int) -> list[Record]:
        """Decode the records, as each_record() does. Raises CorruptFile."""
        return list(self.each_record(decompressed_bytes_max))

    def each_record(self, decompressed_bytes_max: int) -> Iterator[Record]:
        """Decode the records one by one, to save memory. Raises CorruptFile.

        Headers are not decoded: each record has a single one, without a name, with all the bytes.
        """
        try:
            yield from iterate_stored(self.data, 0, decompressed_bytes_max, raw_headers=True)
        except ProtocolError as error:
            raise self.damage(str(error)) from error

    def damage(self, cause: str) -> CorruptFile:
        """Return the error for this batch."""
        return CorruptFile(self.path, self.position, cause)


def batches_of(segment: Segment) -> Batches:
    """Return a segment's batches, up to their present end."""
    return Batches(segment.log, segment.path(LOG), segment.size_bytes)


def read_stored(
    batches: Batches, offsets: range, before_io: Callable[[int], None], start: int = 0
) -> Iterator[Stored]:
    """Read a file's batches from a position on, each of them intact, at rising `offsets`.

    The CRC does not cover the base offset: an offset outside the range is also damage.
    `before_io` gets the size of each batch: it may wait, and may raise. Raises CorruptFile for
    any other bytes.
    """
    end, offset_min = start, offsets.start
    for position, header, data in batches.read(start):
        before_io(len(data))
        if stored_crc(header, data) != header.crc:
            raise CorruptFile(batches.path, position, "the CRC is not that of the bytes")
        if header.base_offset < offset_min:
            cause = f"offset {header.base_offset}, expected {offset_min} or above"
            raise CorruptFile(batches.path, position, cause)
        if header.last_offset >= offsets.stop:
            cause = f"offset {header.last_offset}, expected below {offsets.stop}"
            raise CorruptFile(batches.path, position, cause)
        yield Stored(batches.path, position, header, data)
        offset_min, end = header.next_offset, position + len(data)
    if end != batches.size_bytes:
        raise CorruptFile(batches.path, end, "no whole batch")


class AbortedRanges:
    """Recognises batches that belong to aborted transactions."""

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        # The first and last offsets of each producer's transactions, which do not overlap.
        self._by_producer: dict[int, tuple[list[int], list[int]]] = {}
        for one in sorted(set(transactions)):
            firsts, lasts = self._by_producer.setdefault(one.producer_id, ([], []))
            firsts.append(one.first_offset)
            lasts.append(one.last_offset)

    def hold(self, header: BatchHeader) -> bool:
        """Return whether read_committed consumers skip a batch."""
        if not header.is_transactional or header.producer_id not in self._by_producer:
            return False
        firsts, lasts = self._by_producer[header.producer_id]
        at = bisect_right(firsts, header.base_offset) - 1
        return at >= 0 and header.base_offset <= lasts[at]
