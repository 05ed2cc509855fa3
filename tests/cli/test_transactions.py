"""odradek transactions, on Odradek and on Apache Kafka."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from tests.broker.live import batch
from tests.cli.commands import Commands, fresh
from tests.cli.conftest import AnyBroker
from tests.differential.wire import Peer
from tests.support.requests import producing
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def topic(commands: Commands) -> str:
    name = fresh("payments")
    commands.shown("topics", "create", name, "--partitions", "2")
    return name


@contextmanager
def _open(commands: Commands, topic: str) -> Iterator[tuple[str, Producer]]:
    """Have an open transaction with a record in partition 0; yield its id."""
    name = fresh("payer")
    producer = Producer({"bootstrap.servers": commands.bootstrap, "transactional.id": name,
                         "log_level": 0})  # fmt: skip
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"a", partition=0)
    producer.flush()
    yield name, producer


def _listed(commands: Commands, *arguments: str) -> dict[str, dict[str, Any]]:
    found = commands.document("transactions", "list", *arguments)["transactions"]
    return {one["transactional_id"]: one for one in found}


def _producers(commands: Commands, *arguments: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = commands.document("transactions", "producers", *arguments)[
        "producers"
    ]
    return found


def test_an_open_transaction_is_listed_described_and_no_longer_open_once_committed(
    commands: Commands, topic: str
) -> None:
    with _open(commands, topic) as (name, producer):
        listed = _listed(commands)[name]
        assert (listed["state"], listed["coordinator"]) == ("ONGOING", 1)
        assert re.search(rf"^{name} +ongoing ", commands.shown("transaction", "list"), re.M)
        (found,) = commands.document("transactions", "describe", name)["transactions"]
        assert found["partitions"] == [{"topic": topic, "partition": 0}]
        assert found["producer_id"] == listed["producer_id"]
        assert found["start_time_ms"] > 0 and found["timeout_ms"] == 60_000
        assert "ongoing, open for" in commands.shown("transactions", "describe", name)
        (one,) = _producers(commands, topic, "-p", "0")
        assert (one["producer_id"], one["start_offset"]) == (found["producer_id"], 0)
        assert _producers(commands, topic, "-p", "1") == []
        assert _producers(commands, topic, "--broker", "1") == [one]
        producer.commit_transaction()
    wait_until(lambda: _listed(commands)[name]["state"] == "COMPLETE_COMMIT", "it is committed")
    (one,) = _producers(commands, topic)
    assert one["start_offset"] is None
    assert topic in commands.shown("transactions", "producers", topic)


def test_the_list_is_filtered_by_state_duration_and_pattern(
    commands: Commands, topic: str
) -> None:
    with _open(commands, topic) as (name, producer):
        assert name in _listed(commands, "--state", "ongoing", "--state", "empty")
        assert name not in _listed(commands, "--state", "complete-abort")
        assert name in _listed(commands, "--longer-than", "0")
        assert name not in _listed(commands, "--longer-than", "3600000")
        assert list(_listed(commands, "--pattern", f".*{name[1:]}")) == [name]
        assert name not in _listed(commands, "--pattern", "nobody")
        refused = commands.refusal("transactions", "list", "--pattern", "(")
        assert refused.startswith("odradek: could not list transactions: ")
        producer.abort_transaction()


def test_a_transactional_id_is_terminated(commands: Commands, topic: str) -> None:
    with _open(commands, topic) as (name, producer):
        result = commands.run("transactions", "terminate", name, text="n\n")
        assert f"Abort the transaction of {name}, and fence its producer?" in result.stderr
        assert _listed(commands)[name]["state"] == "ONGOING"
        terminated = commands.shown("transactions", "terminate", name, "--yes")
        assert terminated == f"{name}: terminated\n"
        with pytest.raises(KafkaException):
            producer.commit_transaction()
    wait_until(
        lambda: _producers(commands, topic)[0]["start_offset"] is None, "it is aborted"
    )


def test_a_hanging_transaction_is_found_and_aborted(
    broker: AnyBroker, commands: Commands, topic: str
) -> None:
    verified = "transaction.partition.verification.enable"
    commands.shown("configs", "alter", "--broker", "1", "--set", f"{verified}=false")
    hanging = batch(b"a", transactional=True, producer_id=77, producer_epoch=3, base_sequence=0)
    request = producing(topic, hanging, transactional_id="nobody", partition=1)
    peer = Peer(broker.port)

    def send() -> bool:
        (answered,) = peer.ask(request, 9).responses
        return bool(answered.partition_responses[0].error_code == 0)

    wait_until(send, "the broker does not verify")
    peer.close()
    commands.shown("configs", "alter", "--broker", "1", "--delete", verified)
    with _open(commands, topic) as (_, producer):
        (found,) = commands.document("transactions", "find-hanging", "--topic", topic)["hanging"]
        assert (found["partition"], found["producer_id"], found["start_offset"]) == (1, 77, 0)
        limits = ("--max-timeout-minutes", "0", "--broker", "1")
        (same,) = commands.document("transactions", "find-hanging", *limits)["hanging"]
        assert same == found
        producer.abort_transaction()
    abort = ("transactions", "abort", topic, "-p", "1", "--start-offset")
    assert "no open transaction that begins at offset 5" in commands.refusal(*abort, "5", "--yes")
    result = commands.run(*abort, "0", text="n\n")
    assert f"Abort the transaction of {topic}-1 at offset 0?" in result.stderr
    assert commands.document(*abort, "0", "--yes") == {"aborted": found}
    shown = commands.shown("transactions", "find-hanging", "--topic", topic)
    assert shown == "No transaction hangs.\n"
    assert commands.shown("consume", topic, "--to", "end", "-p", "1") == ""


def test_names_that_are_not_there_get_one_line(commands: Commands, topic: str) -> None:
    nobody = fresh("nobody")
    for command in (("describe",), ("terminate", "--yes")):
        refused = commands.refusal("transactions", *command, nobody)
        assert f"could not describe transactional id {nobody}: " in refused
        assert "TRANSACTIONAL_ID_NOT_FOUND" in refused
    producers = ("transactions", "producers")
    assert f"there is no topic {nobody}" in commands.refusal(*producers, nobody)
    wrong = commands.run("transactions", "find-hanging", "-p", "0")
    assert wrong.exit_code == 2 and "--partition needs --topic" in wrong.stderr
    refused = commands.refusal(*producers, topic, "-p", "2")
    assert refused == f"odradek: {topic} has no partition 2: it has 2, from 0"
    refused = commands.refusal(*producers, topic, "--broker", "9")
    assert refused == "odradek: there is no broker 9: the brokers are 1"
