"""Compares one batch of a cleaning's output with the expected records of its source.

Messages describe a difference by names and sizes: the contents of records stay out of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields, replace
from itertools import zip_longest

from odradek.cleaner.errors import VerificationFailed
from odradek.cleaner.proof.stored import Stored
from odradek.dataclass import dataclass
from odradek.protocol.batches import (
    DELETE_HORIZON_BIT,
    NO_TIMESTAMP,
    BatchHeader,
    Record,
    empty_batch,
    read_header,
)
from odradek.storage.errors import CorruptFile

# The packed length depends on the codec's library; the CRC was checked when the batch was read.
_UNCOMPARED = {"length", "crc"}
_HEADER_FIELDS = [one.name for one in fields(BatchHeader) if one.name not in _UNCOMPARED]


@dataclass(slots=True)
class Kept:
    """A header's facts about the remaining records; a list of them takes far more memory."""

    count: int = 0
    first_timestamp: int = NO_TIMESTAMP
    max_timestamp: int = NO_TIMESTAMP
    last_offset: int = -1
    has_tombstones: bool = False

    def note(self, record: Record) -> None:
        """Note the next remaining record."""
        if not self.count:
            self.first_timestamp = record.timestamp
        self.count += 1
        self.max_timestamp = max(self.max_timestamp, record.timestamp)
        self.last_offset = record.offset
        self.has_tombstones = self.has_tombstones or record.value is None

    def noting(self, records: Iterable[Record]) -> Iterator[Record]:
        """Note each of the records, and yield it."""
        for record in records:
            self.note(record)
            yield record


def reduced_header(header: BatchHeader, kept: Kept, horizon_ms: int | None) -> BatchHeader:
    """Return the header of a batch after it lost some of its records.

    `horizon_ms` is the delete horizon that it gets now, None when it gets none. Its length and
    CRC are not set.
    """
    if not kept.count:
        return read_header(empty_batch(header))
    base_timestamp = kept.first_timestamp
    if horizon_ms is not None:
        base_timestamp = horizon_ms
    elif header.has_delete_horizon:
        base_timestamp = header.base_timestamp
    return replace(
        header,
        attributes=header.attributes | (DELETE_HORIZON_BIT if horizon_ms is not None else 0),
        base_timestamp=base_timestamp,
        max_timestamp=kept.max_timestamp,
        count=kept.count,
    )


def check_header(found: Stored, expected: BatchHeader) -> None:
    """Raise VerificationFailed unless a batch's header has the expected values."""
    for name in _HEADER_FIELDS:
        wanted, is_there = getattr(expected, name), getattr(found.header, name)
        if wanted != is_there:
            raise failed(found, f"{name} is {is_there}, expected {wanted}")


def check_records(found: Stored, there: Iterable[Record], expected: Iterable[Record]) -> None:
    """Raise VerificationFailed unless a batch has the expected records.

    Both iterables are read one by one, to their ends.
    """
    there_count = expected_count = 0
    first_alone = None
    for is_there, wanted in zip_longest(there, expected):
        there_count += is_there is not None
        expected_count += wanted is not None
        if is_there is not None and wanted is not None:
            check_record(found, is_there, wanted)
        elif first_alone is None:
            first_alone = is_there or wanted
    if first_alone is not None:
        cause = f"{there_count} records, expected {expected_count}"
        raise failed(found, cause, first_alone.offset)


def check_record(found: Stored, there: Record, expected: Record) -> None:
    """Raise VerificationFailed unless a record is the expected one."""
    if there == expected:
        return
    offset = expected.offset
    for name in ("offset", "timestamp"):
        wanted, is_there = getattr(expected, name), getattr(there, name)
        if wanted != is_there:
            raise failed(found, f"a record's {name} is {is_there}, expected {wanted}", offset)
    for name in ("key", "value"):
        wanted, is_there = getattr(expected, name), getattr(there, name)
        if wanted != is_there:
            raise failed(found, f"the record's {name} {_difference(is_there, wanted)}", offset)
    raise failed(found, "the record's headers differ", offset)


def each_record_of(found: Stored, decompressed_bytes_max: int) -> Iterator[Record]:
    """Decode the records of an output batch; raises VerificationFailed where they do not parse."""
    try:
        yield from found.each_record(decompressed_bytes_max)
    except CorruptFile as damage:
        raise failed(found, damage.cause) from damage


def failed(found: Stored, cause: str, offset: int | None = None) -> VerificationFailed:
    """Return the error for an output batch that differs from the expected one."""
    at = found.header.base_offset if offset is None else offset
    return VerificationFailed(found.path, found.position, at, cause)


def _difference(there: bytes | None, expected: bytes | None) -> str:
    if there is None or expected is None:
        return f"is {_size(there)}, expected {_size(expected)}"
    pairs = enumerate(zip(there, expected, strict=False))
    at = next((at for at, (a, b) in pairs if a != b), min(len(there), len(expected)))
    return f"is {_size(there)}, expected {_size(expected)}; they differ from byte {at} on"


def _size(data: bytes | None) -> str:
    return "null" if data is None else f"{len(data)} bytes"
