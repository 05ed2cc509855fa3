"""The ends of logs that other brokers have, by ListOffsets (Kafka's PartitionMetadataClient)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from odradek.broker.ids import Partition
from odradek.broker.peers.errors import PeerAway
from odradek.broker.peers.peers import Peers
from odradek.broker.topics.registry import Topics
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

_VERSION = 7
_LATEST, _CONSUMER = -1, -1


class RemoteEnds:
    """Asks the leaders of partitions; the event loop owns it."""

    def __init__(self, topics: Topics, peers: Peers) -> None:
        self._topics, self._peers = topics, peers

    async def find(self, partitions: Iterable[Partition]) -> Mapping[Partition, int]:
        """Return the end offsets of partitions that others lead, as far as they answer.

        A leader refuses a broker without the right DESCRIBE on the topic.
        """
        by_leader: dict[int, dict[str, list[int]]] = {}
        ids: dict[str, bytes] = {}
        for topic_id, number in partitions:
            topic = self._topics.by_id(topic_id)
            leader = None if topic is None else topic.other_leader(number)
            if topic is not None and leader is not None and leader >= 0:
                by_leader.setdefault(leader, {}).setdefault(topic.name, []).append(number)
                ids[topic.name] = topic_id
        found = await asyncio.gather(
            *(self._ask(node_id, wanted) for node_id, wanted in by_leader.items())
        )
        return {
            (ids[name], number): offset
            for ends in found
            for (name, number), offset in ends.items()
        }

    async def _ask(
        self, node_id: int, wanted: Mapping[str, Sequence[int]]
    ) -> Mapping[tuple[str, int], int]:
        request = ListOffsetsRequest(
            replica_id=_CONSUMER,
            isolation_level=0,
            timeout_ms=0,
            topics=[
                ListOffsetsTopic(
                    name=name,
                    partitions=[
                        ListOffsetsPartition(partition_index=number, timestamp=_LATEST)
                        for number in numbers
                    ],
                )
                for name, numbers in wanted.items()
            ],
        )
        try:
            answer = await self._peers.ask(
                node_id, request, _VERSION, ListOffsetsResponse, lambda _: ErrorCode.NONE
            )
        except PeerAway:
            return {}
        return {
            (topic.name, one.partition_index): one.offset
            for topic in answer.topics
            for one in topic.partitions
            if not one.error_code
        }
