"""Our assignor of tasks, and our numbers of topologies, beside Apache Kafka's own classes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.errors import Refusal
from odradek.broker.groups.streams import sticky
from odradek.broker.groups.streams.configured import InternalTopic, configure
from odradek.broker.groups.streams.sticky import MemberSpec, SubtopologySpec
from odradek.broker.groups.streams.tasks import NO_TASKS, Partitions, Tasks, utf16
from odradek.broker.groups.streams.topology import Topology
from odradek.broker.orders.java import hash_order
from odradek.protocol.compiler import encode
from odradek.protocol.messages.streams_group_records import (
    CopartitionGroup,
    StreamsGroupTopologyValue,
    Subtopology,
    TopicConfig,
    TopicInfo,
)
from tests.broker.group_fakes import FakeTopics
from tests.support.java import asking

pytestmark = pytest.mark.kafka

ORACLE = Path(__file__).with_name("StreamsOracle.java")
SEEDS = range(200)
ROUNDS = 5
TOPOLOGIES = 600

Ask = Callable[[Sequence[Any]], list[Any]]


@dataclass
class Group:
    """A group that lives on: members come and go, and find the assignment of those before."""

    standbys: int
    subtopologies: dict[str, tuple[int, bool]]
    processes: dict[str, str] = field(default_factory=dict)
    targets: dict[str, Tasks] = field(default_factory=dict)

    def change(self, chance: random.Random) -> None:
        """Let members come and go."""
        for _ in range(chance.randint(0, 6) if self.processes else chance.randint(1, 30)):
            process = chance.choice(["p-1", "p-2", "über", chance.randbytes(8).hex()])
            self.processes[f"m-{chance.randbytes(6).hex()}"] = process
        for _ in range(chance.randint(0, 5)):
            if len(self.processes) > 1:
                gone = chance.choice(list(self.processes))
                del self.processes[gone]
                self.targets.pop(gone, None)
        if chance.random() < 0.2:
            self.standbys = chance.randint(0, 2)

    def assign(self) -> Mapping[str, Tasks]:
        """Assign tasks by our code."""
        specs = {
            name: MemberSpec(self.processes[name], self.targets.get(name, NO_TASKS))
            for name in hash_order(self.processes)
        }
        subtopologies = [
            SubtopologySpec(name, *self.subtopologies[name])
            for name in sorted(self.subtopologies, key=utf16)
        ]
        return sticky.assign(specs, subtopologies, self.standbys)

    def line(self) -> dict[str, Any]:
        """Describe the group for Kafka's code."""
        return {
            "standbys": self.standbys,
            "subtopologies": self.subtopologies,
            "members": [
                {
                    "id": name,
                    "process": process,
                    "active": shown(self.targets.get(name, NO_TASKS).active),
                    "standby": shown(self.targets.get(name, NO_TASKS).standby),
                }
                for name, process in self.processes.items()
            ],
        }


def shown(tasks: Partitions) -> dict[str, list[int]]:
    return {name: sorted(some) for name, some in tasks.items()}


def drawn_group(seed: int) -> Group:
    chance = random.Random(seed)
    names = chance.choice([["0", "1", "2", "3", "4", "10", "11"], ["über", "a", "b.c"]])
    return Group(
        chance.randint(0, 2),
        {
            name: (chance.randint(1, 30), chance.random() < 0.6)
            for name in chance.sample(names, chance.randint(1, len(names)))
        },
    )


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """What asks Kafka's classes, in one process of Java."""
    with asking(ORACLE) as answers:
        yield answers


def test_tasks_are_assigned_as_by_kafka(ask: Ask) -> None:
    groups = [(random.Random(seed), drawn_group(seed)) for seed in SEEDS]
    for _ in range(ROUNDS):
        for chance, group in groups:
            group.change(chance)
        answers = ask([group.line() for _, group in groups])
        for (_, group), theirs in zip(groups, answers, strict=True):
            ours = group.assign()
            assert {
                name: [shown(one.active), shown(one.standby)] for name, one in ours.items()
            } == theirs, group.line()
            group.targets = dict(ours)


EXTERNAL = ["in-a", "in-b", "in-c", "in-d"]
REPARTITION = [f"app-{one}-repartition" for one in "abcd"]
CHANGELOG = [f"app-{one}-changelog" for one in "abcdefghijk"]


def drawn_topic(chance: random.Random, name: str, partitions: int) -> TopicInfo:
    configs = {key: "1" for key in ("a", "retention.ms", "z") if chance.random() < 0.3}
    return TopicInfo(
        name=name,
        partitions=partitions,
        replication_factor=chance.choice([0, 0, 1, 3]),
        topic_configs=[TopicConfig(key=key, value=value) for key, value in configs.items()],
    )


def drawn_subtopology(chance: random.Random, name: str, fixed: Mapping[str, int]) -> Subtopology:
    read = chance.sample(EXTERNAL, chance.choice([0, 1, 1, 1, 2]))
    inner = chance.sample(REPARTITION, chance.choice([0, 0, 1, 1, 2]))
    changelogs = chance.sample(CHANGELOG, chance.choice([0, 0, 1, 2, 5]))
    groups = []
    if read + inner and chance.random() < 0.5:
        groups.append(
            CopartitionGroup(
                source_topics=[at for at in range(len(read)) if chance.random() < 0.8],
                repartition_source_topics=[
                    at for at in range(len(inner)) if chance.random() < 0.8
                ],
                source_topic_regex=[],
            )
        )
    return Subtopology(
        subtopology_id=name,
        source_topics=read,
        source_topic_regex=[],
        state_changelog_topics=[drawn_topic(chance, one, 0) for one in changelogs],
        repartition_sink_topics=chance.sample(REPARTITION, chance.choice([0, 0, 1, 1, 2])),
        repartition_source_topics=[drawn_topic(chance, one, fixed.get(one, 0)) for one in inner],
        copartition_groups=groups,
    )


def drawn_topology(seed: int) -> tuple[StreamsGroupTopologyValue, dict[str, int]]:
    """Draw a topology, and the topics that exist."""
    chance = random.Random(seed)
    fixed = {one: chance.choice([2, 3]) for one in REPARTITION if chance.random() < 0.2}
    names = chance.sample([str(one) for one in range(14)], chance.choice([1, 2, 3, 5]))
    counts = {
        one: chance.choice([1, 2, 2, 2, 3]) for one in EXTERNAL if chance.random() < 0.95
    }
    for one in (*REPARTITION, *CHANGELOG):
        if chance.random() < 0.15:
            counts[one] = 2
    value = StreamsGroupTopologyValue(
        epoch=0, subtopologies=[drawn_subtopology(chance, name, fixed) for name in names]
    )
    return value, counts


def told(topics: Mapping[str, InternalTopic]) -> list[Any]:
    return [
        [name, one.partition_count, one.replication_factor, dict(sorted(one.settings.items()))]
        for name, one in topics.items()
    ]


def ours(value: StreamsGroupTopologyValue, counts: Mapping[str, int]) -> dict[str, Any]:
    """Configure a topology by our code, and tell the outcome as the oracle does."""
    topics = FakeTopics({name: (name.encode(), count) for name, count in counts.items()})
    try:
        made = configure(Topology.of(value), topics)
    except Refusal:
        return {"refused": True}
    answer: dict[str, Any] = {}
    if made.problem is not None:
        answer["problem"] = [int(made.problem.code), made.problem.detail]
    if made.subtopologies is not None:
        answer["subtopologies"] = {
            name: [one.task_count, told(one.repartition_sources), told(one.changelogs)]
            for name, one in made.subtopologies.items()
        }
    return {**answer, "missing": list(made.missing)}


def test_topologies_get_kafkas_numbers(ask: Ask) -> None:
    drawn = [drawn_topology(seed) for seed in range(TOPOLOGIES)]
    answers = ask(
        [{"topology": encode(value, 0).hex(), "topics": counts} for value, counts in drawn]
    )
    outcomes: set[str] = set()
    for (value, counts), theirs in zip(drawn, answers, strict=True):
        if "refused" in theirs:
            theirs = {"refused": True}
        assert ours(value, counts) == theirs, (value, counts)
        outcomes.add(str(theirs.get("problem", [sorted(theirs)])[0]))
    # Each kind of outcome was compared: fine, three problems, and a refusal.
    assert len(outcomes) == 5
