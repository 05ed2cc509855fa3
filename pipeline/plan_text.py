"""Write a plan of cleanings as text, topic by topic, or as JSON."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict

from odradek.dataclass import dataclass
from odradek.pipeline.cleaner_model import KafkaCleaner, Run
from odradek.pipeline.dirty_ratios import DirtyRatio, dirty_ratios
from odradek.pipeline.own_model import OwnRun
from odradek.pipeline.planning import PartitionPlan, PlanOptions
from odradek.pipeline.text import lay_out, show_count, show_size

_NOTHING = "-"


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """The plans of a topic's partitions, and the effects of dirty ratios on it."""

    topic: str
    partitions: Sequence[PartitionPlan]
    ratios: Sequence[DirtyRatio]

    def total(self, name: str) -> float:
        """Return the sum of a number over the partitions."""
        total: float = sum(getattr(one, name) for one in self.partitions)
        return total

    @property
    def garbage_ratio(self) -> float:
        """Return the share of the topic that is not the last record of a key."""
        size = self.total("size_bytes")
        return 1 - self.total("live_bytes") / size if size else 0.0


def by_topic(
    plans: Sequence[PartitionPlan], updates_per_second: float | None
) -> list[TopicPlan]:
    """Group partitions by their topics; the rate of updates is that of a topic."""
    topics = []
    for topic in sorted({one.topic for one in plans}):
        partitions = [one for one in plans if one.topic == topic]
        base_bytes = sum(one.live_bytes for one in partitions)
        keys = sum(one.keys for one in partitions)
        ratios = dirty_ratios(base_bytes, keys, updates_per_second) if keys else []
        topics.append(TopicPlan(topic, partitions, ratios))
    return topics


def lines_of(plan: TopicPlan, options: PlanOptions) -> Iterator[str]:
    """Yield the lines of a topic's plan for a person."""
    partitions = plan.partitions
    yield (
        f"topic {plan.topic}: {show_count(len(partitions), 'partition')}, "
        f"{plan.total('records'):,} records in {show_size(plan.total('size_bytes'))}"
    )
    yield (
        f"  {plan.total('keys'):,} distinct keys, {plan.total('tombstones'):,} of them deleted; "
        f"{100 * plan.garbage_ratio:.1f}% is garbage, "
        f"{show_size(plan.total('live_bytes'))} would be left"
    )
    yield ""
    yield from lay_out(list(_partition_rows(partitions)), left={"partition"})
    yield ""
    if not any(one.kafka for one in partitions):
        yield f"  Nothing is more than {options.min_cleanable_ratio:g} dirty: nothing to clean."
    else:
        yield from _runs_of(partitions, options.cleaner)
    if plan.ratios:
        yield ""
        yield from lay_out(list(_ratio_rows(plan.ratios)))


def as_json(plans: Sequence[TopicPlan], options: PlanOptions) -> str:
    """Return plans as JSON."""
    topics = [{**asdict(one), "garbage_ratio": one.garbage_ratio} for one in plans]
    return json.dumps({"options": asdict(options), "topics": topics}, indent=2)


def _partition_rows(partitions: Sequence[PartitionPlan]) -> Iterator[Sequence[str]]:
    yield ("partition", "size", "records", "keys", "dirty", "dirty keys", "dirty ratio")
    for one in partitions:
        yield (
            f"{one.topic}-{one.partition}",
            show_size(one.size_bytes),
            f"{one.records:,}",
            f"{one.keys:,}",
            show_size(one.dirty_bytes),
            f"{one.dirty_keys:,}",
            f"{one.dirty_ratio:.2f}",
        )


def _runs_of(partitions: Sequence[PartitionPlan], cleaner: KafkaCleaner) -> Iterator[str]:
    """Yield the work of both cleaners on all partitions, and the buffer for one run of Kafka's."""
    runs = [run for one in partitions for run in one.kafka]
    own = [one.odradek for one in partitions if one.odradek]
    most = max(len(one.kafka) for one in partitions)
    yield from lay_out(
        [
            ("", "runs", "most a log", "memory", "spilled", "indexed", "read", "written"),
            (
                "Kafka 4.3",
                f"{len(runs):,}",
                f"{most:,}",
                show_size(cleaner.map_bytes),
                _NOTHING,
                *_moved(runs),
            ),
            (
                "Odradek",
                f"{len(own):,}",
                "1",
                show_size(max(run.memory_bytes for run in own)),
                show_size(sum(run.spilled_bytes for run in own)),
                *_moved(own),
            ),
        ],
        left={""},
    )
    if most > 1:
        needed = cleaner.buffer_bytes_for(max(one.dirty_keys for one in partitions))
        yield (
            f"  Kafka would need log.cleaner.dedupe.buffer.size={needed} "
            f"({show_size(needed)}) to clean each log in one run."
        )


def _moved(runs: Sequence[Run | OwnRun]) -> Iterator[str]:
    """Yield the totals of bytes that runs index, read and write."""
    for name in ("indexed_bytes", "read_bytes", "written_bytes"):
        yield show_size(sum(getattr(run, name) for run in runs))


def _ratio_rows(ratios: Sequence[DirtyRatio]) -> Iterator[Sequence[str]]:
    has_days = ratios[0].days_between_runs is not None
    yield (
        "min.cleanable.dirty.ratio",
        "reserve",
        "log at most",
        "records to read",
        "copied for a dirty byte",
        *(["days between runs"] if has_days else []),
    )
    for one in ratios:
        yield (
            f"{one.ratio:g}",
            show_size(one.reserve_bytes),
            show_size(one.log_bytes),
            f"{one.log_records:,.0f}",
            f"{one.copied_per_dirty_byte:,.1f}",
            *([f"{one.days_between_runs:,.1f}"] if one.days_between_runs is not None else []),
        )
