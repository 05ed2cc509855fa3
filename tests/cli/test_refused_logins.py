"""What the commands say of a broker that does not let somebody in, and with the right login."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.processes import OdradekProcess
from tests.cli.commands import Commands
from tests.logins.brokers import PASSWORD, TOPIC, Keys, Secured, running
from tests.logins.logins import MTLS, Login

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


def _list_topics(properties: dict[str, str], folder: Path) -> list[str]:
    """Return the command."""
    file = folder / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return ["topics", "list", "--client-config", str(file)]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", MTLS])
def test_the_right_login(mechanism: str, broker: Secured, keys: Keys, tmp_path: Path) -> None:
    certificate = keys.certificate("right") if mechanism == MTLS else None
    login = Login(mechanism, keys.ca, "alice", PASSWORD, certificate=certificate)
    commands = Commands(broker.bootstrap(login))
    assert TOPIC in commands.shown(*_list_topics(login.java(tmp_path), tmp_path))


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
    case: str, words: tuple[str, ...], broker: Secured, keys: Keys, tmp_path: Path
) -> None:
    login = {
        "password": Login("PLAIN", keys.ca, "alice", "a wrong one"),
        "authority": Login("PLAIN", keys.other_ca, "alice", PASSWORD),
        "certificate": Login(MTLS, keys.ca, certificate=keys.certificate("expired")),
        "nothing": Login("PLAIN", keys.ca),
    }[case]
    properties = {} if case == "nothing" else login.java(tmp_path)
    message = Commands(broker.bootstrap(login)).refusal(*_list_topics(properties, tmp_path))
    assert [one for one in words if one not in message] == [], message
    assert "a wrong one" not in message
