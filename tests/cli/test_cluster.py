"""odradek cluster, on Odradek, on Apache Kafka, and on brokers of which one is away."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.broker.test_cluster_clients import addresses, create, running
from tests.cli.commands import Commands, fresh
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


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
    with running(tmp_path, f"sqlite://{tmp_path / 'catalog.db'}") as brokers:
        first, second = (Commands(one.bootstrap) for one in brokers[:2])
        wait_until(lambda: len(second.document("cluster", "brokers")["brokers"]) == 3)
        for name in ("a", "b", "c"):
            first.shown("topics", "create", name)
            second.shown("produce", name, text="as soon as it is there\n")
        assert "there is no topic d" in second.refusal("topics", "describe", "d")
