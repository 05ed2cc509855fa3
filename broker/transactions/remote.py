"""Transactions whose coordinator, or whose partitions, other brokers have.

    AddPartitionsToTxn   a leader asks the coordinator to add or verify a partition (KIP-890)
    WriteTxnMarkers      a coordinator asks leaders to write the markers that end a transaction
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping

from odradek.broker.coordination.effects import Producer
from odradek.broker.errors import Refusal
from odradek.broker.metadata.members import NO_LEADER
from odradek.broker.orders.java import partition_for
from odradek.broker.peers.errors import PeerAway
from odradek.broker.peers.peers import Peers
from odradek.broker.topics import names as topic_names
from odradek.broker.topics.registry import Topics
from odradek.broker.transactions.state import TopicPartition
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from odradek.storage.transactions import Marker

_ADD_VERSION, _MARKERS_VERSION = 5, 2

Errors = dict[TopicPartition, ErrorCode]


class RemoteTransactions:
    """The requests of this broker to others about transactions; the event loop owns it."""

    def __init__(self, topics: Topics, peers: Peers) -> None:
        self._topics, self._peers = topics, peers

    def leader_of(self, partition: TopicPartition) -> int | None:
        """Return the other broker that leads a partition; None if none does."""
        topic = self._topics.get(partition.topic)
        node_id = topic.other_leader(partition.partition) if topic is not None else None
        return None if node_id == NO_LEADER else node_id

    async def add(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Iterable[TopicPartition],
        *,
        verify_only: bool,
    ) -> Errors:
        """Ask the coordinator to add partitions to a transaction, or whether they are in it."""
        partitions = list(partitions)
        try:
            return await self._add(transactional_id, producer, partitions, verify_only)
        except PeerAway:
            return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def write(
        self, marker: Marker, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Refusal]:
        """Let other brokers write a marker; return the problems of those where that failed."""
        by_leader: defaultdict[int, list[TopicPartition]] = defaultdict(list)
        problems: dict[TopicPartition, Refusal] = {}
        for one in partitions:
            leader = self.leader_of(one)
            if leader is None:
                problems[one] = Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            else:
                by_leader[leader].append(one)
        written = await asyncio.gather(
            *(self._write(leader, marker, some) for leader, some in by_leader.items())
        )
        for some in written:
            problems |= some
        return problems

    async def _add(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: list[TopicPartition],
        verify_only: bool,
    ) -> Errors:
        topic = self._topics.get(topic_names.TRANSACTION_STATE)
        if topic is None:
            raise PeerAway("nobody coordinates transactions yet")
        number = partition_for(transactional_id, len(topic.partitions))
        coordinator = self.leader_of(TopicPartition(topic.name, number))
        if coordinator is None:
            raise PeerAway("the coordinator has changed")
        asked = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            verify_only=verify_only,
            topics=[
                AddPartitionsToTxnTopic(name=name, partitions=numbers)
                for name, numbers in _by_topic(partitions).items()
            ],
        )
        answer = await self._peers.ask(
            coordinator,
            AddPartitionsToTxnRequest(transactions=[asked]),
            _ADD_VERSION,
            AddPartitionsToTxnResponse,
            lambda answer: answer.error_code,
        )
        if answer.error_code:
            return dict.fromkeys(partitions, ErrorCode.of(answer.error_code))
        return {
            TopicPartition(topic.name, one.partition_index): ErrorCode.of(one.partition_error_code)
            for result in answer.results_by_transaction
            for topic in result.topic_results
            for one in topic.results_by_partition
        }

    async def _write(
        self, leader: int, marker: Marker, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, Refusal]:
        asked = WritableTxnMarker(
            producer_id=marker.producer_id,
            producer_epoch=marker.producer_epoch,
            transaction_result=marker.is_commit,
            topics=[
                WritableTxnMarkerTopic(name=name, partition_indexes=numbers)
                for name, numbers in _by_topic(partitions).items()
            ],
            coordinator_epoch=marker.coordinator_epoch,
            transaction_version=marker.transaction_version,
        )
        request = WriteTxnMarkersRequest(markers=[asked])
        try:
            answer = await self._peers.ask(
                leader, request, _MARKERS_VERSION, WriteTxnMarkersResponse, _error_of
            )
        except PeerAway as error:
            refusal = Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(error))
            return dict.fromkeys(partitions, refusal)
        return {
            TopicPartition(topic.name, one.partition_index): Refusal(ErrorCode.of(one.error_code))
            for result in answer.markers
            for topic in result.topics
            for one in topic.partitions
            if one.error_code
        }


def _error_of(answer: WriteTxnMarkersResponse) -> int:
    """Return the error of the first partition; all have it where the request was refused."""
    return answer.markers[0].topics[0].partitions[0].error_code


def _by_topic(partitions: Iterable[TopicPartition]) -> Mapping[str, list[int]]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    for one in partitions:
        found[one.topic].append(one.partition)
    return found
