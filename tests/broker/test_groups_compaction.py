"""__consumer_offsets under steady commits: the cleaner keeps it small, and nothing is lost."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from odradek.broker.composition import Broker
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.broker.live import PATIENCE_S, Client, client, live, on_uvloop

pytestmark = pytest.mark.slow

SEGMENT_BYTES = 1 << 20
PARTITIONS = 100
GROUPS = [f"group-{number}" for number in range(5)]
WRITTEN_MIN = 20 * SEGMENT_BYTES
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": str(SEGMENT_BYTES),
    "log.cleaner.backoff.ms": "20",
}
LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def size_bytes(broker: Broker) -> int:
    """Return how large the partition is now."""
    return sum(log.size_bytes for log in broker.logs() if log.topic == "__consumer_offsets")


def end_offset(broker: Broker) -> int:
    """Return how many records have been written."""
    return sum(log.log_end_offset for log in broker.logs() if log.topic == "__consumer_offsets")


async def commit(one: Client, group: str, offset: int) -> None:
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset + index, committed_metadata="x" * 100
        )
        for index in range(PARTITIONS)
    ]
    topics = [OffsetCommitRequestTopic(name="t", partitions=partitions)]
    deadline = time.monotonic() + PATIENCE_S
    while True:
        request = OffsetCommitRequest(group_id=group, member_id="", topics=topics)
        answer = await one.ask(request, version=8)
        errors = {p.error_code for topic in answer.topics for p in topic.partitions}
        if errors != {LOADING}:
            assert errors == {ErrorCode.NONE}
            return
        assert time.monotonic() < deadline


async def fetched(one: Client, group: str) -> dict[int, int]:
    request = OffsetFetchRequest(
        topics=None, groups=[OffsetFetchRequestGroup(group_id=group, topics=None)]
    )
    deadline = time.monotonic() + PATIENCE_S
    while (answer := await one.ask(request, version=8)).groups[0].error_code == LOADING:
        assert time.monotonic() < deadline
    (topic,) = answer.groups[0].topics
    return {p.partition_index: p.committed_offset for p in topic.partitions}


@pytest.mark.timeout(600)
@on_uvloop
async def test_it_stays_small_under_steady_commits_and_is_right_after_a_restart(
    tmp_path: Path,
) -> None:
    largest = offset = 0
    async with live(tmp_path, SETTINGS) as broker, client(broker) as one:
        topic = CreatableTopic(
            name="t", num_partitions=PARTITIONS, replication_factor=1, assignments=[], configs=[]
        )
        creation = CreateTopicsRequest(topics=[topic], timeout_ms=10_000, validate_only=False)
        await one.ask(creation, version=7)
        await commit(one, GROUPS[0], offset)
        record_bytes = size_bytes(broker) / end_offset(broker)
        while end_offset(broker) * record_bytes < WRITTEN_MIN:
            offset += 1
            for group in GROUPS:
                await commit(one, group, offset)
            largest = max(largest, size_bytes(broker))
    assert largest < WRITTEN_MIN / 2
    expected = {index: offset + index for index in range(PARTITIONS)}
    async with live(tmp_path, SETTINGS) as broker, client(broker) as one:
        assert size_bytes(broker) < WRITTEN_MIN / 2
        for group in GROUPS:
            assert await fetched(one, group) == expected
