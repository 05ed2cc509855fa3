"""The orders of further responses of Kafka's hash maps, in Odradek and in Apache Kafka."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from odradek.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from odradek.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from odradek.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from odradek.protocol.messages.describe_transactions import DescribeTransactionsRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.list_transactions import ListTransactionsRequest
from tests.broker.kafka_peer import Peer, both_brokers
from tests.broker.test_response_orders_against_kafka import ALIKE, KNOWN, same
from tests.support.asking import await_coordinator, create_topics
from tests.support.requests import creatable, creating, describing
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(400)]

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.append.linger.ms": "0",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
}
PARTITION_COUNT = 30
SIZES = (1, 2, 3, 4, 5, 8, 12, 13, 20, 25, 30)
# Eight names of one hash and one partition would be a tree.
THERE = [*KNOWN[:25], *ALIKE[:5]]
UNLIKE = KNOWN[:25]
HIDDEN = [f"hidden-{one}" for one in (*KNOWN[:12], *ALIKE)]
UNKNOWN = [f"none-{one}" for one in (*KNOWN[:12], *ALIKE)]
Asked = list[tuple[str, list[int]]]
Both = tuple[Peer, Peer]


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    with both_brokers(tmp_path_factory.mktemp("maps"), SETTINGS) as (ours, theirs):
        for port in (ours.port, theirs.port):
            prepare(port)
        yield ours.port, theirs.port


def prepare(port: int) -> None:
    """Make topics, hide what is called hidden, and have all coordinators loaded."""
    with Peer(port) as peer:
        create_topics(peer, *(creatable(name, PARTITION_COUNT) for name in THERE))
        decide(peer, kind=2, name="hidden-", pattern=4, operation=2, is_allowed=False)
        # Where there is an ACL, what it does not allow is denied.
        decide(peer, kind=4, name="kafka-cluster", pattern=3, operation=2, is_allowed=True)
        wait_until(lambda: peer.ask(describing(HIDDEN[0]), 12).topics[0].error_code == 29)
        for kind, key in ((0, "a"), (1, "a"), (2, "a:AAAAAAAAAAAAAAAAAAAAAQ:0")):
            await_coordinator(peer, kind, key)


def decide(
    peer: Peer, *, kind: int, name: str, pattern: int, operation: int, is_allowed: bool
) -> None:
    """Allow or deny something to all who do not log in."""
    acl = AclCreation(
        resource_type=kind, resource_name=name, resource_pattern_type=pattern,
        principal="User:ANONYMOUS", host="*", operation=operation,
        permission_type=3 if is_allowed else 2,
    )  # fmt: skip
    assert peer.ask(CreateAclsRequest(creations=[acl]), 3).results[0].error_code == 0


@pytest.fixture(name="both")
def _both(ports: tuple[int, int]) -> Iterator[Both]:
    with Peer(ports[0]) as ours, Peer(ports[1]) as theirs:
        yield ours, theirs


def draw(chance: random.Random, pool: Sequence[str], size: int, numbers: Sequence[int]) -> Asked:
    """Draw topics and partitions of them."""
    names = chance.sample(pool, min(size, len(pool)))
    return [(name, chance.sample(numbers, chance.choice((1, 2, 5, 20)))) for name in names]


def requests(seed: str, *pools: Sequence[str]) -> Iterator[Asked]:
    """Draw topics from pools, and partitions of which some are not there."""
    chance = random.Random(seed)
    for size in SIZES:
        for pool in pools:
            yield draw(chance, pool, size, range(PARTITION_COUNT + 5))


# --- transactions --------------------------------------------------------------------------------


def begin(peer: Peer, transactional_id: str) -> tuple[int, int]:
    """Return the producer of a transactional id, and its epoch."""
    begun = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=600_000
    )
    wait_until(lambda: peer.ask(begun, 4).error_code == 0)
    answer = peer.ask(begun, 4)
    return answer.producer_id, answer.producer_epoch


def add(peer: Peer, transactional_id: str, producer: tuple[int, int], asked: Asked) -> Any:
    """Add partitions to a transaction; return what is told of each."""
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1],
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=name, partitions=some) for name, some in asked
        ],
    )
    return [
        (topic.name, [
            (one.partition_index, one.partition_error_code) for one in topic.results_by_partition
        ])
        for topic in peer.ask(request, 3).results_by_topic_v3_and_below
    ]  # fmt: skip


def test_partitions_of_a_transaction(both: Both) -> None:
    chance = random.Random("transactions")
    for number in range(25):
        name = f"{chance.getrandbits(30):x}-{number}"
        producers = [begin(peer, name) for peer in both]
        for _ in range(chance.choice((1, 1, 2, 4))):
            asked = draw(chance, THERE, chance.choice(SIZES), range(PARTITION_COUNT))
            ours, theirs = (
                add(peer, name, producer, asked)
                for peer, producer in zip(both, producers, strict=True)
            )
            assert ours == theirs, asked
            same(
                both,
                DescribeTransactionsRequest(transactional_ids=[name]),
                0,
                lambda answer: [
                    (one.topic, one.partitions) for one in answer.transaction_states[0].topics
                ],
            )
    ids = chance.sample([*KNOWN, "a", "b"], 20)
    same(
        both,
        DescribeTransactionsRequest(transactional_ids=ids),
        0,
        lambda answer: [one.transactional_id for one in answer.transaction_states],
    )


def test_partitions_that_a_transaction_cannot_have(both: Both) -> None:
    producers = [begin(peer, "refused") for peer in both]
    # Of those that are there, Kafka has the ones of one hash in an order that is another each run.
    for asked in requests("refused", [*UNLIKE, *UNKNOWN], [*UNLIKE, *HIDDEN, *UNKNOWN], UNKNOWN):
        ours, theirs = (
            add(peer, "refused", producer, asked)
            for peer, producer in zip(both, producers, strict=True)
        )
        assert ours == theirs, asked


def test_states_that_no_transaction_has(both: Both) -> None:
    chance = random.Random("states")
    for size in SIZES:
        names = chance.choices([*KNOWN, *ALIKE, "Empty", "Ongoing"], k=size)
        request = ListTransactionsRequest(state_filters=names)
        same(both, request, 1, lambda answer: answer.unknown_state_filters)


# --- topics and settings -------------------------------------------------------------------------


def test_partitions_that_are_to_move(both: Both) -> None:
    for asked in requests("moves", THERE, [*THERE, *UNKNOWN]):
        topics = [AlterReplicaLogDirTopic(name=name, partitions=some) for name, some in asked]
        half = len(topics) // 2
        request = AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(path="/nowhere", topics=topics[:half]),
                AlterReplicaLogDir(path="/anywhere", topics=topics[half:]),
            ]
        )
        same(
            both,
            request,
            2,
            lambda answer: [
                (topic.topic_name, [
                    (one.partition_index, one.error_code) for one in topic.partitions
                ])
                for topic in answer.results
            ],
        )  # fmt: skip


def test_topics_that_are_hidden(both: Both) -> None:
    for asked in requests("hidden", HIDDEN, [*THERE, *HIDDEN], [*HIDDEN, *UNKNOWN, *THERE]):
        topics = [TopicRequest(name=name) for name, _ in asked]
        request = DescribeTopicPartitionsRequest(topics=topics, response_partition_limit=2_000)
        same(both, request, 0, lambda answer: [one.name for one in answer.topics])
        resources = [
            DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None)
            for name, _ in asked
        ]
        described = DescribeConfigsRequest(resources=resources)
        same(both, described, 4, lambda answer: [one.resource_name for one in answer.results])


@pytest.mark.parametrize(("kind", "name"), [(2, THERE[0]), (32, "a-group"), (16, "metrics")])
def test_settings_of(both: Both, kind: int, name: str) -> None:
    asked = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=[asked])
    ours, theirs = (
        [one.name for one in peer.ask(request, 4).results[0].configs] for peer in both
    )
    assert [one for one in ours if one in theirs] == theirs


def test_quotas_that_are_changed(both: Both) -> None:
    chance = random.Random("quotas")
    names = [*KNOWN, *ALIKE[:5], None]
    for size in SIZES:
        entities = [
            [(kind, chance.choice(names)) for kind in kinds]
            for kinds in (["user"], ["client-id"], ["user", "client-id"], ["client-id", "user"])
            for _ in range(size)
        ]
        request = AlterClientQuotasRequest(
            entries=[
                EntryData(
                    entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in one],
                    ops=[OpData(key="request_percentage", value=5.0, remove=False)],
                )
                for one in entities
            ],
            validate_only=True,
        )
        same(
            both,
            request,
            1,
            lambda answer: [
                [(one.entity_type, one.entity_name) for one in entry.entity]
                for entry in answer.entries
            ],
        )


def test_features(both: Both) -> None:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    ours, theirs = (peer.ask(request, 4) for peer in both)
    for kind in ("supported_features", "finalized_features"):
        known = [one.name for one in getattr(ours, kind)]
        # Streams groups are not there.
        assert known == [one.name for one in getattr(theirs, kind) if one.name in known]
        assert len(known) > 4


def test_topics_that_may_not_be_created(both: Both) -> None:
    for peer in both:
        decide(peer, kind=4, name="kafka-cluster", pattern=3, operation=5, is_allowed=False)
    chance = random.Random("created")
    for size in SIZES:
        names = chance.choices([*HIDDEN, *UNKNOWN, *THERE], k=size)
        request = creating(*names, validate_only=True)
        same(
            both, request, 7, lambda answer: [(one.name, one.error_code) for one in answer.topics]
        )
