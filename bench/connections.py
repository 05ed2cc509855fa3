"""Many connections: the memory of an idle one, and the time of round trips beside them.

    python -m bench.connections [--rounds N] [--idle N] [--busy N] [--rate N] [--seconds N]

Each round starts a fresh Odradek, then a fresh Kafka. Idle connections have requested the API
versions and the metadata, as any client does first. Each busy one sends a record of 100 B with
acks=1, again and again: at first all of them together --rate records a second; then each as fast
as it gets answers. Needs Java and Kafka's jars (`make kafka`).
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import uvloop

from bench.clients import create_topic
from bench.pairs import Broker, quantile, summary
from bench.processes import KafkaProcess, OdradekProcess, lacks_kafka, resident_bytes
from odradek.broker.process.limits import raise_open_files_limit
from odradek.protocol.batches import Record, encode_batch
from odradek.protocol.frames import encode_request
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.metadata import MetadataRequest
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

TOPIC = "pinged"
_VALUE_BYTES = 100
_PRODUCE_VERSION = 9
_WARM_UP_SHARE = 0.3
# For a garbage collection or two, before memory is measured.
_SETTLE_S = 2.0


@dataclass
class Figures:
    """The figures of a broker in one round."""

    idle_bytes: float = 0.0  # of memory, for each connection
    memory_bytes: int = 0  # with all of them
    trips_s: list[float] = field(default_factory=list)  # at the rate
    trips_per_s: float = 0.0  # as fast as they are answered

    def quantile_ms(self, share: float) -> float:
        """Return the milliseconds that a share of the round trips does not exceed."""
        return quantile(self.trips_s, share) * 1000


# For each, Kafka's figure divided by Odradek's is reported.
_FIGURES: Mapping[str, Callable[[Figures], float]] = {
    "memory of an idle connection, Kafka/Odradek": lambda one: one.idle_bytes,
    "p50, Kafka/Odradek": lambda one: one.quantile_ms(0.5),
    "p99, Kafka/Odradek": lambda one: one.quantile_ms(0.99),
    "seconds a round trip when busy, Kafka/Odradek": lambda one: 1 / one.trips_per_s,
}


class Client(asyncio.Protocol):
    """One connection with one request at a time; the answers are only measured."""

    def __init__(self) -> None:
        self._left_bytes = 0
        self._head = b""
        self._answered: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the pending request."""
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(ConnectionError("the broker closed the connection"))

    def data_received(self, data: bytes) -> None:
        """Count the bytes of an answer."""
        if self._left_bytes == 0:
            self._head += data
            if len(self._head) < 4:
                return
            self._left_bytes = int.from_bytes(self._head[:4], "big") + 4 - len(self._head)
        else:
            self._left_bytes -= len(data)
        if self._left_bytes == 0:
            self._head = b""
            assert self._answered is not None
            self._answered.set_result(None)

    async def ask(self, request: bytes) -> None:
        """Send a request, and wait for its answer."""
        self._answered = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        await self._answered


async def connect(broker: Broker, count: int) -> list[Client]:
    """Open connections to a broker, and send the first requests of any client on each."""
    return await connect_to([broker.port] * count)


async def connect_to(ports: Sequence[int]) -> list[Client]:
    """Open a connection to each of some ports; see `connect`."""
    loop = asyncio.get_running_loop()
    greetings = [
        encode_request(ApiVersionsRequest(), 3, 1, "idle"),
        encode_request(MetadataRequest(topics=[]), 9, 2, "idle"),
    ]
    made = []
    for port in ports:
        _, client = await loop.create_connection(Client, "127.0.0.1", port)
        for greeting in greetings:
            await client.ask(greeting)
        made.append(client)
    return made


async def measure(broker: Broker, options: argparse.Namespace) -> Figures:
    """Run one round on a fresh, running broker."""
    assert broker.process is not None
    figures = Figures()
    busy = await connect(broker, options.busy)
    await _keep_busy(busy, options, _WARM_UP_SHARE * options.seconds)
    await asyncio.sleep(_SETTLE_S)
    before = resident_bytes(broker.process)
    idle = await connect(broker, options.idle)
    await asyncio.sleep(_SETTLE_S)
    figures.memory_bytes = resident_bytes(broker.process)
    figures.idle_bytes = (figures.memory_bytes - before) / options.idle
    figures.trips_s = await keep_pace(
        busy, rate=options.rate, seconds=options.seconds, partitions=options.partitions
    )
    trips = await _keep_busy(busy, options, options.seconds)
    figures.trips_per_s = trips / options.seconds
    for client in (*busy, *idle):
        client.transport.abort()
    return figures


async def _keep_busy(clients: list[Client], options: argparse.Namespace, seconds: float) -> int:
    """Send one request after another on each connection; return the number of answers."""
    end_s = time.perf_counter() + seconds

    async def work(number: int, client: Client) -> int:
        request, count = produce_request(number % options.partitions), 0
        while time.perf_counter() < end_s:
            await client.ask(request)
            count += 1
        return count

    return sum(await asyncio.gather(*(work(*one) for one in enumerate(clients))))


async def keep_pace(
    clients: list[Client], *, rate: float, seconds: float, partitions: int
) -> list[float]:
    """Send requests at a rate, even if answers are slow; return the seconds of each."""
    trips: list[float] = []
    interval_s = len(clients) / rate
    start_s = time.perf_counter()

    async def work(number: int, client: Client) -> None:
        request = produce_request(number % partitions)
        due_s = start_s + interval_s * number / len(clients)
        while due_s < start_s + seconds:
            await asyncio.sleep(max(due_s - time.perf_counter(), 0))
            began_s = time.perf_counter()
            await client.ask(request)
            trips.append(time.perf_counter() - began_s)
            due_s += interval_s

    await asyncio.gather(*(work(*one) for one in enumerate(clients)))
    return trips


def produce_request(partition: int, value_bytes: int = _VALUE_BYTES, acks: int = 1) -> bytes:
    """Return the frame of a request that produces one record to the benchmark's topic."""
    record = Record(0, int(time.time() * 1000), None, bytes(value_bytes), ())
    data = PartitionProduceData(index=partition, records=encode_batch([record]))
    topic = TopicProduceData(name=TOPIC, partition_data=[data])
    request = ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=[topic])
    return encode_request(request, _PRODUCE_VERSION, 1, "busy")


def _run(kind: type[OdradekProcess] | type[KafkaProcess], options: argparse.Namespace) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        broker = kind(Path(folder) / "broker")
        broker.start()
        try:
            create_topic(broker, TOPIC, options.partitions)
            figures = uvloop.run(measure(broker, options))
        finally:
            broker.stop()
    name = kind.__name__.removesuffix("Process")
    print(
        f"{name:8} idle connection {figures.idle_bytes / 1024:7.1f} KiB   "
        f"p50 {figures.quantile_ms(0.5):7.2f} ms   p99 {figures.quantile_ms(0.99):7.2f} ms   "
        f"p99.9 {figures.quantile_ms(0.999):7.2f} ms   {figures.trips_per_s:9,.0f} trips/s",
        flush=True,
    )
    return figures


def main() -> int:
    """Run the rounds, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--idle", type=int, default=1000)
    parser.add_argument("--busy", type=int, default=200)
    parser.add_argument("--partitions", type=int, default=10)
    parser.add_argument("--rate", type=float, default=4000, help="round trips a second, in all")
    parser.add_argument("--seconds", type=float, default=10)
    options = parser.parse_args()
    if lacks_kafka():
        return 1
    raise_open_files_limit()
    pairs = []
    for _ in range(options.rounds):
        pairs.append((_run(OdradekProcess, options), _run(KafkaProcess, options)))
    for what, figure_of in _FIGURES.items():
        print(summary(what, [figure_of(theirs) / figure_of(ours) for ours, theirs in pairs]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
