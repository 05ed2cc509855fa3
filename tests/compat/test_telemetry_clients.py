"""Real clients push their metrics when a subscription asks for them, and /metrics shows them."""

from __future__ import annotations

import subprocess

import pytest
from confluent_kafka import Producer

from bench.processes import QUICK_START, OdradekProcess, java, kafka_libs, kafka_tool
from tests.support.waiting import wait_until


def shown(broker: OdradekProcess, client_id: str) -> set[str]:
    wanted = f'client_id="{client_id}"'
    lines = broker.metrics().splitlines()
    return {line.partition("{")[0] for line in lines if wanted in line}


@pytest.fixture(scope="module")
def subscribed(broker: OdradekProcess) -> OdradekProcess:
    """A broker with a subscription to all metrics of all clients."""
    if kafka_libs() is None:
        pytest.skip("Kafka's jars are not there: `make kafka` fetches them")
    kafka_tool([
        "org.apache.kafka.tools.ClientMetricsCommand", "--bootstrap-server", broker.bootstrap,
        "--alter", "--name", "all", "--metrics", "*", "--interval", "500",
    ])  # fmt: skip
    return broker


@pytest.mark.kafka
@pytest.mark.slow
def test_librdkafka_pushes(subscribed: OdradekProcess) -> None:
    producer = Producer({"bootstrap.servers": subscribed.bootstrap, "client.id": "rdkafka-one"})

    def pushed() -> set[str]:
        producer.produce("orders", b"value")
        producer.poll(0)
        return shown(subscribed, "rdkafka-one")

    wait_until(pushed)
    producer.flush(10)


@pytest.mark.kafka
@pytest.mark.slow
def test_the_java_client_pushes(subscribed: OdradekProcess) -> None:
    command = [
        *java(["-Xmx256m", *QUICK_START]), "org.apache.kafka.tools.ConsoleProducer",
        "--bootstrap-server", subscribed.bootstrap, "--topic", "orders",
        "--command-property", "client.id=java-one",
        "--command-property", "enable.metrics.push=true",
    ]  # fmt: skip
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as producing:
        assert producing.stdin is not None
        try:
            producing.stdin.write(b"value\n")
            producing.stdin.flush()
            wait_until(lambda: shown(subscribed, "java-one"))
        finally:
            producing.stdin.close()
            producing.wait(30)
