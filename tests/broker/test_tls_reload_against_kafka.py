"""A running broker takes and refuses new certificates as Apache Kafka does."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509

from bench.processes import KafkaProcess, OdradekProcess, free_port, kafka_libs
from tests.broker.certificates import Authority, Identity
from tests.support.waiting import wait_until

pytestmark = pytest.mark.kafka

AUTHORITY = Authority()
FIRST = AUTHORITY.issue(hosts=("localhost", "127.0.0.1"))
PREFIX = "listener.name.tls."


@dataclass
class Place:
    """A broker, where its files are, and the port that speaks TLS."""

    process: OdradekProcess | KafkaProcess
    path: Path
    port: int

    def alter(self, values: dict[str, str]) -> str:
        """Set settings of the broker; return the name of the error, "" for none."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import (
            AdminClient,
            AlterConfigOpType,
            ConfigEntry,
            ConfigResource,
            ResourceType,
        )

        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in values.items()
        ]
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
        admin = AdminClient({"bootstrap.servers": self.process.bootstrap})
        try:
            admin.incremental_alter_configs([resource])[resource].result()
        except KafkaException as failed:
            error = failed.args[0]
            return f"{error.name()}"
        return ""

    def shown(self) -> x509.Certificate:
        """Return the certificate that a new connection sees."""
        pem = ssl.get_server_certificate(("127.0.0.1", self.port), timeout=60)
        return x509.load_pem_x509_certificate(pem.encode())


def start(cls: type[OdradekProcess] | type[KafkaProcess], path: Path) -> Place:
    """Start a broker with a listener for clients and one that speaks TLS."""
    path.mkdir()
    process, port = cls(path), free_port()
    bound = [f"PLAINTEXT://127.0.0.1:{process.port}", f"TLS://127.0.0.1:{port}"]
    protocols = ["PLAINTEXT:PLAINTEXT", "TLS:SSL"]
    settings = {
        "node.id": "1",
        "advertised.listeners": ",".join(bound),
        f"{PREFIX}ssl.keystore.type": "PEM",
        f"{PREFIX}ssl.keystore.location": str(FIRST.pem_file(path / "server.pem")),
    }
    if isinstance(process, KafkaProcess):
        bound.append(f"CONTROLLER://127.0.0.1:{process.controller_port}")
        protocols.append("CONTROLLER:PLAINTEXT")
    settings["listeners"] = ",".join(bound)
    settings["listener.security.protocol.map"] = ",".join(protocols)
    process.settings = settings
    process.start()
    return Place(process, path, port)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Place]]:
    if kafka_libs() is None:
        pytest.skip("Kafka's jars are not there: set KAFKA_LIBS")
    path = tmp_path_factory.mktemp("tls")
    found = [start(OdradekProcess, path / "ours")]
    try:
        found.append(start(KafkaProcess, path / "kafka"))
        yield found
    finally:
        for one in found:
            one.process.stop()


LOCATION = f"{PREFIX}ssl.keystore.location"
SCRIPT: list[tuple[str, Callable[[Place], dict[str, str]]]] = [
    ("a new file", lambda at: _file(at, AUTHORITY.issue())),
    ("more hosts", lambda at: _file(at, AUTHORITY.issue(hosts=("localhost", "127.0.0.1", "h")))),
    ("fewer hosts", lambda at: _file(at, AUTHORITY.issue(hosts=("localhost",)))),
    ("another name", lambda at: _file(at, AUTHORITY.issue("another"))),
    ("no such file", lambda at: {LOCATION: str(at.path / "none.pem")}),
    ("not for all listeners", lambda at: {"ssl.keystore.location": str(at.path / "server.pem")}),
    ("which versions", lambda at: {f"{PREFIX}ssl.enabled.protocols": "TLSv1.2"}),
    ("a trust store", lambda at: _trust(at)),
    ("the wrong type", lambda at: {f"{PREFIX}ssl.keystore.type": "PKCS12"}),
    ("an unknown type", lambda at: {f"{PREFIX}ssl.keystore.type": "NONE"}),
    ("the same file, changed", lambda at: _changed(at)),
    # Of threads there must not be fewer: a Kafka that has ended some may not come to its own end.
    ("something else, with a changed file", lambda at: _changed(at) and {"num.io.threads": "9"}),
    ("a broken file", lambda at: _broken(at)),
]  # fmt: skip


def _file(at: Place, identity: Identity) -> dict[str, str]:
    path = at.path / f"{identity.certificate.serial_number:x}.pem"
    return {LOCATION: str(identity.pem_file(path))}


def _trust(at: Place) -> dict[str, str]:
    path = AUTHORITY.pem_file(at.path / "ca.pem")
    types = {f"{PREFIX}ssl.truststore.type": "PEM"}
    return types | {f"{PREFIX}ssl.truststore.location": str(path)}


def _changed(at: Place) -> dict[str, str]:
    hosts = ("localhost", "127.0.0.1", "h", "i")
    return {LOCATION: str(AUTHORITY.issue(hosts=hosts).pem_file(at.path / "same.pem"))}


def _broken(at: Place) -> dict[str, str]:
    path = at.path / "broken.pem"
    path.write_text("nothing of use")
    return {LOCATION: str(path)}


def test_the_same_requests_have_the_same_outcome(places: list[Place]) -> None:
    ours, kafkas = places
    for name, make in SCRIPT:
        before = ours.shown(), kafkas.shown()
        error = ours.alter(make(ours))
        assert error == kafkas.alter(make(kafkas)), name
        if ours.shown() == before[0]:
            continue  # what Kafka has changed nevertheless, the next step finds changed too soon
        assert not error, name
        # Kafka has said yes before its broker hears of it.
        wait_until(lambda before=before: kafkas.shown() != before[1], name)  # type: ignore[misc]
