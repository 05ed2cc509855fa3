"""__consumer_offsets under steady commits: the cleaner keeps it small, and nothing is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from odradek.broker.composition import Broker
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.broker.live import Client, client, live, on_uvloop, until
from tests.support.requests import committing, creatable, creating

pytestmark = pytest.mark.slow

SEGMENT_BYTES = 1 << 20
PARTITIONS = 100
GROUPS = [f"group-{number}" for number in range(5)]
WRITTEN_MIN = 12 * SEGMENT_BYTES
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
    offsets = {index: offset + index for index in range(PARTITIONS)}
    request = committing(group, {"t": offsets}, metadata="x" * 100)

    async def errors() -> set[int]:
        answer = await one.ask(request, version=8)
        found = {p.error_code for topic in answer.topics for p in topic.partitions}
        return set() if found == {LOADING} else found

    assert await until(errors, "the group is loaded") == {ErrorCode.NONE}


async def fetched(one: Client, group: str) -> dict[int, int]:
    request = OffsetFetchRequest(
        topics=None, groups=[OffsetFetchRequestGroup(group_id=group, topics=None)]
    )

    async def loaded() -> Any:
        (found,) = (await one.ask(request, version=8)).groups
        return None if found.error_code == LOADING else found

    (topic,) = (await until(loaded, "the group is loaded")).topics
    return {p.partition_index: p.committed_offset for p in topic.partitions}


@pytest.mark.timeout(600)
@on_uvloop
async def test_it_stays_small_under_steady_commits_and_is_right_after_a_restart(
    tmp_path: Path,
) -> None:
    largest = offset = 0
    async with live(tmp_path, SETTINGS) as broker, client(broker) as one:
        await one.ask(creating(creatable("t", PARTITIONS)), version=7)
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
