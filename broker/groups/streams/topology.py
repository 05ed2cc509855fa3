"""The topology of an application: its subtopologies, and the topics that each of them uses.

The first member of a group brings the topology, and all others have to bring the same. It is in
the log; its internal topics have numbers of partitions only where the application fixes them.

Kafka's source: StreamsTopology, StreamsCoordinatorRecordHelpers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from odradek.broker.errors import Refusal
from odradek.broker.groups.modern.topics import TopicView
from odradek.broker.orders.java import hash_order
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages import streams_group_heartbeat as heartbeat
from odradek.protocol.messages.streams_group_records import (
    CopartitionGroup,
    StreamsGroupTopologyValue,
    Subtopology,
    TopicConfig,
    TopicInfo,
)
from odradek.protocol.pacing import paced

# The most topics, settings and the like that a topology may name, unless as many topics exist:
# a heartbeat goes through all of them. Kafka has no limit.
NAMES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class Topology:
    """A topology with the subtopologies in the order of Kafka's map."""

    value: StreamsGroupTopologyValue
    subtopologies: Mapping[str, Subtopology]
    # All topics that have to exist, and for each topic that is read, its subtopology.
    required: Set[str]
    readers: Mapping[str, str]

    @property
    def epoch(self) -> int:
        """The epoch of the topology."""
        return self.value.epoch

    @staticmethod
    def of(value: StreamsGroupTopologyValue) -> Topology:
        """Take the topology of a record."""
        by_id = {one.subtopology_id: one for one in value.subtopologies}
        ordered = {name: by_id[name] for name in hash_order(by_id)}
        return Topology(
            value,
            ordered,
            frozenset(required_names(ordered.values())),
            {name: one.subtopology_id for one in ordered.values() for name in sources(one)},
        )

    def is_same_as(self, other: Topology) -> bool:
        """Return whether two topologies are equal; the order of subtopologies does not count."""
        return (
            self.epoch == other.epoch and dict(self.subtopologies) == dict(other.subtopologies)
        )

    def copartitioned(self, subtopology: Subtopology) -> Iterator[Sequence[str]]:
        """Iterate over the groups of topics that need equal numbers of partitions."""
        read, inner = subtopology.source_topics, subtopology.repartition_source_topics
        for group in subtopology.copartition_groups:
            # A record of the log may have strange indexes, too: `check` has not seen it.
            yield [
                *(read[at] for at in group.source_topics if 0 <= at < len(read)),
                *(
                    inner[at].name
                    for at in group.repartition_source_topics
                    if 0 <= at < len(inner)
                ),
            ]


def sources(subtopology: Subtopology) -> Iterator[str]:
    """Iterate over the topics that a subtopology reads."""
    yield from subtopology.source_topics
    for one in subtopology.repartition_source_topics:
        yield one.name


def required_names(subtopologies: Iterable[Subtopology]) -> Iterator[str]:
    """Iterate over the topics that have to exist; some may come twice."""
    for subtopology in subtopologies:
        yield from sources(subtopology)
        for one in subtopology.state_changelog_topics:
            yield one.name


def named_topics(topology: heartbeat.Topology) -> list[str]:
    """Return all topics that a topology names, each once, in its order."""
    names: dict[str, None] = {}
    for one in paced(topology.subtopologies):
        for name in paced(one.source_topics):
            names[name] = None
        for name in paced(one.repartition_sink_topics):
            names[name] = None
        for topic in paced([*one.repartition_source_topics, *one.state_changelog_topics]):
            names[topic.name] = None
    return list(names)


def check(topology: heartbeat.Topology, topics: TopicView) -> None:
    """Raise Refusal for a topology that no group can have.

    This check pauses, but a group's operation cannot. Kafka finds some of the mistakes later, and
    then has an unexpected error.
    """
    count = _count(topology)
    if count > NAMES_MAX and count > len(list(topics.names())):
        raise _invalid(
            f"The topology has {count} subtopologies, topics and settings, which are too many."
        )
    for one in topology.subtopologies:
        for topic in one.state_changelog_topics:
            if topic.partitions:
                raise _invalid(
                    f"Changelog topic {topic.name} must have an undefined partition count, but "
                    f"it is set to {topic.partitions}."
                )
    if topology.epoch < 0:
        raise _invalid("Topology epoch must be non-negative.")
    ids = [one.subtopology_id for one in topology.subtopologies]
    if len(set(ids)) < len(ids):
        raise _invalid("A subtopology comes twice.")
    for one in topology.subtopologies:
        _check_subtopology(one)


def to_stored(topology: heartbeat.Topology) -> StreamsGroupTopologyValue:
    """Return the record of a request's topology."""
    return StreamsGroupTopologyValue(
        epoch=topology.epoch,
        subtopologies=[
            Subtopology(
                subtopology_id=one.subtopology_id,
                source_topics=one.source_topics,
                source_topic_regex=one.source_topic_regex,
                state_changelog_topics=_stored_topics(one.state_changelog_topics),
                repartition_sink_topics=one.repartition_sink_topics,
                repartition_source_topics=_stored_topics(one.repartition_source_topics),
                copartition_groups=[
                    CopartitionGroup(
                        source_topics=group.source_topics,
                        source_topic_regex=group.source_topic_regex,
                        repartition_source_topics=group.repartition_source_topics,
                    )
                    for group in one.copartition_groups
                ],
            )
            for one in topology.subtopologies
        ],
    )


def _stored_topics(topics: Iterable[heartbeat.TopicInfo]) -> list[TopicInfo]:
    return [
        TopicInfo(
            name=one.name,
            partitions=one.partitions,
            replication_factor=one.replication_factor,
            topic_configs=[
                TopicConfig(key=config.key, value=config.value) for config in one.topic_configs
            ],
        )
        for one in topics
    ]


def _count(topology: heartbeat.Topology) -> int:
    count = 0
    for one in paced(topology.subtopologies):
        count += 1 + len(one.source_topics) + len(one.repartition_sink_topics)
        for topic in paced([*one.state_changelog_topics, *one.repartition_source_topics]):
            count += 1 + len(topic.topic_configs)
        for group in paced(one.copartition_groups):
            count += 1 + len(group.source_topics) + len(group.repartition_source_topics)
    return count


def _check_subtopology(subtopology: heartbeat.Subtopology) -> None:
    name = subtopology.subtopology_id
    for group in subtopology.copartition_groups:
        for indexes, listed in (
            (group.source_topics, len(subtopology.source_topics)),
            (group.repartition_source_topics, len(subtopology.repartition_source_topics)),
        ):
            if any(not 0 <= at < listed for at in indexes):
                raise _invalid(f"A copartition group of subtopology {name} names no topic.")
    for topics in (subtopology.repartition_source_topics, subtopology.state_changelog_topics):
        if any(one.partitions < 0 for one in topics):
            raise _invalid("Number of partitions must be at least 1.")
        if any(_repeats(pair.key for pair in one.topic_configs) for one in topics):
            raise _invalid(f"A topic of subtopology {name} has a setting twice.")
        if _repeats(one.name for one in topics):
            raise _invalid(f"An internal topic of subtopology {name} comes twice.")


def _repeats(names: Iterable[str]) -> bool:
    listed = list(names)
    return len(set(listed)) < len(listed)


def _invalid(message: str) -> Refusal:
    return Refusal(ErrorCode.STREAMS_INVALID_TOPOLOGY, message)
