"""The whole wire beside Apache Kafka: whatever both are asked, both answer alike.

Requests are drawn from the declarations, every API at every version, and go to both brokers in
the same order; so do frames that are no requests. `make test` plays a short form, `make interop`
one of thousands of requests: FUZZ_SEED says where its seeds begin, FUZZ_WORLDS how many there are.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest

from tests.differential import group_records, wrong_frames
from tests.differential.answers import Difference
from tests.differential.differences import KNOWN, Known, known
from tests.differential.directed import directed
from tests.differential.group_offsets import OffsetsScript
from tests.differential.groups import GroupScript
from tests.differential.play import Play, playing
from tests.differential.world import World
from tests.fuzz.seeds import FIRST_SEED, WORLDS

pytestmark = [pytest.mark.slow, pytest.mark.kafka]

SHORT_ROUNDS, LONG_ROUNDS = 1, 8
SHORT_STEPS, LONG_STEPS = 8, 60  # of a group with several members
_TOLD_MAX = 40
MEMBERS, OFFSETS = "members", "offsets"  # the groups of the two scripts

Found = Iterable[tuple[str, Difference]]


@pytest.mark.timeout(600)
def test_every_api_at_every_version(tmp_path: Path) -> None:
    with playing(tmp_path) as play:
        world = play.world(0)
        _check(_played(play, world, SHORT_ROUNDS), set())
        _check(_grouped(play, world, SHORT_STEPS), set())
        _check(_stored(tmp_path, play, [world]), set())
        _check(directed(play, world), set())
        _check(_wrong(play, world), set())


@pytest.mark.interop
@pytest.mark.timeout(7200)
def test_thousands_of_requests(tmp_path: Path) -> None:
    seen: set[Known] = set()
    with playing(tmp_path) as play:
        worlds = []
        for seed in range(FIRST_SEED, FIRST_SEED + WORLDS):
            world = play.world(seed)
            worlds.append(world)
            _check(_played(play, world, LONG_ROUNDS), seen)
            _check(_grouped(play, world, LONG_STEPS), seen)
            _check(directed(play, world), seen)
            _check(_wrong(play, world), seen)
        _check(_stored(tmp_path, play, worlds), seen)
    gone = [one for one in KNOWN if one not in seen]
    assert not gone, f"differences that are no more: take them off the list: {gone}"


def _played(play: Play, world: World, rounds: int) -> Found:
    for number in range(rounds):
        yield from play.play(world, number)


def _grouped(play: Play, world: World, steps: int) -> Found:
    yield from GroupScript(play, world, MEMBERS).run(steps)
    yield from OffsetsScript(play, world, OFFSETS).run(steps)


def _stored(folder: Path, play: Play, worlds: Iterable[World]) -> Found:
    """Compare what the scripts have left in __consumer_offsets."""
    groups = [f"{name}-{world.seed}" for world in worlds for name in (MEMBERS, OFFSETS)]
    data = folder / "odradek" / "data", folder / "kafka" / "data"
    yield from group_records.differences(data, groups, play.pairs)


def _wrong(play: Play, world: World) -> Found:
    yield from play.wrong(wrong_frames.outside_the_table())
    yield from play.wrong(wrong_frames.malformed())
    yield from play.wrong(wrong_frames.broken(Random(world.seed), world, play.pairs))


def _check(found: Found, seen: set[Known]) -> None:
    """Fail for differences that are not known; note the entries that cover the others."""
    strange = []
    for request, difference in found:
        entry = known(difference)
        if entry is not None:
            seen.add(entry)
        elif len(strange) < _TOLD_MAX:
            strange.append(f"{difference}\n  {request[:1_000]}")
    assert not strange, "\n".join(strange)
