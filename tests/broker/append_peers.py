"""Two brokers that are sent the same raw batches, and what became of each.

A batch goes to every topic at once, in one request; what a broker says of it is brought into a
form in which two brokers agree when a client could not tell them apart.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from odradek.protocol.batch_records import decode_records
from odradek.protocol.batches import (
    NO_TIMESTAMP,
    Record,
    check_crc,
    iterate_batches,
    patch_base_offset_and_epoch,
)
from odradek.protocol.errors import ProtocolError
from odradek.protocol.frames import encode_request
from odradek.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tests.broker.beside_kafka import BesideKafka
from tests.support.asking import create_topics, delete_topics
from tests.support.frames import read_frame, response_to
from tests.support.requests import creatable, listing_offsets
from tests.support.waiting import last_answer

TIMEOUT_S = 60
PARTITION_BYTES = 8 << 20

Topics = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Stored:
    """A batch as it was read back."""

    header: tuple[int, ...]  # what a broker neither assigns nor computes again
    records: tuple[Record, ...]
    octets: bytes  # all of it, but for base offset, leader epoch, CRC and append time


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a batch in one topic."""

    error_code: int = 0
    record_errors: tuple[int, ...] = ()
    is_stamped: bool = False
    behind: int = 0  # offsets from a batch that is repeated to the end of the log
    start_offset: int = 0
    stored: Stored | None = None
    message: str | None = field(default=None, compare=False)


CLOSED = Outcome(error_code=-1000)


class Peer:
    """A broker, asked over a connection that is made again when the broker has closed it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._client: socket.socket | None = None
        self.ids: dict[str, bytes] = {}
        self.ends: dict[str, int] = {}

    def ask(self, request: Any, version: int) -> Any:
        """Return a response, or None when the connection is closed instead."""
        if self._client is None:
            self._client = socket.create_connection(("127.0.0.1", self._port), TIMEOUT_S)
            self._client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._client.sendall(encode_request(request, version, 1, "x"))
            frame = read_frame(self._client)
        except ConnectionError:
            frame = None
        if frame is None:
            self.close()
            return None
        return response_to(request, version, frame)

    def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def prepare(self, topics: Topics) -> None:
        """Create topics of one partition, and wait until they can be used."""
        wanted = [
            creatable(name, configs={"retention.ms": "-1", **configs})
            for name, configs in topics.items()
        ]
        self.ids |= create_topics(self, *wanted)
        ends = last_answer(
            lambda: self.end_offsets(topics), lambda ends: None not in ends.values()
        )
        assert None not in ends.values(), ends
        self.ends |= {name: end or 0 for name, end in ends.items()}

    def end_offsets(self, names: Sequence[str] | Topics) -> dict[str, int | None]:
        """Return the log end offsets, None for what cannot be used yet."""
        found = self.ask(listing_offsets({name: [0] for name in names}), 7)
        return {
            one.name: None if one.partitions[0].error_code else one.partitions[0].offset
            for one in found.topics
        }

    def delete_records(self, names: Sequence[str]) -> None:
        """Delete all records of some topics."""
        topics = [
            DeleteRecordsTopic(
                name=name, partitions=[DeleteRecordsPartition(partition_index=0, offset=-1)]
            )
            for name in names
        ]
        found = self.ask(DeleteRecordsRequest(topics=topics, timeout_ms=10_000), 2)
        assert not any(topic.partitions[0].error_code for topic in found.topics)

    def send(
        self, octets: bytes | None, names: Sequence[str], version: int, acks: int = 1
    ) -> dict[str, Outcome]:
        """Send a batch to topics, and return what became of it in each.

        An accepted batch has to lie at the end of what was accepted before: nothing of a
        refused one is in the log.
        """
        response = self.ask(self._produce(octets, names, version, acks), version)
        if response is None:
            return dict.fromkeys(names, CLOSED)
        names_of = {topic_id: name for name, topic_id in self.ids.items()}
        answers = {
            topic.name or names_of[topic.topic_id]: topic.partition_responses[0]
            for topic in response.responses
        }
        accepted = {}
        outcomes = {}
        for name in names:
            answer = answers[name]
            end = self.ends[name]
            behind = end - answer.base_offset if answer.error_code == 0 else 0
            assert behind >= 0, f"{name}: something was written before"
            if answer.error_code == 0 and not behind:
                accepted[name] = end
            outcomes[name] = Outcome(
                answer.error_code,
                tuple(one.batch_index for one in answer.record_errors),
                answer.log_append_time_ms != NO_TIMESTAMP,
                behind,
                answer.log_start_offset,
                message=answer.error_message,
            )
        for name, stored in self._read(accepted).items():
            outcomes[name] = replace(outcomes[name], stored=stored)
        return outcomes

    def _produce(
        self, octets: bytes | None, names: Sequence[str], version: int, acks: int
    ) -> ProduceRequest:
        return ProduceRequest(
            transactional_id=None,
            acks=acks,
            timeout_ms=5000,
            topic_data=[
                TopicProduceData(
                    name=name,
                    topic_id=self.ids[name],
                    partition_data=[PartitionProduceData(index=0, records=octets)],
                )
                for name in names
            ],
        )

    def _read(self, offsets: Mapping[str, int]) -> dict[str, Stored]:
        """Read the batches that begin at some offsets, which are their logs' last."""
        if not offsets:
            return {}
        topics = [
            FetchTopic(
                topic=name,
                topic_id=self.ids[name],
                partitions=[
                    FetchPartition(
                        partition=0,
                        fetch_offset=offset,
                        partition_max_bytes=PARTITION_BYTES,
                        current_leader_epoch=-1,
                    )
                ],
            )
            for name, offset in offsets.items()
        ]
        request = FetchRequest(
            replica_state=ReplicaState(), forgotten_topics_data=[], rack_id="",
            isolation_level=0, max_wait_ms=0, min_bytes=0, session_id=0, topics=topics,
        )  # fmt: skip
        response = self.ask(request, 12)
        found = {}
        for topic in response.responses:
            (partition,) = topic.partitions
            assert partition.error_code == 0
            data = bytearray(partition.records)
            ((position, header),) = iterate_batches(data)
            assert (position, header.base_offset) == (0, offsets[topic.topic])
            assert header.size_bytes == len(data)
            check_crc(data, 0, len(data))
            self.ends[topic.topic] = header.next_offset
            found[topic.topic] = normalised(data)
        return found


def normalised(data: bytearray) -> Stored:
    """Take from a stored batch what the broker's clock and the batch's place make of it."""
    patch_base_offset_and_epoch(data, 0, 0, 0)
    ((_, header),) = iterate_batches(data)
    if header.is_log_append_time:
        struct.pack_into(">q", data, 35, 0)
    struct.pack_into(">I", data, 17, 0)
    try:
        records = tuple(decode_records(data))
    except ProtocolError as error:
        records = (Record(-1, -1, None, str(error).encode()),)
    fields = (
        header.attributes, header.last_offset_delta, header.count, header.producer_id,
        header.producer_epoch, header.base_sequence,
        0 if header.is_log_append_time else header.max_timestamp,
    )  # fmt: skip
    return Stored(fields, records, bytes(data))


@contextmanager
def both(beside_kafka: BesideKafka, topics: Topics) -> Iterator[tuple[Peer, Peer]]:
    """Create the same topics on Odradek and Apache Kafka, and delete them at the end."""
    ours, theirs = Peer(beside_kafka.ours.port), Peer(beside_kafka.theirs.port)
    for peer in (ours, theirs):
        peer.prepare(topics)
    yield ours, theirs
    for peer in (ours, theirs):
        delete_topics(peer, *peer.ids)
        peer.close()
