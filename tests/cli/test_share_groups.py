"""odradek share-groups, on Odradek and on Apache Kafka; groups of other types in `groups`."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import ShareConsumer

from tests.cli.commands import Commands, filled, fresh
from tests.cli.test_completion import completed
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
# Kafka's defaults are for three brokers.
SETTINGS = {
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    # A member gets its partitions with its second heartbeat.
    "group.share.heartbeat.interval.ms": "300",
    "group.share.min.heartbeat.interval.ms": "300",
}
PATIENCE_S = 60.0


@pytest.fixture
def topic(commands: Commands) -> str:
    return filled(commands, "orders")


@contextmanager
def _member(commands: Commands, group: str, topic: str, count: int) -> Iterator[None]:
    """Have a member of a group that has read and acknowledged some records."""
    earliest = "share.auto.offset.reset=earliest"
    commands.shown("configs", "alter", "--group", group, "--set", earliest)
    consumer = ShareConsumer(
        {
            "bootstrap.servers": commands.bootstrap,
            "group.id": group,
            "client.id": "a-member",
            "log_level": 0,
        }
    )
    try:
        consumer.subscribe([topic])
        got, deadline_s = 0, time.monotonic() + PATIENCE_S
        while got < count:
            got += len(consumer.poll(0.5))
            assert time.monotonic() < deadline_s
        consumer.commit_sync()
        yield
    finally:
        consumer.close()


@pytest.fixture
def group(commands: Commands, topic: str) -> str:
    """A group without members that has read all records of the topic."""
    name = fresh("jobs")
    with _member(commands, name, topic, count=10):
        pass
    wait_until(lambda: _described(commands, name)["state"] == "EMPTY", "its member has left")
    return name


def _described(commands: Commands, group: str) -> dict[str, Any]:
    (found,) = commands.document("share-groups", "describe", group)["groups"]
    assert isinstance(found, dict)
    return found


def _starts(commands: Commands, group: str) -> list[int | None]:
    return [one["start_offset"] for one in _described(commands, group)["offsets"]]


def test_a_group_is_listed_and_described_with_its_members(
    commands: Commands, topic: str
) -> None:
    group = fresh("jobs")
    with _member(commands, group, topic, count=10):
        assert re.search(rf"^{group} +stable$", commands.shown("share-group", "list"), re.M)
        found = _described(commands, group)
        assert (found["state"], found["coordinator"]) == ("STABLE", 1)
        (member,) = found["members"]
        assert (member["client"], member["topics"]) == ("a-member", [topic])
        both = [{"topic": topic, "partition": number} for number in range(2)]
        assert sorted(member["partitions"], key=lambda one: one["partition"]) == both
        assert "stable, 1 member" in commands.shown("share-groups", "describe", group)
        for command in (
            ("delete", group, "--yes"),
            ("reset-offsets", group, "--topic", topic, "--to", "end"),
            ("delete-offsets", group, "--topic", topic, "--yes"),
        ):
            assert "NON_EMPTY_GROUP" in commands.refusal("share-groups", *command)


def test_offsets_go_where_they_are_sent(commands: Commands, topic: str, group: str) -> None:
    def reset(*arguments: str) -> list[tuple[int | None, int]]:
        found = commands.document(
            "share-groups", "reset-offsets", group, "--topic", topic, *arguments
        )
        return [(one["before"], one["after"]) for one in found["offsets"]]

    # The brokers move a stored start when they store something else.
    assert [one["lag"] for one in _described(commands, group)["offsets"]] == [0, 0]
    assert reset("--to", "end", "--dry-run") == [(0, 5), (0, 5)]
    assert _starts(commands, group) == [0, 0]
    assert reset("--to", "3") == [(0, 3), (0, 3)]
    assert reset("--to", "-1", "--partition", "1") == [(3, 4)]
    assert _starts(commands, group) == [3, 4]
    assert [one["lag"] for one in _described(commands, group)["offsets"]] == [2, 1]
    assert reset("--to", "@1970-01-01") == [(3, 0), (4, 0)]
    shown = commands.shown("share-groups", "describe", group)
    assert re.search(rf"^{topic} +1 +0 +5$", shown, re.M)


def test_offsets_of_a_topic_are_deleted(commands: Commands, topic: str, group: str) -> None:
    result = commands.run("share-groups", "delete-offsets", group, "--topic", topic, text="n\n")
    assert f"Delete the offsets of share group {group} in {topic}?" in result.stderr
    deleted = commands.document("share-groups", "delete-offsets", group, "--topic", topic, "--yes")
    assert deleted == {"group": group, "topics": [{"topic": topic, "outcome": "deleted"}]}
    assert _starts(commands, group) == []
    assert "It has no offsets." in commands.shown("share-groups", "describe", group)


def test_a_group_is_deleted(commands: Commands, group: str) -> None:
    result = commands.run("share-groups", "delete", group, text="n\n")
    assert f"Delete {group} with the offsets?" in result.stderr
    assert commands.shown("share-groups", "delete", group, "--yes") == f"{group}: deleted\n"
    assert group not in commands.shown("share-groups", "list")


def test_a_group_that_is_not_there_is_named_with_those_like_it(
    commands: Commands, topic: str, group: str
) -> None:
    wrong = f"jbos-{group.rpartition('-')[2]}"
    for command in (
        ("describe", wrong),
        ("delete", wrong, "--yes"),
        ("reset-offsets", wrong, "--topic", topic, "--to", "end"),
    ):
        line = commands.refusal("share-groups", *command)
        assert line.startswith(f"odradek: there is no share group {wrong}: did you mean ")
        assert group in line


def test_groups_of_other_types_are_listed_and_have_their_own_commands(
    commands: Commands, topic: str, group: str
) -> None:
    consumers = fresh("billing")
    commands.shown("groups", "reset-offsets", consumers, "--topic", topic, "--to", "end")
    listed = {one["group"]: one for one in commands.document("groups", "list")["groups"]}
    assert listed[group] == {"group": group, "state": "EMPTY", "type": "SHARE"}
    assert listed[consumers] == {"group": consumers, "state": "EMPTY", "type": "CLASSIC"}
    line = commands.refusal("groups", "delete", group, "--yes")
    assert line == f"odradek: {group} is a share group: use odradek share-groups"
    assert "use odradek share-groups" in commands.refusal("groups", "describe", group)
    line = commands.refusal("share-groups", "delete", consumers, "--yes")
    assert f"there is no share group {consumers}" in line


def test_share_groups_are_completed(
    commands: Commands, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odradek.cli.completion._TIMEOUT_S", PATIENCE_S)
    assert completed(commands.bootstrap, "share-groups", "describe", group) == [group]
