"""Partitions of coordinators that cannot be loaded: each is tried again, by one load at a time."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from odradek.broker.coordination.loads import Loads
from odradek.storage.errors import DiskFailure, NotLeader
from tests.broker.group_fakes import ManualLoop, settle

_REFUSED = DiskFailure(Path("log"), OSError("refused, on purpose"))


class Disk:
    """A disk that refuses, and the times at which a partition was to be loaded."""

    def __init__(self) -> None:
        self.loop, self.loads_s = ManualLoop(), list[float]()
        self.refuses = True

    async def load(self, _: int) -> None:
        self.loads_s.append(self.loop.time())
        if self.refuses:
            raise _REFUSED


def _loads(disk: Disk) -> Loads:
    return Loads("groups", disk.loop, disk.load, lambda _: True)


def test_a_partition_is_tried_again_after_longer_and_longer_pauses() -> None:
    async def play() -> None:
        disk = Disk()
        loads = _loads(disk)
        await loads.load(3)
        await disk.loop.advance(100)
        pauses = [after - at for at, after in zip(disk.loads_s, disk.loads_s[1:], strict=False)]
        assert pauses == [0.5, 1, 2, 4, 8, 16, 32]
        assert loads.problems()
        disk.refuses = False
        await disk.loop.advance(100)
        assert not loads.problems()

    asyncio.run(play())


def test_loads_that_others_begin_do_not_add_to_the_retries() -> None:
    async def play() -> None:
        disk = Disk()
        loads = _loads(disk)
        for _ in range(5):
            loads.start(3)
            await settle()
        begun = len(disk.loads_s)
        await disk.loop.advance(60)
        # The pauses go on from the fifth one: 8, 16 and 32 seconds.
        assert len(disk.loads_s) - begun <= 3

    asyncio.run(play())


def test_a_partition_that_another_broker_has_for_now_is_no_error_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def load(_: int) -> None:
        raise NotLeader("this broker stops")

    async def play() -> None:
        loads = Loads("groups", ManualLoop(), load, lambda _: True)
        await loads.load(3)
        assert loads.problems()

    with caplog.at_level(logging.INFO):
        asyncio.run(play())
    assert [one.levelno for one in caplog.records if one.name.endswith("loads")] == [logging.INFO]
