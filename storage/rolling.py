"""Decides when a log begins a new segment, as Kafka's LogSegment.shouldRoll does."""

from __future__ import annotations

import random
from pathlib import Path

from odradek.config.topic import TopicConfig
from odradek.storage.files import FileSystem
from odradek.storage.index import OFFSET_ENTRY, TIME_ENTRY
from odradek.storage.lookup import RELATIVE_OFFSET_MAX
from odradek.storage.segment import Segment, create_segment

# A sealed segment of a shared log becomes an object, or a part of one; it is in memory meanwhile.
OBJECT_BYTES_MAX = 64 << 20


def segment_bytes_max(config: TopicConfig) -> int:
    """Return the size that a segment may reach."""
    return config.internal_segment_bytes or config.segment_bytes


def cleaned_bytes_max(config: TopicConfig, *, is_shared: bool) -> int:
    """Return the size up to which a cleaning merges segments; a shared one is an object."""
    size_bytes = segment_bytes_max(config)
    return min(size_bytes, OBJECT_BYTES_MAX) if is_shared else size_bytes


def must_roll(
    config: TopicConfig,
    active: Segment,
    size: int,
    last_offset: int,
    max_timestamp: int,
    now_ms: int,
) -> str | None:
    """Return the setting that keeps a batch out of the active segment, None when it may go in."""
    used = active.size_bytes
    if last_offset > active.base_offset + RELATIVE_OFFSET_MAX:
        return "offset span"
    if used == 0:
        return None
    if used + size > segment_bytes_max(config):
        return "segment.bytes"
    if _is_index_full(config, active):
        return "segment.index.bytes"
    if _waited_ms(active, max_timestamp, now_ms) > config.max_segment_ms - active.roll_jitter_ms:
        return "segment.ms"
    return None


def begin_segment(
    fs: FileSystem, directory: Path, base_offset: int, config: TopicConfig
) -> Segment:
    """Begin an empty segment with the topic's settings."""
    log_bytes = segment_bytes_max(config) if config.preallocate else 0
    return create_segment(fs, directory, base_offset, log_bytes)


def draw_roll_jitter_ms(config: TopicConfig, source: random.Random) -> int:
    """Draw the time by which a new segment rolls earlier than segment.ms."""
    jitter_ms = min(config.segment_jitter_ms, config.segment_ms)
    return source.randrange(jitter_ms) if jitter_ms > 0 else 0


def _is_index_full(config: TopicConfig, active: Segment) -> bool:
    index_bytes = config.segment_index_bytes
    offset_bytes = active.offset_index.entries.size_bytes
    if offset_bytes + OFFSET_ENTRY.size > index_bytes:
        return True
    if 2 * offset_bytes + 3 * TIME_ENTRY.size <= index_bytes:
        return False  # a hot path: there are rarely more time entries than offset entries
    # The time index keeps one place free for the entry that seals it.
    return active.time_index.entries.size_bytes + 2 * TIME_ENTRY.size > index_bytes


def _waited_ms(active: Segment, max_timestamp: int, now_ms: int) -> int:
    """Return the segment's age: by its batches' timestamps if they have any."""
    first = active.first_timestamp()
    if first is not None and first >= 0:
        return max_timestamp - first
    return now_ms - active.created_ms
