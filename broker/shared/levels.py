"""The levels of a shared log, and the most requests that a cleaning of it needs: pure.

    L0    records in the WAL, of which no segment of the bucket has any yet
    L1    dirty segments: they have records from the first dirty offset on
    L2    clean segments: all their records are below it

The event loop notes references to the rows of the catalog, and a thread counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from odradek.broker.catalog.segment_rows import SegmentRow
from odradek.broker.shared.packing import packed_segment, segment_sizes
from odradek.cleaner.passes.stats import CleanResult
from odradek.cleaner.rules.policy import SegmentSizes, merge_groups
from odradek.cleaner.runtime.plan import SegmentReads
from odradek.config.topic import TopicConfig
from odradek.dataclass import dataclass
from odradek.storage.metering import StoreUse
from odradek.storage.objects.cached_files import BLOCK_BYTES
from odradek.storage.rolling import cleaned_bytes_max
from odradek.storage.segment import INDEX, KEYS, TXN_INDEX

# Files that a cleaning may read beside the batches, once.
_BESIDE = (INDEX, TXN_INDEX, KEYS)


@dataclass(frozen=True, slots=True)
class Level:
    """Segments in the bucket; an object may have segments of other levels and logs, too."""

    segments: int
    objects: int
    size_bytes: int  # of batches


@dataclass(frozen=True, slots=True)
class Levels:
    """The places of a log's records."""

    wal_bytes: int
    dirty: Level
    clean: Level


@dataclass(frozen=True, slots=True)
class RequestBounds:
    """The most requests of a cleaning, if each block that it reads is fetched once a pass.

    The bytes sent are those of batches; each object has their indexes, producers and epochs, too.
    """

    puts: int
    sent_bytes: int
    batches: StoreUse  # the reads of batches
    beside: StoreUse  # those of indexes and summaries
    dirty_segments: int

    @property
    def use(self) -> StoreUse:
        """The most requests, without a dry run."""
        return self.batches + self.beside + StoreUse(puts=self.puts, sent_bytes=self.sent_bytes)

    def after(self, result: CleanResult) -> StoreUse:
        """Return the most requests after a dry run: PUTs and bytes sent are exact."""
        read_bytes = result.indexed_bytes + result.read_bytes
        batches = self.batches
        if not result.spill_count and batches.received_bytes >= read_bytes:
            # Segments in which nothing is obsolete are not read. Each other one ends in a block.
            blocks = read_bytes // BLOCK_BYTES + result.segments_read + self.dirty_segments
            batches = StoreUse(gets=min(batches.gets, blocks), received_bytes=read_bytes)
        written = StoreUse(puts=result.segments_written, sent_bytes=result.written_bytes)
        return batches + self.beside + written


@dataclass(frozen=True, slots=True)
class NotedLevels:
    """A shared log at one moment, for a thread."""

    rows: tuple[SegmentRow, ...]
    wal_bytes: int

    def levels(self, first_dirty_offset: int) -> Levels:
        """Count the segments and objects of each level."""
        dirty = [one for one in self.rows if one.next_offset > first_dirty_offset]
        clean = [one for one in self.rows if one.next_offset <= first_dirty_offset]
        return Levels(self.wal_bytes, _level(dirty), _level(clean))

    def bounds(
        self, reads: Sequence[SegmentReads], config: TopicConfig, end_offset: int
    ) -> RequestBounds:
        """Return the most requests of a cleaning up to an offset. Raises DamagedPack.

        A sealed segment that is not in the bucket yet is taken for one that is.
        """
        rows = {one.base_offset: one for one in self.rows if not one.is_open}
        batches = beside = StoreUse()
        sizes: list[SegmentSizes] = []
        for one in reads:
            row = rows.get(one.base_offset)
            batches += _times(_whole(one.size_bytes), one.count)
            if row is None:
                sizes.append(SegmentSizes(one.base_offset, one.size_bytes, 0, 0))
                continue
            sizes.append(segment_sizes(row))
            files = packed_segment(row).files
            for kind in _BESIDE:
                beside += _whole(files[kind].size_bytes if kind in files else 0)
        first_dirty = sum(not one.is_dirty for one in reads)
        segment_bytes = cleaned_bytes_max(config, is_shared=True)
        puts = max(  # the dirty section may be cleaned alone, and is grouped by itself then
            len(
                merge_groups(
                    sizes[start:],
                    log_bytes_max=segment_bytes,
                    index_bytes_max=config.segment_index_bytes,
                    end_offset=end_offset,
                )
            )
            for start in (0, first_dirty)
        )
        sent_bytes = sum(one.size_bytes for one in reads)
        return RequestBounds(puts, sent_bytes, batches, beside, len(reads) - first_dirty)


def _level(rows: Iterable[SegmentRow]) -> Level:
    rows = list(rows)
    return Level(len(rows), len({one.key for one in rows}), sum(one.size_bytes for one in rows))


def _whole(size_bytes: int) -> StoreUse:
    """Return the most requests that read a file once: one a block."""
    return StoreUse(gets=-(-size_bytes // BLOCK_BYTES), received_bytes=size_bytes)


def _times(use: StoreUse, count: int) -> StoreUse:
    return StoreUse(gets=use.gets * count, received_bytes=use.received_bytes * count)
