"""Plan the cleaning of topics from their segment files, by Kafka's cleaner and by Odradek's.

`plan_topics` reads each record once, without its value. Its figures are for the present files, if
nothing more is written.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from pyspark import StorageLevel
from pyspark.sql import Row, SparkSession

from odradek.dataclass import dataclass
from odradek.pipeline import neighbours
from odradek.pipeline.cleaner_model import KafkaCleaner, Run, Sizes, kafka_runs
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.neighbours import UNCLEANABLE, Extent
from odradek.pipeline.own_model import OwnRun, Segments, has_filter, map_keys_max, own_run
from odradek.pipeline.segment_files import Segment, changed, find_segments
from odradek.pipeline.segment_selection import parse_options
from odradek.pipeline.segment_source import read_segments

_CHECKPOINT = "cleaner-offset-checkpoint"
_KAFKA, _OWN = "kafka", "odradek"


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The cleaner's settings, and the part of the files to clean.

    ``with_active`` includes each partition's last segment, as if it were rolled; ``from_start``
    ignores earlier cleanings.
    """

    cleaner: KafkaCleaner
    min_cleanable_ratio: float = 0.5
    with_active: bool = False
    from_start: bool = False


@dataclass(frozen=True, slots=True)
class PartitionPlan:
    """The contents of a partition, and the runs of cleaners over it; sizes are of files, in bytes.

    ``live_bytes`` are the bytes of the last record of each key. ``kafka`` and ``odradek`` are
    empty, or None, where the partition is not dirty enough.
    """

    topic: str
    partition: int
    first_dirty_offset: int
    first_uncleanable_offset: int
    size_bytes: int
    cleanable_bytes: int
    dirty_bytes: int
    records: int
    keys: int
    live_bytes: float
    tombstones: int
    dirty_records: int
    dirty_keys: int
    kafka: Sequence[Run]
    odradek: OwnRun | None

    @property
    def dirty_ratio(self) -> float:
        """Return the dirty share of the cleanable bytes."""
        return self.dirty_bytes / self.cleanable_bytes if self.cleanable_bytes else 0.0


@dataclass(frozen=True, slots=True)
class _Partition:
    """A partition's segments, and the offsets that a cleaner would cover."""

    extent: Extent
    segments: Sequence[Segment]

    @property
    def cleanable(self) -> Sequence[Segment]:
        end = self.extent.first_uncleanable_offset
        return [one for one in self.segments if one.base_offset < end]


def plan_topics(
    spark: SparkSession, options: Mapping[str, str], plan: PlanOptions
) -> list[PartitionPlan]:
    """Plan the cleaning of partitions, named by the options of the data source of segments.

    Raises PipelineError for files that cannot be read.
    """
    partitions = find_partitions(options, plan)
    extents = [one.extent for one in partitions]
    records = read_segments(spark, columns=",".join(neighbours.COLUMNS), **options)
    rows = neighbours.with_neighbours(spark, records, extents)
    # Three queries use the result of one shuffle of all records.
    rows = rows.persist(StorageLevel.DISK_ONLY)
    try:
        keys = {row["place"]: row for row in neighbours.sum_keys(rows).collect()}
        own_keys_max = map_keys_max(plan.cleaner.thread_bytes)
        full = neighbours.find_run_ends(
            rows, {_KAFKA: plan.cleaner.keys_max, _OWN: own_keys_max}
        )
        ends = {
            place: [*full.get((place, _KAFKA), ()), one.first_uncleanable_offset]
            for place, one in enumerate(extents)
        }
        full_at = {place: at[0] for (place, model), at in full.items() if model == _OWN and at}
        sizes: dict[int, list[Row]] = defaultdict(list)
        for row in neighbours.sum_sizes(spark, rows, ends, full_at).collect():
            sizes[row["place"]].append(row)
    finally:
        rows.unpersist()
    return [
        _plan(one, keys.get(place), sizes[place], ends[place], plan)
        for place, one in enumerate(partitions)
    ]


def find_partitions(options: Mapping[str, str], plan: PlanOptions) -> list[_Partition]:
    """Find the partitions to plan for, and the offsets that a cleaner would cover in each.

    Raises PipelineError for a checkpoint file that cannot be read, and where `find_segments`
    does.
    """
    parsed = parse_options(options)
    found: dict[Path, list[Segment]] = defaultdict(list)
    for segment in find_segments(parsed, parsed.selection):
        found[Path(segment.path).parent].append(segment)
    cleaned: dict[Path, Mapping[tuple[str, int], int]] = {}
    if not plan.from_start:
        directories = {folder.parent for folder in found}
        cleaned = {one: cleaned_offsets(one / _CHECKPOINT) for one in directories}
    partitions = []
    for folder, segments in found.items():
        first, last = segments[0], segments[-1]
        end = last.base_offset
        if plan.with_active and last.size_bytes:
            end = _end_offset(last)
        start = first.base_offset
        name = first.topic, first.partition
        start = max(start, cleaned.get(folder.parent, {}).get(name, start))
        # The clean section ends within the cleanable one.
        start = min(start, end)
        partitions.append(_Partition(Extent(first.topic, first.partition, start, end), segments))
    names = Counter((one.extent.topic, one.extent.partition) for one in partitions)
    for (topic, partition), count in names.items():
        if count > 1:
            raise PipelineError(
                f"{topic}-{partition} is in several of the folders: name one of them"
            )
    return partitions


def cleaned_offsets(path: Path) -> dict[tuple[str, int], int]:
    """Read the offset up to which each log of a log directory is cleaned; {} without a file.

        0                    version
        2                    count of the lines that follow
        orders 3 1042        topic, partition, offset

    Raises PipelineError for another kind of file. Source: OffsetCheckpointFile of Kafka 4.3.
    """
    try:
        version, _, *lines = path.read_text("utf-8").splitlines()
        if version != "0":
            raise ValueError
        parts = [line.split() for line in lines]
        return {(topic, int(partition)): int(offset) for topic, partition, offset in parts}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError):
        raise PipelineError(
            f"{path} cannot be read: use --from-start to plan as if nothing had been cleaned"
        ) from None


def _end_offset(segment: Segment) -> int:
    from odradek.pipeline.segment_batches import read_chunks
    from odradek.protocol.batch_scan import LAST_OFFSET

    end = segment.base_offset
    # Read from the last entry of its index on; damage is reported when the records are read.
    for chunk in read_chunks(
        segment, lambda _: None, start_offset=segment.offsets.end - 1, checks_crc=False
    ):
        end = int(chunk.batches[-1, LAST_OFFSET]) + 1
    return end


def _plan(
    partition: _Partition,
    keys: Row | None,
    rows: Sequence[Row],
    run_ends: Sequence[int],
    plan: PlanOptions,
) -> PartitionPlan:
    extent, cleanable = partition.extent, partition.cleanable
    size_bytes = sum(one.size_bytes for one in partition.segments)
    sizes = _sizes(cleanable, rows, len(run_ends))
    files = np.array([one.size_bytes for one in cleanable])
    first_dirty = max(
        np.searchsorted(sizes.base_offsets, extent.first_dirty_offset, side="right") - 1, 0
    )
    is_dirty = extent.first_dirty_offset < extent.first_uncleanable_offset
    known = keys.asDict() if keys else defaultdict(int)
    share = known["live_bytes"] / known["size_bytes"] if known["size_bytes"] else 0.0
    planned = PartitionPlan(
        topic=extent.topic,
        partition=extent.partition,
        first_dirty_offset=extent.first_dirty_offset,
        first_uncleanable_offset=extent.first_uncleanable_offset,
        size_bytes=size_bytes,
        cleanable_bytes=int(files.sum()),
        dirty_bytes=int(files[first_dirty:].sum()) if is_dirty else 0,
        records=known["records"],
        keys=known["keys"],
        live_bytes=size_bytes * share,
        tombstones=known["tombstones"],
        dirty_records=known["dirty_records"],
        dirty_keys=known["dirty_keys"],
        kafka=(),
        odradek=None,
    )
    if not is_dirty or planned.dirty_ratio <= plan.min_cleanable_ratio:
        return planned
    return replace(
        planned,
        kafka=kafka_runs(
            sizes,
            run_ends,
            extent.first_dirty_offset,
            min_cleanable_ratio=plan.min_cleanable_ratio,
        ),
        odradek=own_run(
            _segments(cleanable, sizes, rows),
            extent.first_dirty_offset,
            extent.first_uncleanable_offset,
            dirty_records=planned.dirty_records,
            dirty_keys=planned.dirty_keys,
            buffer_bytes=plan.cleaner.thread_bytes,
        ),
    )


def _sizes(segments: Sequence[Segment], rows: Sequence[Row], runs: int) -> Sizes:
    """Return the bytes of segments by run: a file's bytes, in proportion to its records' sizes.

    So the headers and the compression of batches are shared in the same proportion.
    """
    places = _places(segments)
    table = np.zeros((len(segments), runs + 1))
    for row in rows:
        if row["run"] != UNCLEANABLE:
            if row["segment_offset"] not in places:
                folder = Path(segments[0].path).parent
                raise PipelineError(changed(folder, "got another segment"))
            table[places[row["segment_offset"]], row["run"]] += row["size_bytes"]
    files = np.array([one.size_bytes for one in segments], np.float64)
    totals = table.sum(axis=1)
    table *= np.divide(files, totals, out=np.zeros_like(files), where=totals > 0)[:, np.newaxis]
    table[totals == 0, runs] = files[totals == 0]  # markers and empty batches
    return Sizes(np.array([one.base_offset for one in segments], np.int64), table)


def _segments(cleanable: Sequence[Segment], sizes: Sizes, rows: Sequence[Row]) -> Segments:
    places = _places(cleanable)
    marked, spilled = np.zeros(len(cleanable)), np.zeros(len(cleanable))
    for row in rows:
        if row["run"] != UNCLEANABLE:
            marked[places[row["segment_offset"]]] += row["tombstones"]
            spilled[places[row["segment_offset"]]] += row["spilled"]
    kept = sizes.bytes_by_run[:, -1]
    lost = sizes.bytes_by_run[:, :-1].sum(axis=1)
    now_ms = int(time.time() * 1000)
    filters = [has_filter(Path(one.path), now_ms) for one in cleanable]
    return Segments(
        sizes.base_offsets,
        kept + lost,
        kept,
        (lost > 0) | (marked > 0),
        np.array(filters, np.bool_),
        spilled,
    )


def _places(segments: Sequence[Segment]) -> dict[int, int]:
    return {one.base_offset: at for at, one in enumerate(segments)}
