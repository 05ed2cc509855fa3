"""A whole broker in the test's own event loop, and a client that speaks to it over a socket.

    async with live(tmp_path, {"num.partitions": "3"}) as broker, client(broker) as one:
        response = await one.ask(MetadataRequest(topics=None), version=12)

The broker is put together as `odradek serve` does it, but for the compiled kernels: the plain
twins serve, so that no test waits for Numba.
"""

from __future__ import annotations

import asyncio
import functools
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvloop

from odradek.broker.clock import Clock, SystemClock
from odradek.broker.composition import Broker
from odradek.broker.topics.plans import NewTopic
from odradek.broker.topics.topic import Topic
from odradek.config.resolution import Layer, Source
from odradek.protocol.batches import Record, encode_batch
from odradek.protocol.compiler import decode
from odradek.protocol.frames import encode_request, read_response_header
from odradek.protocol.messages import message_classes
from odradek.storage.files import FileSystem
from odradek.storage.log import Log
from odradek.storage.real_files import RealFileSystem
from tests.support.waiting import until as until

# Long enough for a busy machine; only a test that fails waits for it.
PATIENCE_S = 60.0


def on_uvloop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an `async def` test in the broker's own kind of loop.

    It fails when the loop had to report something that nobody handled: a lost exception, a
    pending task that was destroyed.
    """

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        reports: list[dict[str, Any]] = []

        async def main() -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, report: reports.append(report))
            await test(*args, **kwargs)

        uvloop.run(main())
        assert not reports, reports

    return run


@asynccontextmanager
async def live(
    path: Path,
    settings: Mapping[str, str] | None = None,
    *,
    fs: FileSystem | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[Broker]:
    """Start on a directory with settings of server.properties; stop at the end."""
    values = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "metrics.listener": "",
        "log.dirs": str(path / "data"),
        "group.initial.rebalance.delay.ms": "0",
        **(settings or {}),
    }
    static = Layer(Source.STATIC_BROKER, values)
    own = RealFileSystem()
    broker = Broker(static, fs or own, clock or SystemClock())
    await broker.start()
    try:
        yield broker
    finally:
        await broker.stop()
        own.close()


class Client:
    """One connection; requests may be sent before earlier ones are answered."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._asked: list[tuple[type, int]] = []
        self._held: list[bytes] | None = None
        self.client_id = "a-client"

    def send(self, *requests: Any, version: int) -> None:
        """Send requests in one go; their correlation ids count up from 0."""
        frames = []
        for request in requests:
            number = len(self._asked)
            frames.append(encode_request(request, version, number, self.client_id))
            response = message_classes(type(request).__name__.removesuffix("Request"))[1]
            self._asked.append((response, version))
        self.send_bytes(b"".join(frames))

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        if self._held is not None:
            self._held.append(data)
        else:
            self._writer.write(data)

    def hold(self) -> None:
        """Keep what is sent until release(), which returns it instead of sending it."""
        self._held = []

    def release(self) -> bytes:
        """Return what was kept."""
        held, self._held = self._held or [], None
        return b"".join(held)

    async def drain(self) -> None:
        """Wait until most of what was sent is on its way."""
        await self._writer.drain()

    async def read(self, size: int) -> bytes:
        """Read so many bytes as they come."""
        async with asyncio.timeout(PATIENCE_S):
            return await self._reader.readexactly(size)

    async def read_all(self) -> bytes:
        """Read until the end of the stream."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                return await self._reader.read(-1)
            except ConnectionError:
                return b""

    def end(self) -> None:
        """Send nothing more, but go on reading."""
        self._writer.write_eof()

    async def receive(self) -> tuple[int, Any]:
        """Return the next response and its correlation id."""
        frame = await self.receive_frame()
        (number,) = struct.unpack_from(">i", frame)
        cls, version = self._asked[number]
        correlation_id, position = read_response_header(memoryview(frame), cls, version)
        return correlation_id, decode(cls, version, frame[position:])

    async def receive_frame(self) -> bytes:
        """Return the next frame; raises IncompleteReadError at the end of the stream."""
        async with asyncio.timeout(PATIENCE_S):
            (size,) = struct.unpack(">i", await self._reader.readexactly(4))
            return await self._reader.readexactly(size)

    async def ask(self, request: Any, *, version: int) -> Any:
        """Send a request and return its response."""
        self.send(request, version=version)
        return (await self.receive())[1]

    async def is_closed(self) -> bool:
        """Wait for the end of the stream; False when bytes come instead."""
        async with asyncio.timeout(PATIENCE_S):
            try:
                return not await self._reader.read(1)
            except ConnectionError:
                return True

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    def abort(self) -> None:
        """Reset the connection, as the end of a process with unread bytes does."""
        linger = struct.pack("ii", 1, 0)
        options = self._writer.get_extra_info("socket")
        options.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._writer.transport.abort()


@asynccontextmanager
async def client(
    broker: Broker,
    *,
    host: str = "127.0.0.1",
    listener: int = 0,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Client]:
    """Connect to one of a broker's listeners, by TLS where a context is given."""
    port = broker.server.listeners[listener].port
    reader, writer = await asyncio.open_connection(host, port, ssl=tls)
    one = Client(reader, writer)
    try:
        yield one
    finally:
        one.close()


async def pass_turns(count: int = 200) -> None:
    """Let the loop go round, for something that must not happen.

    A broker and its clients are in one loop: an answer that needs no thread comes within a few
    turns.
    """
    for _ in range(count):
        await asyncio.sleep(0)


async def create(
    broker: Broker, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None
) -> Topic:
    """Create a topic."""
    await broker.topics.create(
        [NewTopic(name, partition_count=partitions, configs=dict(configs or {}))]
    )
    topic = broker.topics.get(name)
    assert topic is not None
    return topic


def batch(
    *values: bytes, timestamp: int = 1_000, key: bytes | None = b"k", **kwargs: Any
) -> bytes:
    """Encode records of some values as one batch."""
    records = [Record(at, timestamp + at, key, value) for at, value in enumerate(values)]
    return encode_batch(records, **kwargs)


def append(log: Log, *batches: bytes, now_ms: int = 1_000) -> None:
    """Append batches to a log as a client's."""
    for one in batches:
        log.append(bytearray(one), now_ms=now_ms)


@asynccontextmanager
async def counting_turns() -> AsyncIterator[Callable[[], int]]:
    """Tell how often the event loop has gone round, by a function, as long as the body runs."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    try:
        yield lambda: turns
    finally:
        counting.cancel()
