"""What the commands say of a broker that does not let somebody in, and with the right login."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.processes import OdradekProcess
from tests.cli.commands import Commands
from tests.logins.brokers import PASSWORD, TOPIC, Keys, Secured, running
from tests.logins.logins import MTLS, Login

# A command of librdkafka's requests, and one of other requests.
BY_BOTH_CLIENTS = ("topics", "quotas")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    """Certificates."""
    return Keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="module")
def broker(keys: Keys, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker that lets nobody in without a login."""
    with running(OdradekProcess, tmp_path_factory.mktemp("odradek"), keys) as secured:
        yield secured


def _list(kind: str, properties: dict[str, str], folder: Path) -> list[str]:
    """Return the command."""
    file = folder / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return [kind, "list", "--client-config", str(file)]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", MTLS])
def test_the_right_login(mechanism: str, broker: Secured, keys: Keys, tmp_path: Path) -> None:
    certificate = keys.certificate("right") if mechanism == MTLS else None
    login = Login(mechanism, keys.ca, "alice", PASSWORD, certificate=certificate)
    commands = Commands(broker.bootstrap(login))
    properties = login.java(tmp_path)
    assert TOPIC in commands.shown(*_list("topics", properties, tmp_path))
    assert "There are no quotas" in commands.shown(*_list("quotas", properties, tmp_path))


@pytest.mark.parametrize("kind", BY_BOTH_CLIENTS)
@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("password", ("refuses the login", "Invalid username or password", "sasl.password")),
        ("authority", ("not signed by a trusted authority", "ssl.truststore.location")),
        ("certificate", ("does not accept your certificate", "expired", "ssl.keystore.location")),
        ("nothing", ("may require TLS or a login", "--client-config")),
    ],
)
def test_a_wrong_login_is_reported_in_one_line(
    case: str, words: tuple[str, ...], kind: str, broker: Secured, keys: Keys, tmp_path: Path
) -> None:
    login = {
        "password": Login("PLAIN", keys.ca, "alice", "a wrong one"),
        "authority": Login("PLAIN", keys.other_ca, "alice", PASSWORD),
        "certificate": Login(MTLS, keys.ca, certificate=keys.certificate("expired")),
        "nothing": Login("PLAIN", keys.ca),
    }[case]
    properties = {} if case == "nothing" else login.java(tmp_path)
    message = Commands(broker.bootstrap(login)).refusal(*_list(kind, properties, tmp_path))
    assert [one for one in words if one not in message] == [], message
    assert "a wrong one" not in message


@pytest.mark.parametrize("kind", BY_BOTH_CLIENTS)
@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"sasl.mechanism": "SCRAM-SHA-512"}, ("does not serve the mechanism", "PLAIN")),
        ({"sasl.username": ""}, ("must be set",)),
        ({"ssl.ca.location": "/none.pem"}, ("ssl.ca.location failed",)),
        ({"ssl.ca.locatio": "/none.pem"}, ("No such configuration property",)),
        ({"security.protocol": "TLS"}, ("Invalid value", "security.protocol")),
    ],
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else "",
)
def test_properties_that_cannot_be_used_are_reported_in_one_line(
    properties: dict[str, str], words: tuple[str, ...], kind: str, broker: Secured, tmp_path: Path
) -> None:
    given = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": PASSWORD,
        **({"security.protocol": "SASL_SSL"} if "ssl.ca.location" in properties else {}),
        **properties,
    }
    commands = Commands(f"localhost:{broker.ports['SETUP']}")
    message = commands.refusal(*_list(kind, given, tmp_path))
    assert [one for one in words if one not in message] == [], message


def test_a_mechanism_of_librdkafka_alone_is_named(broker: Secured, tmp_path: Path) -> None:
    given = {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI"}
    message = Commands("localhost:1").refusal(*_list("quotas", given, tmp_path))
    assert "cannot log in by GSSAPI" in message and "SCRAM-SHA-256" in message


@pytest.mark.parametrize("kind", BY_BOTH_CLIENTS)
def test_an_address_without_a_broker_is_reported_in_one_line(kind: str) -> None:
    assert "(Connection refused)" in Commands("localhost:1").refusal(kind, "list")
    assert "(Name or service not known)" in Commands("host.invalid:9092").refusal(kind, "list")
