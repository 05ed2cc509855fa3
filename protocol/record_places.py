"""The places of records in a batch's section, found by compiled kernels where that pays.

A batch of some kilobytes may unpack to millions of records: in plain Python a walk over them
takes seconds, and holds the interpreter's lock. The kernels take 10 ns a record without it. They
skip a record's contents by its size, and never read outside their buffer.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek.protocol.records_plain import (
    InvalidRecord,
    RecordStatus,
    locate_record,
    read_varint,
)

# A walk in plain Python takes 0.2 us a record (10 ms for as many), loading the kernels 0.5 s.
PLAIN_RECORDS_MAX = 50_000


class Walker:
    """Walks over sections; one thread owns it while that thread reads a log."""

    def __init__(self, load_kernels: Callable[[], None]) -> None:
        """`load_kernels` loads protocol.records, and returns at once when that is loaded."""
        self._load_kernels = load_kernels
        self._plain_left = PLAIN_RECORDS_MAX

    def places(self, section: bytes, count: int, step: int) -> list[int]:
        """Return the positions of every `step`-th record, beginning with the first.

        Raises InvalidRecord unless `count` records fill the section, judged by their sizes.
        """
        if 0 <= count <= step:  # its records will be read one by one anyway
            return [0] if count else []
        if self._is_plain(count):
            return places_plain(section, count, step)
        from odradek.protocol.record_kernels import places

        return places(section, count, step)

    def last_with_key(self, section: bytes, count: int, key: bytes) -> int:
        """Return the position of the last record with a key, or -1.

        Raises InvalidRecord as places() does, and for a record whose key is malformed.
        """
        if self._is_plain(count):
            return last_with_key_plain(section, count, key)
        from odradek.protocol.record_kernels import last_with_key

        return last_with_key(section, count, key)

    def _is_plain(self, count: int) -> bool:
        if count <= self._plain_left:
            self._plain_left -= count
            return True
        self._plain_left = 0
        self._load_kernels()
        return False


def places_plain(section: bytes, count: int, step: int) -> list[int]:
    """Find the positions of every `step`-th record in plain Python."""
    found, position, end = [], 0, len(section)
    for index in range(count):
        if index % step == 0:
            found.append(position)
        if position == end:
            raise InvalidRecord(RecordStatus.MISSING_RECORDS)
        size, position = read_varint(section, position, end)
        if position < 0 or not 0 < size <= end - position:
            raise InvalidRecord(RecordStatus.BAD_SIZE)
        position += size
    if position != end:
        raise InvalidRecord(RecordStatus.TRAILING_BYTES)
    return found


def last_with_key_plain(section: bytes, count: int, key: bytes) -> int:
    """Find the last record with a key in plain Python."""
    found, position, end, length = -1, 0, len(section), len(key)
    for _ in range(count):
        if position == end:
            raise InvalidRecord(RecordStatus.MISSING_RECORDS)
        after, _, _, key_at, key_length, _, _, _ = locate_record(section, position, end)
        if key_length == length and section.startswith(key, key_at):
            found = position
        position = after
    if position != end:
        raise InvalidRecord(RecordStatus.TRAILING_BYTES)
    return found
