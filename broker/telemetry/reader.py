"""Reads clients' pushes in a thread of its own, one after the other.

A large push takes a while to read, and the thread shares the interpreter's lock: several at once
would delay all other clients, and in the shared pool also deletions and pages. After each push,
the thread rests three times as long, since clients that make up ids may push at any time.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from time import monotonic, thread_time

from odradek.broker.loop.priority import give_way
from odradek.broker.telemetry.series import Push, read_push
from odradek.protocol.compression import Codec

# The pushes that may wait for their turn, each of up to telemetry.max.bytes.
_WAITING_MAX = 64
# How long the thread rests after a push, as a multiple of the time that it took.
_REST = 3


class Busy(Exception):
    """Too many pushes are waiting."""


class Reader:
    """The thread, and the pushes that wait for it; the event loop owns it."""

    def __init__(self) -> None:
        self._thread: ThreadPoolExecutor | None = None
        self._waiting = 0
        self._is_closed = threading.Event()
        # When the thread has rested; only the thread uses this.
        self._rested_s = 0.0

    async def read(self, data: bytes, codec: Codec, size_max: int) -> Push:
        """Read a push in its turn. Raises Busy, InvalidPayload or PayloadTooLarge."""
        if self._waiting >= _WAITING_MAX:
            raise Busy
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "telemetry", initializer=give_way)
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._thread, self._read, data, codec, size_max)
        finally:
            self._waiting -= 1

    def close(self) -> None:
        """End the thread; waiting pushes are not read any more."""
        self._is_closed.set()
        if self._thread is not None:
            self._thread.shutdown(cancel_futures=True)

    def _read(self, data: bytes, codec: Codec, size_max: int) -> Push:
        self._is_closed.wait(max(0.0, self._rested_s - monotonic()))
        begun_s = thread_time()
        try:
            return read_push(data, codec, size_max)
        finally:
            took_s = thread_time() - begun_s
            self._rested_s = monotonic() + _REST * took_s
