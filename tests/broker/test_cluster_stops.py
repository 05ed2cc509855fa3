"""A broker of a cluster that stops: its parts are closed one after another, and stay closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.broker.catalog import wal_reading
from odradek.broker.composition import Broker
from odradek.broker.serve import open_no_more
from odradek.broker.shared import building
from odradek.broker.shared.building import Builder
from odradek.storage.directory import CLEAN_MARKER, LogDirectory
from odradek.storage.errors import NotLeader
from tests.broker.live import batch, create, on_uvloop, until
from tests.broker.test_cluster import (
    QUICK,
    create_at,
    known_everywhere,
    member,
    silent,
    without_news,
)
from tests.broker.test_shared_segments import stored
from tests.broker.test_shared_topics import cluster, leader_of, produce, values
from tests.support.waiting import wait_until


@on_uvloop
async def test_a_broker_that_stops_follows_no_more_and_keeps_its_session(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path / 'c.db'}"
    async with (
        member(tmp_path, url, 1, QUICK) as stopping,
        member(tmp_path, url, 2, QUICK) as other,
    ):
        membership = stopping.membership
        assert membership is not None
        await until(lambda: len(other.brokers) == len(stopping.brokers) == 2)
        await membership.stop_following()
        await create(other, "t", 4)
        extended_at = membership._extended_at
        await until(lambda: membership._extended_at > extended_at)
        assert stopping.topics.get("t") is None
        assert len(other.brokers) == 2


@on_uvloop
async def test_the_session_is_extended_while_logs_are_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of logs take seconds, and others must not open one that is not closed yet."""
    async with member(tmp_path, f"sqlite://{tmp_path / 'c.db'}", 1, QUICK) as stopping:
        membership = stopping.membership
        assert membership is not None
        await create(stopping, "t", 4)
        close = LogDirectory.close

        def slowly(directory: LogDirectory) -> None:
            extended_at = membership._extended_at
            wait_until(lambda: membership._extended_at > extended_at)
            close(directory)

        monkeypatch.setattr(LogDirectory, "close", slowly)
        await stopping.stop()
    assert (tmp_path / "1" / "data" / CLEAN_MARKER).exists()


@on_uvloop
async def test_the_session_is_extended_while_a_large_change_is_read(tmp_path: Path) -> None:
    async with member(tmp_path, f"sqlite://{tmp_path / 'c.db'}", 1, QUICK) as broker:
        membership = broker.membership
        assert membership is not None
        async with without_news(broker):
            for _ in range(3):
                extended_at = membership._extended_at
                await until(lambda at=extended_at: membership._extended_at > at)  # type: ignore[misc]


@asynccontextmanager
async def stopped_while(
    is_opening: asyncio.Event, stopping: Broker, other: Broker, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[None]:
    """Ask a broker to stop that opens the logs of one which is silent; stop it at the end."""
    signals: Any = SimpleNamespace(stop=asyncio.Event())
    async with silent(other):
        await is_opening.wait()
        signals.stop.set()
        await open_no_more(stopping, signals)
        await stopping.changes.run(stopping.changes.follow)  # type: ignore[arg-type]
        yield
        monkeypatch.undo()
        await stopping.stop()


@on_uvloop
async def test_a_broker_that_is_to_stop_leaves_to_others_the_logs_that_are_not_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To open thousands of them takes longer than a person waits for a stop."""
    loop, begin, is_opening = asyncio.get_running_loop(), Builder.begin, asyncio.Event()

    def begin_late(builder: Builder, *args: Any) -> Any:
        loop.call_soon_threadsafe(is_opening.set)
        wait_until(lambda: builder.is_stopping)
        return begin(builder, *args)

    url = f"sqlite://{tmp_path / 'c.db'}"
    async with cluster(tmp_path, url, 2, dict(QUICK)) as (other, stopping):
        await create(other, "t", 8)
        await known_everywhere([stopping], "t")
        monkeypatch.setattr(Builder, "begin", begin_late)
        async with stopped_while(is_opening, stopping, other, monkeypatch):
            assert len(stopping.topics.get("t").logs) == 4  # type: ignore[union-attr]
        await until(lambda: len(other.topics.get("t").logs) == 8)  # type: ignore[union-attr]
        for partition in range(8):
            assert not (await produce(other, batch(b"a"), partition)).error_code


@on_uvloop
async def test_a_broker_that_is_to_stop_reads_no_more_of_the_wal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a slow bucket it would take longer than a service manager waits for a stop."""
    append, is_reading = Builder.append, asyncio.Event()
    loop, appended = asyncio.get_running_loop(), []

    def append_late(builder: Builder, *args: Any) -> Any:
        appended.append(builder)
        loop.call_soon_threadsafe(is_reading.set)
        wait_until(lambda: builder.is_stopping)
        return append(builder, *args)

    url, settings = f"sqlite://{tmp_path / 'c.db'}", {**QUICK, "odradek.wal.inline.bytes.max": "0"}
    monkeypatch.setattr(wal_reading, "_OBJECTS_AT_ONCE", 1)
    async with cluster(tmp_path, url, 2, settings) as (other, stopping):
        await create(other, "t", 2)
        await known_everywhere([stopping], "t")
        number = next(at for at in range(2) if leader_of([other, stopping], at) is other)
        for _ in range(3):
            assert not (await produce(other, batch(b"a"), number)).error_code
        monkeypatch.setattr(Builder, "append", append_late)
        async with stopped_while(is_reading, stopping, other, monkeypatch):
            with pytest.raises(NotLeader, match="left to another broker: this one stops"):
                stopping.topics.get("t").log(number)  # type: ignore[union-attr]
            assert len(appended) == 1
        await until(lambda: len(other.topics.get("t").logs) == 2)  # type: ignore[union-attr]
        assert [at for at, _ in await values(other, number)] == [0, 1, 2]


@on_uvloop
async def test_a_broker_that_is_to_stop_asks_the_bucket_for_no_more_of_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, is_reading, asked = building.read_packed_file, asyncio.Event(), []
    loop = asyncio.get_running_loop()

    def read_late(*args: Any) -> Any:
        asked.append(args)
        loop.call_soon_threadsafe(is_reading.set)
        shared = stopping.sharing
        assert shared is not None
        wait_until(lambda: shared.logs._builder.is_stopping)
        return read(*args)

    url = f"sqlite://{tmp_path / 'c.db'}"
    settings = {**QUICK, "odradek.wal.checkpoint.ms": "1"}
    async with cluster(tmp_path, url, 2, settings) as (other, stopping):
        await create(other, "t", 2)
        await known_everywhere([stopping], "t")
        number = next(at for at in range(2) if leader_of([other, stopping], at) is other)
        assert not (await produce(other, batch(b"a"), number)).error_code
        await stored(other, number)
        monkeypatch.setattr(building, "read_packed_file", read_late)
        async with stopped_while(is_reading, stopping, other, monkeypatch):
            with pytest.raises(NotLeader, match="left to another broker: this one stops"):
                stopping.topics.get("t").log(number)  # type: ignore[union-attr]
            assert len(asked) == 1
        await until(lambda: len(other.topics.get("t").logs) == 2)  # type: ignore[union-attr]


@on_uvloop
async def test_a_broker_that_stops_does_not_join_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite://{tmp_path / 'c.db'}"
    async with member(tmp_path, url, 2, QUICK) as other:
        async with member(tmp_path, url, 1, QUICK) as stopping:
            membership = stopping.membership
            assert membership is not None
            await create_at(other, [stopping], "t", 4)
            await membership.stop_following()
            async with silent(stopping):
                await until(lambda: len(other.brokers) == 1)
            await until(lambda: membership._tasks[0].done())
        assert "joining again" not in caplog.text
    assert not [one for one in caplog.records if one.exc_info]
