"""Streams groups in a whole broker: internal topics, restarts, settings, and other kinds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from odradek.broker.composition import Broker
from odradek.broker.groups.streams.configured import StatusCode
from odradek.broker.topics.plans import NewTopic
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.describe_groups import DescribeGroupsRequest
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.list_groups import ListGroupsRequest
from odradek.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from odradek.protocol.messages.streams_group_describe import StreamsGroupDescribeRequest
from odradek.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    Topology,
)
from odradek.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.broker.live import Client, client, live, on_uvloop, until
from tests.broker.streams_topologies import counting, stateless, subtopology, topic
from tests.broker.web import get, request, serving
from tests.support.requests import altering

SETTINGS = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
}
GROUP_TYPE = 32


def joining(topology: Topology, member: str = "m", group: str = "g") -> Any:
    return StreamsGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=0, rebalance_timeout_ms=60_000,
        topology=topology, active_tasks=[], standby_tasks=[], warmup_tasks=[],
        process_id=member,
    )  # fmt: skip


async def follow(one: Client, answer: Any, group: str = "g") -> Any:
    """Send the next heartbeat of a member."""
    request = StreamsGroupHeartbeatRequest(
        group_id=group, member_id=answer.member_id, member_epoch=answer.member_epoch
    )
    return await one.ask(request, version=0)


async def describe(one: Client, group: str = "g") -> Any:
    request = StreamsGroupDescribeRequest(group_ids=[group])
    return (await one.ask(request, version=0)).groups[0]


def codes(answer: Any) -> list[int]:
    return [status.status_code for status in answer.status or ()]


async def create(broker: Broker, name: str, count: int = 2) -> None:
    await broker.topics.create([NewTopic(name, count)])


async def begin_counting(broker: Broker, one: Client) -> Any:
    """Let a member of a counting application join, and get its tasks."""
    await create(broker, "in")
    answer = await one.ask(joining(counting("app", "in")), version=0)
    assert codes(answer) == [StatusCode.MISSING_INTERNAL_TOPICS]
    names = ("app-counts-changelog", "app-words-repartition")
    await until(lambda: all(map(broker.topics.get, names)), "the topics are there")
    answer = await follow(one, answer)
    assert not answer.status
    return answer


@on_uvloop
async def test_internal_topics_are_created_and_then_tasks_assigned(tmp_path: Path) -> None:
    async with live(tmp_path, SETTINGS) as broker, client(broker) as one:
        answer = await begin_counting(broker, one)
        assert [(t.subtopology_id, t.partitions) for t in answer.active_tasks] == [
            ("0", [0, 1]),
            ("1", [0, 1]),
        ]
        repartition = broker.topics.get("app-words-repartition")
        assert repartition is not None
        assert len(repartition.partitions) == 2
        assert repartition.config.retention_ms == -1
        described = await describe(one)
        assert described.group_state == "Stable"
        assert [len(s.state_changelog_topics) for s in described.topology.subtopologies] == [0, 1]


@on_uvloop
async def test_groups_are_shown_over_http_and_in_the_metrics(tmp_path: Path) -> None:
    async with serving(tmp_path, SETTINGS) as broker, client(broker) as one:
        await begin_counting(broker, one)
        group = await get(broker, "/api/group", group="g")
        _, metrics = await request(broker, "GET", "/metrics")
        assert (group["type"], group["state"]) == ("streams", "Stable")
        assert [member["partitions"] for member in group["members"]] == [4]
        name = "kafka_server_group_coordinator_metrics_streams_group_count"
        assert f'{name}{{state="Stable"}} 1.0' in metrics.decode()


@on_uvloop
async def test_a_restart_keeps_the_group(tmp_path: Path) -> None:
    async with live(tmp_path, SETTINGS) as broker, client(broker) as one:
        answer = await begin_counting(broker, one)
        before = await describe(one)
    async with live(tmp_path, SETTINGS) as broker, client(broker) as one:
        again = await follow(one, answer)
        assert (again.error_code, again.member_epoch) == (0, answer.member_epoch)
        assert await describe(one) == before


@on_uvloop
async def test_a_topic_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    async with live(tmp_path, SETTINGS) as broker, client(broker) as one:
        await create(broker, "in")
        bad = topic("app-store-changelog", 0, {"retention.ms": "much"})
        topology = Topology(
            epoch=0, subtopologies=[subtopology("0", ["in"], changelogs=[bad])]
        )
        answer = await one.ask(joining(topology), version=0)
        errors = broker.streams_groups.internal_topics.errors
        await until(lambda: errors(["app-store-changelog"]), "the creation has failed")
        answer = await follow(one, answer)
        (status,) = answer.status
        assert "Internal topics are missing: app-store-changelog; " in status.status_detail
        assert "Creation failed: app-store-changelog (" in status.status_detail


@on_uvloop
async def test_a_new_group_waits_for_more_members(tmp_path: Path) -> None:
    settings = {**SETTINGS, "group.streams.initial.rebalance.delay.ms": "300000"}
    async with live(tmp_path, settings) as broker, client(broker) as one:
        await create(broker, "in")
        answer = await one.ask(joining(stateless("in")), version=0)
        assert codes(answer) == [StatusCode.ASSIGNMENT_DELAYED]
        assert answer.active_tasks == []
        own = {
            "streams.initial.rebalance.delay.ms": "0",
            "streams.num.standby.replicas": "1",
        }
        changed = await one.ask(altering("h", own, GROUP_TYPE), version=1)
        assert changed.responses[0].error_code == 0
        answer = await one.ask(joining(stateless("in"), group="h"), version=0)
        assert [t.partitions for t in answer.active_tasks] == [[0, 1]]
        group = broker.groups.runtime.machine_of("h").streams.get("h")  # type: ignore[union-attr]
        assert group.last_configs == {"num.standby.replicas": "1"}


@on_uvloop
async def test_requests_of_other_kinds_are_refused(tmp_path: Path) -> None:
    async with live(tmp_path, SETTINGS) as broker, client(broker) as one:
        await begin_counting(broker, one)
        consumer = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="c", member_epoch=0, rebalance_timeout_ms=1,
            subscribed_topic_names=["in"], topic_partitions=[],
        )  # fmt: skip
        answer = await one.ask(consumer, version=1)
        assert answer.error_message == "Group g is not a consumer group."
        share = ShareGroupHeartbeatRequest(
            group_id="g", member_id="s", member_epoch=0, subscribed_topic_names=["in"]
        )
        answer = await one.ask(share, version=1)
        assert answer.error_message == "Group g is not a share group."
        classic = JoinGroupRequest(
            group_id="g", session_timeout_ms=10_000, rebalance_timeout_ms=1, member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )  # fmt: skip
        answer = await one.ask(classic, version=9)
        assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        describing = ConsumerGroupDescribeRequest(
            group_ids=["g"], include_authorized_operations=False
        )
        described = await one.ask(describing, version=1)
        assert described.groups[0].error_message == "Group g is not a consumer group."
        described = await one.ask(DescribeGroupsRequest(groups=["g"]), version=6)
        assert described.groups[0].error_message == "Group g is not a classic group."
        listed = await one.ask(ListGroupsRequest(types_filter=["streams"]), version=5)
        assert [(g.group_id, g.group_type, g.protocol_type) for g in listed.groups] == [
            ("g", "streams", "streams")
        ]
        deleted = await one.ask(DeleteGroupsRequest(groups_names=["g"]), version=2)
        assert deleted.results[0].error_code == ErrorCode.NON_EMPTY_GROUP


@on_uvloop
async def test_an_empty_group_can_be_deleted_or_become_a_classic_one(tmp_path: Path) -> None:
    async with live(tmp_path, SETTINGS) as broker, client(broker) as one:
        await create(broker, "in")
        for group in ("g", "h"):
            answer = await one.ask(joining(stateless("in"), group=group), version=0)
            answer.member_epoch = -1
            assert (await follow(one, answer, group)).error_code == 0
            assert (await describe(one, group)).group_state == "Empty"
        deleted = await one.ask(DeleteGroupsRequest(groups_names=["g"]), version=2)
        assert deleted.results[0].error_code == 0
        assert (await describe(one)).error_message == "Group g not found."
        classic = JoinGroupRequest(
            group_id="h", session_timeout_ms=10_000, rebalance_timeout_ms=1_000, member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )  # fmt: skip
        assert (await one.ask(classic, version=3)).error_code == 0
        assert (await describe(one, "h")).error_message == "Group h is not a streams group."
    async with live(tmp_path, SETTINGS) as broker, client(broker) as one:
        assert (await describe(one)).error_message == "Group g not found."
        assert (await describe(one, "h")).error_message == "Group h is not a streams group."


@on_uvloop
async def test_nothing_is_served_without_the_feature(tmp_path: Path) -> None:
    async with live(tmp_path, SETTINGS) as broker, client(broker) as one:
        update = FeatureUpdateKey(feature="streams.version", max_version_level=0, upgrade_type=2)
        request = UpdateFeaturesRequest(feature_updates=[update])
        assert (await one.ask(request, version=2)).error_code == 0
        answer = await one.ask(joining(stateless("in")), version=0)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert (await describe(one)).error_code == ErrorCode.UNSUPPORTED_VERSION
