"""The order in which our coordinators list what they keep, beside Java's and Kafka's own maps."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.groups.membership import Member, Membership
from odradek.broker.groups.modern.tables import NumberTimeline, Timeline
from odradek.broker.orders.hash_map import concurrent_order
from odradek.broker.orders.java import partition_hash, string_hash
from odradek.broker.orders.partitions import asking_order, loading_order
from odradek.broker.orders.scala import SMALL_MAX, table_order, trie_order
from tests.support.java import program

pytestmark = pytest.mark.kafka

ORACLE = Path(__file__).with_name("MapOrderOracle.java")
OFFSETS = "__consumer_offsets"
# Beyond the ninth and the tenth key of a table of eight places, beyond the 85th of one of 64.
KEY_COUNTS = (1, 2, 3, 5, 6, 11, 23, 43, 90, 170)
# Two pairs of texts that have the same hash, and units outside of ASCII.
COLLIDING = ["Aa-x", "BB-x", "x-AaBB", "x-BBAa", "ägypten", "🦉", ""]

Step = tuple[str, Any]


def ask(scripts: Sequence[tuple[str, Sequence[Step]]]) -> list[list[Any]]:
    """Play scripts on Java's maps; return the keys in their order."""
    done = subprocess.run(
        program(ORACLE, flags=["-Dstdout.encoding=UTF-8"]),
        input="".join(f"{json.dumps({'map': kind, 'steps': s})}\n" for kind, s in scripts),
        capture_output=True,
        check=True,
        encoding="utf-8",
        timeout=240,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def scripts(keys_of: Any, *, replaces: bool = True) -> list[list[Step]]:
    """Make scripts of keys that come, come again and go."""
    made = []
    for seed in range(120):
        chance = random.Random(seed)
        keys = keys_of(chance, chance.choice(KEY_COUNTS))
        removes, steps, present = chance.choice((0.0, 0.2, 0.45)), [], set()
        for _ in range(chance.randint(1, 3 * len(keys))):
            key = chance.choice(keys)
            if chance.random() < removes:
                steps.append(("remove", key))
                present.discard(key)
            elif replaces or key not in present:
                steps.append(("put", key))
                present.add(key)
        made.append(steps)
    return made


def texts(chance: random.Random, count: int) -> list[str]:
    """Make names of members and topics."""
    names = [f"{chance.getrandbits(128):032x}" for _ in range(count)]
    return [*names, *chance.sample(COLLIDING, min(count, len(COLLIDING)))]


def numbers(chance: random.Random, count: int) -> list[int]:
    """Make numbers of partitions, near and far."""
    near = list(range(count))
    return near if chance.random() < 0.5 else [one * 37 + chance.randrange(37) for one in near]


def test_texts_are_listed_as_by_a_timeline_hash_map() -> None:
    played = scripts(texts)
    theirs = ask([("timeline", steps) for steps in played])
    for steps, expected in zip(played, theirs, strict=True):
        timeline: Timeline[None] = Timeline()
        for act, key in steps:
            if act == "put":
                timeline[key] = None
            else:
                timeline.pop(key, None)
            assert len(timeline.in_order()) == len(timeline)
        assert list(timeline.in_order()) == expected


def test_numbers_are_listed_as_by_a_timeline_hash_map() -> None:
    played = scripts(numbers)
    theirs = ask([("timeline", steps) for steps in played])
    for steps, expected in zip(played, theirs, strict=True):
        timeline: NumberTimeline[None] = NumberTimeline()
        for act, key in steps:
            if act == "put":
                timeline.put(key, None)
            else:
                timeline.pop(key, None)
        assert timeline.in_order() == expected


def test_members_of_a_classic_group_are_listed_as_by_a_hash_map() -> None:
    played = scripts(texts, replaces=False)
    theirs = ask([("hash", steps) for steps in played])
    for steps, expected in zip(played, theirs, strict=True):
        membership = Membership()
        for act, key in steps:
            if act == "put":
                membership.add(Member(key, None, "", "", 1, 1, ()))
            else:
                membership.remove(key)
        assert [member.member_id for member in membership.in_order()] == expected


def test_texts_are_listed_as_by_a_concurrent_hash_map() -> None:
    chance = random.Random(3)
    put = [list(dict.fromkeys(texts(chance, count))) for count in (1, 8, 11, 12, 30, 90, 400)]
    for some, expected in zip(
        put, ask([("concurrent", [("put", one) for one in some]) for some in put]), strict=True
    ):
        assert concurrent_order(some) == expected


def test_partitions_are_gone_through_as_kafka_has_loaded_them() -> None:
    counts = [*range(1, 130), 1_000]
    theirs = ask(
        [("concurrent", [("put", (OFFSETS, number)) for number in range(n)]) for n in counts]
    )
    for count, expected in zip(counts, theirs, strict=True):
        assert [[OFFSETS, one] for one in loading_order(OFFSETS, count)] == expected


def test_partitions_that_a_request_asks_for_are_gone_through_as_by_a_hash_map() -> None:
    chance = random.Random(1)
    asked = [[chance.randrange(50) for _ in range(chance.randint(0, 90))] for _ in range(200)]
    theirs = ask([("hash", [("compute", (OFFSETS, one)) for one in some]) for some in asked])
    for some, expected in zip(asked, theirs, strict=True):
        assert [[OFFSETS, one] for one in asking_order(OFFSETS, some)] == expected


def _small_order(keys: list[Any], hash_of: Callable[[Any], int]) -> list[Any]:
    """Return keys as responses have those of an immutable map, whatever it is made as."""
    return keys if len(keys) <= SMALL_MAX else trie_order(keys, hash_of)


@pytest.mark.parametrize(
    ("kind", "order"), [("mutable", table_order), ("trie", trie_order), ("small", _small_order)]
)
def test_keys_are_listed_as_by_the_maps_of_scala(kind: str, order: Any) -> None:
    chance = random.Random(kind)
    counts = [*range(45), 96, 97, 400, 3_000]
    names = [list(dict.fromkeys(texts(chance, count))) for count in counts]
    # Eight names that have one hash.
    names += [[*some, *map("".join, product(("Aa", "BB"), repeat=3))] for some in names]
    for some in names:
        chance.shuffle(some)
    numbered = [[("topic", one) for one in chance.sample(range(5_000), n)] for n in counts]
    played = [*names, *numbered]
    theirs = ask([(kind, [("put", one) for one in some]) for some in played])
    for some, expected in zip(names, theirs[: len(names)], strict=True):
        assert order(some, string_hash) == expected
    base = string_hash("topic")
    for some, expected in zip(numbered, theirs[len(names) :], strict=True):
        in_order = order(some, lambda key: partition_hash(base, key[1]))
        assert [[name, one] for name, one in in_order] == expected
