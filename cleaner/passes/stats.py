"""The report of a cleaning: one frozen result, for the log in Kafka's words and for metrics."""

from __future__ import annotations

from odradek.cleaner.rules.policy import Reason
from odradek.dataclass import dataclass
from odradek.storage.metering import StoreUse

_MB = 1024 * 1024


@dataclass(slots=True)
class Counters:
    """The counts of a run so far; owned by the run."""

    indexed_bytes: int = 0
    indexed_records: int = 0
    start_bytes: int = 0
    start_records: int = 0
    end_bytes: int = 0
    end_records: int = 0
    read_bytes: int = 0
    written_bytes: int = 0
    invalid_records: int = 0
    expired_tombstones: int = 0
    removed_markers: int = 0
    removed_aborted_batches: int = 0
    segments_read: int = 0
    segments_written: int = 0
    segments_kept: int = 0
    segments_skipped: int = 0
    spilled_bytes: int = 0
    spill_count: int = 0


@dataclass(frozen=True, slots=True)
class CleanResult:
    """One finished cleaning of one log.

    `start_` and `end_` measure the segments of the cleaned range before and after; `read_` and
    `written_` count the bytes that the second pass read and wrote: unchanged segments are not
    written, and may not even be read.
    """

    topic: str
    partition: int
    reason: Reason
    first_dirty_offset: int
    end_offset: int  # the next first dirty offset
    first_uncleanable_offset: int  # beyond the end offset when the map was full before it
    started_ms: int
    index_ms: int
    total_ms: int
    indexed_bytes: int
    indexed_records: int
    start_bytes: int
    start_records: int
    end_bytes: int
    end_records: int
    read_bytes: int
    written_bytes: int
    invalid_records: int  # without a key
    expired_tombstones: int
    removed_markers: int
    removed_aborted_batches: int
    segments_read: int
    segments_written: int
    segments_kept: int  # unchanged, including the skipped ones
    segments_skipped: int  # not even read, since nothing in them could be obsolete
    spilled_bytes: int  # hashes in temporary files, for a map larger than its ceiling
    spill_count: int  # the parts that they were split into
    map_keys: int
    map_bytes: int
    map_utilization: float
    cleanable_ratio: float
    overdue_ms: int
    next_horizon_ms: int | None  # when the first remaining tombstone or marker may go
    is_verified: bool  # log.cleaner.verify has proved the output
    # Only the dirty section was cleaned: it stays dirty, and its tombstones are as they were.
    is_alone: bool
    # The requests to the object store, of a log whose segments are there.
    store: StoreUse | None = None

    @property
    def reclaimed_bytes(self) -> int:
        """The bytes by which the log's segments have become smaller."""
        return self.start_bytes - self.end_bytes

    @property
    def is_partial(self) -> bool:
        """Whether the map was full before the end of the cleanable range."""
        return self.end_offset < self.first_uncleanable_offset and not self.is_alone


def report(result: CleanResult, thread: int | str) -> str:
    """Describe a cleaning as Kafka's log cleaner does, for the log."""
    index_s, total_s = result.index_ms / 1000, result.total_ms / 1000
    clean_s = total_s - index_s
    indexed, start, end, read, written = (
        count / _MB
        for count in (
            result.indexed_bytes,
            result.start_bytes,
            result.end_bytes,
            result.read_bytes,
            result.written_bytes,
        )
    )
    lines = [
        f"Log cleaner thread {thread} cleaned log {result.topic}-{result.partition} "
        f"(dirty section = [{result.first_dirty_offset}, {result.end_offset}])",
        f"{start:,.1f} MB of log processed in {total_s:,.1f} seconds "
        f"({_rate(start, total_s)} MB/sec).",
        f"Indexed {indexed:,.1f} MB in {index_s:.1f} seconds "
        f"({_rate(indexed, index_s)} Mb/sec, {_percent(index_s, total_s)} of total time)",
        f"Buffer utilization: {100 * result.map_utilization:.1f}%",
        f"Cleaned {read:,.1f} MB in {clean_s:.1f} seconds "
        f"({_rate(read, clean_s)} Mb/sec, {_percent(clean_s, total_s)} of total time)",
        f"Start size: {start:,.1f} MB ({result.start_records:,} messages)",
        f"End size: {end:,.1f} MB ({result.end_records:,} messages)",
        f"{_percent(result.reclaimed_bytes, result.start_bytes)} size reduction "
        f"({_percent(result.start_records - result.end_records, result.start_records)} "
        "fewer messages)",
        f"Map: {result.map_keys:,} keys in {result.map_bytes / _MB:,.1f} MB, "
        f"{result.spilled_bytes / _MB:,.1f} MB spilled in {result.spill_count} parts",
        f"Segments: {result.segments_read} read, {result.segments_written} written with "
        f"{written:,.1f} MB, {result.segments_kept} kept as they were "
        f"({result.segments_skipped} of them unread)",
        f"Removed {result.expired_tombstones:,} tombstones, {result.removed_markers:,} markers, "
        f"{result.removed_aborted_batches:,} aborted batches, "
        f"{result.invalid_records:,} invalid messages",
    ]
    if result.is_alone:
        lines.append("Cleaned the dirty section alone: the clean one would have cost more")
    if result.store is not None:
        store = result.store
        lines.append(
            f"Object store: {store.puts:,} PUTs with {store.sent_bytes / _MB:,.1f} MB, "
            f"{store.gets:,} GETs with {store.received_bytes / _MB:,.1f} MB"
        )
    return "\n\t".join(lines)


def _rate(amount: float, seconds: float) -> str:
    # Time is measured in milliseconds: a shorter run has no meaningful rate.
    return f"{amount / seconds:,.1f}" if seconds > 0 else "-"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "0.0%"
