"""odradek quotas, on Odradek and on Apache Kafka."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.commands import Commands, fresh
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


def _listed(commands: Commands, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = commands.document("quotas", "list", *arguments)["quotas"]
    return found


def test_a_quota_is_set_listed_and_deleted(commands: Commands) -> None:
    user = fresh("ann")
    changed = commands.document(
        "quotas", "set", "--user", user, "producer_byte_rate=1048576", "request_percentage=12.5"
    )
    assert changed == {
        "entity": {"user": user},
        "dry_run": False,
        "quotas": [
            {"quota": "producer_byte_rate", "before": None, "after": 1048576},
            {"quota": "request_percentage", "before": None, "after": 12.5},
        ],
    }
    values = {"producer_byte_rate": 1048576, "request_percentage": 12.5}
    named = ("--user", user)
    wait_until(lambda: _listed(commands, *named) != [], "the quota is known")
    assert _listed(commands, *named) == [{"entity": {"user": user}, "values": values}]
    assert "1,048,576" in commands.shown("quota", "list", *named)
    shown = commands.shown("quotas", "delete", *named, "producer_byte_rate", "--yes")
    assert shown.splitlines()[0] == f"user {user}"
    wait_until(lambda: len(_listed(commands, *named)[0]["values"]) == 1, "it is gone")
    deleted = commands.document("quotas", "delete", *named, "--yes")
    assert deleted["quotas"] == [{"quota": "request_percentage", "before": 12.5, "after": None}]
    wait_until(lambda: _listed(commands, *named) == [], "all are gone")


def test_entities_of_two_names_and_defaults_are_other_entities(commands: Commands) -> None:
    user, client = fresh("ben"), fresh("billing")
    for entity in (
        ("--user", user),
        ("--user", user, "--client-id", client),
        ("--user", user, "--client-id", "default"),
        ("--ip", "default"),
    ):
        key = "connection_creation_rate" if "--ip" in entity else "consumer_byte_rate"
        commands.shown("quotas", "set", *entity, f"{key}=1000")
    wait_until(lambda: len(_listed(commands, "--user", user)) == 3, "all are known")
    assert [one["entity"] for one in _listed(commands, "--user", user)] == [
        {"user": user, "client-id": client},
        {"user": user, "client-id": None},
        {"user": user},
    ]
    assert {"ip": None} in [one["entity"] for one in _listed(commands, "--ip", "default")]
    commands.shown("quotas", "delete", "--user", user, "--yes")
    wait_until(lambda: len(_listed(commands, "--user", user)) == 2, "one is gone")
    assert "default" in commands.shown("quotas", "list", "--user", user)


def test_a_dry_run_shows_the_change_and_makes_none(commands: Commands) -> None:
    client = ("--client-id", fresh("dry"))
    shown = commands.shown("quotas", "set", *client, "consumer_byte_rate=7", "--dry-run")
    assert shown.endswith("Nothing was changed.\n")
    assert _listed(commands, *client) == []


def test_a_name_that_would_write_lines_is_a_line(commands: Commands) -> None:
    user = fresh("evil\x1b]0;owned\x07\nann")
    written = user.replace("\x1b", r"\x1b").replace("\x07", r"\x07").replace("\n", r"\n")
    shown = commands.shown("quotas", "set", "--user", user, "consumer_byte_rate=7")
    assert shown.splitlines()[0] == f"user {written}"
    wait_until(lambda: _listed(commands, "--user", user) != [], "the quota is known")
    assert commands.shown("quotas", "list").count(f"{written} ") == 1
    result = commands.run("quotas", "delete", "--user", user, text="y\n")
    assert f"Delete consumer_byte_rate of user {written}?" in result.stderr


def test_deleting_asks_first(commands: Commands) -> None:
    client = ("--client-id", fresh("asked"))
    commands.shown("quotas", "set", *client, "consumer_byte_rate=7")
    wait_until(lambda: _listed(commands, *client) != [], "the quota is known")
    result = commands.run("quotas", "delete", *client, text="n\n")
    assert f"Delete consumer_byte_rate of client id {client[1]}?" in result.stderr
    assert len(_listed(commands, *client)) == 1


def test_mistakes_get_one_line(commands: Commands) -> None:
    user = fresh("nobody")
    assert f"user {user} has no quotas" in commands.refusal(
        "quotas", "delete", "--user", user, "--yes"
    )
    refused = commands.refusal("quotas", "set", "--ip", "1.2.3.4", "producer_byte_rate=1")
    assert refused.startswith("odradek: could not change the quotas of address 1.2.3.4: ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--user", "a", "producer_byte_rat=1"), "did you mean producer_byte_rate"),
        (("--user", "a", "producer_byte_rate=-1"), "is not a positive number"),
        (("--user", "a", "producer_byte_rate=fast"), "is not a positive number"),
        (("--user", "a", "producer_byte_rate"), "is not KEY=VALUE"),
        (("producer_byte_rate=1",), "name --user, --client-id or both, or --ip"),
        (("--user", "a", "--ip", "b", "producer_byte_rate=1"), "name --user, --client-id or both"),
    ],
)
def test_wrong_usage_is_refused_without_a_broker(arguments: tuple[str, ...], words: str) -> None:
    result = Commands("127.0.0.1:1").run("quotas", "set", *arguments)
    assert result.exit_code == 2
    assert words in result.output
