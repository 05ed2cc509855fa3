"""Java's client and librdkafka at TLS listeners: let in and refused as Apache Kafka does it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.processes import KafkaProcess, OdradekProcess, free_port, kafka_libs
from tests.broker.certificates import Authority, Identity
from tests.support.java import program

# tests/logins has a short form.
pytestmark = [pytest.mark.kafka, pytest.mark.interop]

AUTHORITY, STRANGER = Authority(), Authority("A Stranger")
TOPIC = "orders"
_PROGRAM = Path(__file__).with_name("TlsClientOracle.java")
_TIMEOUTS = {"default.api.timeout.ms": "4000", "request.timeout.ms": "3000"}


@dataclass(frozen=True)
class Case:
    """Which listener a client goes to, whom it trusts and who it is."""

    listener: str = "TLS"
    trusts: Authority = AUTHORITY
    shows: Identity | None = None
    security: str = "SSL"
    is_let_in: bool = True


ALICE = AUTHORITY.issue("alice", unit="Sales")
CASES = {
    "no certificate asked for": Case(),
    "a certificate asked for": Case("MUTUAL", shows=ALICE),
    "a client that trusts another authority": Case(trusts=STRANGER, is_let_in=False),
    "a client without a certificate": Case("MUTUAL", is_let_in=False),
    "a client of another authority": Case(
        "MUTUAL", shows=STRANGER.issue("mallory"), is_let_in=False
    ),
    "a client whose certificate has expired": Case(
        "MUTUAL", shows=AUTHORITY.issue("late", days=(-3, -1)), is_let_in=False
    ),
    "a broker whose certificate has expired": Case("EXPIRED", is_let_in=False),
    "a broker of another name": Case("MISNAMED", is_let_in=False),
    "plain text to a TLS listener": Case(security="PLAINTEXT", is_let_in=False),
    "TLS to a plain listener": Case("PLAINTEXT", is_let_in=False),
}


@dataclass
class Place:
    """A broker, and the ports of its listeners."""

    process: OdradekProcess | KafkaProcess
    ports: Mapping[str, int]


def tls_settings(path: Path) -> dict[str, str]:
    """Return the settings of the listeners, alike for both brokers."""
    expired = AUTHORITY.issue(days=(-3, -1))
    misnamed = AUTHORITY.issue(hosts=("another.host",))
    files = {
        name: str(one.pem_file(path / f"{name}.pem"))
        for name, one in {"server": AUTHORITY.issue(), "old": expired, "odd": misnamed}.items()
    }
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": files["server"],
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(AUTHORITY.pem_file(path / "ca.pem")),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.expired.ssl.keystore.location": files["old"],
        "listener.name.misnamed.ssl.keystore.location": files["odd"],
    }


def start(cls: type[OdradekProcess] | type[KafkaProcess], path: Path) -> Place:
    """Start a broker with one listener for each kind of certificate."""
    path.mkdir()
    process = cls(path)
    names = ("TLS", "MUTUAL", "EXPIRED", "MISNAMED")
    ports = {"PLAINTEXT": process.port, **{name: free_port() for name in names}}
    bound = [f"{name}://127.0.0.1:{port}" for name, port in ports.items()]
    protocols = ["PLAINTEXT:PLAINTEXT", *(f"{name}:SSL" for name in names)]
    settings = {**tls_settings(path), "message.max.bytes": "2000000"}
    settings["advertised.listeners"] = ",".join(bound)
    if isinstance(process, KafkaProcess):
        bound.append(f"CONTROLLER://127.0.0.1:{process.controller_port}")
        protocols.append("CONTROLLER:PLAINTEXT")
    settings["listeners"] = ",".join(bound)
    settings["listener.security.protocol.map"] = ",".join(protocols)
    process.settings = settings
    process.start()
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": process.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result()
    return Place(process, ports)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    if kafka_libs() is None:
        pytest.skip("Kafka's jars are not there: set KAFKA_LIBS")
    path = tmp_path_factory.mktemp("tls")
    found = {"ours": start(OdradekProcess, path / "ours")}
    try:
        found["kafka"] = start(KafkaProcess, path / "kafka")
        yield found
    finally:
        for one in found.values():
            one.process.stop()


def java_settings(place: Place, case: Case) -> dict[str, str]:
    """Return the settings of Java's clients."""
    settings = {
        "bootstrap.servers": f"127.0.0.1:{place.ports[case.listener]}",
        "security.protocol": case.security,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": case.trusts.pem(),
        "topic": TOPIC,
        "max.request.size": "2000000",
        **_TIMEOUTS,
    }
    if case.shows is not None:
        settings["ssl.keystore.type"] = "PEM"
        settings["ssl.keystore.key"] = case.shows.key_pem()
        settings["ssl.keystore.certificate.chain"] = case.shows.chain_pem()
    return settings


def test_javas_clients_are_let_in_and_refused_as_by_kafka(places: dict[str, Place]) -> None:
    asked = [
        java_settings(place, case) for place in places.values() for case in CASES.values()
    ]
    run = subprocess.run(
        program(_PROGRAM),
        input=json.dumps(asked).encode(),
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, run.stderr.decode()
    outcomes = json.loads(run.stdout.splitlines()[-1])  # after what it logs
    ours, kafkas = outcomes[: len(CASES)], outcomes[len(CASES) :]
    assert dict(zip(CASES, ours, strict=True)) == dict(zip(CASES, kafkas, strict=True))
    for (name, case), outcome in zip(CASES.items(), ours, strict=True):
        assert (outcome == "ok") == case.is_let_in, name


def librdkafkas_outcome(place: Place, case: Case, path: Path) -> set[str] | None:
    """Connect by librdkafka; return the names of the errors that it told, None when let in."""
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient

    errors: set[str] = set()

    def note(error: KafkaError) -> None:
        # Whether the last broker counts as down before the asking ends is chance.
        errors.add(error.name())

    settings = {
        "bootstrap.servers": f"127.0.0.1:{place.ports[case.listener]}",
        "security.protocol": case.security,
        "ssl.ca.pem": case.trusts.pem(),
        "error_cb": note,
        "log_level": 0,
    }
    if case.shows is not None:
        settings["ssl.key.location"] = str(case.shows.key_file(path / "key.pem"))
        settings["ssl.certificate.location"] = str(case.shows.chain_file(path / "cert.pem"))
    admin = AdminClient(settings)
    try:
        admin.list_topics(timeout=10 if case.is_let_in else 3)
    except KafkaException:
        admin.poll(1)
        # Which of its attempts end as a lost connection is a matter of time.
        return errors - {"_ALL_BROKERS_DOWN", "_TRANSPORT"} or errors
    return None


@pytest.mark.parametrize("name", CASES)
def test_librdkafka_is_let_in_and_refused_as_by_kafka(
    places: dict[str, Place], name: str, tmp_path: Path
) -> None:
    case = CASES[name]
    ours = librdkafkas_outcome(places["ours"], case, tmp_path)
    assert ours == librdkafkas_outcome(places["kafka"], case, tmp_path)
    assert (ours is None) == case.is_let_in


def test_a_refusal_is_one_line_without_secrets(places: dict[str, Place]) -> None:
    ours = places["ours"].process
    assert isinstance(ours, OdradekProcess)
    text = ours.log_text()
    assert "Traceback" not in text
    assert "PRIVATE KEY" not in text
