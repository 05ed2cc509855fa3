"""The order of the parts of responses, in Odradek and in Apache Kafka.

Kafka groups the parts of a response in hash maps, of Java and of Scala. Both are asked for few
topics and for many, some of which do not exist and some of which may not be described.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from itertools import groupby, product
from typing import Any

import pytest

from odradek.broker.orders.java import string_hash
from odradek.protocol.batches import Record, encode_batch
from odradek.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from odradek.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest
from odradek.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from odradek.protocol.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from odradek.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from odradek.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from odradek.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.broker.kafka_peer import Peer, both_brokers
from tests.support.asking import create_topics
from tests.support.requests import creatable, describing, listing_offsets, producing
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(400)]

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "offsets.topic.num.partitions": "3",
}
SIZES = (1, 2, 3, 4, 5, 6, 9, 11, 12, 13, 17, 23, 24, 30, 40)
PARTITION_COUNT = 30
_chance = random.Random(1)
# Names of one hash, so many that they make a node of a trie, and pairs of them.
ALIKE = ["".join(some) for some in product(("Aa", "BB"), repeat=3)] + ["x-Aa", "x-BB"]
KNOWN = [f"{_chance.getrandbits(40):x}" for _ in range(40)] + ALIKE
HIDDEN = [f"hidden-{one}" for one in (*KNOWN[:12], *ALIKE)]
UNKNOWN = [f"none-{one}" for one in (*KNOWN[:12], *ALIKE)]
Asked = list[tuple[str, list[int]]]


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    with both_brokers(tmp_path_factory.mktemp("orders"), SETTINGS) as (ours, theirs):
        for port in (ours.port, theirs.port):
            prepare(port)
        yield ours.port, theirs.port


def prepare(port: int) -> None:
    """Make the topics, one after the other, and hide some."""
    with Peer(port) as peer:
        for name in (*KNOWN, *HIDDEN):
            create_topics(peer, creatable(name, PARTITION_COUNT))
        for operation in (3, 6, 8):  # READ, DELETE, DESCRIBE
            hide = AclCreation(
                resource_type=2,
                resource_name="hidden-",
                resource_pattern_type=4,
                principal="User:ANONYMOUS",
                host="*",
                operation=operation,
                permission_type=2,
            )
            assert peer.ask(CreateAclsRequest(creations=[hide]), 3).results[0].error_code == 0
        # The last change comes into force last.
        wait_until(lambda: peer.ask(describing(HIDDEN[0]), 12).topics[0].error_code == 29)


@pytest.fixture(name="both")
def _both(ports: tuple[int, int]) -> Iterator[tuple[Peer, Peer]]:
    with Peer(ports[0]) as ours, Peer(ports[1]) as theirs:
        yield ours, theirs


def same(
    both: tuple[Peer, Peer], request: Any, version: int, shown: Callable[[Any], Any]
) -> None:
    """Ask both, and compare the answers as `shown`."""
    ours, theirs = (shown(peer.ask(request, version)) for peer in both)
    assert ours == theirs, request


def requests(seed: str) -> Iterator[Asked]:
    """Ask for topics, of which all, some or none exist, and for partitions of them."""
    chance = random.Random(seed)
    for size in SIZES:
        for pool in (
            KNOWN,
            ALIKE,
            UNKNOWN,
            HIDDEN,
            [*UNKNOWN, *HIDDEN],
            [*KNOWN, *UNKNOWN],
            [*KNOWN, *UNKNOWN, *HIDDEN],
        ):
            names = chance.sample(pool, min(size, len(pool)))
            yield [
                (name, chance.sample(range(PARTITION_COUNT), chance.choice((1, 2, 5, 25))))
                for name in names
            ]
        numbers = [*range(PARTITION_COUNT), *range(PARTITION_COUNT + 15)]
        yield [(chance.choice(KNOWN), list(dict.fromkeys(chance.sample(numbers, size))))]


def test_list_offsets(both: tuple[Peer, Peer]) -> None:
    for asked in requests("offsets"):
        same(both, listing_offsets(dict(asked)), 7, lambda answer: _topics(answer.topics))


def test_list_offsets_of_what_is_named_twice(both: tuple[Peer, Peer]) -> None:
    chance = random.Random("twice")
    for size in SIZES:
        names = chance.choices([*KNOWN[:20], *HIDDEN[:10]], k=size)
        topics = [
            ListOffsetsTopic(
                name=name,
                partitions=[
                    ListOffsetsPartition(partition_index=one, timestamp=-2)
                    for one in chance.choices(range(4), k=3)
                ],
            )
            for name in names
        ]
        request = ListOffsetsRequest(replica_id=-1, topics=topics)
        same(both, request, 7, lambda answer: _topics(answer.topics))


def test_delete_records(both: tuple[Peer, Peer]) -> None:
    for asked in requests("records"):
        request = DeleteRecordsRequest(
            topics=[
                DeleteRecordsTopic(
                    name=name,
                    partitions=[
                        DeleteRecordsPartition(partition_index=one, offset=0) for one in some
                    ],
                )
                for name, some in asked
            ],
            timeout_ms=10_000,
        )
        same(both, request, 2, lambda answer: _topics(answer.topics))


def test_describe_log_dirs(both: tuple[Peer, Peer]) -> None:
    same(both, DescribeLogDirsRequest(topics=None), 4, _directories)
    for asked in requests("directories"):
        request = DescribeLogDirsRequest(
            topics=[DescribableLogDirTopic(topic=name, partitions=some) for name, some in asked]
        )
        same(both, request, 4, _directories)


def _directories(answer: Any) -> list[Any]:
    topics = [
        (topic.name, [one.partition_index for one in topic.partitions])
        for topic in answer.results[0].topics
    ]
    # Of names of one hash the order comes from when the table of the logs was enlarged.
    alike = [sorted(some) for _, some in groupby(topics, key=lambda one: string_hash(one[0]))]
    return [one for some in alike for one in some]


def _topics(topics: Any) -> list[Any]:
    return [
        (topic.name, [(one.partition_index, one.error_code) for one in topic.partitions])
        for topic in topics
    ]


def test_metadata_of_named_topics(both: tuple[Peer, Peer]) -> None:
    for asked in requests("metadata"):
        same(both, describing(*(name for name, _ in asked)), 12, _described)


def test_metadata_of_topics_by_id(both: tuple[Peer, Peer]) -> None:
    chance = random.Random("ids")
    ids = [_ids(peer) for peer in both]
    for size in SIZES:
        # Those of one hash would be in the order of their ids, which are random.
        names = chance.sample(KNOWN[:40], size)
        none = [chance.randbytes(16) for _ in range(chance.choice((0, size)))]
        order = chance.sample(range(size + len(none)), size + len(none))
        answers = []
        for peer, known in zip(both, ids, strict=True):
            asked = [*(known[name] for name in names), *none]
            request = MetadataRequest(
                topics=[MetadataRequestTopic(name=None, topic_id=asked[at]) for at in order],
                allow_auto_topic_creation=False,
            )
            answer = peer.ask(request, 12)
            answers.append(
                [(one.name, None if one.name else one.topic_id) for one in answer.topics]
            )
        assert answers[0] == answers[1], size


def _ids(peer: Peer) -> dict[str, bytes]:
    answer = peer.ask(MetadataRequest(topics=None), 12)
    return {one.name: one.topic_id for one in answer.topics}


def test_metadata_of_all_topics(both: tuple[Peer, Peer]) -> None:
    chance = random.Random("all")
    every = MetadataRequest(topics=None)

    def compare() -> None:
        # Kafka answers before it knows.
        ours, theirs = both
        wait_until(lambda: _ids(ours).keys() == _ids(theirs).keys())
        same(both, every, 12, _described)

    compare()
    extra = [f"more-{chance.getrandbits(30):x}" for _ in range(30)]
    extra += [f"more-{one}" for one in ALIKE]
    chance.shuffle(extra)
    for name in extra:
        for peer in both:
            create_topics(peer, creatable(name, PARTITION_COUNT))
        compare()
    for name in chance.sample(extra, len(extra)):
        for peer in both:
            gone = DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000)
            assert peer.ask(gone, 5).responses[0].error_code == 0
        compare()


def _described(answer: Any) -> list[Any]:
    return [(one.name, one.error_code) for one in answer.topics]


def test_client_quotas(both: tuple[Peer, Peer]) -> None:
    chance = random.Random("quotas")
    entities = [
        [(kind, chance.choice((None, f"{chance.getrandbits(20):x}"))) for kind in kinds]
        for kinds in (["user"], ["client-id"], ["user", "client-id"])
        for _ in range(20)
    ] + [[("user", name)] for name in ALIKE[:5]]  # eight in a place would be a tree
    every = DescribeClientQuotasRequest(components=[], strict=False)
    for _ in range(40):
        removes = chance.random() < 0.4
        some = {str(one): one for one in chance.choices(entities, k=chance.choice((1, 2, 9, 25)))}
        alter = AlterClientQuotasRequest(
            entries=[
                EntryData(
                    entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in one],
                    ops=[OpData(key="request_percentage", value=5.0, remove=removes)],
                )
                for one in some.values()
            ],
            validate_only=False,
        )
        for peer in both:
            assert {one.error_code for one in peer.ask(alter, 1).entries} == {0}
        wait_until(lambda: len({str(_quotas_of(one, every)) for one in both}) == 1)
        same(both, every, 1, _quotas)


def _quotas(answer: Any) -> list[Any]:
    return [
        [(one.entity_type, one.entity_name) for one in entry.entity] for entry in answer.entries
    ]


def _quotas_of(peer: Peer, every: DescribeClientQuotasRequest) -> list[str]:
    return sorted(map(str, _quotas(peer.ask(every, 1))))


def test_producers(both: tuple[Peer, Peer]) -> None:
    chance = random.Random("producers")
    for size in SIZES:
        name = chance.choice(KNOWN)
        ids = [chance.choice((chance.randrange(60), chance.getrandbits(50))) for _ in range(size)]
        for peer in both:
            for producer_id in dict.fromkeys(ids):
                _produce(peer, name, size % PARTITION_COUNT, producer_id)
        asked = TopicRequest(name=name, partition_indexes=[size % PARTITION_COUNT])
        same(
            both,
            DescribeProducersRequest(topics=[asked]),
            0,
            lambda answer: [
                one.producer_id for one in answer.topics[0].partitions[0].active_producers
            ],
        )


def _produce(peer: Peer, name: str, partition: int, producer_id: int) -> None:
    data = encode_batch(
        [Record(0, int(time.time() * 1000), b"k", b"v")],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
    )
    request = producing(name, data, partition=partition)
    assert peer.ask(request, 9).responses[0].partition_responses[0].error_code == 0
