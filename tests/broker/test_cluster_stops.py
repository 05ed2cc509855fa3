"""A broker of a cluster that stops: its parts are closed one after another, and stay closed."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.storage.directory import CLEAN_MARKER, LogDirectory
from tests.broker.live import create, on_uvloop, until
from tests.broker.test_cluster import QUICK, create_at, member, silent
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
