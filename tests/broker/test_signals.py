"""Signals to a process: a reload, a stop, a second one that ends it, and what systemd is told."""

from __future__ import annotations

import re
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from bench.processes import OdradekProcess
from odradek.protocol.frames import encode_request
from odradek.storage.directory import CLEAN_MARKER
from tests.support.forking import ForkedOdradek
from tests.support.requests import fetching
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

RELOADED = "read the settings again"


class Configured:
    """A broker with a settings file that may be written again."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir()
        self.file = folder / "server.properties"
        self.write("")
        self.broker = ForkedOdradek(
            folder, settings or {}, environment or {}, options=("--config", str(self.file))
        )

    def write(self, text: str) -> None:
        """Write the settings file."""
        self.file.write_text(text)

    def reload(self) -> str:
        """Have it read its settings again, and return what it logs then."""
        known = len(self.broker.log_text())
        self.hang_up()
        ends = (RELOADED, "left the settings unchanged")
        wait_until(lambda: any(end in self.broker.log_text()[known:] for end in ends), "a reload")
        return self.broker.log_text()[known:]

    def hang_up(self) -> None:
        """Send SIGHUP."""
        assert self.broker.process is not None
        self.broker.process.send_signal(signal.SIGHUP)

    def described(self, kind: ConfigResource.Type, name: str) -> Mapping[str, str]:
        """Return what DescribeConfigs says."""
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 0})
        (asked,) = admin.describe_configs([ConfigResource(kind, name)]).values()
        return {name: entry.value for name, entry in asked.result(20).items()}


@pytest.fixture
def configured(tmp_path: Path) -> Iterator[Configured]:
    made = Configured(tmp_path / "broker")
    yield made
    made.broker.stop()
    assert "Traceback" not in made.broker.log_text()


def broker_settings(configured: Configured) -> Mapping[str, str]:
    return configured.described(ConfigResource.Type.BROKER, "1")


def producing(broker: OdradekProcess, *values: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for value in values:
        producer.produce("orders", value)
        producer.flush()


def test_a_reload_puts_what_may_change_in_force(configured: Configured) -> None:
    configured.write("log.retention.ms=60000\nnode.id=1\n")
    configured.broker.start()
    producing(configured.broker, b"value")
    configured.write(
        "log.retention.ms=90000\nnode.id=1\nnum.io.threads=3\nssl.keystore.password=secret\n"
    )
    told = configured.reload()
    assert "reloaded setting=log.retention.ms old=60000 new=90000\n" in told
    assert "reloaded setting=num.io.threads old=8 new=3\n" in told
    assert "reloaded setting=ssl.keystore.password (hidden)\n" in told
    assert "secret" not in told and "setting=node.id" not in told
    assert broker_settings(configured)["num.io.threads"] == "3"
    topic = configured.described(ConfigResource.Type.TOPIC, "orders")
    assert topic["retention.ms"] == "90000"
    configured.write("node.id=1\n")
    assert "reloaded setting=log.retention.ms old=90000 new=unset\n" in configured.reload()
    assert broker_settings(configured)["num.io.threads"] == "8"


def test_a_setting_that_needs_a_restart_is_left_alone_and_logged(configured: Configured) -> None:
    configured.broker.start()
    configured.broker.stop()
    configured.broker.start()  # now its data name the node
    configured.write("num.partitions=7\n")
    log = configured.reload()
    assert re.search(r" WARNING .*a new value needs a restart setting=num.partitions\n", log)
    assert log.count("needs a restart") == 1
    assert broker_settings(configured)["num.partitions"] == "1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("num.io.threads=none", "none for configuration num.io.threads"),
        ("log.retention.ms=\\u12", "server.properties line 1: Malformed"),
        ("num.partitions=0", "num.partitions"),
        (None, "cannot read"),
    ],
)
def test_a_bad_file_changes_nothing(
    configured: Configured, text: str | None, words: str
) -> None:
    configured.write("num.io.threads=5\n")
    configured.broker.start()
    if text is None:
        configured.file.unlink()
    else:
        configured.write(f"{text}\nnum.network.threads=9\n")
    told = configured.reload()
    [line] = [one for one in told.splitlines() if " ERROR " in one]
    assert "left the settings unchanged: " in line and words in line
    found = broker_settings(configured)
    assert found["num.io.threads"] == "5" and found["num.network.threads"] == "3"
    configured.write("num.io.threads=6\n")
    configured.reload()
    assert broker_settings(configured)["num.io.threads"] == "6"


def test_the_file_gives_way_to_the_environment_the_command_line_and_to_clients(
    tmp_path: Path,
) -> None:
    configured = Configured(
        tmp_path / "broker",
        {"background.threads": "11"},
        {"KAFKA_NUM_IO_THREADS": "4"},
    )
    configured.broker.start()
    try:
        change = ConfigResource(
            ConfigResource.Type.BROKER,
            "1",
            incremental_configs=[
                ConfigEntry(
                    "log.cleaner.threads", "2", incremental_operation=AlterConfigOpType.SET
                )
            ],
        )
        admin = AdminClient({"bootstrap.servers": configured.broker.bootstrap, "log_level": 0})
        (asked,) = admin.incremental_alter_configs([change]).values()
        asked.result(20)
        names = ("num.io.threads", "background.threads", "log.cleaner.threads")
        configured.write("".join(f"{name}=3\n" for name in names))
        logged = configured.reload()
        found = broker_settings(configured)
        assert [found[name] for name in names] == ["4", "11", "2"]
        assert "setting=log.cleaner.threads (another setting takes precedence)\n" in logged
        assert "setting=num.io.threads" not in logged
    finally:
        configured.broker.stop()


def test_without_a_file_there_is_nothing_to_reload(tmp_path: Path) -> None:
    broker = ForkedOdradek(tmp_path / "broker")
    broker.start()
    assert broker.process is not None
    broker.process.send_signal(signal.SIGHUP)
    try:
        wait_until(lambda: "there is no --config" in broker.log_text(), "it is told")
        producing(broker, b"goes on")
    finally:
        broker.stop()


# --- stopping ---------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_it_at_once(tmp_path: Path, number: signal.Signals) -> None:
    broker = ForkedOdradek(tmp_path / "broker")
    broker.start()
    process = broker.process
    assert process is not None
    producing(broker, *[bytes(900_000)] * 20)
    # Who asks for much and reads nothing holds up the stop until its patience is over.
    with closing(socket.create_connection(("127.0.0.1", broker.port))) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.sendall(encode_request(fetching("orders", size_max=1 << 25), 4, 0, "idle"))
        assert client.recv(1)
        process.send_signal(number)
        wait_until(lambda: "stopping" in broker.log_text(), "the stop begins")
        process.send_signal(number)
        assert process.wait(3) == 1
    assert broker.log_text().splitlines()[-1] == (
        "odradek: ended by a second signal before all was made durable, the next start recovers"
    )
    assert not (broker.data / CLEAN_MARKER).exists()


def test_a_stop_is_a_success_and_leaves_the_clean_mark(tmp_path: Path) -> None:
    broker = OdradekProcess(tmp_path / "broker")
    broker.start()
    producing(broker, b"value")
    process = broker.process
    assert process is not None
    process.terminate()
    assert process.wait(20) == 0
    assert (broker.data / CLEAN_MARKER).exists()


# --- what systemd is told ---------------------------------------------------------------------


def test_a_service_manager_is_notified_of_start_reload_and_stop(tmp_path: Path) -> None:
    path = str(tmp_path / "notify")
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as listening:
        listening.bind(path)
        listening.settimeout(60)
        configured = Configured(tmp_path / "broker", environment={"NOTIFY_SOCKET": path})
        configured.broker.start()
        ready = listening.recv(4096).decode().splitlines()
        assert ready[0] == "READY=1"
        assert ready[1].startswith("STATUS=odradek ") and configured.broker.bootstrap in ready[1]
        configured.hang_up()
        reloading = listening.recv(4096).decode()
        assert re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=\d+", reloading)
        assert listening.recv(4096).startswith(b"READY=1\n")
        configured.broker.stop()
        assert listening.recv(4096).startswith(b"STOPPING=1\n")


def test_a_service_manager_that_has_gone_holds_nothing_up(tmp_path: Path) -> None:
    broker = ForkedOdradek(
        tmp_path / "broker", environment={"NOTIFY_SOCKET": str(tmp_path / "gone")}
    )
    broker.start()
    wait_until(lambda: "accepts connections" in broker.log_text(), "it is served")
    broker.stop()
    assert "could not notify the service manager" in broker.log_text()
