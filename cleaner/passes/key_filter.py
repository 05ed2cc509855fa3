"""The filter of a clean segment's keys: built, queried, written, read (drawn in `summary`)."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
from numba import types

from odradek.cleaner.passes.chunks import Piece
from odradek.cleaner.passes.emission import OUT_COUNT, OUT_HORIZON, OUT_ROW
from odradek.cleaner.passes.hashing import UINT64, hash_for_filter
from odradek.cleaner.passes.summary import (
    HAS_FILTER,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    MUST_READ,
    VERSION,
    SegmentSummary,
    parse_summary,
)
from odradek.cleaner.rules.verdicts import DISCARD, DROPPED, KEEP
from odradek.dataclass import dataclass
from odradek.protocol.batch_scan import ATTRIBUTES, COUNT
from odradek.protocol.batches import CONTROL_BIT, TRANSACTIONAL_BIT
from odradek.protocol.checksum import crc32c
from odradek.protocol.intrinsics import Words
from odradek.protocol.kernel import (
    BOOLEAN,
    BYTES,
    INT64,
    INT64S,
    TABLE,
    UINT8S,
    Bytes,
    Table,
    as_bytes,
    int64,
    kernel,
    uint64,
)
from odradek.protocol.records import VALID, read_record
from odradek.storage.errors import DiskFailure
from odradek.storage.files import Buffer
from odradek.storage.segment import KEYS, Segment

logger = logging.getLogger(__name__)

_KEYS_PER_BUCKET = 4
_UINT32S = types.Array(types.uint32, 1, "C", readonly=True)
_WORDS = types.Array(types.uint64, 1, "C", readonly=True)

Numbers = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """The keys of a segment, by 32 bits of their hashes."""

    bucket_bits: int
    starts: Numbers
    fingerprints: Numbers

    @classmethod
    def of(cls, hashes: Sequence[Words]) -> KeyFilter:
        """Build the filter of all keys with these hashes."""
        keys = np.concatenate(hashes) if hashes else np.empty(0, np.uint64)
        bits = max(len(keys) // _KEYS_PER_BUCKET - 1, 0).bit_length()
        starts = np.zeros(2**bits + 1, np.uint32)
        fingerprints = np.empty(len(keys), np.uint32)
        sort_by_bucket(keys, len(keys), bits, starts, fingerprints)
        return cls(bits, starts, fingerprints)

    def may_have_any(self, hashes: Words) -> bool:
        """Return whether a key with one of the hashes may be in the segment."""
        return bool(
            has_any(hashes, len(hashes), self.bucket_bits, self.starts, self.fingerprints)
        )


@kernel(INT64, UINT64, INT64)
def bucket_of(hashed: int, bits: int) -> int:
    """Return the bucket that a hash is in."""
    return int64(hashed >> uint64(64 - bits)) if bits > 0 else int64(0)


@kernel(types.void, _WORDS, INT64, INT64, types.uint32[::1], types.uint32[::1])
def sort_by_bucket(
    hashes: Words, count: int, bits: int, starts: Numbers, fingerprints: Numbers
) -> None:
    """Fill in a filter's numbers; `starts` are zeros, one more than there are buckets."""
    buckets = 1 << bits
    for at in range(count):
        starts[bucket_of(hashes[at], bits)] += 1
    end = 0
    for bucket in range(buckets + 1):
        end += starts[bucket]
        starts[bucket] = end
    # Each bucket is filled from its end down to its start, which `starts` holds afterwards.
    for at in range(count):
        bucket = bucket_of(hashes[at], bits)
        starts[bucket] -= 1
        fingerprints[starts[bucket]] = (hashes[at] >> uint64(32 - bits)) & uint64(0xFFFFFFFF)


@kernel(BOOLEAN, _WORDS, INT64, INT64, _UINT32S, _UINT32S)
def has_any(
    hashes: Words, count: int, bucket_bits: int, starts: Numbers, fingerprints: Numbers
) -> bool:
    """Return whether any of the hashes is in a filter, whose numbers are within bounds."""
    for at in range(count):
        bucket = bucket_of(hashes[at], bucket_bits)
        wanted = (hashes[at] >> uint64(32 - bucket_bits)) & uint64(0xFFFFFFFF)
        for place in range(starts[bucket], starts[bucket + 1]):
            if fingerprints[place] == wanted:
                return True
    return False


@kernel(INT64, BYTES, TABLE, INT64, UINT8S, INT64S, UINT8S, UINT64, types.uint64[::1])
def hash_survivors(
    data: Bytes,
    batches: Table,
    batch_count: int,
    verdicts: Bytes,
    positions: Table,
    fates: Bytes,
    point: int,
    hashes: Words,
) -> int:
    """Hash the keys of the judged records that stay; return their number."""
    first = found = 0
    for row in range(batch_count):
        if verdicts[row] & DISCARD:
            continue
        for at in range(first, first + batches[row, COUNT]):
            if fates[at] != DROPPED and not verdicts[row] & KEEP:
                status, _, _, _, key_position, key_length, _, _, _ = read_record(
                    data, positions[at], data.size
                )
                if status == VALID and key_length >= 0:
                    hashes[found] = hash_for_filter(data, key_position, key_length, point)
                    found += 1
        first += batches[row, COUNT]
    return found


class SummaryBuilder:
    """Collects the summary of a segment while a cleaning reads or writes it."""

    def __init__(self, point: int, keys_max: int) -> None:
        """A segment of more keys than `keys_max` gets no filter: sorting takes memory."""
        self._point, self._keys_max = point, keys_max
        # None when there will be no filter: for too many keys, or a segment that is always read.
        self._hashes: list[Words] | None = []
        self._key_count = 0
        self._record_count = 0
        self._horizon_ms: int | None = None
        self._must_read = False

    def add(
        self, piece: Piece, survivors: Table, positions: Table, fates: Bytes, judged: int
    ) -> None:
        """Add a piece's surviving batches, and their keys; `judged` is its number of records."""
        self._record_count += int(survivors[:, OUT_COUNT].sum())
        horizons = survivors[:, OUT_HORIZON]
        horizons = horizons[horizons >= 0]
        if len(horizons):
            earliest = int(horizons.min())
            known_ms = self._horizon_ms
            self._horizon_ms = earliest if known_ms is None else min(known_ms, earliest)
        attributes = piece.batches[survivors[:, OUT_ROW], ATTRIBUTES]
        self._must_read |= bool((attributes & (CONTROL_BIT | TRANSACTIONAL_BIT)).any())
        self._must_read |= not survivors[:, OUT_COUNT].all()
        if self._must_read:
            self._hashes = None
        if self._hashes is None:
            return
        hashes = np.empty(judged, np.uint64)
        count = hash_survivors(
            piece.data,
            piece.batches,
            len(piece.batches),
            piece.verdicts,
            positions,
            fates,
            self._point,
            hashes,
        )
        self._hashes.append(hashes[:count].copy())
        self._key_count += count
        if self._key_count > self._keys_max:
            self._hashes = None

    def take(self, base_offset: int, size_bytes: int) -> tuple[SegmentSummary, KeyFilter | None]:
        """Return the summary of the segment that holds the batches, and its filter."""
        keys = None if self._hashes is None else KeyFilter.of(self._hashes)
        summary = SegmentSummary(
            base_offset,
            size_bytes,
            self._record_count,
            self._horizon_ms,
            self._must_read,
            self._point,
            has_filter=keys is not None,
        )
        return summary, keys


def read_filter(segment: Segment) -> KeyFilter | None:
    """Return a segment's key filter, None when no intact one exists. Raises nothing."""
    path = segment.path(KEYS)
    with contextlib.suppress(DiskFailure):
        file = segment.fs.open(path)
        return parse_filter(file.read(0, file.size()), path)
    return None


def parse_filter(data: Buffer, name: object) -> KeyFilter | None:
    """Return the filter in a file of a name, None unless it is intact."""
    if len(data) < HEADER_BYTES:
        return None
    *_, key_count, bits, checksum = HEADER.unpack_from(data)
    body = memoryview(data)[HEADER_BYTES:]
    if bits > 32 or len(body) != 4 * (2**bits + 1 + key_count) or crc32c(body) != checksum:
        logger.warning("left out a damaged key filter file=%s", name)
        return None
    numbers = np.frombuffer(body, "<u4")
    starts = numbers[: 2**bits + 1]
    if starts[-1] != key_count or not (starts[:-1] <= starts[1:]).all():
        return None
    return KeyFilter(bits, starts, numbers[2**bits + 1 :])


def may_have_key(
    data: Buffer, base_offset: int, size_bytes: int, keys: Iterable[bytes], name: object
) -> bool:
    """Return whether a segment may have a record with one of some keys, by its file `.keys`."""
    summary = parse_summary(data, base_offset, size_bytes, name)
    if summary is None or not summary.has_filter:
        return True
    found = parse_filter(data, name)
    # No array of NumPy's shares the memory of an empty key.
    ended = ((as_bytes(key + b"\0"), len(key)) for key in keys)
    hashes = [hash_for_filter(key, 0, length, summary.point) for key, length in ended]
    return found is None or found.may_have_any(np.array(hashes, np.uint64))


def write_summary(segment: Segment, summary: SegmentSummary, keys: KeyFilter | None) -> None:
    """Write a segment's summary, and its filter if there is one. Raises DiskFailure.

    The file is not synced: after a crash, a partly written one has a wrong checksum.
    """
    flags = MUST_READ * summary.must_read | HAS_FILTER * (keys is not None)
    starts, fingerprints = (b"", b"")
    if keys is not None:
        starts = keys.starts.astype("<u4").tobytes()
        fingerprints = keys.fingerprints.astype("<u4").tobytes()
    horizon = -1 if summary.next_horizon_ms is None else summary.next_horizon_ms
    header = HEADER.pack(
        MAGIC,
        VERSION,
        flags,
        summary.base_offset,
        summary.size_bytes,
        summary.record_count,
        horizon,
        summary.point,
        len(fingerprints) // 4,
        keys.bucket_bits if keys is not None else 0,
        crc32c(starts + fingerprints),
    )
    path = segment.path(KEYS)
    segment.fs.remove(path)
    file = segment.fs.open(path, write=True)
    file.append(0, [header, crc32c(header).to_bytes(4, "little"), starts, fingerprints])
