"""The orders of the APIs of share groups, in Odradek and in Apache Kafka.

Kafka's maps have topics by their ids. Where these are drawn by each broker, both answers are
compared with the order that the ids give; `test_map_orders_kafka.py` has that from Java's maps.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from odradek.broker.orders.maps import computed_ids, computed_numbers, put_ids
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from odradek.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from odradek.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from odradek.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from odradek.protocol.messages.metadata import MetadataRequest
from tests.broker.kafka_peer import Peer, both_brokers
from tests.broker.test_map_orders_against_kafka import (
    HIDDEN,
    PARTITION_COUNT,
    SETTINGS,
    SIZES,
    THERE,
    UNKNOWN,
    Asked,
    Both,
    draw,
    prepare,
    requests,
)
from tests.broker.test_response_orders_against_kafka import KNOWN, same
from tests.support.asking import SHARE, await_coordinator
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(400)]

GROUP, OTHER_GROUP = "moved", "emptied"
# Share-partitions enough for each of the 50 partitions of __share_group_state to have the state of
# some: each partition is loaded by itself.
_LOOKED_AT = 1_000


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    with both_brokers(tmp_path_factory.mktemp("shares"), SETTINGS) as (ours, theirs):
        for port in (ours.port, theirs.port):
            prepare(port)
            # Kafka creates the topic of the states when it is first asked for their coordinator,
            # and loads it after it has answered.
            with Peer(port) as peer:
                await_coordinator(peer, SHARE, f"states:{'A' * 22}:0")
                wait_until(lambda peer=peer: _has_loaded(peer))  # type: ignore[misc]
        yield ours.port, theirs.port


def _has_loaded(peer: Peer) -> bool:
    request = read_share_group_state.ReadShareGroupStateRequest(
        group_id="states",
        topics=[
            read_share_group_state.ReadStateData(
                topic_id=bytes(15) + b"1",
                partitions=[
                    read_share_group_state.PartitionData(partition=one, leader_epoch=0)
                    for one in range(_LOOKED_AT)
                ],
            )
        ],
    )
    (topic,) = peer.ask(request, 0).results
    # Kafka does not know for a moment that it leads them.
    loading = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
    return loading.isdisjoint(one.error_code for one in topic.partitions)


@pytest.fixture(name="both")
def _both(ports: tuple[int, int]) -> Iterator[Both]:
    with Peer(ports[0]) as ours, Peer(ports[1]) as theirs:
        yield ours, theirs


STATES: tuple[tuple[Any, str, str, dict[str, Any]], ...] = (
    (initialize_share_group_state, "InitializeShareGroupState", "InitializeState",
     {"state_epoch": 1, "start_offset": 0}),
    (read_share_group_state, "ReadShareGroupState", "ReadState", {"leader_epoch": 0}),
    (read_share_group_state_summary, "ReadShareGroupStateSummary", "ReadStateSummary",
     {"leader_epoch": 0}),
    (write_share_group_state, "WriteShareGroupState", "WriteState",
     {"state_epoch": 1, "leader_epoch": 0, "start_offset": 0, "state_batches": []}),
    (delete_share_group_state, "DeleteShareGroupState", "DeleteState", {}),
)  # fmt: skip


@pytest.mark.parametrize(
    ("module", "name", "data", "fields"), STATES, ids=[one[1] for one in STATES]
)
def test_states_of_share_partitions(
    both: Both, module: Any, name: str, data: str, fields: dict[str, Any]
) -> None:
    topic_of, partition_of = getattr(module, f"{data}Data"), module.PartitionData
    for asked in requests("states", KNOWN, KNOWN):
        topics = [
            topic_of(
                topic_id=random.Random(name).randbytes(16),
                partitions=[partition_of(partition=one, **fields) for one in some],
            )
            for name, some in asked
        ]
        same(
            both,
            getattr(module, f"{name}Request")(group_id="states", topics=topics),
            0,
            lambda answer: [
                (topic.topic_id, [(one.partition, one.error_code) for one in topic.partitions])
                for topic in answer.results
            ],
        )


def alter(group_id: str, asked: Asked) -> AlterShareGroupOffsetsRequest:
    return AlterShareGroupOffsetsRequest(
        group_id=group_id,
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=name,
                partitions=[
                    AlterShareGroupOffsetsRequestPartition(partition_index=one, start_offset=0)
                    for one in some
                ],
            )
            for name, some in asked
        ],
    )


def test_share_groups_that_are_moved(both: Both) -> None:
    for asked in requests("moved", THERE, [*THERE, *HIDDEN, *UNKNOWN], [*HIDDEN, *UNKNOWN]):
        same(
            both,
            alter(GROUP, asked),
            0,
            lambda answer: [
                (topic.topic_name, [
                    (one.partition_index, one.error_code) for one in topic.partitions
                ])
                for topic in answer.responses
            ],
        )  # fmt: skip


def ids_of(peer: Peer) -> dict[str, bytes]:
    """Return the ids of topics by name."""
    answer = peer.ask(MetadataRequest(topics=None), 12)
    return {one.name: one.topic_id for one in answer.topics}


def test_offsets_of_share_groups(both: Both) -> None:
    chance = random.Random("described")
    for peer in both:
        ids = ids_of(peer)
        for size in SIZES:
            asked = draw(chance, THERE, size, range(PARTITION_COUNT))
            request = DescribeShareGroupOffsetsRequest(
                groups=[
                    DescribeShareGroupOffsetsRequestGroup(
                        group_id=GROUP,
                        topics=[
                            DescribeShareGroupOffsetsRequestTopic(topic_name=one, partitions=some)
                            for one, some in [*asked, ("none-1", [2, 1]), ("hidden-1", [2, 1])]
                        ],
                    )
                ]
            )
            numbers = {ids[name]: computed_numbers(some) for name, some in asked}
            looked_at = [ids[name] for name, some in asked for _ in some]
            told = [
                (topic.topic_id, [one.partition_index for one in topic.partitions])
                for topic in peer.ask(request, 1).groups[0].topics
            ]
            assert told == [
                *((one, numbers[one]) for one in computed_ids(looked_at)),
                *[(bytes(16), [2, 1])] * 2,
            ]


def test_offsets_of_share_groups_that_are_deleted(both: Both) -> None:
    for peer in both:
        ids = ids_of(peer)
        chance = random.Random("deleted")
        for size in (2, 5, 13, 20, 25):
            names = chance.sample(THERE, size)
            moved = peer.ask(alter(OTHER_GROUP, [(name, [0, 1]) for name in names]), 0)
            assert {one.error_code for topic in moved.responses for one in topic.partitions} == {0}
            topics = [
                DeleteShareGroupOffsetsRequestTopic(topic_name=name)
                for name in ("none-1", *names, "hidden-1")
            ]
            request = DeleteShareGroupOffsetsRequest(group_id=OTHER_GROUP, topics=topics)
            told = [one.topic_id for one in peer.ask(request, 0).responses]
            found = put_ids(computed_ids([ids[name] for name in names for _ in range(2)]))
            assert told == [bytes(16), *found, bytes(16)]
