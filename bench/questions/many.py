"""What do large numbers cost? Connections, partitions, lookups."""

from __future__ import annotations

import asyncio
import time
from argparse import Namespace
from collections.abc import Awaitable, Callable, Mapping, Sequence

import uvloop

from bench.asking import Connection
from bench.clients import Load, create_topic, produce_warm
from bench.connections import TOPIC, Client, connect_to, measure, produce_request
from bench.pairs import Broker, Figure, Question, Values
from bench.processes import resident_bytes, wait_for
from odradek.broker.process.limits import raise_open_files_limit
from odradek.protocol.frames import encode_request
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

_IDLE, _RATE_PER_S = 5_000, 3_000
BUSY = 200
_IDLE_MEMORY = f"memory with {_IDLE:,} idle ones"
SECONDS = 6.0
_PARTITIONS = 2_000
_PER_TOPIC = 50
CLIENTS = 10
_RECORDS = 1_000_000
# The sizes of the records that clients of acknowledged() send.
ACKNOWLEDGED_BYTES = {"100 B": 100, "20 kB": 20_000}
SMALL_REQUESTS = (
    "A small request costs Odradek 28 to 90 µs of one core, one that is answered again 14 to 35. "
    "A server on the same event loop that only cuts frames and appends them to a file takes 9 to "
    "15 µs (`python -m bench.bound`): the rest is Python's. Kafka takes more of the processor for "
    "a request, but from all cores; in `one-core` both have one, in `workers` both have two."
)

Work = Callable[[Client, int], Awaitable[None]]
"""Work that a client repeats, given its number."""


def _ask_connections(broker: Broker, scale: float) -> Values:
    raise_open_files_limit()
    create_topic(broker, TOPIC, 10)
    options = Namespace(
        idle=max(int(_IDLE * scale), 10),
        busy=max(int(BUSY * scale), 2),
        rate=max(_RATE_PER_S * scale, 100),
        seconds=max(SECONDS * scale, 1.0),
        partitions=10,
    )
    figures = uvloop.run(measure(broker, options))
    return {
        _IDLE_MEMORY: figures.memory_bytes / 1e6,
        "p50 at 3,000/s": figures.quantile_ms(0.5),
        "p99 at 3,000/s": figures.quantile_ms(0.99),
        "round trips as fast as they go": figures.trips_per_s,
    }


def _ask_partitions(broker: Broker, scale: float) -> Values:
    assert broker.process is not None
    topics = max(int(_PARTITIONS * scale / _PER_TOPIC), 1)
    started_s = time.perf_counter()
    for number in range(topics):
        create_topic(broker, f"many-{number}", _PER_TOPIC)
    # Kafka's controller answers before its broker has made the files.
    for number in range(topics):
        _await_partitions(broker, f"many-{number}", _PER_TOPIC)
    made_s = time.perf_counter() - started_s
    load = Load(max(int(_RECORDS * scale), 1_000))
    rate = produce_warm(broker, "many-0", load)
    used_mb = resident_bytes(broker.process) / 1e6
    broker.stop()
    return {
        "partitions made": topics * _PER_TOPIC / made_s,
        "written to fifty": rate,
        "memory": used_mb,
        "start": broker.start(),
    }


def _ask_lookups(broker: Broker, scale: float) -> Values:
    make_lookup_topics(broker)
    seconds = max(SECONDS * scale, 0.5)
    return {
        title: rate_of(broker, seconds, [request] * CLIENTS)
        for title, request in looked_up().items()
    }


def make_lookup_topics(broker: Broker) -> None:
    """Make the 100 partitions that lookups are about."""
    for number in range(10):
        create_topic(broker, f"looked-up-{number}", 10)


def looked_up() -> Mapping[str, bytes]:
    """Return the framed requests of lookups by their titles."""
    metadata = MetadataRequest(topics=[MetadataRequestTopic(name="looked-up-3")])
    return {
        "Metadata of one topic": encode_request(metadata, 9, 1, "bench"),
        "Metadata of all": encode_request(MetadataRequest(topics=None), 9, 1, "bench"),
        "ListOffsets": encode_request(_list_offsets("looked-up-3", 10), 7, 1, "bench"),
    }


def _await_partitions(broker: Broker, topic: str, count: int) -> None:
    """Wait until the broker leads all partitions of a topic."""
    request = _list_offsets(topic, count)
    with Connection(broker.port) as connection:

        def answer() -> bool:
            topics = connection.ask(request, 7, ListOffsetsResponse).topics
            return not any(part.error_code for one in topics for part in one.partitions)

        wait_for(answer, f"the partitions of {topic} answer")


def _list_offsets(name: str, count: int) -> ListOffsetsRequest:
    partitions = [
        ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(count)
    ]
    topic = ListOffsetsTopic(name=name, partitions=partitions)
    return ListOffsetsRequest(replica_id=-1, topics=[topic])


def acknowledged(
    broker: Broker, scale: float, config: Mapping[str, str] | None = None
) -> Values:
    """Return how many records with acks=all clients get acknowledged a second, by their sizes.

    Each client has a partition of its own, of a new topic with the settings of `config`.
    """
    create_topic(broker, TOPIC, CLIENTS, config)
    seconds = max(SECONDS * scale, 0.5)
    return {
        title: rate_of(
            broker, seconds, [produce_request(at, size_bytes, acks=-1) for at in range(CLIENTS)]
        )
        for title, size_bytes in ACKNOWLEDGED_BYTES.items()
    }


def rate_of(broker: Broker, seconds: float, requests: Sequence[bytes]) -> float:
    """Let each client repeat its own request; return the number of answers a second."""
    ports = [broker.port] * len(requests)
    return rate(ports, seconds, lambda client, number: client.ask(requests[number]))


# The time in which `rate` repeats the work, by the time in which it counts.
WITH_WARM_UP = 4 / 3


def rate(ports: Sequence[int], seconds: float, work: Work) -> float:
    """Let a client at each port repeat some work; return the number of repetitions a second."""

    async def measure() -> float:
        clients = await connect_to(ports)
        await _repeat(clients, seconds * (WITH_WARM_UP - 1), work)
        count = await _repeat(clients, seconds, work)
        for client in clients:
            client.transport.abort()
        return count / seconds

    return uvloop.run(measure())


async def _repeat(clients: Sequence[Client], seconds: float, work: Work) -> int:
    end_s = time.perf_counter() + seconds

    async def go_on(number: int, client: Client) -> int:
        count = 0
        while time.perf_counter() < end_s:
            await work(client, number)
            count += 1
        return count

    return sum(await asyncio.gather(*(go_on(*one) for one in enumerate(clients))))


CONNECTIONS = Question(
    "connections",
    f"{_IDLE:,} idle connections and {BUSY} that send records of 100 B, acks=1",
    [
        Figure(_IDLE_MEMORY, "MB", more_is_better=False),
        Figure("p50 at 3,000/s", "ms", more_is_better=False),
        Figure("p99 at 3,000/s", "ms", more_is_better=False),
        Figure("round trips as fast as they go", "1/s"),
    ],
    _ask_connections,
    note=f"An idle one takes 3.3 KiB of Odradek. {SMALL_REQUESTS}",
)

PARTITIONS = Question(
    "partitions",
    f"{_PARTITIONS:,} partitions in topics of {_PER_TOPIC}",
    [
        Figure("partitions made", "1/s"),
        Figure("written to fifty", "records/s"),
        Figure("memory", "MB", more_is_better=False),
        Figure("start", "s", more_is_better=False),
    ],
    _ask_partitions,
    note="They are made once each of them answers. The files of partitions are synced with their "
    "first records.",
)

LOOKUPS = Question(
    "lookups",
    f"{CLIENTS} connections that repeat requests, with a broker of 100 partitions",
    [
        Figure("Metadata of one topic", "1/s"),
        Figure("Metadata of all", "1/s"),
        Figure("ListOffsets", "1/s"),
    ],
    _ask_lookups,
    note=f"{SMALL_REQUESTS} Answers are sent again until something of them changes.",
)

DURABLE = Question(
    "durable",
    f"{CLIENTS} connections that send records with acks=all, each to a partition of its own",
    [Figure(title, "1/s") for title in ACKNOWLEDGED_BYTES],
    acknowledged,
    note="Odradek answers once the record is on the disk, Kafka once it is in memory: the figures "
    "show the cost. Records that arrive together are synced together, up to four files at a time. "
    "The disk decides: a server on the same event loop that only appends each client's records to "
    "a file of its own, and syncs the files for all that came meanwhile, answered 6,700 a second "
    "with 100 B and 3,900 with 20 kB where Odradek answered 7,800 and 4,300 "
    "(`python -m bench.bound`).",
)
