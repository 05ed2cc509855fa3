"""Kafka's ProducerPerformance and ConsumerPerformance: every codec, a group, a restart between."""

from __future__ import annotations

import re

import pytest

from bench.processes import OdradekProcess, kafka_tool
from tests.compat.clients import CODECS, KafkaPython
from tests.conftest import StartBroker

TOPIC, GROUP = "performance", "performance-group"
PARTITIONS = 3
RECORD_BYTES = 100
SHORT, FULL = 2_000, 200_000
IDLE_TIMEOUT_MS = 5_000
# A member is given partitions with its second heartbeat, after five seconds.
SHARE_TIMEOUT_MS = 30_000

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

_SENT = re.compile(r"^(\d+) records sent", re.MULTILINE)


def _create(broker: OdradekProcess) -> None:
    KafkaPython().create_topic(broker.bootstrap, TOPIC, PARTITIONS)


def _produce(broker: OdradekProcess, codec: str, count: int) -> None:
    done = kafka_tool(
        ["org.apache.kafka.tools.ProducerPerformance", "--topic", TOPIC]
        + ["--num-records", str(count), "--record-size", str(RECORD_BYTES), "--throughput", "-1"]
        + ["--producer-props", f"bootstrap.servers={broker.bootstrap}", "acks=all"]
        + [f"compression.type={codec}"]
    )
    assert int(_SENT.findall(done.stdout)[-1]) == count, done.stdout + done.stderr


def _consume(broker: OdradekProcess, count: int) -> int:
    """Return how many records the tool consumed as a member of the group; then it commits."""
    done = kafka_tool(
        ["org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server", broker.bootstrap]
        + ["--topic", TOPIC, "--group", GROUP, "--num-records", str(count)]
        + ["--timeout", str(IDLE_TIMEOUT_MS), "--hide-header"]
    )
    figures = done.stdout.strip().splitlines()[-1].split(", ")
    return int(figures[4])


def _committed(broker: OdradekProcess) -> int:
    """Return the sum of the group's committed offsets."""
    done = kafka_tool(
        ["org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"]
        + ["--bootstrap-server", broker.bootstrap, "--describe", "--group", GROUP]
    )
    rows = [line.split() for line in done.stdout.splitlines() if TOPIC in line]
    assert len(rows) == PARTITIONS, done.stdout
    return sum(int(row[3]) for row in rows)


def _round(start_broker: StartBroker, count: int) -> None:
    broker = start_broker()
    _create(broker)
    for codec in CODECS:
        _produce(broker, codec, count)
    total = count * len(CODECS)
    # The tool consumes whole polls: at least as many as asked for.
    first = _consume(broker, total // 2)
    assert total // 2 <= first <= total
    assert _committed(broker) == first
    broker.stop()
    broker.start()
    assert first + _consume(broker, total - first) == total
    assert _committed(broker) == total
    assert "ERROR" not in broker.log_text()


@pytest.mark.timeout(600)
def test_the_performance_tools_see_every_record_once(start_broker: StartBroker) -> None:
    _round(start_broker, SHORT)


@pytest.mark.interop
@pytest.mark.timeout(600)
def test_share_consumers_of_the_tools_see_every_record(start_broker: StartBroker) -> None:
    broker = start_broker()
    _create(broker)
    for group in (GROUP, "console"):
        kafka_tool(
            ["kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap, "--alter"]
            + ["--entity-type", "groups", "--entity-name", group]
            + ["--add-config", "share.auto.offset.reset=earliest"]
        )
    _produce(broker, "none", SHORT)
    measured = kafka_tool(
        ["org.apache.kafka.tools.ShareConsumerPerformance"]
        + ["--bootstrap-server", broker.bootstrap, "--topic", TOPIC, "--group", GROUP]
        + ["--num-records", str(SHORT), "--timeout", str(SHARE_TIMEOUT_MS), "--hide-header"]
    )
    assert int(measured.stdout.strip().splitlines()[-1].split(", ")[5]) == SHORT
    printed = kafka_tool(
        ["org.apache.kafka.tools.consumer.ConsoleShareConsumer"]
        + ["--bootstrap-server", broker.bootstrap, "--topic", TOPIC, "--group", "console"]
        + ["--max-messages", str(SHORT), "--timeout-ms", str(SHARE_TIMEOUT_MS)]
    )
    assert len(printed.stdout.splitlines()) == SHORT


@pytest.mark.interop
@pytest.mark.timeout(600)
def test_the_performance_tools_see_a_million_records_once(start_broker: StartBroker) -> None:
    _round(start_broker, FULL)
