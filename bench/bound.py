"""The most requests that any broker on this event loop could answer: an upper bound for Odradek.

    python -m bench.bound [--rounds N] [--seconds N]

The bare server cuts frames, and answers each with bytes that a broker has given for the same
request, under its correlation id. It decodes nothing, looks up nothing and counts nothing. A
Produce is appended as it is, each client's to a file of its own, as each partition has one. With
acks=all it is answered once that file is synced, together with all that came meanwhile. Ten
connections repeat each request of the question `lookups`, and Produces with a record of 100 B or
20 kB, with Odradek and with the bare server in turn; the medians of the rounds are printed, with
the processor time of a request.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import uvloop

from bench.asking import Connection
from bench.clients import create_topic
from bench.connections import TOPIC, produce_request
from bench.processes import OdradekProcess, end, free_port, wait_until_listening
from bench.questions.many import CLIENTS, WITH_WARM_UP, looked_up, make_lookup_topics, rate
from bench.watch import Running, cpu_s
from odradek.broker.durability.group_commit import SYNC_THREADS_MAX
from odradek.protocol.frames import SIZE

# The first writes of a broker are slower: it loads compiled code meanwhile.
_WARM_UP_S = 6.0
# The Produces by their titles: the size of the record, and acks.
_WRITTEN = {
    "Produce of 100 B": (100, 1),
    "Produce of 20 kB": (20_000, 1),
    "the same, acks=all, 100 B": (100, -1),
    "the same, acks=all, 20 kB": (20_000, -1),
}
# A request's correlation id, after its size, API key and version.
_ID_START, _ID_END = 8, 12


class _Group:
    """Syncs files for all that was written to them meanwhile, several at a time."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(SYNC_THREADS_MAX)
        self._waiting: list[tuple[asyncio.Transport, io.FileIO, bytes]] = []
        self._syncing: asyncio.Task[None] | None = None

    def answer(self, transport: asyncio.Transport, file: io.FileIO, data: bytes) -> None:
        """Write answers once the file is synced."""
        self._waiting.append((transport, file, data))
        if self._syncing is None:
            self._syncing = asyncio.ensure_future(self._sync())

    async def _sync(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            files = [file.fileno() for _, file, _ in waiting]
            shares = (files[at::SYNC_THREADS_MAX] for at in range(SYNC_THREADS_MAX))
            synced = [loop.run_in_executor(self._threads, _sync_all, one) for one in shares if one]
            await asyncio.gather(*synced)
            for transport, _, data in waiting:
                transport.write(data)
        self._syncing = None


def _sync_all(files: Sequence[int]) -> None:
    for file in files:
        os.fdatasync(file)


class _Bare(asyncio.Protocol):
    """Answers every frame with the same body, once the frame is in the file, if there is one."""

    def __init__(self, body: bytes, folder: Path | None, group: _Group | None) -> None:
        self._body, self._group = body, group
        self._file = None if folder is None else _new_file(folder)
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
        if answers and self._group is not None and self._file is not None:
            self._group.answer(self._transport, self._file, b"".join(answers))
        elif answers:
            self._transport.write(b"".join(answers))


def _new_file(folder: Path) -> io.FileIO:
    handle, _ = tempfile.mkstemp(dir=folder)
    return io.FileIO(handle, "ab")


async def _serve(port: int, body: bytes, folder: Path | None, acks: int) -> None:
    loop = asyncio.get_running_loop()
    group = _Group() if acks == -1 else None
    server = await loop.create_server(lambda: _Bare(body, folder, group), "127.0.0.1", port)
    await server.serve_forever()


class _BareProcess:
    """The bare server in a process of its own."""

    def __init__(self, body: bytes, folder: str, acks: int) -> None:
        self.port = free_port()
        serve = ["--serve", str(self.port), body.hex(), folder, str(acks)]
        arguments = [sys.executable, "-m", "bench.bound", *serve]
        self.process: subprocess.Popen[bytes] | None = subprocess.Popen(arguments)
        wait_until_listening(self.port, "the bare server")

    def stop(self) -> None:
        assert self.process is not None
        self.process.terminate()
        end(self.process)


def _measure(
    server: Running, port: int, seconds: float, requests: Sequence[bytes]
) -> tuple[float, float]:
    """Return the answers a second, and the microseconds of processor time for each.

    Each client repeats a request of its own.
    """
    before_s = cpu_s(server)
    answers_per_s = rate(
        [port] * CLIENTS,
        seconds,
        lambda client, number: client.ask(requests[number % len(requests)]),
    )
    answers = answers_per_s * seconds * WITH_WARM_UP
    return answers_per_s, (cpu_s(server) - before_s) / answers * 1e6


def _round(seconds: float) -> Mapping[tuple[str, str], tuple[float, float]]:
    figures = {}
    with tempfile.TemporaryDirectory(prefix="odradek-bound-") as directory:
        broker = OdradekProcess(Path(directory))
        broker.start()
        try:
            make_lookup_topics(broker)
            create_topic(broker, TOPIC, CLIENTS)
            asked: dict[str, Sequence[bytes]] = {
                title: [request] for title, request in looked_up().items()
            }
            for title, (size_bytes, acks) in _WRITTEN.items():
                asked[title] = [
                    produce_request(number, size_bytes, acks=acks) for number in range(CLIENTS)
                ]
            _measure(broker, broker.port, _WARM_UP_S, asked[next(iter(_WRITTEN))])
            for title, requests in asked.items():
                with Connection(broker.port) as connection:
                    body = connection.answer(requests[0])[_ID_END - _ID_START :]
                figures[title, "Odradek"] = _measure(broker, broker.port, seconds, requests)
                _, acks = _WRITTEN.get(title, (0, 1))
                bare = _BareProcess(body, directory if title in _WRITTEN else "", acks)
                try:
                    figures[title, "bare"] = _measure(bare, bare.port, seconds, requests)
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
        "--serve", nargs=4, metavar=("PORT", "BODY", "FOLDER", "ACKS"), help=argparse.SUPPRESS
    )
    arguments = parser.parse_args()
    if arguments.serve:
        port, body, folder, acks = arguments.serve
        served = Path(folder) if folder else None
        uvloop.run(_serve(int(port), bytes.fromhex(body), served, int(acks)))
        return
    found: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for _ in range(arguments.rounds):
        for key, figures in _round(arguments.seconds).items():
            found[key].append(figures)
    for (title, server), some in found.items():
        answers, cost_us = map(statistics.median, zip(*some, strict=True))
        print(f"{title:<28}{server:<10}{answers:>10,.0f}/s{cost_us:>8.1f} us")


if __name__ == "__main__":
    main()
