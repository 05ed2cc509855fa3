"""Produce, Fetch and ListOffsets beside Apache Kafka: the same requests, the same answers.

Both brokers are processes; each request goes to both, byte for byte the same but for topic ids.
Answers are compared field by field, but for the sentences that go with a code, which are ours.
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import chain
from typing import Any

import pytest

from odradek.protocol.batches import Record, encode_batch
from odradek.protocol.compression import Codec
from odradek.protocol.frames import encode_request
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.broker.beside_kafka import BesideKafka
from tests.support import requests
from tests.support.asking import create_topics, delete_topics
from tests.support.frames import read_frame, response_to
from tests.support.requests import creatable, listing_offsets
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(600)]

TIMEOUT_S = 60
STRANGER = bytes(range(1, 17))
TOPICS: Mapping[str, Mapping[str, str]] = {
    "orders": {},
    "small": {"max.message.bytes": "1000"},
    "compacted": {"cleanup.policy": "compact"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "zstd": {"compression.type": "zstd"},
}
PARTITIONS = 3
ABSENT = "nothing"
# Ports differ, and the sentences that go with codes are ours.
LEFT_OUT = (
    "error_message",
    "batch_index_error_message",
    "throttle_time_ms",
    "port",
    "session_id",
)
# Differences that are meant to be, as patterns of where they are.
KNOWN = (
    # Only the broker's clock may stamp a batch as stamped by the broker.
    r"stamped by the producer.*",
)
Ids = Mapping[str, bytes]
Make = Callable[[Ids], Any]


class Peer:
    """A broker, asked over one connection after the other."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.ids: dict[str, bytes] = {}

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._port), TIMEOUT_S)

    def ask(self, request: Any, version: int, client_id: str = "x") -> Any:
        """Return a response, or None when the connection is closed instead."""
        with self.connect() as client:
            client.sendall(encode_request(request, version, 1, client_id))
            frame = read_frame(client)
        return None if frame is None else response_to(request, version, frame)

    def prepare(self) -> None:
        """Create the topics, and wait until they can be used."""
        wanted = [
            creatable(name, PARTITIONS, configs={"retention.ms": "-1", **configs})
            for name, configs in TOPICS.items()
        ]
        self.ids = create_topics(self, *wanted)
        for name in TOPICS:
            wait_until(partial(self._has_offsets, name), f"{name} is there")

    def _has_offsets(self, name: str) -> bool:
        found = self.ask(listing_offsets({name: range(PARTITIONS)}), 7)
        return not any(one.error_code for one in found.topics[0].partitions)


@pytest.fixture(scope="module")
def peers(beside_kafka: BesideKafka) -> Iterator[tuple[Peer, Peer]]:
    both = Peer(beside_kafka.ours.port), Peer(beside_kafka.theirs.port)
    for peer in both:
        peer.prepare()
    yield both
    for peer in both:
        delete_topics(peer, *peer.ids)


def plain(value: Any, names: Mapping[bytes, str]) -> Any:
    """Turn a response into plain data without what differs by nature.

    Topics and partitions become mappings: Kafka answers in the order of a hash map.
    """
    if is_dataclass(value):
        return {
            one.name: plain(getattr(value, one.name), names)
            for one in fields(value)
            if one.name not in LEFT_OUT
        }
    if isinstance(value, list):
        found: dict[Any, Any] = {}
        for number, one in enumerate(value):
            name, element = label(one, number, names), plain(one, names)
            if name in found and "partitions" in element:  # a topic may come in pieces
                element["partitions"] |= found[name]["partitions"]
            found[name] = element
        return found
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(value)
        return names.get(data, data)
    return value


def label(value: Any, number: int, names: Mapping[bytes, str]) -> Any:
    """Name an element of a list."""
    for attribute in ("index", "partition_index", "batch_index", "name", "topic"):
        found = getattr(value, attribute, "")
        if found != "":
            return found
    topic_id = getattr(value, "topic_id", b"")
    return names.get(topic_id, topic_id) or number


def differences(ours: Any, theirs: Any, path: str) -> Iterator[str]:
    """Say where two answers differ."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in {**ours, **theirs}:
            yield from differences(ours.get(key, ABSENT), theirs.get(key, ABSENT), f"{path}.{key}")
    elif ours != theirs:
        yield f"{path}: we say {ours!r}, Kafka {theirs!r}"


def compare(peers: tuple[Peer, Peer], label: str, make: Make, version: int) -> list[str]:
    """Ask both and say where they differ."""
    answers = []
    for peer in peers:
        names = {topic_id: name for name, topic_id in peer.ids.items()}
        answers.append(plain(peer.ask(make(peer.ids), version), names))
    ours, theirs = answers
    found = differences(ours, theirs, f"{label} v{version}")
    return [one for one in found if not any(re.match(known, one) for known in KNOWN)]


def records(
    *values: bytes, times: Sequence[int] = (), key: bytes | None = b"k", **how: Any
) -> bytes:
    made = [
        Record(at, times[at] if times else 1000 + at, key, value)
        for at, value in enumerate(values)
    ]
    return encode_batch(made, **how)


def damaged(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def produce(
    topics: Mapping[str, Mapping[int, bytes | None]], *, acks: int = 1, txn: str | None = None
) -> Make:
    def make(ids: Ids) -> ProduceRequest:
        return ProduceRequest(
            transactional_id=txn,
            acks=acks,
            timeout_ms=5000,
            topic_data=[
                TopicProduceData(
                    name=name,
                    topic_id=ids.get(name, STRANGER),
                    partition_data=[
                        PartitionProduceData(index=at, records=data) for at, data in parts.items()
                    ],
                )
                for name, parts in topics.items()
            ],
        )

    return make


def list_offsets(
    name: str, *wanted: tuple[int, int], epoch: int = -1, isolation: int = 0
) -> Make:
    def make(_: Ids) -> ListOffsetsRequest:
        parts = [
            ListOffsetsPartition(partition_index=at, timestamp=when, current_leader_epoch=epoch)
            for at, when in wanted
        ]
        topic = ListOffsetsTopic(name=name, partitions=parts)
        return ListOffsetsRequest(
            replica_id=-1, isolation_level=isolation, topics=[topic], timeout_ms=1000
        )

    return make


def fetching(
    topics: Mapping[str, Sequence[tuple[int, int]]],
    *,
    part_max: int = 1 << 20,
    epoch: int = -1,
    **limits: Any,
) -> Make:
    def make(ids: Ids) -> FetchRequest:
        values: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 0, "session_id": 0, **limits}
        return FetchRequest(
            replica_state=ReplicaState(),
            forgotten_topics_data=[],
            rack_id="",
            isolation_level=values.pop("isolation_level", 0),
            topics=[
                FetchTopic(
                    topic=name,
                    topic_id=ids.get(name, STRANGER),
                    partitions=[
                        FetchPartition(
                            partition=at,
                            fetch_offset=offset,
                            partition_max_bytes=part_max,
                            current_leader_epoch=epoch,
                        )
                        for at, offset in parts
                    ],
                )
                for name, parts in topics.items()
            ],
            **values,
        )

    return make


GOOD = records(b"a", b"b")
PRODUCED: Mapping[str, Make] = {
    "two partitions": produce({"orders": {0: GOOD, 1: records(b"c")}}),
    "acks=all": produce({"orders": {0: GOOD}}, acks=-1),
    "unknown": produce({"nowhere": {0: GOOD}, "orders": {7: GOOD, -1: GOOD, 0: GOOD}}),
    "damaged": produce({"orders": {0: damaged(GOOD), 1: GOOD}}),
    "two batches": produce({"orders": {0: GOOD + GOOD}}),
    "nothing": produce({"orders": {0: b""}}),
    "too large": produce({"small": {0: records(bytes(2000))}}),
    "control": produce({"orders": {0: records(b"a", control=True)}}),
    "acks=2": produce({"orders": {0: GOOD}, "nowhere": {0: GOOD}}, acks=2),
    "keyless": produce({"compacted": {0: records(b"a", b"b", key=None)}}),
    "zstd": produce({"orders": {0: records(b"a", codec=Codec.ZSTD)}}),
    "from the future": produce({"orders": {0: records(b"a", times=[2**45])}}),
    "stamped by the producer": produce({"orders": {0: records(b"a", log_append_time=True)}}),
}


@pytest.mark.parametrize("label", PRODUCED)
def test_produce(peers: tuple[Peer, Peer], label: str) -> None:
    found = [compare(peers, label, PRODUCED[label], version) for version in range(3, 14)]
    assert not list(chain(*found))


def test_idempotent_producers(peers: tuple[Peer, Peer]) -> None:
    def sent(sequence: int, epoch: int = 0, count: int = 2) -> Make:
        data = records(
            *[b"a"] * count, producer_id=7, producer_epoch=epoch, base_sequence=sequence
        )
        return produce({"orders": {2: data}})

    found = []
    for label, make in (
        ("first", sent(0)),
        ("again", sent(0)),
        ("second", sent(2)),
        ("third", sent(4)),
        ("gap", sent(9)),
        ("again after others", sent(0)),
        ("part of one", sent(4, count=1)),
        ("fourth", sent(6)),
        ("fifth", sent(8)),
        ("sixth", sent(10)),
        ("too old to be known", sent(0)),
        ("new epoch, wrong start", sent(12, epoch=1)),
        ("new epoch", sent(0, epoch=1)),
        ("old epoch", sent(12)),
    ):
        found += compare(peers, label, make, 12)
    assert not found


def test_a_refused_batch_with_acks_0_closes_the_connection(peers: tuple[Peer, Peer]) -> None:
    for label in ("damaged", "unknown"):
        request = PRODUCED[label]

        def make(ids: Ids, request: Make = request) -> ProduceRequest:
            made: ProduceRequest = request(ids)
            made.acks = 0
            return made

        assert [peer.ask(make(peer.ids), 12) for peer in peers] == [None, None]


@pytest.fixture(scope="module")
def filled(peers: tuple[Peer, Peer]) -> tuple[Peer, Peer]:
    """The peers with the same records in `zstd` and `small`: 0 has some, 1 has one, 2 none."""
    for name in ("small", "zstd"):
        codec = Codec.ZSTD if name == "zstd" else Codec.NONE  # none is compressed by the broker
        for part, values, times in (
            (0, (b"a", b"b", b"c"), (10, 30, 20)),
            (0, (b"d",), (25,)),
            (1, (b"e",), (5,)),
        ):
            data = records(*values, times=times, codec=codec)
            assert not compare(peers, "fill", produce({name: {part: data}}), 12)
    return peers


def test_list_offsets(filled: tuple[Peer, Peer]) -> None:
    found = []
    for version in range(1, 12):
        for when in (-1, -2, -3, -4, -5, -6, -7, 0, 10, 11, 26, 30, 31, 2**62):
            for isolation in (0, 1):
                make = list_offsets(
                    "small", (0, when), (1, when), (2, when), (9, when), isolation=isolation
                )
                found += compare(filled, f"time {when}", make, version)
        for epoch in (-1, 0, 1, -2):
            make = list_offsets("small", (0, -1), epoch=epoch)
            found += compare(filled, f"epoch {epoch}", make, version)
        twice = list_offsets("small", (0, -1), (1, -1), (0, -2))
        found += compare(filled, "twice", twice, version)
        found += compare(filled, "unknown", list_offsets("nowhere", (0, -1)), version)
    assert not found


FETCHED: Mapping[str, Make] = {
    "all": fetching({"small": [(0, 0), (1, 0), (2, 0)]}),
    "from the middle of a batch": fetching({"small": [(0, 1)]}),
    "at the end": fetching({"small": [(0, 4)]}),
    "past the end": fetching({"small": [(0, 5), (1, 0)]}),
    "before the start": fetching({"small": [(0, -1), (1, 0)]}),
    "unknown": fetching({"nowhere": [(0, 0)], "small": [(9, 0), (-1, 0), (1, 0)]}),
    "only unknown": fetching({"nowhere": [(0, 0)]}, max_wait_ms=60_000, min_bytes=1),
    "committed": fetching({"small": [(0, 0)]}, isolation_level=1),
    "one batch at most": fetching({"small": [(0, 0), (1, 0)]}, part_max=1),
    "the first batch at most": fetching({"small": [(2, 0), (0, 0), (1, 0)]}, max_bytes=1),
    "part of the second": fetching({"small": [(0, 0)]}, part_max=120),
    "epoch 0": fetching({"small": [(0, 0)]}, epoch=0),
    "epoch 1": fetching({"small": [(0, 0)]}, epoch=1),
    "epoch -2": fetching({"small": [(0, 0)]}, epoch=-2),
    "no session": fetching({"small": [(0, 0)]}, session_id=77, session_epoch=5),
    "an end of a session": fetching({"small": [(0, 0)]}, session_id=77, session_epoch=-1),
    "nothing": fetching({}, max_wait_ms=60_000, min_bytes=1),
    "more than may come": fetching(
        {"small": [(0, 0)]}, max_wait_ms=60_000, min_bytes=1 << 20, max_bytes=100
    ),
    "zstd": fetching({"zstd": [(1, 0), (0, 9)]}),
}


@pytest.mark.parametrize("label", FETCHED)
def test_fetch(filled: tuple[Peer, Peer], label: str) -> None:
    found = [compare(filled, label, FETCHED[label], version) for version in range(4, 19)]
    assert not list(chain(*found))


def test_requests_before_the_end_of_a_stream_are_answered(filled: tuple[Peer, Peer]) -> None:
    answered = []
    for peer in filled:
        with peer.connect() as client:
            parked = requests.fetching("small", offset=4, wait_ms=300)
            data = encode_request(parked, 8, 1, "x")
            client.sendall(data + encode_request(ApiVersionsRequest(), 0, 2, "x") + b"\0\0")
            client.shutdown(socket.SHUT_WR)
            frames = []
            while (frame := read_frame(client)) is not None:
                frames.append(struct.unpack(">i", frame[:4])[0])
        answered.append(frames)
    assert answered == [[1, 2], [1, 2]]
