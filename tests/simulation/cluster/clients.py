"""A client of a simulated cluster: it finds leaders and coordinators as Kafka's clients do.

Each worker of the load has a client of its own, and asks one thing after the other.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from odradek.protocol.compiler import decode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.frames import SIZE, encode_request, read_response_header
from odradek.protocol.messages import message_classes
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.histories.history import History, Led, Place

GROUP, TRANSACTION = 0, 1
# A client that soon loses patience sends batches again that the broker has.
_TIMEOUTS_S = (0.3, 3.0)
_BACKOFF_S = 0.1
# An answer that means "ask for the leader or the coordinator again, and repeat the request".
RETRIABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.NOT_ENOUGH_REPLICAS,  # the coordinator of a transaction cannot be asked
    }
)


def rack_of(node_id: int) -> str:
    """Return the rack of a broker: each has its own."""
    return f"rack-{node_id}"


class Unanswered(Exception):
    """A request may have been carried out, or not."""


class Client:
    """A client; `ports` has the address of each broker by its node id."""

    def __init__(
        self, name: str, ports: Mapping[int, int], source: random.Random, history: History
    ) -> None:
        self.name, self.ports, self.source, self.history = name, ports, source, history
        self._timeout_s = source.choice(_TIMEOUTS_S)
        self._streams: dict[int, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}
        self._leaders: dict[Place, int] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self._number = 0

    async def ask(self, node_id: int, request: Any, version: int) -> Any:
        """Send a request to a broker; return its answer. Raises Unanswered."""
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._ask(node_id, request, version)
        except (OSError, EOFError, TimeoutError) as error:
            self._drop(node_id)
            raise Unanswered(str(error) or type(error).__name__) from error

    async def ask_leader(self, place: Place, request: Any, version: int) -> Any:
        """Ask the leader of a partition; once there is one."""
        node_id = await self._find(self._leaders, place, lambda: self._look_up(place))
        try:
            return await self.ask(node_id, request, version)
        except Unanswered:
            self._leaders.pop(place, None)
            raise

    async def ask_coordinator(self, kind: int, key: str, request: Any, version: int) -> Any:
        """Ask the coordinator of a group or of a transactional id, once there is one."""
        node_id = await self._find(
            self._coordinators, (kind, key), lambda: self._look_up_coordinator(kind, key)
        )
        try:
            return await self.ask(node_id, request, version)
        except Unanswered:
            self._coordinators.pop((kind, key), None)
            raise

    async def back_off(self) -> None:
        """Forget leaders and coordinators, and wait a while."""
        self._leaders.clear()
        self._coordinators.clear()
        await asyncio.sleep(_BACKOFF_S * (0.5 + self.source.random()))

    def any_broker(self) -> int:
        """Draw a broker."""
        return self.source.choice(sorted(self.ports))

    def close(self) -> None:
        """Close all connections."""
        for node_id in list(self._streams):
            self._drop(node_id)

    async def describe(self, names: Sequence[str], node_id: int) -> Any:
        """Ask a broker for the metadata of topics; note the leaders that it names."""
        asked = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=False,
        )
        answer = await self.ask(node_id, asked, 12)
        for topic in answer.topics:
            for one in topic.partitions:
                if one.leader_id >= 0 and one.leader_epoch >= 0:
                    key = topic.topic_id.hex(), one.partition_index
                    self.history.add(Led(key, one.leader_epoch, one.leader_id, topic.name))
        return answer

    async def _find(
        self, known: dict[Any, int], key: Any, look_up: Callable[[], Any]
    ) -> int:
        while key not in known:
            try:
                found = await look_up()
            except Unanswered:
                found = None
            if found is None or found not in self.ports:
                await asyncio.sleep(_BACKOFF_S * (0.5 + self.source.random()))
            else:
                known[key] = found
        return known[key]

    async def _look_up(self, place: Place) -> int | None:
        name, number = place
        answer = await self.describe([name], self.any_broker())
        for one in answer.topics[0].partitions:
            if one.partition_index == number and one.leader_id >= 0:
                return int(one.leader_id)
        return None

    async def _look_up_coordinator(self, kind: int, key: str) -> int | None:
        asked = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        (found,) = (await self.ask(self.any_broker(), asked, 4)).coordinators
        return None if found.error_code else int(found.node_id)

    async def _ask(self, node_id: int, request: Any, version: int) -> Any:
        if node_id not in self._streams:
            self._streams[node_id] = await asyncio.open_connection(
                "127.0.0.1", self.ports[node_id]
            )
        reader, writer = self._streams[node_id]
        self._number += 1
        writer.write(encode_request(request, version, self._number, self.name))
        response = message_classes(type(request).__name__.removesuffix("Request"))[1]
        (size,) = SIZE.unpack(await reader.readexactly(SIZE.size))
        frame = await reader.readexactly(size)
        number, position = read_response_header(memoryview(frame), response, version)
        assert number == self._number, "an answer to another request"
        return decode(response, version, frame[position:])

    def _drop(self, node_id: int) -> None:
        streams = self._streams.pop(node_id, None)
        if streams is not None:
            streams[1].close()
