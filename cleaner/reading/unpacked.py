"""The records of one batch in blocks, which can be read from the last to the first.

A batch is unpacked as a whole, and may hold millions of records; only the records of one block
at a time become Python objects, and a block without the searched bytes is left out.

    section  |  block 0: 1024 records  |  block 1: 1024 records  |  block 2: the rest      |
             ^ place                   ^ place                   ^ place
"""

from __future__ import annotations

from collections.abc import Iterator

from odradek.cleaner.proof.stored import Stored
from odradek.cleaner.reading.excerpts import Bounds, Excerpt, RecordPlace, holds
from odradek.protocol.batch_records import record_section
from odradek.protocol.batches import MAGIC, BatchHeader, Record
from odradek.protocol.errors import ProtocolError
from odradek.protocol.legacy import decode_stored
from odradek.protocol.record_places import Walker
from odradek.protocol.records_plain import InvalidRecord, RecordStatus, locate_record, wrap_int64

BLOCK_RECORDS = 1024  # 2 ms of plain Python


class Unpacked:
    """The records of a batch, or of an entry of an older format; one thread owns it."""

    def __init__(self, batch: Stored, decompressed_bytes_max: int, walker: Walker) -> None:
        """Unpack a batch. Raises CorruptFile."""
        self._batch, self._walker = batch, walker
        self._header = header = batch.header
        self._old: list[RecordPlace] | None = None
        self._section = b""
        self._places: list[int] | None = None
        try:
            if header.magic == MAGIC:
                # One copy at most, so that each key and value is a slice of bytes.
                self._section = bytes(
                    record_section(batch.data, 0, header, decompressed_bytes_max)
                )
            else:
                records = decode_stored(batch.data, 0, decompressed_bytes_max)
                self._old = [_place_of(record) for record in records]
        except ProtocolError as error:
            raise batch.damage(str(error)) from error

    @property
    def size_bytes(self) -> int:
        """The size of the unpacked records."""
        if self._old is not None:
            return sum(len(one.section) for one in self._old)
        return len(self._section)

    @property
    def block_count(self) -> int:
        """The number of blocks. Raises CorruptFile."""
        return 1 if self._old is not None else len(self._found_places())

    def count(self, block: int) -> int:
        """Return the number of records in a block."""
        if self._old is not None:
            return len(self._old)
        return min(BLOCK_RECORDS, self._header.count - block * BLOCK_RECORDS)

    def holds(self, octets: bytes, block: int) -> bool:
        """Return whether a block contains some bytes anywhere."""
        if self._old is not None:
            return any(holds(one.section, octets, 0, len(one.section)) for one in self._old)
        return holds(self._section, octets, self._found_places()[block], self._end(block))

    def first_offset(self, block: int) -> int:
        """Return the offset of a block's first record. Raises CorruptFile."""
        return next(self.records(block)).offset

    def records(self, block: int) -> Iterator[RecordPlace]:
        """Yield a block's records, oldest first. Raises CorruptFile."""
        if self._old is not None:
            yield from self._old
            return
        at, end = self._found_places()[block], self._end(block)
        try:
            for _ in range(self.count(block)):
                if at == end:
                    raise InvalidRecord(RecordStatus.MISSING_RECORDS)
                place = _locate(self._header, self._section, at, end)
                at = place.end
                yield place
            if at != end:
                raise InvalidRecord(
                    RecordStatus.TRAILING_BYTES, f"{end - at} bytes after the last record"
                )
        except ProtocolError as error:
            raise self._batch.damage(str(error)) from error

    def last_with_key(self, key: bytes) -> RecordPlace | None:
        """Return the last record with a key, None when there is none. Raises CorruptFile."""
        if self._old is not None:
            return next((one for one in reversed(self._old) if one.key == key), None)
        section = self._section
        if not holds(section, key, 0, len(section)):
            return None
        try:
            at = self._walker.last_with_key(section, self._header.count, key)
            return None if at < 0 else _locate(self._header, section, at, len(section))
        except ProtocolError as error:
            raise self._batch.damage(str(error)) from error

    def excerpt(self, place: RecordPlace, bounds: Bounds) -> Excerpt:
        """Copy the parts of a record within the bounds. Raises CorruptFile."""
        try:
            return place.excerpt(bounds)
        except ProtocolError as error:
            raise self._batch.damage(str(error)) from error

    def _end(self, block: int) -> int:
        places = self._found_places()
        return places[block + 1] if block + 1 < len(places) else len(self._section)

    def _found_places(self) -> list[int]:
        if self._places is None:
            try:
                self._places = self._walker.places(
                    self._section, self._header.count, BLOCK_RECORDS
                )
            except ProtocolError as error:
                raise self._batch.damage(str(error)) from error
        return self._places


def _locate(header: BatchHeader, section: bytes, position: int, end: int) -> RecordPlace:
    record_end, delta, offset_delta, *rest = locate_record(section, position, end)
    is_append_time = header.is_log_append_time
    key_position, key_length, value_position, value_length, headers_position = rest
    return RecordPlace(
        section,
        wrap_int64(header.base_offset + offset_delta),
        header.max_timestamp if is_append_time else wrap_int64(header.base_timestamp + delta),
        key_position,
        key_length,
        value_position,
        value_length,
        headers_position,
        record_end,
    )


def _place_of(record: Record) -> RecordPlace:
    """Return a record of an older format as the place in a section of its own."""
    key, value = record.key or b"", record.value or b""
    return RecordPlace(
        key + value,
        record.offset,
        record.timestamp,
        0,
        -1 if record.key is None else len(key),
        len(key),
        -1 if record.value is None else len(value),
        -1,
        len(key) + len(value),
    )
