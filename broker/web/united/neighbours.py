"""Asks the workers of this machine over HTTP, each at its private socket.

A request goes on with its method, path, query and token, and with the client's address. No route
has a body. A worker answers such a request by itself: it is never passed on again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Mapping
from pathlib import Path
from typing import TypeVar

import aiohttp
from aiohttp import web
from yarl import URL

from odradek.broker.web.concurrency import is_gone
from odradek.broker.web.requests import CLIENT, Problem, client_address
from odradek.dataclass import dataclass

T = TypeVar("T")
Headers = Mapping[str, str]

REPLY_BYTES_MAX = 64 << 20
_CONNECT_S = 2.0
_GONE_CHECK_S = 0.5
_CHUNK_BYTES = 1 << 16
# The headers of an answer that are passed on; broker/web/headers.py adds the others.
_PASSED = ("Content-Type", "WWW-Authenticate", "Retry-After")
_RETRY = {"Retry-After": "1"}


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer of a worker."""

    status: int
    headers: Headers
    body: bytes


class NoReply(Exception):
    """A worker that did not answer; the message says why."""


class Neighbours:
    """The workers of this machine, this one included; the event loop owns it."""

    def __init__(self, paths: Mapping[int, Path], own_id: int) -> None:
        """Begin; `paths` are the private sockets by node id."""
        self._paths, self.own_id = paths, own_id
        self._sessions: dict[int, aiohttp.ClientSession] = {}

    async def close(self) -> None:
        """Close all connections."""
        for session in self._sessions.values():
            await session.close()

    async def ask_all(
        self,
        node_ids: Collection[int],
        method: str,
        target: URL,
        headers: Headers,
        patience_s: float | None,
    ) -> tuple[dict[int, Reply], dict[int, str]]:
        """Ask workers at once; return the answers, and why the others have not answered."""
        asked = [self._ask(one, method, target, headers, patience_s) for one in node_ids]
        results = await asyncio.gather(*asked, return_exceptions=True)
        replies: dict[int, Reply] = {}
        absent: dict[int, str] = {}
        for node_id, result in zip(node_ids, results, strict=True):
            if isinstance(result, Reply):
                replies[node_id] = result
            elif isinstance(result, NoReply):
                absent[node_id] = str(result)
            else:
                raise result
        return replies, absent

    async def pass_on(self, request: web.Request, node_id: int) -> web.StreamResponse:
        """Answer a request by the answer of another worker."""
        target, headers = target_of(request), headers_of(request)
        session = self._session(node_id)
        asking = session.request(request.method, target, headers=headers)
        try:
            reply = await while_asked(request, asking)
        except (aiohttp.ClientError, OSError) as error:
            message = f"broker {node_id} does not answer, try again: {_reason(error)}"
            raise Problem(503, message, _RETRY) from error
        async with reply:
            stream = web.StreamResponse(status=reply.status, headers=_passed_on(reply))
            stream.content_length = reply.content_length
            try:
                await stream.prepare(request)
                if request.method != "HEAD":
                    async for chunk in reply.content.iter_chunked(_CHUNK_BYTES):
                        await stream.write(chunk)
                await stream.write_eof()
            except (aiohttp.ClientError, OSError):  # the client has gone, or the worker
                if request.transport is not None:
                    request.transport.abort()
        return stream

    async def _ask(
        self, node_id: int, method: str, target: URL, headers: Headers, patience_s: float | None
    ) -> Reply:
        session = self._session(node_id)
        try:
            async with (
                asyncio.timeout(patience_s),
                session.request(method, target, headers=headers) as reply,
            ):
                body = bytearray()
                async for chunk in reply.content.iter_any():
                    body += chunk
                    if len(body) > REPLY_BYTES_MAX:
                        raise NoReply(f"its answer exceeds {REPLY_BYTES_MAX} bytes")
                return Reply(reply.status, _passed_on(reply), bytes(body))
        except TimeoutError as error:
            raise NoReply(f"no answer within {patience_s} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise NoReply(_reason(error)) from error

    def _session(self, node_id: int) -> aiohttp.ClientSession:
        made = self._sessions.get(node_id)
        if made is None:
            made = self._sessions[node_id] = aiohttp.ClientSession(
                # Connections of clients are bounded; each has one request at a time.
                connector=aiohttp.UnixConnector(str(self._paths[node_id]), limit=0),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        return made


def _passed_on(reply: aiohttp.ClientResponse) -> dict[str, str]:
    return {name: reply.headers[name] for name in _PASSED if name in reply.headers}


def _reason(error: Exception) -> str:
    known = error.strerror if isinstance(error, OSError) else None
    return known or str(error) or type(error).__name__


def target_of(request: web.Request, **query: str | int) -> URL:
    """Return the path and query of a request, some of its parameters replaced."""
    target = URL("http://localhost").join(request.rel_url)
    return target.update_query(query) if query else target


def headers_of(request: web.Request) -> Headers:
    """Return the headers that another worker needs of a request."""
    headers = {CLIENT: client_address(request)}
    shown = request.headers.get("Authorization")
    if shown is not None:
        # Bytes that are not text are part of no token, and cannot be sent.
        headers["Authorization"] = shown.encode("utf-8", "replace").decode()
    return headers


async def while_asked(request: web.Request, work: Awaitable[T]) -> T:
    """Await work as long as the client waits for it. Raises Problem."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await asyncio.wait([task], timeout=_GONE_CHECK_S)
            if is_gone(request):
                raise Problem(503, "the client has gone")
        return task.result()
    finally:
        task.cancel()
