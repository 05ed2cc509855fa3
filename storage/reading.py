"""Finds things in a log's segments: records by timestamp, all batches, aborted transactions."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from odradek.dataclass import dataclass
from odradek.protocol.batch_records import record_section
from odradek.protocol.batches import MAGIC, BatchHeader, CorruptBatch
from odradek.protocol.errors import ProtocolError
from odradek.protocol.legacy import decode_stored, read_stored_header, stored_crc
from odradek.protocol.records_plain import MALFORMED, NOT_FOUND, first_at_or_after_plain
from odradek.storage.errors import CorruptFile
from odradek.storage.segment import LOG, Segment, Slice
from odradek.storage.transactions import AbortedTransaction

logger = logging.getLogger(__name__)

_INT64_MIN = -(2**63)

# The plain twin serves until the kernels are loaded, as in storage/validation.py.
_find: Callable[..., tuple[int, int]] = first_at_or_after_plain
# For a larger section it pays to load the kernels. The plain twin takes 0.2 us for a byte of
# headers, so that a batch that unpacks to 64 MiB would take it 13 s.
_PLAIN_BYTES_MAX = 1 << 20


def _load_nothing() -> None:
    pass


_load_kernels: Callable[[], None] = _load_nothing


@dataclass(frozen=True, slots=True)
class TimestampedOffset:
    """A record found by its timestamp."""

    offset: int
    timestamp: int
    leader_epoch: int  # -1 in the formats without leader epochs


def load_kernels_by(load: Callable[[], None]) -> None:
    """Set the function that loads the kernels, in the thread that searches a large section."""
    global _load_kernels
    _load_kernels = load


def use_kernels() -> None:
    """Search records by the compiled kernel from now on."""
    global _find
    from odradek.protocol.records import first_at_or_after as find

    _find = find


def segment_index(segments: Sequence[Segment], offset: int) -> int:
    """Return the index of the last segment that begins at or before an offset, 0 if none does."""
    low, high = 0, len(segments)
    while low < high:
        middle = (low + high) // 2
        if segments[middle].base_offset <= offset:
            low = middle + 1
        else:
            high = middle
    return max(low - 1, 0)


def first_at_or_after(
    segments: Sequence[Segment], timestamp: int, start_offset: int, decompressed_bytes_max: int
) -> TimestampedOffset | None:
    """Find the first record from an offset on whose timestamp (ms) is at or after the given one.

    A timestamp of -1 stands for none, which is found in all formats except the one without
    timestamps. Raises CorruptFile for damage in the way.
    """
    for segment in segments:
        if segment.max_timestamp < timestamp:
            continue
        for found in segment.locate_timestamp(timestamp, start_offset):
            data = found.read()
            header = read_stored_header(data)
            if header.magic == 0:
                return None
            try:
                look = _first_in_batch if header.magic == MAGIC else _first_in_entry
                first = look(header, data, timestamp, start_offset, decompressed_bytes_max)
            except ProtocolError as error:
                raise CorruptFile(segment.path(LOG), found.position, str(error)) from error
            if first is not None:
                return first
    return None


def aborted_between(
    segments: Sequence[Segment], start_offset: int, end_offset: int
) -> list[AbortedTransaction]:
    """Find the aborted transactions that overlap with a range of offsets.

    They are in the index of the segment that holds their marker, which may be any later segment
    (LocalLog.collectAbortedTransactions). Raises CorruptFile.
    """
    found: list[AbortedTransaction] = []
    for segment in segments[segment_index(segments, start_offset) :]:
        here, is_complete = segment.transactions.between(start_offset, end_offset)
        found += here
        if is_complete:
            break
    return found


def aborted_within(
    segments: Sequence[Segment], offset: int, found: Slice, log_end_offset: int
) -> list[AbortedTransaction]:
    """Find the aborted transactions that may have batches in a slice, from an offset on.

    As in Kafka the end of the slice is taken from the offset index, so there may be some too
    many. Raises CorruptFile.
    """
    at = segment_index(segments, found.base_offset)
    end_offset = segments[at].offset_index.offset_at_or_after(found.position + found.size)
    if end_offset is None:
        end_offset = segments[at + 1].base_offset if at + 1 < len(segments) else log_end_offset
    return aborted_between(segments[at:], offset, end_offset)


def replay(
    segments: Sequence[Segment], start_offset: int
) -> Iterator[tuple[BatchHeader, memoryview]]:
    """Read every intact batch from an offset on, waiting for the disk.

    Damaged parts are logged and left out.
    """
    for segment in segments[segment_index(segments, start_offset) :]:
        try:
            found = segment.locate(start_offset)
            position = found[0] if found else segment.size_bytes
        except CorruptFile as damage:
            position = damage.position
        while position < segment.size_bytes:
            for _, header, data in segment.batches(position):
                if stored_crc(header, data) != header.crc:
                    break
                yield header, data
                position += len(data)
            if position < segment.size_bytes:
                cause = "no intact batch, its records are left out"
                logger.error("found damage: %s", CorruptFile(segment.path(LOG), position, cause))
                position = segment.next_intact(position)


def _first_in_batch(
    header: BatchHeader, data: bytes, timestamp: int, start_offset: int, bytes_max: int
) -> TimestampedOffset | None:
    """Find the first record of a batch without creating those before it, maybe millions."""
    append_time = header.max_timestamp if header.is_log_append_time else None
    if append_time is not None:
        if append_time < timestamp:
            return None
        timestamp = _INT64_MIN  # the records' own timestamps do not count
    section = record_section(data, 0, header, bytes_max)
    if len(section) > _PLAIN_BYTES_MAX and _find is first_at_or_after_plain:
        _load_kernels()
    delta_min = max(start_offset - header.base_offset, 0)
    delta, found = _find(
        section, 0, len(section), header.count, header.base_timestamp, timestamp, delta_min
    )
    if delta == MALFORMED:
        raise CorruptBatch("a malformed record")
    if delta == NOT_FOUND:
        return None
    time = found if append_time is None else append_time
    return TimestampedOffset(header.base_offset + delta, time, header.leader_epoch)


def _first_in_entry(
    header: BatchHeader, data: bytes, timestamp: int, start_offset: int, bytes_max: int
) -> TimestampedOffset | None:
    for record in decode_stored(data, 0, bytes_max):
        if record.timestamp >= timestamp and record.offset >= start_offset:
            return TimestampedOffset(record.offset, record.timestamp, header.leader_epoch)
    return None
