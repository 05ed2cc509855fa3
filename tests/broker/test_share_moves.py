"""Members of share groups go on when leaders and coordinators move."""

from __future__ import annotations

from asyncio import Future
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from odradek.broker.shares.key import SharePartitionKey
from odradek.broker.shares.sessions import TopicPartition
from odradek.broker.shares.state_shard import StateAnswer
from odradek.broker.topics.plans import NewTopic
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.share_fetch import ShareFetchRequest
from tests.broker.live import client, live, on_uvloop, until
from tests.broker.test_share_bounds import named, share_fetch

# The codes that ShareFetchCollector of Kafka 4.3.1's clients knows; it fails after any other.
KNOWN = {
    ErrorCode.NONE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


def patient_fetch(topic_id: bytes) -> ShareFetchRequest:
    wanted = named([TopicPartition(topic_id, 0)])
    return share_fetch("m", topics=wanted, max_wait_ms=10_000)


def code_of(answer: Any) -> int:
    ((part,),) = [one.partitions for one in answer.responses]
    return int(part.error_code)


@pytest.mark.parametrize(
    "error", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
)
@on_uvloop
async def test_a_fetch_while_the_state_cannot_be_read_is_tried_again(
    tmp_path: Path, error: ErrorCode
) -> None:
    async with live(tmp_path) as broker, client(broker) as one:
        await broker.topics.create([NewTopic("t", 1, 1)])
        topic_id = broker.topics.get("t").topic_id  # type: ignore[union-attr]
        persister = broker.shares.partitions.around.persister
        with mock.patch.object(persister, "read", return_value=StateAnswer(error)):
            refused = code_of(await one.ask(patient_fetch(topic_id), version=1))
        assert refused in KNOWN
        assert refused == ErrorCode.NOT_LEADER_OR_FOLLOWER


@on_uvloop
async def test_a_fetch_is_tried_again_when_the_leader_moves_while_the_state_is_read(
    tmp_path: Path,
) -> None:
    async with live(tmp_path) as broker, client(broker) as one:
        await broker.topics.create([NewTopic("t", 1, 1)])
        topic = broker.topics.get("t")
        assert topic is not None
        partitions = broker.shares.partitions
        key = SharePartitionKey("g", topic.topic_id, 0)
        never: Future[StateAnswer] = Future()
        with mock.patch.object(partitions.around.persister, "read", return_value=never):
            one.send(patient_fetch(topic.topic_id), version=1)
            await until(lambda: partitions.find(key) is not None)
            partitions.drop_logs(topic.logs)
            _, answer = await one.receive()
            refused = code_of(answer)
        assert refused == ErrorCode.NOT_LEADER_OR_FOLLOWER
