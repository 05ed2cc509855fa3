"""The client of bench.hurry that has one connection for everything, and its requests."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any, cast

from bench.processes import OdradekProcess
from odradek.protocol.batches import Record, encode_batch
from odradek.protocol.compiler import decode
from odradek.protocol.frames import encode_request, read_response_header
from odradek.protocol.messages import message_classes
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)

TOPIC = "hurried"
GROUP = "hurried"
MAX_WAIT_MS = 500
VALUE_BYTES = 100
_MAX_BYTES = 1 << 20
_VERSIONS = {"Fetch": 11, "ListOffsets": 5, "Metadata": 9, "OffsetCommit": 8, "Produce": 8}


class Connection(asyncio.Protocol):
    """One connection on which requests are sent ahead; answers are matched by their number."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._numbers = itertools.count()
        self._asked: dict[int, tuple[type[Any], int, asyncio.Future[Any]]] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self.transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the requests without an answer."""
        for _, _, answer in self._asked.values():
            if not answer.done():
                answer.set_exception(ConnectionError("the broker closed the connection"))

    def data_received(self, data: bytes) -> None:
        """Decode the answers that are complete."""
        self._data += data
        while len(self._data) >= 4:
            end = 4 + int.from_bytes(self._data[:4], "big")
            if len(self._data) < end:
                return
            frame = memoryview(bytes(self._data[4:end]))
            del self._data[:end]
            number = int.from_bytes(frame[:4], "big")
            kind, version, answer = self._asked.pop(number)
            _, position = read_response_header(frame, kind, version)
            if not answer.done():
                answer.set_result(decode(kind, version, frame, position))

    def ask(self, request: Any) -> asyncio.Future[Any]:
        """Send a request; return a future of its answer."""
        name = type(request).__name__.removesuffix("Request")
        version, number = _VERSIONS[name], next(self._numbers)
        answer = asyncio.get_running_loop().create_future()
        self._asked[number] = message_classes(name)[1], version, answer
        self.transport.write(encode_request(request, version, number, "bench"))
        return answer


async def connect(broker: OdradekProcess) -> Connection:
    """Connect to a broker."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(Connection, "127.0.0.1", broker.port)
    return connection


def fetch(offset: int, min_bytes: int) -> FetchRequest:
    """Return a request that waits for at least some bytes of records."""
    part = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=_MAX_BYTES)
    return FetchRequest(
        max_wait_ms=MAX_WAIT_MS,
        min_bytes=min_bytes,
        max_bytes=_MAX_BYTES,
        session_id=0,
        session_epoch=-1,  # without a session
        topics=[FetchTopic(topic=TOPIC, partitions=[part])],
        forgotten_topics_data=[],
        rack_id="",
    )


def produce() -> ProduceRequest:
    """Return a request that writes a record."""
    record = Record(0, int(time.time() * 1000), None, bytes(VALUE_BYTES), ())
    data = PartitionProduceData(index=0, records=encode_batch([record]))
    topic = TopicProduceData(name=TOPIC, partition_data=[data])
    return ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[topic])


def latest() -> ListOffsetsRequest:
    """Return a request for the end of the topic."""
    part = ListOffsetsPartition(partition_index=0, timestamp=-1)
    topic = ListOffsetsTopic(name=TOPIC, partitions=[part])
    return ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[topic])


def metadata() -> MetadataRequest:
    """Return a request for the topic's metadata."""
    return MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])


def committed() -> OffsetCommitRequest:
    """Return a request that commits an offset."""
    part = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=None
    )
    topic = OffsetCommitRequestTopic(name=TOPIC, partitions=[part])
    # From no member, so that a group without members accepts it.
    return OffsetCommitRequest(
        group_id=f"{GROUP}-simple", generation_id_or_member_epoch=-1, topics=[topic]
    )
