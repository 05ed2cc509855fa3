"""Dispatch: a bug in a handler costs the one connection that met it, and leaves a trace."""

from __future__ import annotations

import asyncio
import gc
import logging
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.api_table import BY_KEY
from odradek.broker.apis import load
from odradek.broker.context import RequestContext
from odradek.broker.errors import CloseConnection
from odradek.broker.network.dispatch import Dispatcher
from odradek.broker.services import Services
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tests.broker.live import client, live, on_uvloop, until

LIST_GROUPS = 16
HEAD = struct.pack(">hhi", 18, 0, 1)  # ApiVersions version 0, correlation id 1


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


class Bug(Exception):
    """What no handler should raise."""


def at_once(_: Services, context: RequestContext, request: Any) -> ListGroupsResponse:
    raise Bug


async def later(_: Services, context: RequestContext, request: Any) -> ListGroupsResponse:
    await asyncio.sleep(0)
    raise Bug


def unencodable(_: Services, context: RequestContext, request: Any) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=1 << 20, groups=[])


async def unencodable_later(
    _: Services, context: RequestContext, request: Any
) -> ListGroupsResponse:
    return unencodable(_, context, request)


def nonsense(_: Services, context: RequestContext, request: Any) -> str:
    return "no response at all"


@pytest.fixture
def served_by(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any]], None]:
    """Have ListGroups handled by another function."""

    def patch(handle: Callable[..., Any]) -> None:
        original = Dispatcher.__init__
        handler = replace(load(BY_KEY[LIST_GROUPS]), handle=handle)

        def initialize(self: Dispatcher, *arguments: Any) -> None:
            original(self, *arguments)
            self._handlers[LIST_GROUPS] = handler

        monkeypatch.setattr(Dispatcher, "__init__", initialize)

    return patch


@pytest.mark.parametrize("handle", [at_once, later, unencodable, unencodable_later, nonsense])
def test_a_bug_closes_the_connection_that_met_it_and_no_other(
    tmp_path: Path,
    served_by: Callable[[Callable[..., Any]], None],
    caplog: pytest.LogCaptureFixture,
    handle: Callable[..., Any],
) -> None:
    served_by(handle)

    @on_uvloop
    async def main() -> None:
        async with live(tmp_path) as broker, client(broker) as one, client(broker) as bystander:
            one.send(ListGroupsRequest(states_filter=[], types_filter=[]), version=0)
            assert await one.is_closed()
            response = await bystander.ask(ApiVersionsRequest(), version=0)
            assert response.api_keys
            assert broker.metrics.failed_requests == 1
            assert broker.metrics.malformed_requests == 0

    main()
    (trace,) = [record for record in caplog.records if record.exc_info]
    assert trace.levelno == logging.ERROR
    assert "api=ListGroups" in trace.getMessage()
    assert "client=a-client" in trace.getMessage()


def test_a_bug_that_nobody_waits_for_any_more_is_not_lost_or_reported_by_the_loop(
    tmp_path: Path,
    served_by: Callable[[Callable[..., Any]], None],
) -> None:
    begun: list[asyncio.Future[None]] = []

    async def stubborn(_: Services, context: RequestContext, request: Any) -> ListGroupsResponse:
        begun.append(asyncio.get_running_loop().create_future())
        try:
            await begun[0]
        finally:
            raise Bug

    served_by(stubborn)

    @on_uvloop
    async def main() -> None:
        async with live(tmp_path) as broker, client(broker) as one:
            one.send(ListGroupsRequest(states_filter=[], types_filter=[]), version=0)
            await until(lambda: begun)
            one.abort()
            await until(lambda: begun[0].cancelled())
            await asyncio.sleep(0)
            gc.collect()  # lost exceptions are reported when they are collected

    main()


def test_a_handler_may_close_the_connection_with_a_reason(
    tmp_path: Path,
    served_by: Callable[[Callable[..., Any]], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    def close(_: Services, context: RequestContext, request: Any) -> ListGroupsResponse:
        raise CloseConnection("it asked for it")

    served_by(close)

    @on_uvloop
    async def main() -> None:
        async with live(tmp_path) as broker, client(broker) as one:
            one.send(ListGroupsRequest(states_filter=[], types_filter=[]), version=0)
            assert await one.is_closed()
            assert broker.metrics.failed_requests == 0

    main()
    (line,) = [one for one in caplog.messages if one.startswith("closed connection")]
    assert line.endswith("reason=it asked for it")


@pytest.mark.parametrize(
    "request_bytes",
    [
        pytest.param(framed(b""), id="nothing"),
        pytest.param(framed(HEAD[:7]), id="half a header"),
        pytest.param(framed(HEAD + b"\x7f\xff"), id="a client id past the end"),
        pytest.param(framed(HEAD + b"\x80\0"), id="a client id of negative size"),
        pytest.param(framed(HEAD + b"\0\1\xff"), id="a client id that is not UTF-8"),
    ],
)
def test_bytes_that_are_no_request_close_the_connection_with_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, request_bytes: bytes
) -> None:
    @on_uvloop
    async def main() -> None:
        async with live(tmp_path) as broker, client(broker) as one, client(broker) as bystander:
            one.send_bytes(request_bytes)
            assert await one.is_closed()
            assert (await bystander.ask(ApiVersionsRequest(), version=0)).api_keys
            assert broker.metrics.malformed_requests == 1

    main()
    assert len([one for one in caplog.messages if one.startswith("closed connection")]) == 1
