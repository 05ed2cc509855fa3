"""Topologies of applications, for tests of streams groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek.protocol.messages.streams_group_heartbeat import (
    CopartitionGroup,
    KeyValue,
    Subtopology,
    TopicInfo,
    Topology,
)


def topic(
    name: str,
    partitions: int = 0,
    configs: Mapping[str, str] | None = None,
    replication_factor: int = 0,
) -> TopicInfo:
    """Return an internal topic."""
    return TopicInfo(
        name=name,
        partitions=partitions,
        replication_factor=replication_factor,
        topic_configs=[KeyValue(key=key, value=text) for key, text in (configs or {}).items()],
    )


def subtopology(
    name: str,
    reads: Iterable[str] = (),
    *,
    changelogs: Iterable[TopicInfo] = (),
    sinks: Iterable[str] = (),
    inner: Iterable[TopicInfo] = (),
    together: Iterable[tuple[list[int], list[int]]] = (),
) -> Subtopology:
    """Return a subtopology; `together` has indexes of topics that are copartitioned."""
    return Subtopology(
        subtopology_id=name,
        source_topics=list(reads),
        state_changelog_topics=list(changelogs),
        repartition_sink_topics=list(sinks),
        repartition_source_topics=list(inner),
        copartition_groups=[
            CopartitionGroup(source_topics=sources, repartition_source_topics=repartition)
            for sources, repartition in together
        ],
    )


def stateless(*reads: str) -> Topology:
    """Return an application that reads topics and keeps nothing."""
    return Topology(epoch=0, subtopologies=[subtopology("0", reads)])


def counting(application: str, source: str) -> Topology:
    """Return an application that counts words: it has a repartition and a changelog topic."""
    words = f"{application}-words-repartition"
    compacted = {"cleanup.policy": "compact"}
    return Topology(
        epoch=0,
        subtopologies=[
            subtopology("0", [source], sinks=[words]),
            subtopology(
                "1",
                inner=[topic(words, 0, {"retention.ms": "-1", "cleanup.policy": "delete"})],
                changelogs=[topic(f"{application}-counts-changelog", 0, compacted)],
            ),
        ],
    )


def joining(one: str, other: str) -> Topology:
    """Return an application that joins two topics, which need equal numbers of partitions."""
    return Topology(
        epoch=0, subtopologies=[subtopology("0", [one, other], together=[([0, 1], [])])]
    )
