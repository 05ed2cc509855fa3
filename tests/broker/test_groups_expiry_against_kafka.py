"""Offsets that are kept for a time go as Kafka's do: by tombstones, and their group with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.processes import KafkaProcess
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.describe_groups import DescribeGroupsRequest
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
)
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.differential import group_records
from tests.differential.actors import Actor, Stage
from tests.differential.play import Play
from tests.differential.wire import Peer
from tests.support.forking import ForkedOdradek
from tests.support.requests import committing, creatable, creating

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(600)]

SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.retention.check.interval.ms": "200",
    "log.cleaner.backoff.ms": "3600000",
}
RETENTION_MS = 1_500


def commit(group: str, partition: int, retention_ms: int) -> OffsetCommitRequest:
    return committing(group, {"t": {partition: 7}}, metadata="kept", retention_ms=retention_ms)


def is_stored(answer: OffsetCommitResponse) -> bool:
    return all(p.error_code == ErrorCode.NONE for t in answer.topics for p in t.partitions)


def is_ready(answer: Any) -> bool:
    return bool(answer.error_code == ErrorCode.NONE)


def test_offsets_and_groups_expire_as_in_kafka(tmp_path: Path) -> None:
    ours = ForkedOdradek(tmp_path / "odradek", SETTINGS)
    theirs = KafkaProcess(tmp_path / "kafka", SETTINGS)
    try:
        ours.start()
        theirs.start()
        play = Play(Peer(ours.port), Peer(theirs.port))
        stage = Stage(play)
        one = stage.actor(0)
        try:
            _expire(stage, one)
            data = ours.data, theirs.data
            groups = ["short", "mixed"]
            found = [*group_records.differences(data, groups, play.pairs)]
            assert not found, "\n".join(str(difference) for _, difference in found)
        finally:
            one.close()
            play.ours.close()
            play.theirs.close()
    finally:
        ours.stop()
        theirs.stop()


def _expire(stage: Stage, one: Actor) -> None:
    """Commit for a while and for good, until the former is gone at both brokers."""
    creation = creating(creatable("t", 2))
    made = [peer.ask(request, 7).topics[0] for peer, request in stage.both(one, creation)]
    stage.play.pairs.pair(*(topic.topic_id for topic in made))
    stage.wait_until(one, FindCoordinatorRequest(key="short"), 1, is_ready)
    for request in (
        commit("mixed", 0, -1),
        commit("mixed", 1, RETENTION_MS),
        commit("short", 0, RETENTION_MS),
    ):
        stage.wait_until(one, request, 3, is_stored)
    describing = DescribeGroupsRequest(groups=["short"])
    stage.wait_until(
        one,
        describing,
        6,
        lambda answer: answer.groups[0].error_code == ErrorCode.GROUP_ID_NOT_FOUND,
    )
    fetching = OffsetFetchRequest(
        topics=None, groups=[OffsetFetchRequestGroup(group_id="mixed", topics=None)]
    )
    stage.wait_until(
        one,
        fetching,
        8,
        lambda answer: [p.partition_index for p in answer.groups[0].topics[0].partitions] == [0],
    )
