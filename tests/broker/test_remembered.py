"""Answers that are sent again are those that would be made again."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.apis import metadata
from odradek.broker.composition import Broker
from odradek.broker.metadata.features import ELR, FeatureUpdate
from odradek.broker.metadata.members import Endpoint, Member
from odradek.broker.network.remembered import Question, RememberedAnswers
from odradek.protocol.frames import encode_response
from odradek.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.metadata import MetadataRequest, MetadataResponse
from odradek.storage.errors import StorageError
from odradek.storage.log import Log
from tests.broker.live import Client, client, live, on_uvloop
from tests.broker.remembering import counted, made
from tests.support.requests import creatable, creating, describing

NAMES = ["orders", "prices", "stocks"]
VERSION = 12
UPGRADE, DOWNGRADE = 1, 2
REQUESTS = [
    MetadataRequest(topics=None, allow_auto_topic_creation=False),
    *(describing(*names) for names in (NAMES[:1], NAMES, ["missing"], [])),
]


async def create(broker: Broker, one: Client, draw: random.Random) -> None:
    await one.ask(creating(creatable(draw.choice(NAMES), draw.randint(1, 3))), version=7)


async def delete(broker: Broker, one: Client, draw: random.Random) -> None:
    doomed = [DeleteTopicState(name=draw.choice(NAMES), topic_id=bytes(16))]
    await one.ask(DeleteTopicsRequest(topics=doomed, topic_names=[], timeout_ms=9_000), version=6)


async def enlarge(broker: Broker, one: Client, draw: random.Random) -> None:
    wanted = CreatePartitionsTopic(
        name=draw.choice(NAMES), count=draw.randint(2, 6), assignments=None
    )
    request = CreatePartitionsRequest(topics=[wanted], timeout_ms=9_000, validate_only=False)
    await one.ask(request, version=3)


async def lose_a_disk(broker: Broker, one: Client, draw: random.Random) -> None:
    for topic in broker.topics:
        log = draw.choice(topic.partitions)
        if isinstance(log, Log):
            broker.topics.take_offline(log, StorageError("a disk is gone"))


async def come_and_go(broker: Broker, one: Client, draw: random.Random) -> None:
    endpoint = Endpoint("PLAINTEXT", "127.0.0.1", draw.randint(1, 9), "PLAINTEXT")
    others = [Member(node_id, "b", None, (endpoint,)) for node_id in (7, 8)]
    broker.brokers.follow([broker.brokers.own, *draw.sample(others, draw.randint(0, 2))])


async def change_a_feature(broker: Broker, one: Client, draw: random.Random) -> None:
    is_in_force = ELR in broker.features.finalized
    update = FeatureUpdate(ELR, 0, DOWNGRADE) if is_in_force else FeatureUpdate(ELR, 1, UPGRADE)
    await broker.features.update([update], validate_only=False)


CHANGES = [create, create, delete, enlarge, lose_a_disk, come_and_go, change_a_feature]


@pytest.mark.parametrize("seed", range(3))
@on_uvloop
async def test_answers_are_up_to_date_after_each_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    draw = random.Random(seed)
    async with live(tmp_path) as broker, client(broker) as one:
        listener = broker.server.listeners[0]
        answers = counted(monkeypatch, metadata, "_answer")
        for _ in range(30):
            await draw.choice(CHANGES)(broker, one, draw)
            for request in REQUESTS:
                is_same = False
                while not is_same:  # a lost partition comes back whenever it does
                    stamp = metadata.stamp(broker, listener)
                    first = await one.ask(request, version=VERSION)
                    before = answers()
                    again = await one.ask(request, version=VERSION)
                    repeated = answers() == before
                    is_same = metadata.stamp(broker, listener) == stamp
                assert repeated
                assert first == again == made(metadata, broker, request, VERSION)


@on_uvloop
async def test_requests_by_clients_with_rights_are_answered_for_each(tmp_path: Path) -> None:
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    async with live(tmp_path, settings) as broker, client(broker) as one:
        await one.ask(creating("orders"), version=7)
        for _ in range(2):
            answer = await one.ask(REQUESTS[0], version=VERSION)
            assert [topic.name for topic in answer.topics] == ["orders"]
        assert metadata.stamp(broker, broker.server.listeners[0]) is None


@on_uvloop
async def test_a_missing_topic_is_created_whenever_a_client_asks_for_it(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, client(broker) as one:
        for _ in range(2):
            answer = await one.ask(describing("orders", creates=True), version=VERSION)
            assert answer.topics[0].error_code == 0
            await delete(broker, one, _First())


class _First(random.Random):
    def choice(self, items: Any) -> Any:
        return items[0]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 400)), max_size=60))
def test_the_memory_is_bounded_and_the_latest_stay(asked: list[tuple[int, int]]) -> None:
    bytes_max = 3_000
    answers = RememberedAnswers(bytes_max)
    response = MetadataResponse(brokers=[], topics=[])
    chunks = encode_response(response, VERSION, 1)
    for number, size_bytes in asked:
        question = Question(3, VERSION, "PLAINTEXT", bytes([number]) * size_bytes, number)
        found = answers.find(question, 7)
        if found is None:
            answers.keep(question, chunks)
            found = answers.find(question, 7)
        assert found is not None
        assert b"".join(found) == b"".join(encode_response(response, VERSION, 7))
        assert answers.find(question._replace(stamp=-1), 7) is None
        assert answers.size_bytes <= bytes_max


def test_an_answer_that_is_larger_than_all_may_be_leaves_the_others() -> None:
    answers = RememberedAnswers(3_000)
    small, large = (Question(3, VERSION, "PLAINTEXT", body, 0) for body in (b"small", b"large"))
    answers.keep(small, [bytes(100)])
    answers.keep(large, [bytes(8), bytes(3_000)])
    assert answers.find(small, 7) is not None
    assert answers.find(large, 7) is None
