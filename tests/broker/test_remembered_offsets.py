"""Offsets that are answered again are those of the logs as they are then."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.broker.apis import list_offsets
from odradek.storage.errors import StorageError
from odradek.storage.log import Log
from odradek.storage.transactions import Marker
from tests.broker.live import append, batch, client, create, live, on_uvloop
from tests.broker.remembering import counted, made
from tests.support.requests import listing_offsets

VERSION = 10
EARLIEST, NEWEST = -2, -3
PARTITIONS = {"t": [0, 1, 2], "missing": [0]}
REQUESTS = [
    listing_offsets(partitions, timestamp, isolation=isolation)
    for partitions in (PARTITIONS, {"t": [1]})
    for timestamp in (-1, EARLIEST)
    for isolation in (0, 1)
]
SEARCHES = [listing_offsets({"t": [1]}, timestamp) for timestamp in (1_000, NEWEST)]


def write(log: Log, draw: random.Random) -> None:
    append(log, batch(b"a"))


def begin(log: Log, draw: random.Random) -> None:
    made = {"producer_id": draw.randrange(1 << 40), "producer_epoch": 0, "base_sequence": 0}
    append(log, batch(b"a", transactional=True, **made))


def end(log: Log, draw: random.Random) -> None:
    for state in log.producers:
        if log.producers.has_open(state.producer_id, 0):
            log.append_marker(Marker(state.producer_id, 0, 0, draw.random() < 0.5, 1_000, 0))
            return


def trim(log: Log, draw: random.Random) -> None:
    log.advance_start_offset(draw.randint(log.log_start_offset, log.high_watermark))


def elect(log: Log, draw: random.Random) -> None:
    log.leader_epoch += 1


CHANGES: list[Callable[[Log, random.Random], None]] = [write, begin, end, trim, elect]


@pytest.mark.parametrize("seed", range(3))
@on_uvloop
async def test_answers_are_up_to_date_after_each_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    draw = random.Random(seed)
    async with live(tmp_path) as broker, client(broker) as one:
        topic = await create(broker, "t", 3)
        listed = counted(monkeypatch, list_offsets, "_list")
        for _ in range(60):
            log = topic.log(draw.randrange(3))
            assert log is not None
            draw.choice(CHANGES)(log, draw)
            for request in REQUESTS:
                first = await one.ask(request, version=VERSION)
                before = listed()
                assert first == await one.ask(request, version=VERSION)
                assert listed() == before, "it was made again"
                assert first == made(list_offsets, broker, request, VERSION)


@on_uvloop
async def test_a_search_is_made_each_time(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, client(broker) as one:
        (log,) = (await create(broker, "t", 2)).logs[1:]
        for offset in range(3):
            append(log, batch(b"a", timestamp=1_000 + offset))
            for request, found in zip(SEARCHES, (0, offset), strict=True):
                (answer,) = (await one.ask(request, version=VERSION)).topics
                assert answer.partitions[0].offset == found


@on_uvloop
async def test_a_partition_that_is_lost_is_not_answered_again(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, client(broker) as one:
        (log,) = (await create(broker, "t")).logs
        request = listing_offsets({"t": [0]})
        errors = []
        for _ in range(2):
            (answer,) = (await one.ask(request, version=VERSION)).topics
            errors.append(answer.partitions[0].error_code)
            broker.topics.take_offline(log, StorageError("a disk is gone"))
        assert errors[0] == 0 != errors[1]
