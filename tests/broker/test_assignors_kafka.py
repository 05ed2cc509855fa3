"""Our server-side assignors and topic hashes beside Apache Kafka's own classes."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.groups.modern import ranges, uniform
from odradek.broker.groups.modern.hashing import group_hash, topic_hash
from odradek.broker.groups.modern.spec import Assignment, GroupSpec, MemberSpec
from odradek.broker.groups.modern.tables import Table, in_set_order
from odradek.broker.orders.java import string_hash
from odradek.protocol.wire import encode_uuid
from tests.support.java import ask

pytestmark = pytest.mark.kafka

ORACLE = Path(__file__).with_name("AssignorOracle.java")
ASSIGNORS = {"uniform": uniform.assign, "range": ranges.assign}
SEEDS = range(150)


@dataclass
class Group:
    """A group that lives on: who comes and goes finds the assignment of those before."""

    assignor: str
    is_homogeneous: bool
    counts: dict[bytes, int]
    instances: dict[str, str | None]
    topics: dict[str, tuple[bytes, ...]]
    assignments: dict[str, Assignment]

    def spec(self) -> GroupSpec:
        table = Table(lambda text: string_hash(text) & 0xFFFFFFFF)
        for member_id in self.topics:
            table.add(member_id)
        held = {
            (topic_id, partition)
            for assignment in self.assignments.values()
            for topic_id, partitions in assignment.items()
            for partition in partitions
        }
        return GroupSpec(
            members={
                member_id: MemberSpec(
                    topics=self.topics[member_id],
                    named_count=len(self.topics[member_id]),
                    instance_id=self.instances[member_id],
                    assignment=self.assignments.get(member_id, {}),
                )
                for member_id in table
            },
            is_homogeneous=self.is_homogeneous,
            partition_count=self.counts.__getitem__,
            is_assigned=lambda topic_id, partition: (topic_id, partition) in held,
        )

    def line(self) -> dict[str, Any]:
        return {
            "assignor": self.assignor,
            "homogeneous": self.is_homogeneous,
            "topics": {encode_uuid(topic_id): count for topic_id, count in self.counts.items()},
            "members": [
                {
                    "id": member_id,
                    "instance": self.instances[member_id],
                    "topics": [encode_uuid(topic_id) for topic_id in topics],
                    "assignment": {
                        encode_uuid(topic_id): list(partitions)
                        for topic_id, partitions in self.assignments.get(member_id, {}).items()
                    },
                }
                for member_id, topics in self.topics.items()
            ],
        }


def drawn(seed: int) -> Group:
    """Draw a group without assignments."""
    chance = random.Random(seed)
    counts = {chance.randbytes(16): chance.randint(1, 40) for _ in range(chance.randint(1, 14))}
    group = Group(chance.choice(["uniform", "range"]), chance.random() < 0.5, counts, {}, {}, {})
    for _ in range(chance.randint(1, 30)):
        join(group, chance)
    return group


def join(group: Group, chance: random.Random) -> None:
    member_id = chance.choice(["", "m-", "über-"]) + chance.randbytes(8).hex()
    everything = list(group.counts)
    some = chance.sample(everything, chance.randint(1, len(everything)))
    if group.is_homogeneous:
        some = next(iter(group.topics.values()), tuple(some))
    group.topics[member_id] = tuple(some)
    group.instances[member_id] = chance.choice([None, f"i-{member_id[::-1]}"])


def change(group: Group, chance: random.Random) -> None:
    """Let members come and go, subscriptions change, and topics grow."""
    for _ in range(chance.randint(0, 4)):
        if len(group.topics) > 1:
            gone = chance.choice(list(group.topics))
            group.topics.pop(gone)
            group.assignments.pop(gone, None)
    for _ in range(chance.randint(0, 4)):
        join(group, chance)
    if chance.random() < 0.3:
        group.counts[chance.choice(list(group.counts))] += chance.randint(1, 20)
    if chance.random() < 0.3:
        group.assignor = chance.choice(["uniform", "range"])
    some = tuple(chance.sample(list(group.counts), chance.randint(1, len(group.counts))))
    if group.is_homogeneous and chance.random() < 0.3:
        group.topics = dict.fromkeys(group.topics, some)
    elif not group.is_homogeneous:
        group.topics[chance.choice(list(group.topics))] = some


def told(assignments: Mapping[str, Assignment]) -> dict[str, dict[str, list[int]]]:
    return in_order(
        {
            member_id: {encode_uuid(topic_id): list(some) for topic_id, some in assignment.items()}
            for member_id, assignment in assignments.items()
        }
    )


def in_order(told: dict[str, dict[str, list[int]]]) -> dict[str, dict[str, list[int]]]:
    """Put partitions as the next assignment will see them: it may keep only the first ones."""
    return {
        member_id: {topic: in_set_order(tuple(some)) for topic, some in assignment.items()}
        for member_id, assignment in told.items()
    }


def test_groups_that_change_are_assigned_as_by_kafka() -> None:
    groups = [drawn(seed) for seed in SEEDS]
    for turn in range(5):
        for seed, group in zip(SEEDS, groups, strict=True):
            if turn:
                change(group, random.Random(f"{seed} {turn}"))
        answers = ask(ORACLE, [group.line() for group in groups])
        for seed, group, answer in zip(SEEDS, groups, answers, strict=True):
            ours = ASSIGNORS[group.assignor](group.spec())
            assert told(ours) == in_order(answer), f"seed {seed} turn {turn} {group.assignor}"
            group.assignments = dict(ours)


def test_everything_is_assigned_to_who_reads_it_once() -> None:
    for seed in SEEDS:
        group = drawn(seed)
        for turn in range(5):
            if turn:
                change(group, random.Random(f"{seed} {turn}"))
            group.assignments = dict(ASSIGNORS[group.assignor](group.spec()))
            given = [
                (topic_id, partition)
                for member_id, assignment in group.assignments.items()
                for topic_id, partitions in assignment.items()
                for partition in partitions
                if topic_id in group.topics[member_id]
            ]
            read = {topic_id for topics in group.topics.values() for topic_id in topics}
            wanted = [(topic_id, p) for topic_id in read for p in range(group.counts[topic_id])]
            assert sorted(given) == sorted(wanted)


def test_topics_hash_as_in_kafka() -> None:
    chance = random.Random(7)
    topics = [
        (chance.randbytes(16), name, racks)
        for name in ("t", "Übergröße", "🦉", "x" * 249)
        for racks in ([[]], [["b", "a"], ["🦉"]], [[] for _ in range(300)])
    ]
    answers = ask(
        ORACLE,
        [
            {"hash": name, "id": encode_uuid(topic_id), "racks": racks}
            for topic_id, name, racks in topics
        ]
    )
    hashes = [topic_hash(*topic) for topic in topics]
    assert [one for one, _ in answers] == hashes
    ours = [
        group_hash([(name, own), ("a", 7)])
        for (_, name, _), own in zip(topics, hashes, strict=True)
    ]
    assert [both for _, both in answers] == ours
