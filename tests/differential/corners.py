"""Requests of transactions and share groups about no partition, or one below zero."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from odradek.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from odradek.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from odradek.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.differential.group_requests import altering
from tests.differential.world import PARTITIONS, World


def corners(world: World) -> Iterator[tuple[Any, int]]:
    """Make them, each with a version to ask it in."""
    here, nowhere = world.topics[0], "no-such"
    for partitions in ({here: []}, {here: [], nowhere: [1]}, {here: [0, 0], nowhere: []}):
        topics = [
            AddPartitionsToTxnTopic(name=name, partitions=list(numbers))
            for name, numbers in partitions.items()
        ]
        yield _adding(topics), 3
        for verify_only in (False, True):
            yield _adding_as_a_broker(topics, verify_only=verify_only), 5
        yield _marking(partitions), 1
        yield _marking(partitions, producer_id=-7, epoch=0), 1
        yield _marking(partitions, producer_id=7, epoch=-7), 1
    for epoch in (-1, -2, 0, 1, -(2**31)):
        yield _ends_of_epoch(here, epoch), 4
    for numbers in ([0, -1], [-2]):
        yield _describing({here: numbers}), 1
    yield _describing({nowhere: [-1]}), 1
    yield _describing({here: [0]}, group_id=""), 1
    yield _describing({}, group_id=""), 1
    yield _describing({here: []}), 1
    yield _describing({nowhere: []}), 1
    for first, second in (([0, 1], [2]), ([2], [0, 1]), ([0, 0], [0]), ([0], []), ([], [0])):
        twice = _describing({here: first})
        twice.groups[0].topics += _describing({here: second}).groups[0].topics
        yield twice, 1
    yield altering("", {}), 0
    # The group is there first: Kafka notes what it refuses, and so makes it.
    for numbers in ([0], [1, -2, -3]):
        yield altering(f"below-{world.seed}", {here: numbers}), 0


def _adding(topics: list[AddPartitionsToTxnTopic]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="nobody",
        v3_and_below_producer_id=7,
        v3_and_below_producer_epoch=0,
        v3_and_below_topics=topics,
    )


def _adding_as_a_broker(
    topics: list[AddPartitionsToTxnTopic], *, verify_only: bool
) -> AddPartitionsToTxnRequest:
    one = AddPartitionsToTxnTransaction(
        transactional_id="nobody",
        producer_id=7,
        producer_epoch=0,
        verify_only=verify_only,
        topics=topics,
    )
    return AddPartitionsToTxnRequest(transactions=[one])


def _marking(
    partitions: dict[str, list[int]], producer_id: int = -1, epoch: int = -1
) -> WriteTxnMarkersRequest:
    """Ask for markers only where nothing can be marked."""
    nowhere = {name: [9] * len(numbers) for name, numbers in partitions.items()}
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=True,
        topics=[
            WritableTxnMarkerTopic(name=name, partition_indexes=numbers)
            for name, numbers in nowhere.items()
        ],
        coordinator_epoch=0,
        transaction_version=0,
    )
    return WriteTxnMarkersRequest(markers=[marker, marker])


def _ends_of_epoch(topic: str, epoch: int) -> OffsetForLeaderEpochRequest:
    partitions = [
        OffsetForLeaderPartition(partition=number, current_leader_epoch=-1, leader_epoch=epoch)
        for number in range(PARTITIONS)
    ]
    return OffsetForLeaderEpochRequest(
        replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=partitions)]
    )


def _describing(
    partitions: dict[str, list[int]], *, group_id: str = "nobody"
) -> DescribeShareGroupOffsetsRequest:
    topics = [
        DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=numbers)
        for name, numbers in partitions.items()
    ]
    return DescribeShareGroupOffsetsRequest(
        groups=[DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=topics)]
    )
