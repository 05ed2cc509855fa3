"""Kafka's command for streams groups prints the same of a group on Odradek and on Kafka."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.processes import kafka_tool
from odradek.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from tests.broker.kafka_peer import Peer, both_brokers
from tests.broker.streams_topologies import counting
from tests.support.asking import GROUP, await_coordinator, await_topic, create_topics
from tests.support.requests import committing, creatable
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(600)]

COMMAND = "org.apache.kafka.tools.streams.StreamsGroupCommand"
SETTINGS = {
    "group.streams.initial.rebalance.delay.ms": "0",
    "group.streams.assignment.interval.ms": "0",
    "group.streams.session.timeout.ms": "600000",
    "group.streams.max.session.timeout.ms": "600000",
}
MEMBERS = ("m-1", "m-2")
ACTIVE = (
    "--list",
    "--list --state",
    "--list --state stable",
    "--describe --group app",
    "--describe --group app --offsets --verbose",
    "--describe --group app --members",
    "--describe --group app --members --verbose",
    "--describe --group app --state",
    "--describe --group app --state --verbose",
    "--describe --group missing",
    "--delete --group app",
)
EMPTY = (
    "--list --state empty",
    "--describe --group app",
    "--describe --group app --state",
    "--reset-offsets --group app --input-topic in --to-earliest --dry-run",
    "--delete --group app",
    "--list",
)


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    with both_brokers(tmp_path_factory.mktemp("streams"), SETTINGS) as (ours, theirs):
        yield ours.port, theirs.port


def begin(port: int) -> None:
    """Let two members of an application join, get their tasks, and commit an offset."""
    with Peer(port) as peer:
        create_topics(peer, creatable("in", 2))
        await_topic(peer, "in")
        await_coordinator(peer, GROUP, "app")
        wait_until(lambda: [_has_reached(peer, one) for one in MEMBERS] == [True, True])
        answer = peer.ask(committing("app", {"in": {0: 0, 1: 0}}), 9)
        assert answer.topics[0].partitions[0].error_code  # no member sends it


def _has_reached(peer: Peer, member_id: str) -> bool:
    """Let a member join again, and return whether nothing is missing and it has its share."""
    answer = heartbeat(
        peer, member_id, 0,
        rebalance_timeout_ms=60_000, topology=counting("app", "in"),
        active_tasks=[], standby_tasks=[], warmup_tasks=[], process_id=f"process-{member_id}",
    )  # fmt: skip
    # The coordinator may not have loaded its partition yet.
    if answer.error_code or answer.status:
        return False
    return sum(len(one.partitions) for one in answer.active_tasks) == 2


def heartbeat(peer: Peer, member_id: str, epoch: int, **fields: Any) -> Any:
    """Send a heartbeat."""
    request = StreamsGroupHeartbeatRequest(
        group_id="app", member_id=member_id, member_epoch=epoch, **fields
    )
    return peer.ask(request, 0)


def printed(port: int, arguments: str, directory: Path) -> list[str]:
    """Return the lines that the command prints, without what differs from broker to broker."""
    server = ["--bootstrap-server", f"127.0.0.1:{port}"]
    done = kafka_tool([COMMAND, *server, *arguments.split()], check=False)
    text = done.stdout.replace(str(port), "PORT")
    # How often a group's epoch was raised depends on when the topics were there.
    text = re.sub(r"\b\d+(?= *$)", "N", text, flags=re.M)
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]
    return [*sorted(filter(None, lines)), f"status {done.returncode}"]


def test_the_command_prints_the_same_as_with_kafka(ports: tuple[int, int], tmp_path: Path) -> None:
    for port in ports:
        begin(port)
    for arguments in ACTIVE:
        ours, theirs = (printed(port, arguments, tmp_path) for port in ports)
        assert ours == theirs, arguments
    for port in ports:
        with Peer(port) as peer:
            for member_id in MEMBERS:
                assert heartbeat(peer, member_id, -1).error_code == 0
    for arguments in EMPTY:
        ours, theirs = (printed(port, arguments, tmp_path) for port in ports)
        assert ours == theirs, arguments
