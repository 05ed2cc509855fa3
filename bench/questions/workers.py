"""What do small requests cost two workers of one machine? The loads of many.py, by leader."""

from __future__ import annotations

import time

from confluent_kafka.admin import AdminClient

from bench.clients import Load, create_topic, produce_warm
from bench.connections import TOPIC, produce_request
from bench.pairs import Broker, Figure, Question, Values
from bench.processes import OdradekProcess, free_port
from bench.questions.groups import joined_and_left
from bench.questions.many import BUSY, CLIENTS, SECONDS, rate
from odradek.protocol.frames import encode_request
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

_WORKERS = 2
_PARTITIONS = 20
_LOOK_S = 0.05
_RECORDS = 3_000_000


def workers(count: int) -> dict[str, str]:
    """Return the settings of a broker with some workers."""
    listeners = {
        f"odradek.worker.{number}.listeners": f"PLAINTEXT://127.0.0.1:{free_port()}"
        for number in range(2, count + 1)
    }
    return {"odradek.workers": str(count), **listeners}


def _let_it_have_workers(broker: Broker) -> None:
    if isinstance(broker, OdradekProcess):
        broker.settings = {**workers(_WORKERS), **broker.settings}


def leader_ports(broker: Broker, topic: str) -> dict[int, int]:
    """Return the port of each partition's leader."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    while True:
        metadata = admin.list_topics(topic, timeout=60)
        partitions = metadata.topics[topic].partitions.values()
        if partitions and all(one.leader >= 0 for one in partitions):
            break
        time.sleep(_LOOK_S)
    return {one.id: metadata.brokers[one.leader].port for one in partitions}


def _ask(broker: Broker, scale: float) -> Values:
    seconds = max(SECONDS * scale, 0.5)
    create_topic(broker, TOPIC, _PARTITIONS)
    ports = leader_ports(broker, TOPIC)
    leaders = [ports[at % _PARTITIONS] for at in range(BUSY)]
    produced = [produce_request(at) for at in range(_PARTITIONS)]
    metadata = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
    looked_up = encode_request(metadata, 9, 1, "bench")
    listed = {port: _list_offsets(ports, port) for port in ports.values()}
    few = leaders[:CLIENTS]

    return {
        "round trips as fast as they go": rate(
            leaders, seconds, lambda client, at: client.ask(produced[at % _PARTITIONS])
        ),
        "Metadata of one topic": rate(few, seconds, lambda client, _: client.ask(looked_up)),
        "ListOffsets": rate(few, seconds, lambda client, at: client.ask(listed[few[at]])),
        "joined and left": joined_and_left(broker, seconds),
        "one producer": produce_warm(broker, TOPIC, Load(max(int(_RECORDS * scale), 1_000))),
    }


def _list_offsets(ports: dict[int, int], port: int) -> bytes:
    """Return a request for ten partitions that one broker leads."""
    own = [partition for partition, leader in ports.items() if leader == port][:10]
    partitions = [ListOffsetsPartition(partition_index=one, timestamp=-1) for one in own]
    topic = ListOffsetsTopic(name=TOPIC, partitions=partitions)
    return encode_request(ListOffsetsRequest(replica_id=-1, topics=[topic]), 7, 1, "bench")


WORKERS = Question(
    "workers",
    f"{_WORKERS} workers: {BUSY} connections that send records of 100 B with acks=1, "
    f"{CLIENTS} that look up, {CLIENTS} groups of one member",
    [
        Figure("round trips as fast as they go", "1/s"),
        Figure("Metadata of one topic", "1/s"),
        Figure("ListOffsets", "1/s"),
        Figure("joined and left", "1/s"),
        Figure("one producer", "records/s"),
    ],
    _ask,
    prepare=_let_it_have_workers,
    note="The client takes about as much of the two cores as the brokers do.",
)
