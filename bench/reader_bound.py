"""The most records that clients could read from any broker: an upper bound for the consumers.

    python -m bench.reader_bound [--rounds N] [--scale N]

Between the client and Odradek stands a server that keeps each answer to a Fetch in memory, and
gives it again for the same request: it reads no file, decodes nothing and finds nothing. The
first reading warms up, and fills that memory; the median of the three that follow counts. Odradek,
Kafka and that server take turns, and the medians of the rounds are printed.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import uvloop

from bench.clients import Load, consume, create_topic, librdkafka_consume, produce
from bench.pairs import Broker
from bench.processes import (
    KafkaProcess,
    OdradekProcess,
    end,
    free_port,
    wait_until_listening,
)
from odradek.protocol.frames import FETCH_KEY, SIZE, FrameReader

_SMALL, _LARGE = Load(5_000_000), Load(1_000_000, 1_000)
_READINGS = 4
_FETCH = FETCH_KEY.to_bytes(2, "big")
# Answers without records are not kept: a client would ask for the next one at once.
_KEPT_MIN_BYTES = 10_000
# A request's API key and version, its correlation id, and the rest; an answer begins with the id.
_ID_START, _BODY_START = 4, 8
_ID_BYTES = 4
_FRAME_BYTES_MAX = 100 << 20
_SHARED_VIEW = memoryview(bytearray(256 * 1024))

Frames = Callable[[bytes], None]


class _Cutter(asyncio.BufferedProtocol):
    """Passes a connection's frames on, without their sizes."""

    def __init__(self, take: Frames) -> None:
        self._take = take
        self._frames = FrameReader(_SHARED_VIEW, _FRAME_BYTES_MAX)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._frames.received(nbytes)
        while (frame := self._frames.take()) is not None:
            self._take(bytes(frame))
        self._frames.settle()


class _Replay(_Cutter):
    """A client's connection: requests that were answered before are answered from memory."""

    def __init__(self, answers: dict[bytes, bytes], port: int) -> None:
        super().__init__(self._ask)
        self._answers, self._port = answers, port
        # The requests that the broker has not answered yet, by their correlation ids.
        self._asked: dict[bytes, bytes] = {}
        self._early: list[bytes] = []
        self._broker: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._client = cast(asyncio.Transport, transport)
        self._connecting = asyncio.ensure_future(self._connect())

    def connection_lost(self, exc: Exception | None) -> None:
        self._connecting.cancel()
        if self._broker is not None:
            self._broker.close()

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        made = lambda: _Cutter(self._answer)  # noqa: E731
        self._broker, _ = await loop.create_connection(made, "127.0.0.1", self._port)
        for frame in self._early:
            _send(self._broker, frame)

    def _ask(self, frame: bytes) -> None:
        number = frame[_ID_START:_BODY_START]
        request = frame[:_ID_START] + frame[_BODY_START:]
        answer = None if self._asked else self._answers.get(request)
        if answer is not None:
            _send(self._client, number, answer)
            return
        self._asked[number] = request
        if self._broker is None:
            self._early.append(frame)
        else:
            _send(self._broker, frame)

    def _answer(self, frame: bytes) -> None:
        number, body = frame[:_ID_BYTES], frame[_ID_BYTES:]
        request = self._asked.pop(number)
        if request.startswith(_FETCH) and len(body) > _KEPT_MIN_BYTES:
            self._answers[request] = body
        _send(self._client, frame)


def _send(transport: asyncio.Transport, *parts: bytes) -> None:
    transport.writelines([SIZE.pack(sum(map(len, parts))), *parts])


async def _serve(port: int, broker_port: int) -> None:
    answers: dict[bytes, bytes] = {}
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: _Replay(answers, broker_port), "127.0.0.1", port
    )
    await server.serve_forever()


@dataclass
class _Replayed(OdradekProcess):
    """Odradek behind the server, which clients take for the broker."""

    replay_port: int = field(default_factory=free_port)
    replay: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.replay_port}"

    def start(self) -> float:
        self.settings = {"advertised.listeners": f"PLAINTEXT://{self.bootstrap}"}
        ports = [str(self.replay_port), str(self.port)]
        self.replay = subprocess.Popen([sys.executable, "-m", __spec__.name, "--serve", *ports])
        wait_until_listening(self.replay_port, "the replaying server")
        return super().start()

    def stop(self) -> None:
        super().stop()
        if self.replay is not None:
            self.replay.terminate()
            end(self.replay)


_BROKERS: Mapping[str, Callable[[Path], Broker]] = {
    "Odradek": OdradekProcess,
    "Kafka": KafkaProcess,
    "from memory": _Replayed,
}


@contextmanager
def _running(name: str) -> Iterator[Broker]:
    with tempfile.TemporaryDirectory(prefix="odradek-readers-") as directory:
        broker = _BROKERS[name](Path(directory))
        broker.start()
        try:
            yield broker
        finally:
            broker.stop()


def _ask(broker: Broker, scale: float) -> Mapping[str, float]:
    loads = {"100 B": _SMALL.scaled(scale), "1 kB": _LARGE.scaled(scale)}
    rates = {}
    for size, load in loads.items():
        create_topic(broker, size.replace(" ", "-"))
        produce(broker, size.replace(" ", "-"), load)
        for client, read in (("Java", consume), ("librdkafka", librdkafka_consume)):
            found = [
                read(broker, size.replace(" ", "-"), load.records) for _ in range(_READINGS)
            ]
            rates[f"{client}, {size}"] = statistics.median(found[1:])
    return rates


def main() -> None:
    """Measure and print, or be the replaying server."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--serve", nargs=2, type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve is not None:
        uvloop.run(_serve(*arguments.serve))
        return
    rates: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for _ in range(arguments.rounds):
        for name in _BROKERS:
            with _running(name) as broker:
                for title, rate in _ask(broker, arguments.scale).items():
                    rates[title][name].append(rate)
    print(f"{'records/s':<20}" + "".join(f"{name:>16}" for name in _BROKERS))
    for title, by_name in rates.items():
        medians = [statistics.median(by_name[name]) for name in _BROKERS]
        print(f"{title:<20}" + "".join(f"{median:>16,.0f}" for median in medians))


if __name__ == "__main__":
    main()
