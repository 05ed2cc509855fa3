"""A topology with numbers: of the tasks of each subtopology, and of its internal topics.

Its source topics must exist, and some of them must have equal numbers of partitions. A repartition
topic gets as many partitions as the largest topic that its writer reads; a changelog topic one for
each task. Missing internal topics are listed for creation.

Kafka's sources: InternalTopicManager, RepartitionTopics, CopartitionedTopicsEnforcer,
ChangelogTopics.
"""

from __future__ import annotations

import enum
import heapq
from collections.abc import Iterable, Mapping, Sequence

from odradek.broker.errors import Refusal
from odradek.broker.groups.modern.topics import TopicView
from odradek.broker.groups.streams.topology import Topology, required_names, sources
from odradek.broker.orders.java import hash_order, utf16
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.streams_group_records import Subtopology, TopicInfo

# The most tasks of a group, unless its topics have as many partitions: each assignment goes
# through all of them. Kafka has no limit.
TASKS_MAX = 10_000
_NAMES_SHOWN = 3


class StatusCode(enum.IntEnum):
    """The conditions of a group that a heartbeat reports."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of the group, with the sentence that explains it."""

    code: StatusCode
    detail: str


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """An internal topic, with the replication factor and settings that the application asks for.

    A replication factor of 0 means the broker's default.
    """

    name: str
    partition_count: int
    replication_factor: int
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ConfiguredSubtopology:
    """A subtopology whose numbers are known."""

    task_count: int
    source_topics: Sequence[str]
    repartition_sink_topics: Sequence[str]
    repartition_sources: Mapping[str, InternalTopic]
    changelogs: Mapping[str, InternalTopic]


@dataclass(frozen=True, slots=True)
class Configured:
    """The outcome for a topology; it is ready when nothing is wrong with its topics."""

    epoch: int
    # In the order of their ids; None if the topics do not fit.
    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    missing: Mapping[str, InternalTopic]
    problem: Condition | None = None

    @property
    def is_ready(self) -> bool:
        """Whether tasks can be assigned."""
        return self.problem is None


class _Unfit(Exception):
    def __init__(self, code: StatusCode, detail: str) -> None:
        super().__init__(detail)
        self.condition = Condition(code, detail)


def configure(topology: Topology, topics: TopicView) -> Configured:
    """Find the numbers of a topology; raises Refusal for a topology that has none."""
    try:
        _check_sources(topology, topics)
        counts = _Counts(topics)
        counts.decided.update(_repartition_counts(topology, counts))
        _enforce_copartitioning(topology, counts)
        counts.decided.update(_changelog_counts(topology, counts))
        subtopologies = {
            name: _configured(topology.subtopologies[name], counts)
            for name in sorted(topology.subtopologies, key=utf16)
        }
        _check_tasks(subtopologies, counts)
        missing = _missing(subtopologies, topology, topics)
    except _Unfit as unfit:
        return Configured(topology.epoch, None, {}, unfit.condition)
    if not missing:
        return Configured(topology.epoch, subtopologies, missing)
    detail = f"Internal topics are missing: {_some(missing)}"
    problem = Condition(StatusCode.MISSING_INTERNAL_TOPICS, detail)
    return Configured(topology.epoch, subtopologies, missing, problem)


class _Counts:
    """The numbers of partitions of existing topics, and those decided for missing ones."""

    def __init__(self, topics: TopicView) -> None:
        self._topics = topics
        self.decided: dict[str, int] = {}

    def find(self, name: str) -> int | None:
        """Return the number of partitions of a topic, None if nothing decides it."""
        return self._topics.partition_count(name) or self.decided.get(name)

    def of(self, name: str) -> int:
        """Return the number of partitions of a topic; raises Refusal if nothing decides it."""
        found = self.find(name)
        if not found:
            raise _invalid(f"Nothing decides the number of partitions of topic {name}.")
        return found


def _check_sources(topology: Topology, topics: TopicView) -> None:
    missing = {
        name
        for one in topology.subtopologies.values()
        for name in one.source_topics
        if not topics.partition_count(name)
    }
    if missing:
        detail = f"Source topics {_some(sorted(missing, key=utf16))} are missing."
        raise _Unfit(StatusCode.MISSING_SOURCE_TOPICS, detail)


def _repartition_counts(topology: Topology, counts: _Counts) -> Mapping[str, int]:
    """Decide the numbers of repartition topics.

    Kafka goes through the subtopologies again and again, as long as numbers are found. Here each
    waits until a topic that it reads has a number, and has its turn in the same order.
    """
    found: dict[str, int] = {}
    ordered = list(topology.subtopologies.values())
    for one in ordered:
        for topic in one.repartition_source_topics:
            if topic.partitions:
                found[topic.name] = topic.partitions
    readers: dict[str, list[int]] = {}
    for at, one in enumerate(ordered):
        for topic in one.repartition_source_topics:
            readers.setdefault(topic.name, []).append(at)
    turns = [(0, at) for at, one in enumerate(ordered) if _reads_known(one, found)]
    waiting = {at for at, one in enumerate(ordered) if one.repartition_sink_topics}
    heapq.heapify(turns)
    while turns:
        turn, at = heapq.heappop(turns)
        if at not in waiting:
            continue
        waiting.discard(at)
        one = ordered[at]
        count = _largest(one, found, counts)
        for sink in one.repartition_sink_topics:
            if sink in found:
                continue
            found[sink] = count
            for reader in readers.get(sink, ()):
                if reader in waiting:
                    heapq.heappush(turns, (turn + (reader <= at), reader))
    if any(sink not in found for at in waiting for sink in ordered[at].repartition_sink_topics):
        raise _invalid(
            "Failed to compute number of partitions for all repartition topics. There may be "
            "loops in the topology that cannot be resolved."
        )
    if any(name not in found for name in readers):
        raise _invalid(
            "Failed to compute number of partitions for all repartition topics, because a "
            "repartition source topic is never used as a sink topic."
        )
    return found


def _reads_known(one: Subtopology, found: Mapping[str, int]) -> bool:
    return bool(one.source_topics) or any(
        topic.name in found for topic in one.repartition_source_topics
    )


def _largest(one: Subtopology, found: Mapping[str, int], counts: _Counts) -> int:
    read = [found.get(topic.name, 0) for topic in one.repartition_source_topics]
    return max([*read, *(counts.find(name) or 0 for name in one.source_topics)])


def _enforce_copartitioning(topology: Topology, counts: _Counts) -> None:
    fixed: dict[str, None] = {}
    flexible: dict[str, None] = {}
    for one in topology.subtopologies.values():
        for topic in one.repartition_source_topics:
            (fixed if topic.partitions else flexible)[topic.name] = None
    same = _same(fixed, counts)
    for one in topology.subtopologies.values():
        for names in topology.copartitioned(one):
            group = hash_order(names)
            repartition = [name for name in group if name in fixed or name in flexible]
            others = [name for name in group if name not in fixed and name not in flexible]
            if group:
                count = _shared_count(repartition, others, same, counts)
                _coerce(repartition, fixed, count, counts)


def _shared_count(
    repartition: Sequence[str], others: Sequence[str], same: _Same, counts: _Counts
) -> int:
    if others:
        sizes = {name: counts.of(name) for name in others}
        if len(set(sizes.values())) > 1:
            raise _unequal(sizes)
        return sizes[others[0]]
    sizes = {name: counts.of(name) for name in repartition}
    if not same.has_any:
        return max(sizes.values())
    if same.count is None:
        raise _unequal(sizes)
    return same.count


@dataclass(frozen=True, slots=True)
class _Same:
    """The number of partitions of all topics whose number is fixed; None if they differ."""

    has_any: bool
    count: int | None


def _same(fixed: Iterable[str], counts: _Counts) -> _Same:
    # Kafka compares all fixed topics of the topology, not only those of the group at hand.
    sizes = {counts.of(name) for name in fixed}
    return _Same(bool(sizes), sizes.pop() if len(sizes) == 1 else None)


def _coerce(
    repartition: Iterable[str], fixed: Mapping[str, None], count: int, counts: _Counts
) -> None:
    sizes = {name: counts.of(name) for name in repartition}
    for name, size in sizes.items():
        if name in fixed and size != count:
            detail = (
                f"Number of partitions [{size}] of repartition topic [{name}] doesn't match "
                f"number of partitions [{count}] of the source topic."
            )
            raise _Unfit(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, detail)
    counts.decided.update(dict.fromkeys(sizes, count))


def _changelog_counts(topology: Topology, counts: _Counts) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for one in topology.subtopologies.values():
        sizes = [counts.of(name) for name in sources(one)]
        if not sizes:
            raise _invalid(f"No source topics found for subtopology {one.subtopology_id}")
        found.update(dict.fromkeys((t.name for t in one.state_changelog_topics), max(sizes)))
    return found


def _configured(subtopology: Subtopology, counts: _Counts) -> ConfiguredSubtopology:
    return ConfiguredSubtopology(
        task_count=max(counts.of(name) for name in sources(subtopology)),
        source_topics=subtopology.source_topics,
        repartition_sink_topics=subtopology.repartition_sink_topics,
        repartition_sources=_internal(subtopology.repartition_source_topics, counts),
        changelogs=_internal(subtopology.state_changelog_topics, counts),
    )


def _internal(topics: Iterable[TopicInfo], counts: _Counts) -> Mapping[str, InternalTopic]:
    made = {
        topic.name: InternalTopic(
            topic.name,
            topic.partitions or counts.decided[topic.name],
            topic.replication_factor,
            {one.key: one.value for one in topic.topic_configs},
        )
        for topic in topics
    }
    return {name: made[name] for name in hash_order(made)}


def _check_tasks(subtopologies: Mapping[str, ConfiguredSubtopology], counts: _Counts) -> None:
    tasks = sum(one.task_count for one in subtopologies.values())
    if tasks <= TASKS_MAX:
        return
    read = {
        name
        for one in subtopologies.values()
        for name in (*one.source_topics, *one.repartition_sources)
    }
    if tasks > sum(map(counts.of, read)):
        raise _invalid(f"The topology has {tasks} tasks, more than its topics have partitions.")


def _missing(
    subtopologies: Mapping[str, ConfiguredSubtopology], topology: Topology, topics: TopicView
) -> Mapping[str, InternalTopic]:
    wanted: dict[str, InternalTopic] = {}
    for one in subtopologies.values():
        wanted |= one.repartition_sources
        wanted |= one.changelogs
    missing = dict(wanted)
    for name in hash_order(required_names(topology.subtopologies.values())):
        present = topics.partition_count(name)
        expected = missing.pop(name, None) if present else None
        if expected is not None and expected.partition_count != present:
            detail = (
                f"Existing topic {name} has different number of partitions: expected "
                f"{expected.partition_count}, found {present}"
            )
            raise _Unfit(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, detail)
    return {name: missing[name] for name in hash_order(missing, len(wanted))}


def _some(names: Iterable[str]) -> str:
    listed = list(names)
    text = ", ".join(listed[:_NAMES_SHOWN])
    more = len(listed) - _NAMES_SHOWN
    return f"{text} and {more} additional topics" if more > 0 else text


def _unequal(sizes: Mapping[str, int]) -> _Unfit:
    shown = ", ".join(f"{name}={sizes[name]}" for name in sorted(sizes, key=utf16))
    detail = f"Following topics do not have the same number of partitions: [{{{shown}}}]"
    return _Unfit(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, detail)


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
