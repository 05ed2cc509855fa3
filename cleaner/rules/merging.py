"""Decides which stored segments of a shared log become one: pure, over the facts of their rows.

The broker seals and stores small segments of a slow topic, so that the WAL can forget them. Each
has a row in the catalog, a place in an object, and files in the cache. Compaction merges those of
compacted topics; this rule is for all others.

    | window 1: closed |  large  | window 2: closed | window 3: open ...  active segment
      becomes one        stays     becomes one        its end becomes one, now and then

1. A merged segment is within `segment.bytes`, the size of an object, the size of an index and the
   offsets that it can name. Its records span at most `segment.ms`: Kafka's segments do, too.
2. Retention deletes whole segments. So a merged one has at most an eighth of `retention.ms` and of
   `retention.bytes`.
3. A merge gives the segment of each byte at least twice the size, except the first merge of the
   byte and the one that closes its window. So a byte is copied a few times, however large the log
   is: at most 3 + log2(largest size / smallest size).
4. Once nothing is to be merged, each closed window has one segment, and the open one has at most
   8 + log2(largest size / smallest size). The windows are as many as the limits require: two of
   them that are neighbours do not fit into one segment.

A segment without timestamps is as old as its object, so it stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek.cleaner.rules.policy import OFFSET_SPAN_MAX
from odradek.config.topic import TopicConfig
from odradek.config.values import INT64_MAX
from odradek.dataclass import dataclass
from odradek.storage.index import OFFSET_ENTRY
from odradek.storage.rolling import segment_bytes_max

# Retention keeps records longer by this part of its limit at most.
_RETENTION_PARTS = 8
# A segment that has this part of the greatest size is large: it stays as it is.
_LARGE_PARTS = 4
# So many segments at the end of a log are merged: fewer are not worth an object.
MERGED_MIN = 8


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A sealed segment in the bucket, as its row in the catalog describes it."""

    base_offset: int
    next_offset: int
    size_bytes: int
    index_bytes: int
    time_index_bytes: int
    first_timestamp: int  # ms; the first batch's largest, -1 for none
    max_timestamp: int  # ms; -1 for none


@dataclass(frozen=True, slots=True)
class MergeLimits:
    """The limits of a merged segment."""

    size_bytes: int
    index_bytes: int
    span_ms: int  # between its first and its largest timestamp

    @classmethod
    def of(cls, config: TopicConfig, object_bytes_max: int) -> MergeLimits:
        """Return the limits of a topic whose segments have at most the given bytes."""
        size_bytes = min(segment_bytes_max(config), object_bytes_max)
        if config.retention_bytes >= 0:
            size_bytes = min(size_bytes, config.retention_bytes // _RETENTION_PARTS)
        span_ms = config.max_segment_ms
        if config.retention_ms >= 0:
            span_ms = min(span_ms, config.retention_ms // _RETENTION_PARTS)
        return cls(size_bytes, config.segment_index_bytes, span_ms)


def choose_merge(segments: Sequence[StoredSegment], limits: MergeLimits) -> range | None:
    """Choose the neighbours, by their indexes, that become one segment next; None for none.

    `segments` are all sealed and stored segments of a log from the log start offset on, in order.
    """
    start = 0
    window = _Window(limits)
    for at, segment in enumerate(segments):
        if at > start and not window.fits(segment):
            if at > start + 1:
                return range(start, at)
            start, window = at, _Window(limits)
        window.add(segment)
    return _end_of([one.size_bytes for one in segments], range(start, len(segments)))


def _end_of(sizes: Sequence[int], window: range) -> range | None:
    """Choose the end of an open window, from the first segment that the rest is as large as."""
    rest = sum(sizes[at] for at in window)
    for at in window:
        rest -= sizes[at]
        if window.stop - at < MERGED_MIN:
            return None
        if sizes[at] <= rest:
            return range(at, window.stop)
    return None


class _Window:
    """Neighbours that fit into one segment."""

    def __init__(self, limits: MergeLimits) -> None:
        self._limits, self._base_offset = limits, -1
        self._size_bytes = self._index_bytes = self._time_index_bytes = 0
        self._first_ms, self._max_ms = INT64_MAX, -1
        self._is_alone = False

    def fits(self, one: StoredSegment) -> bool:
        """Return whether another segment may be added."""
        limits = self._limits
        return (
            not (self._is_alone or self._stays(one))
            and self._size_bytes + one.size_bytes <= limits.size_bytes
            and self._index_bytes + one.index_bytes + OFFSET_ENTRY.size <= limits.index_bytes
            and self._time_index_bytes + one.time_index_bytes <= limits.index_bytes
            and one.next_offset - 1 - self._base_offset <= OFFSET_SPAN_MAX
            and max(self._max_ms, one.max_timestamp) - min(self._first_ms, one.first_timestamp)
            <= limits.span_ms
        )

    def add(self, one: StoredSegment) -> None:
        """Add a segment: the first one, or one that fits."""
        if self._base_offset < 0:
            self._base_offset, self._is_alone = one.base_offset, self._stays(one)
        self._size_bytes += one.size_bytes
        # Its first batch may get an entry.
        self._index_bytes += one.index_bytes + OFFSET_ENTRY.size
        self._time_index_bytes += one.time_index_bytes
        self._first_ms = min(self._first_ms, one.first_timestamp)
        self._max_ms = max(self._max_ms, one.max_timestamp)

    def _stays(self, one: StoredSegment) -> bool:
        is_large = one.size_bytes * _LARGE_PARTS >= self._limits.size_bytes
        return is_large or one.first_timestamp < 0 or one.max_timestamp < 0
