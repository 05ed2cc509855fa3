"""odradek cluster, on Odradek, on Apache Kafka, and on brokers of which one is away."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from bench.processes import OdradekProcess
from tests.broker.test_cluster_clients import SETTINGS, addresses, create, running
from tests.cli.answering import answering
from tests.cli.commands import Commands, fresh
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

# No broker loses its session, however busy the machine is.
LONG_LEASE = {**SETTINGS, "broker.session.timeout.ms": "600000"}


def wait_for_three(brokers: list[OdradekProcess]) -> None:
    """Wait until each broker knows all three: partitions are then spread over them."""
    for commands in [Commands(one.bootstrap) for one in brokers]:
        wait_until(lambda at=commands: len(at.document("cluster", "brokers")["brokers"]) == 3)


def test_the_brokers_are_shown_with_the_partitions_that_they_lead(commands: Commands) -> None:
    commands.shown("topics", "create", fresh("prices"), "--partitions", "3")
    document = commands.document("cluster", "status")
    (broker,) = document["brokers"]
    assert document["partitions"] == broker["leads"] >= 3
    assert document["without_leader"] == 0
    assert commands.document("cluster", "brokers") == {"brokers": [broker]}
    shown = commands.shown("cluster", "status")
    assert document["cluster_id"] in shown
    row = rf"^ +{broker['broker']} +{re.escape(broker['address'])} +- +{broker['leads']}$"
    assert re.search(row, shown, re.M)


def test_partitions_without_a_leader_are_counted(tmp_path: Path) -> None:
    with running(tmp_path, f"sqlite://{tmp_path / 'catalog.db'}") as brokers:
        create(addresses(brokers), "t")
        commands = Commands(brokers[0].bootstrap)
        wait_until(lambda: commands.document("cluster", "status")["partitions"])
        found = commands.document("cluster", "status")
        assert [one["leads"] for one in found["brokers"]] == [2, 2, 2]
        brokers[1].kill()
        wait_until(lambda: commands.document("cluster", "status")["without_leader"])
        found = commands.document("cluster", "status")
        assert {one["broker"]: one["leads"] for one in found["brokers"]} == {1: 2, 3: 2}
        assert "2 partitions without a leader." in commands.shown("cluster", "status")


def test_a_new_topic_is_found_at_any_broker(tmp_path: Path) -> None:
    with running(tmp_path, f"sqlite://{tmp_path / 'catalog.db'}", LONG_LEASE) as brokers:
        wait_for_three(brokers)
        first, second = (Commands(one.bootstrap) for one in brokers[:2])
        for name in ("a", "b", "c"):
            first.shown("topics", "create", name)
            second.shown("produce", name, text="as soon as it is there\n")
        assert "there is no topic d" in second.refusal("topics", "describe", "d")


def test_partitions_are_copied_away_from_a_broker_and_back(tmp_path: Path) -> None:
    with running(tmp_path, f"sqlite://{tmp_path / 'catalog.db'}", LONG_LEASE) as brokers:
        wait_for_three(brokers)
        create(addresses(brokers), "t")
        first = Commands(brokers[0].bootstrap)

        def leads() -> dict[int, int]:
            found = first.document("cluster", "status")["brokers"]
            return {one["broker"]: one["leads"] for one in found}

        wait_until(lambda: leads() == {1: 2, 2: 2, 3: 2})
        lines = "".join(f"{number}\n" for number in range(50))
        first.shown("produce", "t", text=lines)
        second = ("--url", brokers[1].http)
        shown = first.shown("cluster", "drain", "2", *second)
        assert "2 partitions on the way to another broker." in shown
        assert "The records of 2 partitions are copied to another host first" in shown
        wait_until(lambda: leads() == {1: 3, 2: 0, 3: 3})
        url = ("--url", brokers[0].http)
        none = {"moving": 0, "moving_rows": []}
        wait_until(lambda: first.document("cluster", "moves", *url) == none)
        assert "No partition is on its way" in first.shown("cluster", "moves", *url)
        assert "Nothing has to move" in first.shown("cluster", "rebalance", *url)
        moved = first.document("cluster", "rebalance", "--between-hosts", *url)
        assert moved == {"moves": 2, "copies": 2}
        wait_until(lambda: leads() == {1: 2, 2: 2, 3: 2})
        # The new leaders open their logs a moment after they are named.
        wait_until(lambda: not first.run("consume", "t", "--to", "end").exit_code)
        read = first.shown("consume", "t", "--to", "end")
        assert sorted(read.split(), key=int) == lines.split()


def test_moves_are_listed_with_their_progress() -> None:
    row = {"topic": "t", "partition": 7, "from": 1, "to": 2}
    rows = [
        {**row, "copied_offset": 1500, "end_offset": 20_000},
        {**row, "partition": 8, "from": None, "copied_offset": None, "end_offset": None},
    ]
    answer = json.dumps({"moving": 3, "moving_rows": rows})
    with answering(answer.encode()) as url:
        lines = Commands("unused").shown("cluster", "moves", "--url", url).splitlines()
    assert lines[0].split() == ["Topic", "Partition", "From", "To", "Copied", "End"]
    assert [line.split() for line in lines[1:]] == [
        ["t", "7", "1", "2", "1,500", "20,000"],
        ["t", "8", "-", "2", "-", "-"],
        ["and", "1", "more"],
    ]
