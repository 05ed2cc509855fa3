"""Requests of HTTP that fail by their status, on a way to a server that is well.

    503    the request does not arrive
    500    the request is done, and its client does not learn so

After such an answer the connection ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

_PIECE_BYTES = 1 << 16
_HEAD_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_DONE_SHARE = 0.3
Delay = Callable[[], Awaitable[None]]


def _answer(status: bytes) -> bytes:
    return b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


_NOT_DONE, _DONE = _answer(b"503 Slow Down"), _answer(b"500 Internal Error")


@dataclass
class Refusals:
    """The share of the requests that fail, and the source that draws them."""

    share: float
    chance: random.Random


class Exchange:
    """The requests and answers of one connection, of which some fail."""

    def __init__(self, refusals: Refusals) -> None:
        self._refusals, self._is_spoiled = refusals, False

    async def pass_requests(
        self, reader: StreamReader, onward: StreamWriter, back: StreamWriter, delay: Delay
    ) -> None:
        """Pass on requests until one is refused, or the connection ends."""
        chance = self._refusals.chance
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(_HEAD_END)
                fails = chance.random() < self._refusals.share
                self._is_spoiled = fails and chance.random() < _DONE_SHARE
                is_passed = not fails or self._is_spoiled
                await delay()
                if is_passed:
                    onward.write(head)
                found = _LENGTH.search(head)
                left = int(found[1]) if found else 0
                while left:
                    piece = await reader.read(min(left, _PIECE_BYTES))
                    if not piece:
                        return
                    left -= len(piece)
                    if is_passed:
                        onward.write(piece)
                        await onward.drain()
                if not is_passed:
                    back.write(_NOT_DONE)
                    await back.drain()
                    return

    async def pass_answers(self, there: StreamReader, writer: StreamWriter, delay: Delay) -> None:
        """Pass on answers until one is to be lost, or the connection ends."""
        with contextlib.suppress(OSError):
            while piece := await there.read(_PIECE_BYTES):
                await delay()
                writer.write(_DONE if self._is_spoiled else piece)
                await writer.drain()
                if self._is_spoiled:
                    return
