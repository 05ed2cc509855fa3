"""A broker of odradek.testing as the tests of another project use it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from kafka import KafkaConsumer, KafkaProducer

from bench.processes import ROOT
from odradek.testing import BrokerError, OdradekBroker
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

STARTS = """
import json
from odradek.testing import OdradekBroker

broker = OdradekBroker()
broker.start()
state = {"pid": broker.process.pid, "folder": str(broker.folder), "at": broker.bootstrap_servers}
print(json.dumps(state), flush=True)
"""


@pytest.fixture(scope="module")
def broker() -> Iterator[OdradekBroker]:
    """One broker, with its web page, for the tests that do not stop it."""
    with OdradekBroker({"metrics.listener": "127.0.0.1:0"}) as running:
        yield running


def listens(address: str) -> bool:
    host, _, port = address.partition(":")
    try:
        socket.create_connection((host, int(port)), 5).close()
    except OSError:
        return False
    return True


def written(bootstrap: str, topic: str, *values: bytes) -> None:
    with KafkaProducer(bootstrap_servers=bootstrap) as producer:
        for value in values:
            producer.send(topic, value).get(60)


def read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=60_000,
        # kafka-python 3.0 may miss a topic at its start, and asks again after this
        metadata_max_age_ms=1_000,
    )
    values = [next(consumer).value for _ in range(count)]
    consumer.close()
    return values


def test_a_broker_serves_on_loopback_and_leaves_nothing_behind() -> None:
    with OdradekBroker() as broker:
        assert broker.bootstrap_servers.startswith("127.0.0.1:")
        folder, address = broker.folder, broker.bootstrap_servers
        written(address, "orders", b"1", b"2")
        assert read(address, "orders", 2) == [b"1", b"2"]
        assert (folder / "data").is_dir()
    assert not listens(address)
    assert not folder.exists()


def test_a_broker_has_the_settings_of_the_test_and_not_those_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("KAFKA_LISTENERS", "PLAINTEXT://host.invalid:1")
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "9")
    monkeypatch.setenv("ODRADEK_LOG_FORMAT", "json")
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(tmp_path / "notify"))
    manager.setblocking(False)
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    with OdradekBroker({"num.partitions": "3"}) as broker, manager:
        written(broker.bootstrap_servers, "orders", b"1")
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        assert len(admin.list_topics("orders", 60).topics["orders"].partitions) == 3
        with pytest.raises(BlockingIOError):
            manager.recv(1)


def test_two_brokers_run_side_by_side() -> None:
    with OdradekBroker() as one, OdradekBroker() as other:
        assert one.bootstrap_servers != other.bootstrap_servers
        written(one.bootstrap_servers, "orders", b"1")
        written(other.bootstrap_servers, "orders", b"2")
        assert read(one.bootstrap_servers, "orders", 1) == [b"1"]
        assert read(other.bootstrap_servers, "orders", 1) == [b"2"]


@pytest.mark.parametrize("end", [OdradekBroker.stop, OdradekBroker.kill])
def test_a_broker_that_starts_again_has_its_data_at_its_address(end: Any) -> None:
    with OdradekBroker() as broker:
        address = broker.bootstrap_servers
        written(address, "orders", b"1")
        end(broker)
        assert not listens(address)
        broker.start()
        assert broker.bootstrap_servers == address
        assert read(address, "orders", 1) == [b"1"]


def test_topics_of_one_prefix_have_different_names_and_their_own_settings(
    broker: OdradekBroker,
) -> None:
    first = broker.create_topic("orders", partitions=2, config={"cleanup.policy": "compact"})
    second = broker.create_topic("orders")
    assert first.startswith("orders-") and first != second
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    topics = admin.list_topics(timeout=60).topics
    assert [len(topics[name].partitions) for name in (first, second)] == [2, 1]
    resource = ConfigResource(ResourceType.TOPIC, first)
    (found,) = admin.describe_configs([resource]).values()
    assert found.result(60)["cleanup.policy"].value == "compact"
    broker.delete_topic(first)
    broker.delete_topic(first)
    wait_until(lambda: first not in admin.list_topics(timeout=60).topics)


def test_a_refused_topic_is_an_error_with_the_reason(broker: OdradekBroker) -> None:
    with pytest.raises(BrokerError, match=r"topic bad name-.*'bad name"):
        broker.create_topic("bad name")


def test_a_broker_with_a_listener_for_metrics_has_a_url(broker: OdradekBroker) -> None:
    with urllib.request.urlopen(f"{broker.url}health/live", timeout=60) as answer:
        assert answer.status == 200
    with urllib.request.urlopen(f"{broker.url}metrics", timeout=60) as answer:
        assert b"odradek_" in answer.read()


def test_a_broker_without_one_says_how_to_get_a_url() -> None:
    with pytest.raises(BrokerError, match=r"set metrics\.listener to 127\.0\.0\.1:0"):
        _ = OdradekBroker().url


def test_a_broker_that_has_not_been_started_says_so() -> None:
    with pytest.raises(BrokerError, match="has not been started: call start"):
        _ = OdradekBroker().bootstrap_servers


def test_a_broker_that_cannot_start_shows_its_log_and_leaves_no_folder() -> None:
    broker = OdradekBroker({"num.partitions": "many"})
    with pytest.raises(BrokerError, match=r"did not start \(exit status 1\)") as caught, broker:
        pass
    assert "many for configuration num.partitions" in str(caught.value)
    assert broker.process is None
    assert broker.log_text() == ""


def test_a_broker_that_takes_too_long_is_ended() -> None:
    broker = OdradekBroker(start_timeout_s=0)
    with pytest.raises(BrokerError, match="did not start in 0 s"), broker:
        pass
    assert broker.process is None


def test_a_broker_that_runs_is_not_started_twice(broker: OdradekBroker) -> None:
    running = broker.process
    with pytest.raises(BrokerError, match="stop it first"):
        broker.start()
    assert broker.process is running and running is not None and running.poll() is None


def run(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def is_alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_forgotten_broker_ends_with_the_program_that_started_it() -> None:
    with run(STARTS) as program:
        assert program.stdout is not None
        state = json.loads(program.stdout.readline())
        assert program.wait(60) == 0
    assert not is_alive(state["pid"])
    assert not Path(state["folder"]).exists()


def test_a_broker_stops_cleanly_when_its_tests_are_killed() -> None:
    with run(f"{STARTS}\ninput()") as program:
        assert program.stdout is not None
        state = json.loads(program.stdout.readline())
        written(state["at"], "orders", b"1")
        program.kill()
    wait_until(lambda: not is_alive(state["pid"]), "the broker is gone")
    assert "stopped" in (Path(state["folder"]) / "broker.log").read_text()


def test_ctrl_c_of_a_terminal_is_for_the_tests_alone(broker: OdradekBroker) -> None:
    assert broker.process is not None
    assert os.getpgid(broker.process.pid) != os.getpgrp()


def test_a_broker_that_somebody_else_stops_is_closed_without_an_error() -> None:
    with OdradekBroker() as broker:
        assert broker.process is not None
        os.kill(broker.process.pid, signal.SIGTERM)


def test_an_import_loads_little_and_a_broker_of_production_loads_nothing_of_it() -> None:
    program = (
        "import sys, odradek.testing\n"
        "print([one for one in ('pytest', 'subprocess', 'confluent_kafka', 'click', 'numpy',"
        " 'odradek.testing.broker') if one in sys.modules])\n"
        "odradek.testing.OdradekBroker\n"
        "print([one for one in ('pytest', 'confluent_kafka', 'click', 'numpy')"
        " if one in sys.modules])\n"
    )
    served = (
        "import sys, odradek.cli.main, odradek.broker.main\n"
        "print([one for one in sys.modules if one.startswith('odradek.testing')])\n"
    )
    command = [sys.executable, "-c", program + "\n"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert found.splitlines() == ["[]", "[]"]
    command = [sys.executable, "-c", served]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert found.splitlines() == ["[]"]


def test_an_unknown_name_is_an_attribute_error() -> None:
    import odradek.testing

    with pytest.raises(AttributeError, match="no attribute 'Broker'"):
        _ = odradek.testing.Broker
