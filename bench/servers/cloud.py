"""A way to a server of S3 and to a PostgreSQL with the delays of a cloud.

    python -m bench.servers.cloud S3_PORT POSTGRESQL_PORT

Passes on all bytes that come to the two ports that it prints. The answer to each PUT and GET comes
30 ms later (p50; p99 150 ms), the answer to each COMMIT 2 ms later. Ends with its standard input.
"""

from __future__ import annotations

import asyncio
import random
import re
import subprocess
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from bench.processes import ROOT, end

_DELAYED = (b"PUT ", b"GET ")
P50_S, SIGMA, COMMIT_S = 0.030, 0.692, 0.002  # p99 = p50 * exp(2.326 * sigma)
_PIECE_BYTES = 262_144
_HEAD_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Way:
    """Two connections, one of which continues the other."""

    def __init__(self, source: random.Random) -> None:
        self._source = source
        self._answers_at_s = 0.0

    async def pass_requests(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Pass on requests of HTTP, whose bodies have a length."""
        while True:
            head = await reader.readuntil(_HEAD_END)
            if head.startswith(_DELAYED):
                self._delay(P50_S * self._source.lognormvariate(0, SIGMA))
            writer.write(head)
            found = _LENGTH.search(head)
            left = int(found[1]) if found else 0
            while left:
                piece = await reader.read(min(left, _PIECE_BYTES))
                if not piece:
                    return
                left -= len(piece)
                writer.write(piece)
                await writer.drain()

    async def pass_statements(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Pass on messages to a PostgreSQL."""
        while piece := await reader.read(_PIECE_BYTES):
            if b"COMMIT" in piece:
                self._delay(COMMIT_S)
            writer.write(piece)
            await writer.drain()

    async def pass_answers(self, reader: StreamReader, writer: StreamWriter) -> None:
        """Pass on answers, none before its time."""
        loop = asyncio.get_running_loop()
        while piece := await reader.read(_PIECE_BYTES):
            await asyncio.sleep(self._answers_at_s - loop.time())
            writer.write(piece)
            await writer.drain()

    def _delay(self, seconds: float) -> None:
        self._answers_at_s = asyncio.get_running_loop().time() + seconds


async def _connect(
    port: int, source: random.Random, reader: StreamReader, writer: StreamWriter, *, is_http: bool
) -> None:
    there, onward = await asyncio.open_connection("127.0.0.1", port, limit=_PIECE_BYTES)
    way = Way(source)
    passing = way.pass_requests if is_http else way.pass_statements
    both = (
        asyncio.ensure_future(passing(reader, onward)),
        asyncio.ensure_future(way.pass_answers(there, writer)),
    )
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in both:
            one.cancel()
        await asyncio.gather(*both, return_exceptions=True)
        writer.close()
        onward.close()


async def serve(s3_port: int, postgresql_port: int) -> None:
    """Listen on two ports, print them, and pass on until standard input ends."""
    source, ports = random.Random(1), []
    for port, is_http in ((s3_port, True), (postgresql_port, False)):
        connect = partial(_connect, port, source, is_http=is_http)
        server = await asyncio.start_server(connect, "127.0.0.1", 0, limit=_PIECE_BYTES)
        ports.append(server.sockets[0].getsockname()[1])
    print(*ports, flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


@contextmanager
def running(s3_port: int, postgresql_port: int) -> Iterator[tuple[int, int]]:
    """Run it in a process of its own; yield its ports."""
    command = [sys.executable, "-m", "bench.servers.cloud", str(s3_port), str(postgresql_port)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        s3, postgresql = map(int, process.stdout.readline().split())
        yield s3, postgresql
    finally:
        process.stdin.close()
        end(process)


if __name__ == "__main__":
    asyncio.run(serve(*map(int, sys.argv[1:])))
