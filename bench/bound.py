"""The most requests that any broker on this event loop could answer: an upper bound for Odradek.

    python -m bench.bound [--rounds N] [--seconds N]

The bare server cuts frames, and answers each with bytes that a broker has given for the same
request, under its correlation id. It decodes nothing, looks up nothing and counts nothing; a
Produce is appended to a file as it is. Ten connections repeat each request of the question
`lookups`, and a Produce with a record of 100 B, with Odradek and with the bare server in turn; the
medians of the rounds are printed, with the processor time of a request.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
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
from bench.clients import create_topic
from bench.hurry_client import TOPIC, produce
from bench.processes import OdradekProcess, end, free_port, wait_for
from bench.questions.many import CLIENTS, WITH_WARM_UP, looked_up, make_lookup_topics, rate
from bench.watch import Running, cpu_s
from odradek.protocol.frames import SIZE, encode_request

_PRODUCE = "Produce of 100 B"
# A request's correlation id, after its size, API key and version.
_ID_START, _ID_END = 8, 12


class _Bare(asyncio.Protocol):
    """Answers every frame with the same body, once the frame is in the file, if there is one."""

    def __init__(self, body: bytes, file: io.FileIO | None) -> None:
        self._body, self._file = body, file
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
            if self._file is not None:
                self._file.write(data[start:end_of_frame])
            answers += self._head, data[start + _ID_START : start + _ID_END], self._body
            start = end_of_frame
        self._data = data[start:]
        if answers:
            self._transport.write(b"".join(answers))


async def _serve(port: int, body: bytes, path: str) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(io.FileIO(path, "ab")) if path else None
        server = await loop.create_server(lambda: _Bare(body, file), "127.0.0.1", port)
        await server.serve_forever()


class _BareProcess:
    """The bare server in a process of its own."""

    def __init__(self, body: bytes, path: str) -> None:
        self.port = free_port()
        serve = ["--serve", str(self.port), body.hex(), path]
        arguments = [sys.executable, "-m", "bench.bound", *serve]
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
    answers = answers_per_s * seconds * WITH_WARM_UP
    return answers_per_s, (cpu_s(server) - before_s) / answers * 1e6


def _round(seconds: float) -> Mapping[tuple[str, str], tuple[float, float]]:
    figures = {}
    with tempfile.TemporaryDirectory(prefix="odradek-bound-") as directory:
        broker = OdradekProcess(Path(directory))
        broker.start()
        try:
            make_lookup_topics(broker)
            create_topic(broker, TOPIC, 1)
            written = {_PRODUCE: encode_request(produce(), 8, 1, "bench")}
            for title, request in {**looked_up(), **written}.items():
                with Connection(broker.port) as connection:
                    body = connection.answer(request)[_ID_END - _ID_START :]
                figures[title, "Odradek"] = _measure(broker, broker.port, seconds, request)
                path = Path(directory) / "written" if title in written else ""
                bare = _BareProcess(body, str(path))
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
    parser.add_argument(
        "--serve", nargs=3, metavar=("PORT", "BODY", "PATH"), help=argparse.SUPPRESS
    )
    arguments = parser.parse_args()
    if arguments.serve:
        port, body, path = arguments.serve
        uvloop.run(_serve(int(port), bytes.fromhex(body), path))
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
