"""Damage to any file: the broker starts, serves what is intact, and says what is not.

The directory is what a real broker left, once by a clean stop and once killed. Every file is
damaged in its turn, in some ways chosen by a seed; each time a broker starts on a copy.
"""

from __future__ import annotations

import logging
import random
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import settings

from odradek.broker.composition import Broker
from odradek.broker.metadata.images import COPY_NAME, DATABASE_NAME
from odradek.broker.web.admin_token import FILE_NAME as TOKEN
from odradek.cleaner.runtime.history import FILE_NAME as HISTORY
from odradek.protocol.errors import ErrorCode
from odradek.storage.meta_properties import META
from odradek.storage.segment import CLEANED, DELETED, KEYS, SWAP
from tests.broker.damage import (
    FIRST_COMMIT,
    LAST_COMMIT,
    QUIET,
    TRIMMED,
    Batch,
    Partition,
    Seen,
    build,
    commits,
    damage,
    fetch,
    files_of,
    kind_of,
    see,
)
from tests.broker.live import Client, client, live, on_uvloop

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

OFFSETS = "__consumer_offsets"
KINDS = {
    ".kafka_cleanshutdown",
    ".log",
    ".index",
    ".timeindex",
    ".snapshot",
    "leader-epoch-checkpoint",
    "partition.metadata",
    META,
    DATABASE_NAME,
    COPY_NAME,
    "cleaner-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    KEYS,
    HISTORY,
    TOKEN,
}
HALF_DONE = (CLEANED, SWAP, DELETED, ".tmp")
# The bytes of a batch's header that its offsets come from: baseOffset and lastOffsetDelta.
TELL_OFFSETS = {*range(8), *range(23, 27)}
# 40 with --hypothesis-profile thorough.
SEEDS = settings().max_examples // 50
# Either may be all that tells where a log starts: what was deleted may be seen again then.
TELL_THE_START = {"leader-epoch-checkpoint", "log-start-offset-checkpoint"}
TOLD = (ErrorCode.CORRUPT_MESSAGE, ErrorCode.OFFSET_OUT_OF_RANGE)


@dataclass(frozen=True, slots=True)
class World:
    """A data directory, what clients see of it, and where its batches are."""

    data: Path
    was_stopped: bool
    seen: Seen
    places: dict[Path, list[tuple[int, int, Batch]]]


@dataclass(frozen=True, slots=True)
class Damaged:
    """One file of a copy that is damaged, and at which bytes."""

    path: Path
    relative: Path
    positions: set[int]

    @property
    def kind(self) -> str:
        return kind_of(self.relative)

    @property
    def partition(self) -> Partition | None:
        name, dash, number = self.relative.parts[0].rpartition("-")
        return (name, int(number)) if dash and len(self.relative.parts) == 2 else None


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module", params=["stopped", "killed"])
def world(
    request: pytest.FixtureRequest,
    directories: tuple[Path, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> World:
    was_stopped = request.param == "stopped"
    data = directories[0 if was_stopped else 1]
    copy = tmp_path_factory.mktemp("undamaged")
    shutil.copytree(data, copy / "data")
    found: list[Seen] = []

    @on_uvloop
    async def look() -> None:
        async with live(copy, QUIET) as broker, client(broker) as one:
            found.append(await see(broker, one))

    look()
    return World(data, was_stopped, found[0], _places(data, found[0]))


def _places(data: Path, seen: Seen) -> dict[Path, list[tuple[int, int, Batch]]]:
    """Return where in which file each batch is: its first and end position."""
    places: dict[Path, list[tuple[int, int, Batch]]] = {}
    for (name, number), batches in seen.batches.items():
        for path in (data / f"{name}-{number}").glob("*.log"):
            content = path.read_bytes()
            for batch in batches:
                at = content.find(batch.data)
                if at >= 0:
                    place = (at, at + len(batch.data), batch)
                    places.setdefault(path.relative_to(data), []).append(place)
    return places


def test_the_directories_have_files_of_every_kind(world: World) -> None:
    kinds = Counter(kind_of(path) for path in files_of(world.data))
    if not world.was_stopped:  # The kill may have come in the middle of a cleaning.
        for name in [name for name in kinds if name.endswith(HALF_DONE)]:
            del kinds[name]
    assert set(kinds) == KINDS - ({".kafka_cleanshutdown"} if not world.was_stopped else set())
    assert min(kinds[".log"], kinds[".index"], kinds[".timeindex"]) > 5
    assert world.seen.ends["trimmed", 0][0] == TRIMMED
    assert set(world.seen.commits.values()) == {LAST_COMMIT}
    for (name, _), batches in world.seen.batches.items():
        assert batches or name == OFFSETS


@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_a_damaged_file_costs_no_more_than_what_was_in_it(
    world: World, kind: str, seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = random.Random(f"{kind} {seed} {world.was_stopped}")
    files = [path for path in files_of(world.data) if kind_of(path) == kind]
    if len(files) > 6:
        files = source.sample(files, 6)
    ways = 1 if len(files) > 2 else 3
    for number, relative in enumerate(files * ways):
        home = tmp_path / str(number)
        shutil.copytree(world.data, home / "data")
        path = home / "data" / relative
        damaged = Damaged(path, relative, damage(path, source))
        caplog.clear()
        # No test here pulls the plug, and each would wait for the disk.
        no_waits = mock.patch("os.fsync"), mock.patch("os.fdatasync")
        with caplog.at_level(logging.WARNING), no_waits[0], no_waits[1]:
            _start_and_check(world, damaged, home, caplog)
        shutil.rmtree(home)


def _start_and_check(
    world: World, damaged: Damaged, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = f"{damaged.relative} {sorted(damaged.positions)[:5]}"

    @on_uvloop
    async def run() -> None:
        async with live(home, QUIET) as broker, client(broker) as one:
            _check_topics(world.seen, broker, damaged)
            await _check_commits(world.seen, one, damaged)
            for partition in world.seen.batches:
                await _check_batches(world, broker, one, partition, damaged, caplog)

    try:
        run()
        _check_naming(world, damaged, caplog)
    except Exception as error:
        error.add_note(told + "\n" + caplog.text)
        raise
    assert not [record for record in caplog.records if record.exc_info], told


def _check_topics(seen: Seen, broker: Broker, damaged: Damaged) -> None:
    assert broker.cluster_id == seen.cluster_id
    assert {
        topic.name: (topic.topic_id, len(topic.partitions), dict(topic.overrides))
        for topic in broker.topics
    } == seen.topics
    for (name, number), (start, end) in seen.ends.items():
        topic = broker.topics.get(name)
        assert topic is not None
        log = topic.partitions[number]
        if damaged.kind in TELL_THE_START:
            assert log.log_start_offset <= start
        elif damaged.kind != ".log" or damaged.partition != (name, number):
            assert log.log_start_offset == start
        if damaged.kind != ".log" or damaged.partition != (name, number):
            assert log.log_end_offset == end


async def _check_commits(seen: Seen, one: Client, damaged: Damaged) -> None:
    found = await commits(one)
    if damaged.kind == ".log" and damaged.partition and damaged.partition[0] == OFFSETS:
        assert set(found) == set(seen.commits)
        assert set(found.values()) <= {-1, *range(FIRST_COMMIT, LAST_COMMIT + 1)}
    else:
        assert found == seen.commits


async def _check_batches(
    world: World,
    broker: Broker,
    one: Client,
    partition: Partition,
    damaged: Damaged,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = broker.topics.get(partition[0])
    assert topic is not None
    batches = world.seen.batches[partition]
    start = topic.partitions[partition[1]].log_start_offset
    offsets = [max(batch.base_offset, start) for batch in batches]
    answers = await fetch(one, topic.topic_id, partition[1], offsets)
    lost = _lost(world, partition, damaged)
    for batch, answer in zip(batches, answers, strict=True):
        if batch not in lost:
            assert answer == batch.data, (partition, batch.base_offset)
        elif isinstance(answer, int):
            assert answer in TOLD
            if answer == ErrorCode.CORRUPT_MESSAGE:
                assert str(damaged.path) in caplog.text


def _lost(world: World, partition: Partition, damaged: Damaged) -> set[Batch]:
    """Return the batches that need not be served as they were."""
    if damaged.partition != partition or damaged.kind != ".log":
        return set()
    places = world.places.get(damaged.relative, [])
    hit = {
        (first, batch)
        for first, end, batch in places
        if any(first <= position < end for position in damaged.positions)
    }
    lost = {batch for _, batch in hit}
    if not world.was_stopped and lost:
        # A crash may have torn it: the log ends where damage begins, as Kafka's does.
        base = min(batch.base_offset for batch in lost)
        return {batch for batch in world.seen.batches[partition] if batch.base_offset >= base}
    if any(position - first in TELL_OFFSETS for first, _ in hit for position in damaged.positions):
        # They may cover those of its neighbours, and nothing tells which is right.
        lost |= {batch for _, _, batch in places}
    return lost


def _check_naming(world: World, damaged: Damaged, caplog: pytest.LogCaptureFixture) -> None:
    if not damaged.positions:
        return
    first = min(damaged.positions)
    always = damaged.kind in (DATABASE_NAME, COPY_NAME)
    if damaged.kind == META:
        always = first < (world.data / META).read_bytes().index(b"directory.id")
    elif damaged.kind == "partition.metadata":
        always = first < (world.data / damaged.relative).stat().st_size - 1
    if always:
        assert f"{damaged.path} is damaged at position {first}: " in caplog.text
