"""odradek topics and configs, on Odradek and on Apache Kafka."""

from __future__ import annotations

import functools
import re

import pytest

from bench.processes import free_port
from odradek.cli.client import Connection
from tests.cli.commands import Commands, fresh
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


def test_a_topic_is_created_described_altered_and_deleted(commands: Commands) -> None:
    name = fresh("prices")
    shown = commands.shown("topics", "create", name, "--partitions", "2", "--compact",
                           "--config", "segment.ms=60000")  # fmt: skip
    assert shown == f"{name}: created\n"
    assert re.search(rf"^{name} +2 +1 +compact$", commands.shown("topics", "list"), re.M)
    shown = commands.shown("topics", "describe", name)
    assert re.search(r"^ +1 +1 +1 +1 +0 +0$", shown, re.M)
    assert re.search(r"^cleanup.policy +compact +topic$", shown, re.M)
    assert max(map(len, shown.splitlines())) <= 80
    assert "retention.ms" not in shown.replace("delete.retention.ms", "")
    commands.shown("topics", "alter", name, "--partitions", "3", "--delete-config", "segment.ms",
                   "--config", "retention.ms=1000")  # fmt: skip
    (document,) = commands.document("topics", "describe", name)["topics"]
    assert [one["partition"] for one in document["partitions"]] == [0, 1, 2]
    own = {one["name"]: one["value"] for one in document["configs"]
           if one["source"] == "DYNAMIC_TOPIC_CONFIG"}  # fmt: skip
    assert own == {"cleanup.policy": "compact", "retention.ms": "1000"}
    assert commands.shown("topics", "delete", name, "--yes") == f"{name}: deleted\n"
    assert name not in commands.shown("topics", "list")


def test_an_existing_topic_is_refused_without_if_not_exists(commands: Commands) -> None:
    name, other = fresh("prices"), fresh("clicks")
    commands.shown("topics", "create", name)
    assert "(TOPIC_ALREADY_EXISTS)" in commands.refusal("topics", "create", name, other)
    # The topic that was not refused is there.
    commands.shown("topics", "describe", other)
    done = commands.document("topics", "create", name, "--if-not-exists")
    assert done == {"topics": [{"topic": name, "outcome": "exists"}]}


def test_a_topic_is_not_deleted_without_a_yes(commands: Commands) -> None:
    name = fresh("prices")
    commands.shown("topics", "create", name)
    assert commands.run("topics", "delete", name, text="n\n").exit_code == 1
    assert name in commands.shown("topics", "list")
    commands.shown("topics", "delete", name, text="y\n")
    assert name not in commands.shown("topics", "list")


@pytest.mark.parametrize(
    "arguments",
    [
        ("topics", "describe", "{}"),
        ("topics", "alter", "{}", "--partitions", "9"),
        ("topics", "delete", "{}", "--yes"),
        ("configs", "describe", "--topic", "{}"),
        ("produce", "{}"),
        ("consume", "{}", "--to", "end"),
        ("perf", "consume", "{}"),
        ("groups", "reset-offsets", "g", "--topic", "{}", "--to", "end"),
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)
def test_a_topic_that_is_not_there_is_named_with_those_like_it_and_not_made(
    arguments: tuple[str, ...], commands: Commands
) -> None:
    name = fresh("latest-product-price")
    commands.shown("topics", "create", name)
    wrong = f"lst-{name.removeprefix('latest-')}"
    line = commands.refusal(*(one.format(wrong) for one in arguments), text="1\n")
    assert line.startswith(f"odradek: there is no topic {wrong}: did you mean ") and name in line
    assert wrong not in commands.shown("topics", "list")


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("topics", "describe", "{}"), "odradek topics list"),
        (("topics", "alter", "{}", "--partitions", "9"), "odradek topics list"),
        (("topics", "delete", "{}", "--yes"), "odradek topics list"),
        (("configs", "describe", "--topic", "{}"), "odradek topics list"),
        (("groups", "reset-offsets", "g", "--topic", "{}", "--to", "end"), "odradek topics list"),
        (("produce", "{}"), "odradek topics create {}"),
        (("consume", "{}", "--to", "end"), "odradek topics create {}"),
    ],
    ids=lambda one: " ".join(one[:2]) if isinstance(one, tuple) else "",
)
def test_a_topic_unlike_any_other_is_to_be_created_only_where_records_go(
    arguments: tuple[str, ...], hint: str, commands: Commands
) -> None:
    commands.shown("topics", "create", fresh("latest-product-price"))
    name = "x9"
    line = commands.refusal(*(one.format(name) for one in arguments), text="1\n")
    assert line.startswith(f"odradek: there is no topic {name}: {hint.format(name)} ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("topics", "create", "a b"), "TOPIC_EXCEPTION"),
        (("topics", "create", "copies", "--replication-factor", "3"), "INVALID_REPLICATION"),
        (("topics", "create", "odd", "--config", "no.such.key=1"), "no.such.key"),
        (("configs", "alter", "--broker", "77", "--set", "log.cleaner.threads=2"), "broker 77"),
        (("topics", "list", "-X", "no.such.key=1"), "no.such.key"),
    ],
)
def test_a_refusal_of_the_broker_is_one_line_with_its_reason(
    arguments: tuple[str, ...], message: str, commands: Commands
) -> None:
    assert message in commands.refusal(*arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ("topics", "create", "t", "--compact", "--config", "cleanup.policy=delete"),
        ("topics", "create", "t", "--config", "retention.ms"),
        ("topics", "alter", "t"),
        ("configs", "describe"),
        ("configs", "describe", "--topic", "a", "--broker", "1"),
        ("consume", "t", "--from", "yesterday"),
        ("consume", "t", "--format", "jsn"),
        ("consume", "t", "--format", "%q"),
        ("consume", "t", "--group", "g", "--partition", "0"),
        ("consume", "t", "--follow", "--to", "end"),
        ("produce", "t", "--format", "json", "--key-separator", ":"),
        ("perf", "produce", "t", "--distribution", "normal"),
        ("acls", "create", "--topic", "t"),
        ("topics", "create", ""),
        ("groups", "describe", ""),
        ("configs", "describe", "--group", ""),
    ],
    ids=" ".join,
)
def test_wrong_usage_is_reported_before_a_broker_is_asked(arguments: tuple[str, ...]) -> None:
    result = Commands(f"127.0.0.1:{free_port()}").run(*arguments)
    (line,) = result.stderr.splitlines()
    assert result.exit_code == 2 and line.startswith("odradek: ") and "--help`" in line


def test_an_absent_broker_is_reported_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"127.0.0.1:{free_port()}"
    # One that may yet come is waited for, and then for longer than this test may take.
    patient = functools.partial(Connection, connect_timeout_s=600.0)
    monkeypatch.setattr("odradek.cli.client.Connection", patient)
    line = Commands(address).refusal("topics", "list")
    assert line == (
        f"odradek: no broker answers at {address} (Connection refused): start it, or name "
        "another with --bootstrap-servers or ODRADEK_BOOTSTRAP_SERVERS"
    )


def _wait_until_shown(commands: Commands, whose: tuple[str, str], pattern: str) -> None:
    """Wait until a change is shown: Kafka's brokers hear of it after its controller."""

    def shown() -> str:
        return commands.shown("configs", "describe", *whose)

    wait_until(lambda: re.search(pattern, shown(), re.M), f"{pattern} is shown", shown=shown)


def test_settings_of_topics_brokers_and_groups_are_changed_and_shown(commands: Commands) -> None:
    topic, group = fresh("prices"), fresh("billing")
    commands.shown("topics", "create", topic)
    for kind, name, key, value in (
        ("topic", topic, "min.cleanable.dirty.ratio", "0.1"),
        ("broker", "1", "log.cleaner.backoff.ms", "1234"),
        ("group", group, "consumer.session.timeout.ms", "50000"),
    ):
        whose = (f"--{kind}", name)
        commands.shown("configs", "alter", *whose, "--set", f"{key}={value}")
        _wait_until_shown(commands, whose, rf"^{re.escape(key)} +{value} +{kind} ")
        (one,) = [c for c in commands.document("configs", "describe", *whose)["configs"]
                  if c["name"] == key]  # fmt: skip
        assert one["value"] == value and one["source"] != "DEFAULT_CONFIG"
        assert any(synonym["source"] == "DEFAULT_CONFIG" for synonym in one["synonyms"])
        commands.shown("configs", "alter", *whose, "--delete", key)
        _wait_until_shown(commands, whose, rf"\A(?!(?s:.*)^{re.escape(key)} )")
        assert key in commands.shown("configs", "describe", *whose, "--all")
