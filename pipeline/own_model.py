"""Compute one run of Odradek's cleaner over a partition, without a broker.

One run covers the whole dirty section, with any number of keys: keys that its map has no room for
are spilled into temporary files. A segment that loses nothing is not written, and a clean segment
whose key filter (its .keys file) has none of the dirty keys is not even read. Source: this
project's `cleaner`, whose arithmetic is repeated here, in numbers of records.
"""

import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from odradek.dataclass import dataclass
from odradek.pipeline.cleaner_model import Offsets

Counts = npt.NDArray[np.float64]

_SLOT_BYTES = 16
_SLOTS_MIN = 64
_LOAD_FACTOR = 0.8
_SPILLED_ROW_BYTES = 20
_FILTER_HASH_BYTES = 8
_HASHES_SHARE = 4
_FACTS = struct.Struct("<4sHH8xq8xq")  # magic, version, flags, size, next delete horizon
_FACTS_MAGIC = b"OdrK"
_HAS_FILTER = 2  # one of the flags; the other one means that the segment must be read
# A smaller record hardly has a key and a value: then most offsets are gaps, not records.
_RECORD_BYTES = 16
# A segment stays alone when it has more than this many times the bytes of the segments after it.
_SETTLED_RATIO = 2


@dataclass(frozen=True, slots=True)
class Segments:
    """A partition's cleanable segments; each array has an element for each segment.

    ``sizes_bytes`` and ``kept_bytes`` are the sizes before and after a run over all of them.
    ``is_changed`` means that a segment loses a record, or that a tombstone in it is marked.
    ``spilled_records`` counts records whose key comes when the map is full.
    """

    base_offsets: Offsets
    sizes_bytes: Counts
    kept_bytes: Counts
    is_changed: npt.NDArray[np.bool_]
    has_filter: npt.NDArray[np.bool_]
    spilled_records: Counts


@dataclass(frozen=True, slots=True)
class OwnRun:
    """The costs and the work of one run.

    ``memory_bytes`` are for the map, a bit for each record, and hashes for key filters.
    """

    keys: int
    memory_bytes: int
    spilled_bytes: int
    indexed_bytes: float
    read_bytes: float
    written_bytes: float


def map_keys_max(buffer_bytes: int) -> int:
    """Return the number of keys that a map in a whole buffer holds before it spills others."""
    return int(_slots_max(buffer_bytes) * _LOAD_FACTOR)


def _slots_max(buffer_bytes: int) -> int:
    return max(buffer_bytes // _SLOT_BYTES, _SLOTS_MIN)


def own_run(
    segments: Segments,
    first_dirty_offset: int,
    first_uncleanable_offset: int,
    *,
    dirty_records: int,
    dirty_keys: int,
    buffer_bytes: int,
) -> OwnRun:
    """Return the costs and the work of a run over the dirty section of a partition."""
    ends = np.append(segments.base_offsets[1:], first_uncleanable_offset)
    is_clean = ends <= first_dirty_offset
    indexed_bytes = float(segments.sizes_bytes[~is_clean].sum())
    records = first_uncleanable_offset - first_dirty_offset
    if records > indexed_bytes // _RECORD_BYTES:
        records = dirty_records
    # Hashes of the dirty keys may take a quarter of the buffer; without them no filter is used.
    asks_filters = _HASHES_SHARE * _FILTER_HASH_BYTES * records <= buffer_bytes
    is_skipped = is_clean & segments.has_filter & ~segments.is_changed & asks_filters
    spilled = dirty_keys > map_keys_max(buffer_bytes)
    marked = records
    if spilled:  # then records of clean segments have marks, too
        marked += int(first_dirty_offset - segments.base_offsets[0])
    slots = min(max(int(records / _LOAD_FACTOR) + 1, _SLOTS_MIN), _slots_max(buffer_bytes))
    memory_bytes = slots * _SLOT_BYTES + marked // 8
    if asks_filters and segments.has_filter[is_clean].any():
        memory_bytes += records * _FILTER_HASH_BYTES
    is_written = _written(segments)
    spilled_records = segments.spilled_records[~is_skipped].sum() if spilled else 0
    return OwnRun(
        dirty_keys,
        memory_bytes,
        int(spilled_records) * _SPILLED_ROW_BYTES,
        indexed_bytes,
        float(segments.sizes_bytes[~is_skipped].sum()),
        float(segments.kept_bytes[is_written].sum()),
    )


def has_filter(segment: Path, now_ms: int) -> bool:
    """Return whether a clean segment has a key filter that can make reading it unnecessary.

    It has none if its transactions, or tombstones that are due by now, must be read in any case.
    The file's header is drawn in cleaner/passes/summary.py.
    """
    try:
        with segment.with_suffix(".keys").open("rb") as file:
            magic, _, flags, size_bytes, next_horizon_ms = _FACTS.unpack(file.read(_FACTS.size))
        return (
            magic == _FACTS_MAGIC
            and flags == _HAS_FILTER
            and size_bytes == segment.stat().st_size
            and not 0 <= next_horizon_ms <= now_ms
        )
    except (OSError, struct.error):
        return False


def _written(segments: Segments) -> npt.NDArray[np.bool_]:
    """Return which segments are written: segments that change, and segments merged with others."""
    written = segments.is_changed.copy()
    sizes = segments.sizes_bytes.tolist()
    # The largest segment has about the topic's segment.bytes: it was rolled when it was full.
    for group in _groups(sizes, max(sizes, default=0.0)):
        for part in _split_settled(sizes, group):
            if len(part) > 1:
                written[part.start : part.stop] = True
    return written


def _groups(sizes: Sequence[float], bytes_max: float) -> Iterator[range]:
    start, total = 0, 0.0
    for at, size in enumerate(sizes):
        if at > start and total + size > bytes_max:
            yield range(start, at)
            start, total = at, 0.0
        total += size
    if start < len(sizes):
        yield range(start, len(sizes))


def _split_settled(sizes: Sequence[float], group: range) -> Iterator[range]:
    start = group.start
    for at in group:
        if sizes[at] <= _SETTLED_RATIO * sum(sizes[at + 1 : group.stop]):
            break
        yield range(at, at + 1)
        start = at + 1
    if start < group.stop:
        yield range(start, group.stop)
