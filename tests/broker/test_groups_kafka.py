"""Our records of __consumer_offsets, read by Apache Kafka's own code."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.groups.records import (
    CommittedOffset,
    GroupRecord,
    KeyValue,
    OffsetRecord,
    encode_record,
)
from odradek.broker.groups.registry import OwnConfigs
from odradek.broker.groups.share.groups import default_config
from odradek.broker.groups.streams.turn import StreamsGroupConfig
from odradek.broker.orders.java import partition_for
from odradek.protocol.messages.streams_group_heartbeat import (
    Endpoint,
    StreamsGroupHeartbeatRequest,
)
from odradek.protocol.messages.streams_group_heartbeat import KeyValue as Tag
from tests.broker.consumer_world import ConsumerWorld
from tests.broker.group_world import World
from tests.broker.streams_topologies import counting
from tests.support.java import program

pytestmark = pytest.mark.kafka

ORACLE = Path(__file__).with_name("GroupRecordsOracle.java")


def ask(lines: list[str]) -> list[list[str]]:
    """Ask Kafka's code; return its answers, split at tabs."""
    done = subprocess.run(
        program(ORACLE, flags=["-Dstdout.encoding=UTF-8"]),
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        check=True,
        encoding="utf-8",
        timeout=240,
    )
    return [line.split("\t") for line in done.stdout.splitlines()]


def as_line(record: KeyValue) -> str:
    key, value = record
    return f"{_text(key)}\t{'-' if value is None else _text(value)}"


def test_kafka_reads_our_records_and_would_write_the_same_bytes() -> None:
    world = World()
    world.join(instance="static-ä")
    world.join_new(client_id="dynamic 🦉")
    world.pass_time(9_000)
    member_id = world.group().membership.leader_id or ""
    world.sync(member_id, 1, {member_id: b"\x00\xff"}, instance="static-ä")
    world.commit({("t", 0): 7}, member_id=member_id, generation=1, metadata="nötig 🦉")
    world.leave(*world.group().membership.members)
    world.log += [
        encode_record(
            OffsetRecord("g", "t", 1, CommittedOffset(9, 4, "", 5, -1, bytes(range(16))))
        ),
        encode_record(OffsetRecord("g", "t", 2, CommittedOffset(9, -1, "m", 5, 77))),
        encode_record(OffsetRecord("g", "t", 3, None)),
        encode_record(GroupRecord("g", None)),
    ]
    answers = ask([as_line(record) for record in world.log])
    assert [same for same, _, _ in answers] == ["true"] * len(world.log)
    values = [json.loads(value) for _, _, value in answers]
    generation = values[1]
    assert generation["generation"] == 1 and generation["leader"] == member_id
    assert [m["groupInstanceId"] for m in generation["members"]] == ["static-ä", None]
    assert values[2]["metadata"] == "nötig 🦉"
    assert values[-3]["expireTimestamp"] == 77
    assert values[-2:] == [None, None]


def test_groups_live_in_the_partition_where_kafka_puts_them() -> None:
    groups = [
        "",
        "a",
        "console-consumer-31337",
        "Übergrüße",
        "🦉🦉",
        "x" * 500,
        "polygenelubricants",
    ]
    answers = ask([f"hash\t{group}\t{count}" for group in groups for count in (1, 7, 50)])
    ours = [partition_for(group, count) for group in groups for count in (1, 7, 50)]
    assert [int(answer) for (answer,) in answers] == ours


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_kafka_reads_our_records_of_consumer_groups_and_would_write_the_same_bytes() -> None:
    world = ConsumerWorld()
    told = {"rebalance_timeout_ms": 9_000, "subscribed_topic_names": ["t", "absent"]}
    world.heartbeat("a", 0, rack_id="r", server_assignor="range", topic_partitions=[], **told)
    world.heartbeat(
        "b", 0, instance_id="i", subscribed_topic_regex="t.*", topic_partitions=[], **told
    )
    world.pass_time(20)
    world.heartbeat("a", 2)
    world.heartbeat("b", -2, instance_id="i")
    world.heartbeat("a", -1)
    answers = ask([as_line(record) for record in world.log])
    assert {same for same, _, _ in answers} == {"true"}
    names = {json.loads(key).get("regularExpression") for _, key, _ in answers}
    assert "t.*" in names


def test_kafka_reads_our_records_of_streams_groups_and_would_write_the_same_bytes() -> None:
    config = StreamsGroupConfig(assignment_interval_ms=0, initial_delay_ms=0, standby_count=1)
    world = ConsumerWorld(own=OwnConfigs(default_config, lambda group_id: config))
    for name in ("t", "app-words-repartition", "app-counts-changelog"):
        world.grow(name, 4, name[-16:].encode().ljust(16))

    def heartbeat(member_id: str, epoch: int, **fields: Any) -> None:
        request = StreamsGroupHeartbeatRequest(
            group_id="g", member_id=member_id, member_epoch=epoch, **fields
        )
        world.ask("streams.heartbeat", request, 0)

    for member_id in ("a", "ä"):
        heartbeat(
            member_id, 0, rebalance_timeout_ms=9_000, topology=counting("app", "t"),
            active_tasks=[], standby_tasks=[], warmup_tasks=[], process_id=f"p-{member_id}",
            rack_id="r", user_endpoint=Endpoint(host="h", port=65_535),
            client_tags=[Tag(key="zone", value="🦉")],
        )  # fmt: skip
    heartbeat("a", 2)
    heartbeat("a", -1)
    group = world.shard.streams.get("g")
    assert group is not None
    world.log += [encode_record(record) for record in world.shard.streams.tombstones(group)]
    answers = ask([as_line(record) for record in world.log])
    assert {same for same, _, _ in answers} == {"true"}
    kinds = {int.from_bytes(key[:2], "big") for key, _ in world.log}
    assert kinds == {17, 19, 20, 21, 22, 23}
