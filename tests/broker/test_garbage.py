"""Looking for garbage holds all threads up: not while /metrics is made, and always afterwards."""

from __future__ import annotations

import gc
from pathlib import Path
from unittest import mock

import aiohttp
import pytest

from odradek.broker.loop.garbage import uncollected
from odradek.broker.observability.otlp import pusher
from odradek.broker.web import server
from tests.broker.collector import collecting
from tests.broker.live import live, on_uvloop, until


def test_it_is_as_it_was_afterwards_whatever_came() -> None:
    assert gc.isenabled()
    with pytest.raises(RuntimeError), uncollected():
        assert not gc.isenabled()
        raise RuntimeError
    assert gc.isenabled()
    gc.disable()
    with uncollected():
        assert not gc.isenabled()
    assert not gc.isenabled()
    gc.enable()


def test_overlapping_ones_leave_it_as_it_was_before_the_first() -> None:
    first, second = uncollected(), uncollected()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert gc.isenabled()


@on_uvloop
async def test_none_is_looked_for_while_metrics_are_made(tmp_path: Path) -> None:
    found: list[tuple[str, bool]] = []

    def told(what: str, result: object) -> object:
        found.append((what, gc.isenabled()))
        return result

    with (
        collecting() as collector,
        mock.patch.object(server, "render", lambda _: told("page", b"")),
        mock.patch.object(pusher, "collect", lambda _: told("push", [])),
    ):
        settings = {
            "metrics.listener": "127.0.0.1:0",
            "odradek.otlp.endpoint": f"http://127.0.0.1:{collector.port}",
            "odradek.otlp.interval.ms": "100",
        }
        async with live(tmp_path, settings) as broker, aiohttp.ClientSession() as session:
            async with session.get(f"{broker.http.url.rstrip('/')}/metrics") as answer:
                assert answer.status == 200
            await until(lambda: broker.metrics.otlp_pushes)
    assert set(found) == {("page", False), ("push", False)}
    assert gc.isenabled()
