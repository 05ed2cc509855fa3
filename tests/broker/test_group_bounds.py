"""What clients may make the broker keep for groups, by names that they make up."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import re2

from odradek.broker.coordination.deadlines import Deadlines
from odradek.broker.coordination.effects import Caller
from odradek.broker.coordination.expressions import compile_expression
from odradek.broker.groups import joining
from odradek.broker.groups.consumer.expressions import EXPRESSIONS_MAX, match_all
from odradek.broker.groups.modern.subscriptions import NAMES_MAX
from odradek.broker.groups.shard import Shard
from odradek.broker.groups.share.groups import ShareGroups
from odradek.broker.groups.share.heartbeats import HeartbeatAnswer
from odradek.protocol.compiler import encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.broker.consumer_world import ConsumerWorld
from tests.broker.group_world import World
from tests.broker.live import client, live, on_uvloop

# Takes RE2 some megabytes when they are let.
LARGE = 100 * "a{1000}"


def kept_count() -> int:
    made: Any = re2._Regexp
    return int(made._make.cache_info().currsize)


def test_timers_that_come_and_go_leave_nothing() -> None:
    deadlines: Deadlines[int] = Deadlines()
    for key in range(20_000):
        deadlines.set(key, 1_800.0 + key)
        if key >= 10:
            deadlines.cancel(key)
    assert len(deadlines) == 10
    assert len(deadlines._heap) <= 1_100
    assert len(deadlines._queued) <= 1_100
    assert [deadlines.pop(10_000) for _ in range(11)] == [*range(10), None]


def test_newcomers_that_do_not_come_back_make_room_for_others() -> None:
    world = World()
    with mock.patch.object(joining, "PENDING_MAX", 3):
        ids = [world.answer(world.join(client_id="c")).member_id for _ in range(5)]
    group = next(iter(world.shard.groups.values()))
    assert list(group.membership.pending_joins) == ids[2:]
    assert [timer.member_id for timer in world.timers] == ids[2:]
    assert world.error(world.join(ids[0])) is ErrorCode.UNKNOWN_MEMBER_ID
    world.join(ids[2])
    assert list(group.membership.members) == [ids[2]]


def test_compiled_expressions_are_bounded_and_not_kept() -> None:
    for number in range(10):
        assert compile_expression(f"t{number}a{{900}}").fullmatch("t") is None
    assert kept_count() == 0
    with pytest.raises(re2.error):
        compile_expression(LARGE)
    assert kept_count() == 0


def test_an_expression_of_thousands_of_classes_is_refused_at_once() -> None:
    begun = time.thread_time()
    with pytest.raises(re2.error, match="too large"):
        compile_expression("(?i)" + 5_000 * r"\PL")
    # RE2 takes most of a second to refuse it.
    assert time.thread_time() - begun < 0.1


def test_expressions_of_many_names_and_of_letters_of_all_scripts_are_not_too_large() -> None:
    names = [f"some.topic.name-{number}" for number in range(1_600)]
    every = "|".join(names)
    assert len(every) > 32_000
    letters = "(?i)" + 20 * r"[\pL\pN._-]*"
    assert set(match_all([every, letters], names).values()) == {frozenset(names)}


def subscribe(world: ConsumerWorld, number: int, **options: Any) -> ErrorCode:
    answer = world.heartbeat(
        f"m{number}", 0, rebalance_timeout_ms=1_000, topic_partitions=[], **options
    )
    return ErrorCode(answer.error_code)


def test_a_group_has_room_for_so_many_expressions() -> None:
    world = ConsumerWorld()
    told = [
        subscribe(world, number, subscribed_topic_regex=f"t{number}")
        for number in range(EXPRESSIONS_MAX + 1)
    ]
    refused = ErrorCode.INVALID_REGULAR_EXPRESSION
    assert told == EXPRESSIONS_MAX * [ErrorCode.NONE] + [refused]
    assert subscribe(world, 99, subscribed_topic_regex="t0") is ErrorCode.NONE
    assert subscribe(world, 0, subscribed_topic_regex=LARGE) is refused


def test_a_group_has_room_for_so_many_topics_that_do_not_exist() -> None:
    world = ConsumerWorld()
    for number in range(2):
        half = [f"{number}-{n}" for n in range(NAMES_MAX // 2)]
        assert subscribe(world, number, subscribed_topic_names=half) is ErrorCode.NONE
    assert subscribe(world, 2, subscribed_topic_names=["one more"]) is ErrorCode.INVALID_REQUEST
    assert subscribe(world, 2, subscribed_topic_names=["1-1"]) is ErrorCode.NONE


def test_a_group_may_read_all_topics_that_there_are() -> None:
    world = ConsumerWorld()
    count = NAMES_MAX + 5
    every = {f"t{n}": (n.to_bytes(16), 1) for n in range(count)}
    world.topics.by_name.clear()
    world.topics.by_name.update(every)
    with mock.patch.object(type(world.topics), "name_of", lambda _, topic_id: None):
        assert subscribe(world, 0, subscribed_topic_names=list(every)) is ErrorCode.NONE
        refused = subscribe(world, 1, subscribed_topic_names=["not there"])
    assert refused is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("names", [["t"], [f"a{n}" for n in range(NAMES_MAX + 1)]])
def test_a_share_group_has_room_for_as_many(names: list[str]) -> None:
    world = ConsumerWorld()
    request = ShareGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, subscribed_topic_names=names
    )
    world.perform(world.shard.shares.heartbeat(request, Caller("asked", 1), world.now_ms))
    answer = world.replies["asked"]
    assert isinstance(answer, HeartbeatAnswer)
    expected = ErrorCode.INVALID_REQUEST if len(names) > NAMES_MAX else ErrorCode.NONE
    assert answer.response.error_code == expected
    assert (world.shard.shares.get("g") is None) == (expected != ErrorCode.NONE)


def test_a_classic_group_that_cannot_be_converted_goes_on_as_it_was() -> None:
    world = ConsumerWorld()
    names = [f"a{n}" for n in range(NAMES_MAX)]
    join = JoinGroupRequest(
        group_id="g", session_timeout_ms=10_000, rebalance_timeout_ms=10_000, member_id="",
        protocol_type="consumer", protocols=[
            JoinGroupRequestProtocol(name="range", metadata=_subscription(names))
        ],
    )  # fmt: skip
    world.ask("join", join, 3)
    world.pass_time(3_001)
    state = world.shard.groups["g"].state
    assert subscribe(world, 1, subscribed_topic_names=["b"]) is ErrorCode.INVALID_REQUEST
    group = world.shard.groups["g"]
    assert (group.state, len(group.membership)) == (state, 1)
    assert subscribe(world, 1, subscribed_topic_names=["a1"]) is ErrorCode.NONE


def _subscription(names: list[str]) -> bytes:
    value = ConsumerProtocolSubscription(topics=names)
    return b"\0\0" + encode(value, 0)


@on_uvloop
async def test_names_that_no_group_has_room_for_are_refused_without_a_decision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decide(*_: object) -> None:
        pytest.fail("a group was asked")

    monkeypatch.setattr(Shard, "consumer_heartbeat", decide)
    monkeypatch.setattr(ShareGroups, "heartbeat", decide)
    names = [f"a{n}" for n in range(NAMES_MAX + 1)]
    joining = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", member_epoch=0, rebalance_timeout_ms=10_000,
        subscribed_topic_names=names, topic_partitions=[],
    )  # fmt: skip
    sharing = ShareGroupHeartbeatRequest(
        group_id="s", member_id="m", member_epoch=0, subscribed_topic_names=names
    )
    async with live(tmp_path) as broker, client(broker) as one:
        for request in (joining, sharing):
            answer = await one.ask(request, version=1)
            assert answer.error_code == ErrorCode.INVALID_REQUEST
            assert answer.error_message is not None
            assert f"{len(names)} topics" in answer.error_message
