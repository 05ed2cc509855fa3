"""odradek groups, on Odradek and on Apache Kafka."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer

from tests.cli.commands import Commands, filled, fresh

pytestmark = pytest.mark.slow
PATIENCE_S = 60.0


@pytest.fixture
def topic(commands: Commands) -> str:
    return filled(commands, "prices")


@contextmanager
def _member(commands: Commands, group: str, topic: str, protocol: str) -> Iterator[None]:
    """Have a member of a group with partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": commands.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": "a-member",
        }
    )
    try:
        consumer.subscribe([topic])
        deadline_s = time.monotonic() + PATIENCE_S
        while not consumer.assignment():
            consumer.poll(0.1)
            assert time.monotonic() < deadline_s
        yield
    finally:
        consumer.close()


def _described(commands: Commands, group: str) -> dict[str, Any]:
    (found,) = commands.document("groups", "describe", group)["groups"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_is_listed_and_described_with_its_members(
    protocol: str, commands: Commands, topic: str
) -> None:
    group = fresh("billing")
    with _member(commands, group, topic, protocol):
        listed = commands.shown("groups", "list")
        assert re.search(rf"^{group} +stable +{protocol}$", listed, re.M)
        found = _described(commands, group)
        assert (found["state"], found["type"]) == ("STABLE", protocol.upper())
        (member,) = found["members"]
        assert member["client"] == "a-member"
        assert {(one["topic"], one["partition"]) for one in member["partitions"]} == {
            (topic, 0),
            (topic, 1),
        }
        assert {one["member"] for one in found["offsets"]} == {member["member"]}
        assert "1 member" in commands.shown("groups", "describe", group)
        assert "has members" in commands.refusal("groups", "delete", group, "--yes")
        moved = ("groups", "reset-offsets", group, "--topic", topic, "--to", "end")
        assert "has members" in commands.refusal(*moved)
    commands.shown("groups", "reset-offsets", group, "--topic", topic, "--to", "1")
    assert [one["lag"] for one in _described(commands, group)["offsets"]] == [4, 4]
    assert commands.shown("groups", "delete", group, "--yes") == f"{group}: deleted\n"
    assert group not in commands.shown("groups", "list")


def test_the_lag_of_a_partition_without_a_commit_counts_from_the_earliest_offset(
    commands: Commands, topic: str
) -> None:
    group = fresh("billing")
    moved = ("groups", "reset-offsets", group, "--topic", topic, "--to", "3")
    commands.shown(*moved)
    assert "*" not in commands.shown("groups", "describe", group)
    commands.shown("groups", "delete", group, "--yes")
    commands.shown(*moved, "--partition", "0")
    commands.shown("records", "delete", topic, "--before", "1", "--partition", "1", "--yes")
    first, second = _described(commands, group)["offsets"]
    assert (first["committed_offset"], first["lag"], first["lag_from"]) == (3, 2, "commit")
    assert (second["committed_offset"], second["lag"], second["lag_from"]) == (None, 4, "earliest")
    assert second["end_offset"] == 5
    shown = commands.shown("groups", "describe", group)
    assert re.search(rf"^{topic} +0 +3 +5 +2 +-$", shown, re.M)
    assert re.search(rf"^{topic} +1 +- +5 +4\* +-$", shown, re.M)
    (note,) = [line for line in shown.splitlines() if line.startswith("*")]
    assert "no offset is committed" in note and "auto.offset.reset" in note


def test_a_name_that_would_write_lines_is_a_line(commands: Commands, topic: str) -> None:
    group = fresh("evil\x1b]0;owned\x07\nbilling  stable")
    written = group.replace("\x1b", r"\x1b").replace("\x07", r"\x07").replace("\n", r"\n")
    commands.shown("groups", "reset-offsets", group, "--topic", topic, "--to", "end")
    assert commands.shown("groups", "list").count(f"{written} ") == 1
    assert commands.shown("groups", "describe", group).startswith(f"{written}  ")
    assert commands.document("groups", "describe", group)["groups"][0]["group"] == group
    assert commands.shown("groups", "delete", group, "--yes") == f"{written}: deleted\n"
    assert r"evil\x1b]0;owned\x07 " in commands.refusal("groups", "describe", group)


def test_offsets_go_where_they_are_sent(commands: Commands, topic: str) -> None:
    group = fresh("billing")

    def reset(*arguments: str) -> list[tuple[int | None, int]]:
        found = commands.document("groups", "reset-offsets", group, "--topic", topic, *arguments)
        return [(one["before"], one["after"]) for one in found["offsets"]]

    assert reset("--to", "end", "--dry-run") == [(None, 5), (None, 5)]
    assert reset("--to", "3") == [(None, 3), (None, 3)]
    assert reset("--to", "-1", "--partition", "1") == [(3, 4)]
    assert reset("--to", "beginning") == [(3, 0), (4, 0)]
    assert reset("--to", "@1970-01-01") == [(0, 0), (0, 0)]
    assert reset("--to", "99") == [(0, 5), (0, 5)]
    shown = commands.shown("consume", topic, "--group", group, "--to", "end")
    assert shown == ""


def test_a_group_that_is_not_there_is_named_with_those_like_it(
    commands: Commands, topic: str
) -> None:
    group = fresh("accounting")
    commands.shown("groups", "reset-offsets", group, "--topic", topic, "--to", "end")
    wrong = f"acounting-{group.rpartition('-')[2]}"
    for command in (("describe",), ("delete", "--yes")):
        line = commands.refusal("groups", command[0], wrong, *command[1:])
        assert line.startswith(f"odradek: there is no group {wrong}: did you mean ")
        assert group in line
