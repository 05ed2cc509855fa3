"""The summary of a clean segment, with which a cleaning need not read it: the file `.keys`.

Beside a segment that was cleaned lies a filter of its keys: when it has none of the keys that
came since, nothing in the segment is obsolete. Before the filter is the rest that a
cleaning needs. The file only saves work: it is written again whenever a segment is read, and a
file that is damaged, or not of the present segment, counts as absent. Integers are little-endian:

    0   magic "OdrK"                   32  next delete horizon, ms, -1 for none
    4   version, 16 bits               40  point of the hash, 64 bits (cleaner/passes/hashing.py)
    6   flags, 16 bits                 48  keys in the filter, 32 bits; 0 without one
    8   base offset, 64 bits           52  bucket bits b, 32 bits
    16  size of the segment, 64 bits   56  CRC-32C of the filter
    24  records in it, 64 bits         60  CRC-32C of the 60 bytes before

    64  2^b + 1 numbers of 32 bits: where each bucket's fingerprints begin
        as many fingerprints of 32 bits as there are keys

The upper b bits of a key's hash select its bucket, and the next 32 bits are its fingerprint.
With four keys a bucket a key takes 5 bytes, and a key that is not in the segment is taken to be
there with a probability of 10^-9: so millions of new keys can be looked up, where a Bloom filter
of that size would fail within the first few thousand.
"""

from __future__ import annotations

import contextlib
import logging
import struct

from odradek.dataclass import dataclass
from odradek.protocol.checksum import crc32c
from odradek.storage.errors import DiskFailure
from odradek.storage.files import Buffer
from odradek.storage.segment import KEYS, Segment

logger = logging.getLogger(__name__)

HEADER = struct.Struct("<4sHHqqqqQIII")
HEADER_BYTES = 64
MAGIC, VERSION = b"OdrK", 1
MUST_READ, HAS_FILTER = 1, 2


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """A segment in short, without its keys."""

    base_offset: int
    size_bytes: int
    record_count: int
    # When the first of its tombstones and markers may go, None when there are none.
    next_horizon_ms: int | None
    # Whether a cleaning must read it independent of its keys: it has transactions, whose state
    # other segments share, or empty batches.
    must_read: bool
    point: int
    has_filter: bool


def read_summary(segment: Segment) -> SegmentSummary | None:
    """Return the summary of a segment, None when there is none. Raises nothing."""
    path = segment.path(KEYS)
    with contextlib.suppress(DiskFailure):
        if segment.fs.exists(path):
            data = segment.fs.open(path).read(0, HEADER_BYTES)
            return parse_summary(data, segment.base_offset, segment.size_bytes, path)
    return None


def parse_summary(
    data: Buffer, base_offset: int, size_bytes: int, name: object
) -> SegmentSummary | None:
    """Return the summary in a file of a name, None unless it is intact and of that segment."""
    header = memoryview(data)[:HEADER_BYTES]
    checksum = int.from_bytes(header[-4:], "little")
    if len(header) != HEADER_BYTES or crc32c(header[:-4]) != checksum:
        logger.warning("left out a damaged key filter file=%s", name)
        return None
    magic, version, flags, base, size, records, horizon, point, *_ = HEADER.unpack_from(header)
    if (magic, version, base, size) != (MAGIC, VERSION, base_offset, size_bytes):
        return None
    return SegmentSummary(
        base,
        size,
        records,
        horizon if horizon >= 0 else None,
        bool(flags & MUST_READ),
        point,
        bool(flags & HAS_FILTER),
    )
