"""The ends of shared logs that only the WAL has, and the parts of them that are to be stored."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field

from odradek.broker.catalog.segment_rows import SegmentRow
from odradek.broker.ids import Partition
from odradek.broker.shared.packing import Part, remote_log
from odradek.dataclass import dataclass
from odradek.storage.errors import StorageError
from odradek.storage.log import Log
from odradek.storage.objects.cached_files import CachedFiles
from odradek.storage.objects.store import ObjectStore
from odradek.storage.rolling import OBJECT_BYTES_MAX
from odradek.storage.segment import Segment

logger = logging.getLogger(__name__)

# A segment of this size has an object of its own; smaller ones share one of about this size.
PACK_BYTES = 16 << 20
# A segment that is larger is sealed.
SEGMENT_BYTES_MAX = OBJECT_BYTES_MAX
# An active segment is uploaded again as a whole. It is sealed instead if it has grown by this, or
# if it has some size and has grown by less than a quarter. Smaller ones would be too many: each
# merge of segments uploads them once more.
PART_BYTES = 1 << 20
_AGAIN_BYTES, _GROWTH_MIN = 256 << 10, 4


@dataclass(frozen=True, slots=True)
class StoringLimits:
    """The bytes and entries that only the WAL has, and for how long, before logs are stored."""

    wal_bytes: int = 256 << 20
    wal_entries: int = 10_000
    wal_age_s: float = 600.0

    @property
    def round_bytes(self) -> int:
        """The bytes that a round stores, half of those of the WAL, so that its parts are large."""
        return self.wal_bytes - self.wal_bytes // 2

    def wal_bytes_max(self, others: int) -> int:
        """Return the bound of these bytes where so many brokers share a takeover."""
        return self.wal_bytes * max(others, 1)


@dataclass(slots=True, eq=False)
class Tail:
    """The end of a shared log that only the WAL has; the catalog's view of the log."""

    key: Partition
    log: Log
    stored_offset: int
    start_offset: int
    cleaner_offset: int | None = None
    # The upload of a segment that was not sealed then: its base offset and size.
    open_base: int = -1
    open_bytes: int = 0
    # The records that are not stored: their bytes, since when, and since which entry of the WAL.
    size_bytes: int = 0
    since_s: float = 0.0
    since_entry: int = 0
    # The catalog's rows, by base offset.
    rows: dict[int, SegmentRow] = field(default_factory=dict)
    # The segments whose files the disk has without need, by base offset.
    kept: dict[int, Segment] = field(default_factory=dict)

    @property
    def is_due_to_seal(self) -> bool:
        """Whether the active segment is to be sealed rather than uploaded as it is."""
        active = self.log.active
        is_open = self.open_base == active.base_offset
        return is_due_to_seal(active.size_bytes, self.open_bytes if is_open else 0)

    @property
    def has_sealed(self) -> bool:
        """Whether a sealed segment is not stored."""
        return self.log.active.base_offset > self.stored_offset

    @property
    def has_deleted(self) -> bool:
        """Whether the last row has only deleted records, and the active segment has no row."""
        last = self.rows[max(self.rows)] if self.rows else None
        return (
            last is not None
            and last.next_offset <= self.start_offset
            and last.base_offset < self.log.active.base_offset
        )

    def parts(self, *, with_active: bool) -> Iterator[Part]:
        """Iterate over the parts of segments that are to be uploaded, all of them committed.

        An active segment without records is one of them when nothing else in the bucket has the
        producers, or only rows whose records are deleted: those rows can go then.
        """
        log, end = self.log, self.log.high_watermark
        stored_offset = self.stored_offset
        for segment, following in itertools.pairwise(log.segments):
            next_offset = following.base_offset
            is_wanted = next_offset > self.stored_offset or segment.base_offset == self.open_base
            if is_wanted and next_offset <= end:
                if segment.base_offset > max(stored_offset, self.start_offset):
                    return  # records in between are deleted, and the catalog is to know first
                yield Part(self.key, log, segment, next_offset, log.epochs, is_open=False)
                stored_offset = max(stored_offset, next_offset)
        begin = log.active.base_offset
        lacks_producers = begin > stored_offset or self.has_deleted
        is_wanted = lacks_producers or (with_active and end > stored_offset)
        if is_wanted and begin <= min(end, max(stored_offset, self.start_offset)):
            yield Part(self.key, log, log.active, end, log.epochs, is_open=True)

    def adoptable(self) -> list[tuple[Tail, Segment]]:
        """Return the stored segments of which the disk has all without need."""
        return [
            (self, segment)
            for segment in (self.log.segments[:-1] if self.kept else ())
            # A cleaned segment is not in the log, or has a suffix, until the exchange is over.
            if self.kept.get(segment.base_offset) is segment and not segment.suffix
        ]

    def started(self, offset: int) -> None:
        """Note that the catalog has a log start offset, and no rows below it but the last one."""
        self.start_offset = max(self.start_offset, offset)
        last = max(self.rows, default=0)
        for base, row in list(self.rows.items()):
            if base != last and row.next_offset <= self.start_offset:
                del self.rows[base]
                self.kept.pop(base, None)

    @property
    def sealed_rows(self) -> list[SegmentRow]:
        """The catalog's rows of sealed segments from the log start offset on, in order."""
        start = self.log.log_start_offset
        rows = (one for _, one in sorted(self.rows.items()))
        return [one for one in rows if not one.is_open and one.next_offset > start]

    def segments_of(self, rows: Sequence[SegmentRow]) -> list[Segment]:
        """Return the log's segments of current rows; fewer if it has not all of them."""
        wanted = {
            (one.base_offset, one.next_offset, one.size_bytes)
            for one in rows
            if self.rows.get(one.base_offset) is one
        }
        return [
            segment
            for segment, following in itertools.pairwise(self.log.segments)
            if (segment.base_offset, following.base_offset, segment.size_bytes) in wanted
        ]

    def has_segments(self, rows: Sequence[SegmentRow]) -> bool:
        """Return whether the log is open, with a segment for each of these rows."""
        return not self.log.is_closed and len(self.segments_of(rows)) == len(rows)

    def exchanged(self, old: Iterable[SegmentRow], new: Iterable[SegmentRow]) -> None:
        """Note that the catalog has new rows in the place of old ones."""
        for row in old:
            del self.rows[row.base_offset]
            self.kept.pop(row.base_offset, None)
        for row in new:
            self.rows[row.base_offset] = row

    def stored(self, row: SegmentRow, now_s: float, entry: int) -> None:
        """Note that the catalog has a row; the rest is from a later time and entry on."""
        before = self.open_bytes if row.base_offset == self.open_base else 0
        self.size_bytes = max(self.size_bytes - (row.size_bytes - before), 0)
        self.stored_offset = max(self.stored_offset, row.next_offset)
        self.since_s, self.since_entry = now_s, entry
        self.rows[row.base_offset] = row
        self.started(self.start_offset)
        if row.is_open:
            self.open_base, self.open_bytes = row.base_offset, row.size_bytes
        elif row.base_offset == self.open_base:
            self.open_base, self.open_bytes = -1, 0


def choose_due(
    unstored: Iterable[Tail],
    size_bytes: int,
    limits: StoringLimits,
    others: int,
    now_s: float,
    entry: int,
) -> list[Tail]:
    """Return the logs of which the WAL has much, or has had records for long.

    `unstored` are those with records that are not stored, the oldest first, `entry` the last one.
    With many partitions, logs wait until they have some size, so that the catalog has fewer rows
    to write. Not for long: `others` brokers share a takeover, and read `wal_bytes` each at most.
    """
    left_bytes = limits.round_bytes if size_bytes >= limits.wal_bytes else 0
    least_bytes = 0 if size_bytes >= limits.wal_bytes_max(others) else PART_BYTES
    due = []
    for tail in unstored:
        is_old = (
            now_s - tail.since_s >= limits.wal_age_s
            or entry - tail.since_entry >= limits.wal_entries
        )
        if left_bytes <= 0 and not is_old:
            break
        if is_old or tail.size_bytes >= least_bytes:
            left_bytes -= tail.size_bytes
            due.append(tail)
    return due


def adopt_all(
    found: Iterable[tuple[Tail, Segment]], files: CachedFiles, store: ObjectStore
) -> None:
    """Let files of stored segments be dropped from the disk; it waits, so call it in a thread."""
    for tail, segment in found:
        kept = tail.kept.pop(segment.base_offset, None)
        row = tail.rows.get(segment.base_offset)
        if kept is None or row is None:  # its records are deleted
            continue
        try:
            files.adopt(segment.log.path, remote_log(store, row))
        except StorageError as error:
            if not tail.log.is_closed and segment in tail.log.segments:
                logger.error("kept a stored segment on the disk: %s", error)


def is_due_to_seal(size_bytes: int, open_bytes: int) -> bool:
    """Return whether an active segment, of which `open_bytes` are stored, is to be sealed."""
    growth_bytes = size_bytes - open_bytes
    return growth_bytes >= PART_BYTES or (
        open_bytes >= _AGAIN_BYTES and growth_bytes * _GROWTH_MIN < open_bytes
    )


def grouped(parts: Iterable[Part]) -> Iterator[Sequence[Part]]:
    """Yield parts that share an object."""
    group: list[Part] = []
    size_bytes = 0
    for part in parts:
        size = part.segment.size_bytes
        if size >= PACK_BYTES:
            yield [part]
            continue
        group.append(part)
        size_bytes += size
        if size_bytes >= PACK_BYTES:
            yield group
            group, size_bytes = [], 0
    if group:
        yield group
