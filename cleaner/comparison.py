"""Holds one batch of a cleaning's output against what the rules leave of its source.

What differs is told by its name and its size: what is in records stays out of messages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace

from cleaner.errors import VerificationFailed
from cleaner.stored import Stored
from protocol.batches import (
    DELETE_HORIZON_BIT,
    NO_TIMESTAMP,
    BatchHeader,
    Record,
    empty_batch,
    read_header,
)
from storage.errors import CorruptFile

# How well a codec packs is its library's affair; the CRC was checked when the batch was read.
_UNCOMPARED = {"length", "crc"}
_HEADER_FIELDS = [one.name for one in fields(BatchHeader) if one.name not in _UNCOMPARED]


def reduced_header(
    header: BatchHeader, kept: Sequence[Record], horizon_ms: int | None
) -> BatchHeader:
    """Return the header that a batch has once only some of its records are left.

    `horizon_ms` is the delete horizon that it gets now, None when it gets none. Of its length
    and CRC nothing is said.
    """
    if not kept:
        return read_header(empty_batch(header))
    base_timestamp = kept[0].timestamp
    if horizon_ms is not None:
        base_timestamp = horizon_ms
    elif header.has_delete_horizon:
        base_timestamp = header.base_timestamp
    return replace(
        header,
        attributes=header.attributes | (DELETE_HORIZON_BIT if horizon_ms is not None else 0),
        base_timestamp=base_timestamp,
        max_timestamp=max(NO_TIMESTAMP, *(record.timestamp for record in kept)),
        count=len(kept),
    )


def check_header(found: Stored, expected: BatchHeader) -> None:
    """Raise VerificationFailed unless a batch's header says what is expected."""
    for name in _HEADER_FIELDS:
        wanted, is_there = getattr(expected, name), getattr(found.header, name)
        if wanted != is_there:
            raise failed(found, f"{name} is {is_there}, expected {wanted}")


def check_records(found: Stored, there: Sequence[Record], expected: Sequence[Record]) -> None:
    """Raise VerificationFailed unless a batch's records are those expected."""
    for wanted, is_there in zip(expected, there, strict=False):
        check_record(found, is_there, wanted)
    if len(there) != len(expected):
        cause = f"{len(there)} records, expected {len(expected)}"
        at = min(len(there), len(expected))
        longer = there if len(there) > len(expected) else expected
        raise failed(found, cause, longer[at].offset)


def check_record(found: Stored, there: Record, expected: Record) -> None:
    """Raise VerificationFailed unless a record is the one expected."""
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


def check_bytes(found: Stored, source: Stored, decompressed_bytes_max: int) -> None:
    """Raise VerificationFailed unless a batch was copied byte for byte."""
    if found.data == source.data:
        return
    check_header(found, source.header)
    records = records_of(found, decompressed_bytes_max)
    check_records(found, records, source.records(decompressed_bytes_max))
    raise failed(found, "it was not copied as it was, though it loses no record")


def records_of(found: Stored, decompressed_bytes_max: int) -> list[Record]:
    """Decode the records of an output batch; raises VerificationFailed when they do not parse."""
    try:
        return found.records(decompressed_bytes_max)
    except CorruptFile as damage:
        raise failed(found, damage.cause) from damage


def failed(found: Stored, cause: str, offset: int | None = None) -> VerificationFailed:
    """Return the error for an output batch that is not what is expected."""
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
