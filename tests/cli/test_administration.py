"""odradek records and users; the names by which users of other tools call options and commands."""

from __future__ import annotations

import json

import pytest

from tests.cli.commands import Commands, fresh
from tests.cli.conftest import AnyBroker

pytestmark = pytest.mark.slow


def _starts(commands: Commands, topic: str, *arguments: str) -> list[tuple[int, int]]:
    document = commands.document("records", "delete", topic, *arguments)
    return [(one["before"], one["after"]) for one in document["start_offsets"]]


def _filled(commands: Commands, count: int, partitions: int = 1) -> str:
    topic = fresh("trimmed")
    commands.shown("topics", "create", topic, "--partitions", str(partitions))
    for number in range(partitions):
        lines = "".join(f"{one}\n" for one in range(count))
        commands.shown("produce", topic, "--partition", str(number), text=lines)
    return topic


def test_records_before_an_offset_are_deleted(commands: Commands) -> None:
    topic = _filled(commands, 10)
    assert _starts(commands, topic, "--before", "4", "--dry-run") == [(0, 4)]
    assert _starts(commands, topic, "--before", "4", "--yes") == [(0, 4)]
    values = commands.shown("consume", topic, "--from", "beginning", "--to", "end").split()
    assert values == [str(one) for one in range(4, 10)]


def test_a_start_never_moves_back(commands: Commands) -> None:
    topic = _filled(commands, 10)
    assert _starts(commands, topic, "--before", "-3", "--yes") == [(0, 7)]
    assert _starts(commands, topic, "--before", "2", "--yes") == [(7, 7)]
    assert "Nothing was changed." in commands.shown("records", "delete", topic, "--before", "2")


def test_one_partition_is_trimmed_and_the_others_stay(commands: Commands) -> None:
    topic = _filled(commands, 5, partitions=3)
    assert _starts(commands, topic, "--before", "end", "--partition", "1", "--yes") == [(0, 5)]
    assert _starts(commands, topic, "--before", "end", "--dry-run") == [(0, 5), (5, 5), (0, 5)]
    refused = commands.refusal("records", "delete", topic, "--before", "1", "--partition", "3")
    assert refused == f"odradek: {topic} has no partition 3: it has 3, from 0"


def test_deleting_asks_first(commands: Commands) -> None:
    topic = _filled(commands, 3)
    result = commands.run("records", "delete", topic, "--before", "2", text="n\n")
    assert f"Delete 2 offsets of {topic} for good?" in result.stderr
    assert _starts(commands, topic, "--before", "1", "--dry-run") == [(0, 1)]


def test_a_compacted_topic_says_what_to_do_instead(commands: Commands) -> None:
    topic = fresh("compacted")
    commands.shown("topics", "create", topic, "--compact")
    commands.shown("produce", topic, "--key", "k", text="v\n")
    refused = commands.refusal("records", "delete", topic, "--before", "end", "--yes")
    assert "write tombstones, or set cleanup.policy=compact,delete" in refused


def test_a_user_is_created_listed_and_deleted(commands: Commands) -> None:
    name = fresh("ann")
    created = commands.shown("users", "create", name, "--password-stdin", text="secret\n")
    assert created == f"{name}: may log in by SCRAM-SHA-256 and SCRAM-SHA-512\n"
    assert _credentials(commands, name) == {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192}
    commands.shown(
        "users", "create", name, "--mechanism", "scram-sha-512", "--iterations", "4096",
        "--password-stdin", text="another\n",
    )  # fmt: skip
    commands.shown("users", "delete", name, "--mechanism", "scram-sha-256", "--yes")
    assert _credentials(commands, name) == {"SCRAM-SHA-512": 4096}
    assert name in commands.shown("user", "list")
    commands.shown("users", "delete", name, "--yes")
    assert _credentials(commands, name) == {}


def test_a_user_that_does_not_exist_is_reported(commands: Commands) -> None:
    name = fresh("nobody")
    assert f"there is no user {name}" in commands.refusal("users", "delete", name, "--yes")
    refused = commands.refusal("users", "create", name, "--password-stdin", text="\n")
    assert refused == "odradek: the password is empty"


@pytest.mark.parametrize("name", ["-b", "--bootstrap-server", "--brokers", "--bootstrap-servers"])
def test_addresses_may_stand_before_the_command_and_after_it(
    broker: AnyBroker, name: str
) -> None:
    elsewhere = Commands("127.0.0.1:1")
    topic = fresh("named")
    elsewhere.shown(name, broker.bootstrap, "topic", "create", topic)
    listed = elsewhere.shown("topics", "list", name, broker.bootstrap)
    assert topic in listed
    # The one nearer to the command counts.
    assert topic in elsewhere.shown(name, "127.0.0.1:2", "topics", "list", name, broker.bootstrap)


def test_other_names_of_commands_are_understood(commands: Commands) -> None:
    for words in (["group", "list"], ["cluster", "info"], ["topic", "list"], ["user", "list"]):
        json.loads(commands.shown(*words, "--json"))


def _credentials(commands: Commands, name: str) -> dict[str, int]:
    users = commands.document("users", "list")["users"]
    found = next((one["credentials"] for one in users if one["user"] == name), [])
    return {one["mechanism"]: one["iterations"] for one in found}
