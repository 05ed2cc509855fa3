"""What a cleaning reports: one frozen result, for the log in Kafka's words and for metrics."""

from __future__ import annotations

from dataclasses import dataclass

_MB = 1024 * 1024


@dataclass(slots=True)
class Counters:
    """What a run has counted so far; owned by the run."""

    indexed_bytes: int = 0
    indexed_records: int = 0
    read_bytes: int = 0
    read_records: int = 0
    written_bytes: int = 0
    written_records: int = 0
    invalid_records: int = 0
    expired_tombstones: int = 0
    removed_markers: int = 0
    removed_aborted_batches: int = 0
    segments_read: int = 0
    segments_written: int = 0


@dataclass(frozen=True, slots=True)
class CleanResult:
    """One finished cleaning of one log."""

    topic: str
    partition: int
    first_dirty_offset: int
    end_offset: int  # the next first dirty offset
    first_uncleanable_offset: int  # beyond the end offset when the map was full before
    started_ms: int
    index_ms: int
    total_ms: int
    indexed_bytes: int
    indexed_records: int
    read_bytes: int
    read_records: int
    written_bytes: int
    written_records: int
    invalid_records: int  # without a key
    expired_tombstones: int
    removed_markers: int
    removed_aborted_batches: int
    segments_read: int
    segments_written: int
    map_keys: int
    map_bytes: int
    map_utilization: float
    cleanable_ratio: float
    overdue_ms: int

    @property
    def reclaimed_bytes(self) -> int:
        """How much smaller the log's segments have become."""
        return self.read_bytes - self.written_bytes

    @property
    def is_partial(self) -> bool:
        """Whether the map was full before the end of the cleanable range."""
        return self.end_offset < self.first_uncleanable_offset


def report(result: CleanResult, thread: int) -> str:
    """Describe a cleaning as Kafka's log cleaner does, for the log."""
    index_s, total_s = result.index_ms / 1000, result.total_ms / 1000
    clean_s = total_s - index_s
    indexed, read, written = (
        count / _MB for count in (result.indexed_bytes, result.read_bytes, result.written_bytes)
    )
    lines = [
        f"Log cleaner thread {thread} cleaned log {result.topic}-{result.partition} "
        f"(dirty section = [{result.first_dirty_offset}, {result.end_offset}])",
        f"{read:,.1f} MB of log processed in {total_s:,.1f} seconds "
        f"({_rate(read, total_s)} MB/sec).",
        f"Indexed {indexed:,.1f} MB in {index_s:.1f} seconds "
        f"({_rate(indexed, index_s)} Mb/sec, {_percent(index_s, total_s)} of total time)",
        f"Buffer utilization: {100 * result.map_utilization:.1f}%",
        f"Cleaned {read:,.1f} MB in {clean_s:.1f} seconds "
        f"({_rate(read, clean_s)} Mb/sec, {_percent(clean_s, total_s)} of total time)",
        f"Start size: {read:,.1f} MB ({result.read_records:,} messages)",
        f"End size: {written:,.1f} MB ({result.written_records:,} messages)",
        f"{_percent(result.reclaimed_bytes, result.read_bytes)} size reduction "
        f"({_percent(result.read_records - result.written_records, result.read_records)} "
        "fewer messages)",
        f"Map: {result.map_keys:,} keys in {result.map_bytes / _MB:,.1f} MB; removed "
        f"{result.expired_tombstones:,} tombstones, {result.removed_markers:,} markers",
    ]
    return "\n\t".join(lines)


def _rate(amount: float, seconds: float) -> str:
    # Milliseconds are what is measured: a shorter run has no rate worth telling.
    return f"{amount / seconds:,.1f}" if seconds > 0 else "-"


def _percent(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "0.0%"
