"""The input of a cleaner thread: one log's cleaning, as frozen facts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from odradek.cleaner.rules.policy import DirtyRange, Reason
from odradek.config.broker import BrokerConfig
from odradek.config.topic import TopicConfig
from odradek.dataclass import dataclass
from odradek.storage.log import Log
from odradek.storage.rolling import cleaned_bytes_max
from odradek.storage.segment import Segment

# With smaller chunks the interpreter's overhead becomes noticeable.
_CHUNK_BYTES_MIN = 1 << 20


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """A producer whose state must survive: its last data offset (None without data) and epoch."""

    last_data_offset: int | None
    epoch: int


@dataclass(frozen=True, slots=True)
class CleanerSettings:
    """The memory and disk space that one thread may use."""

    map_bytes_max: int
    map_load_factor: float
    chunk_bytes: int
    spill_bytes_max: int
    must_verify: bool
    may_clean_alone: bool = False  # the dirty section, if that pays

    @classmethod
    def of(cls, config: BrokerConfig) -> CleanerSettings:
        """Divide the configured amounts among the threads."""
        threads = max(config.log_cleaner_threads, 1)
        return cls(
            config.log_cleaner_dedupe_buffer_size // threads,
            config.log_cleaner_io_buffer_load_factor,
            max(config.log_cleaner_io_buffer_size // threads // 2, _CHUNK_BYTES_MIN),
            config.odradek_cleaner_spill_bytes_max // threads,
            config.log_cleaner_verify,
            config.odradek_cleaner_dirty_alone,
        )


@dataclass(frozen=True, slots=True)
class CleaningJob:
    """One log's cleaning, as the event loop decided it."""

    name: str
    topic: str
    partition: int
    directory: Path
    config: TopicConfig
    segment_bytes: int  # the size of segments that are merged
    dirty: DirtyRange
    segments: tuple[Segment, ...]  # all before the first uncleanable offset
    later_segments: tuple[Segment, ...]  # the others, where transactions of the range may end
    producers: Mapping[int, ActiveProducer]
    settings: CleanerSettings
    now_ms: int
    reason: Reason


def make_job(
    log: Log, dirty: DirtyRange, settings: CleanerSettings, now_ms: int, reason: Reason
) -> CleaningJob:
    """Collect the facts that a thread needs to clean a log; runs on the loop."""
    return CleaningJob(
        log.name,
        log.topic,
        log.partition,
        log.directory,
        log.config,
        cleaned_bytes_max(log.config, is_shared=log.is_shared),
        dirty,
        tuple(s for s in log.segments if s.base_offset < dirty.first_uncleanable_offset),
        tuple(s for s in log.segments if s.base_offset >= dirty.first_uncleanable_offset),
        {
            state.producer_id: ActiveProducer(
                state.last_data_offset if state.last_data_offset >= 0 else None, state.epoch
            )
            for state in log.producers
        },
        settings,
        now_ms,
        reason,
    )
