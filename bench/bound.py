"""The most requests that any broker on this event loop could answer: an upper bound for Odradek.

    python -m bench.bound [--rounds N] [--seconds N]

The bare server cuts frames, and answers each with bytes that a broker has given for the same
request, under its correlation id. It decodes nothing, looks up nothing and counts nothing. Ten
connections repeat each request of the question `lookups`, with Odradek and with the bare server
in turn; the medians of the rounds are printed, with the processor time of a request.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import uvloop

from bench.asking import Connection
from bench.processes import OdradekProcess, end, free_port, wait_for
from bench.questions.many import CLIENTS, looked_up, make_lookup_topics, rate
from bench.watch import Running, cpu_s
from odradek.protocol.frames import SIZE

# A request's correlation id, after its size, API key and version.
_ID_START, _ID_END = 8, 12


class _Bare(asyncio.Protocol):
    """Answers every frame with the same body."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._head = SIZE.pack(_ID_END - _ID_START + len(body))
        self._data = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        data = self._data + data
        start = 0
        answers: list[bytes] = []
        while len(data) - start >= SIZE.size:
            end_of_frame = start + SIZE.size + SIZE.unpack_from(data, start)[0]
            if end_of_frame > len(data):
                break
            answers += self._head, data[start + _ID_START : start + _ID_END], self._body
            start = end_of_frame
        self._data = data[start:]
        if answers:
            self._transport.write(b"".join(answers))


async def _serve(port: int, body: bytes) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: _Bare(body), "127.0.0.1", port)
    await server.serve_forever()


class _BareProcess:
    """The bare server in a process of its own."""

    def __init__(self, body: bytes) -> None:
        self.port = free_port()
        arguments = [sys.executable, "-m", "bench.bound", "--serve", str(self.port), body.hex()]
        self.process: subprocess.Popen[bytes] | None = subprocess.Popen(arguments)
        wait_for(self._answers, "the bare server")

    def _answers(self) -> bool:
        try:
            Connection(self.port).close()
        except ConnectionError:
            return False
        return True

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        end(self.process)


def _measure(server: Running, port: int, seconds: float, request: bytes) -> tuple[float, float]:
    """Return the answers a second, and the microseconds of processor time for each."""
    before_s = cpu_s(server)
    answers_per_s = rate([port] * CLIENTS, seconds, lambda client, _: client.ask(request))
    # `rate` warms up for a third of the time.
    return answers_per_s, (cpu_s(server) - before_s) / (answers_per_s * seconds * 4 / 3) * 1e6


def _round(seconds: float) -> Mapping[tuple[str, str], tuple[float, float]]:
    figures = {}
    with tempfile.TemporaryDirectory(prefix="odradek-bound-") as directory:
        broker = OdradekProcess(Path(directory))
        broker.start()
        try:
            make_lookup_topics(broker)
            for title, request in looked_up().items():
                with Connection(broker.port) as connection:
                    body = connection.answer(request)[_ID_END - _ID_START :]
                figures[title, "Odradek"] = _measure(broker, broker.port, seconds, request)
                bare = _BareProcess(body)
                try:
                    figures[title, "bare"] = _measure(bare, bare.port, seconds, request)
                finally:
                    bare.stop()
        finally:
            broker.stop()
    return figures


def main() -> None:
    """Measure and print, or be the bare server."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--serve", nargs=2, metavar=("PORT", "BODY"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        port, body = arguments.serve
        uvloop.run(_serve(int(port), bytes.fromhex(body)))
        return
    found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for _ in range(arguments.rounds):
        for key, figures in _round(arguments.seconds).items():
            found[key].append(figures)
    for (title, server), some in found.items():
        answers, cost_us = map(statistics.median, zip(*some, strict=True))
        print(f"{title:<24}{server:<10}{answers:>10,.0f}/s{cost_us:>8.1f} us")


if __name__ == "__main__":
    main()
