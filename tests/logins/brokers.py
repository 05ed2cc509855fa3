"""Odradek and Kafka with the same listeners, people and keys, set up over the same protocol."""

from __future__ import annotations

import base64
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import pbkdf2_hmac
from pathlib import Path

from bench.processes import KafkaProcess, OdradekProcess, free_port
from odradek.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from odradek.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from odradek.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from tests.broker.certificates import Authority
from tests.broker.sasl_peer import SaslPeer
from tests.logins.logins import MTLS, OAUTHBEARER, Login
from tests.logins.tokens import AUDIENCE, ISSUER, TokenIssuer
from tests.support.asking import create_topics
from tests.support.waiting import wait_until

TOPIC = "secured"
PASSWORD = "alice's own secret"
ADMIN, ADMIN_PASSWORD = "admin", "the-administrator's-secret"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", OAUTHBEARER)
_MODULES = "org.apache.kafka.common.security."
_ALLOWED = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
_SETTLE_S = 60.0
_ITERATIONS = 4096


@dataclass(frozen=True)
class Keys:
    """Certificates and tokens, of the right people and of others."""

    folder: Path
    authority: Authority = field(default_factory=lambda: Authority("The CA"))
    other_authority: Authority = field(default_factory=lambda: Authority("Another CA"))
    issuer: TokenIssuer = field(default_factory=TokenIssuer)
    other_issuer: TokenIssuer = field(default_factory=TokenIssuer)

    def __post_init__(self) -> None:
        """Write the files that brokers and clients read."""
        self.authority.issue().pem_file(self.folder / "server.pem")
        self.authority.pem_file(self.ca)
        self.other_authority.pem_file(self.other_ca)
        self.authority.issue("alice").pem_file(self.certificate("right"))
        self.other_authority.issue("alice").pem_file(self.certificate("other"))
        self.authority.issue("alice", days=(-9, -2)).pem_file(self.certificate("expired"))
        self.jwks.write_text(self.issuer.jwks())

    @property
    def ca(self) -> Path:
        """What to trust."""
        return self.folder / "ca.pem"

    @property
    def other_ca(self) -> Path:
        """What signed nobody's certificate."""
        return self.folder / "other-ca.pem"

    @property
    def jwks(self) -> Path:
        """The keys by which tokens are checked."""
        return self.folder / "jwks.json"

    def certificate(self, kind: str) -> Path:
        """A client's key and certificate: right, other or expired."""
        return self.folder / f"client-{kind}.pem"


@dataclass
class Secured:
    """A running broker: where its listeners are, and what was made there."""

    process: OdradekProcess | KafkaProcess
    ports: dict[str, int]
    tokens: dict[str, tuple[str, str]] = field(default_factory=dict)

    def bootstrap(self, login: Login) -> str:
        """Return the address for a login; localhost, which the certificate names."""
        return f"localhost:{self.ports[login.protocol if login.mechanism == MTLS else 'SASL_SSL']}"

    def set_up(self) -> None:
        """Make a topic, alice's SCRAM credentials, and two delegation tokens, one ended."""
        with SaslPeer(self.ports["SETUP"]) as peer:
            peer.log_in_plain(ADMIN, ADMIN_PASSWORD)
            create_topics(peer, TOPIC)
            self._make_scram_users(peer)
            for kind in ("right", "ended"):
                self.tokens[kind] = self._make_token(peer)
            ended = peer.ask(
                ExpireDelegationTokenRequest(
                    hmac=base64.b64decode(self.tokens["ended"][1]), expiry_time_period_ms=-1
                ),
                2,
            )
            assert ended.error_code == 0

    def _make_scram_users(self, peer: SaslPeer) -> None:
        salt = bytes(range(16))
        for number, name in enumerate(("sha256", "sha512"), start=1):
            wanted = ScramCredentialUpsertion(
                name="alice",
                mechanism=number,
                iterations=_ITERATIONS,
                salt=salt,
                salted_password=pbkdf2_hmac(name, PASSWORD.encode(), salt, _ITERATIONS),
            )
            # One user may stand in a request once.
            request = AlterUserScramCredentialsRequest(deletions=[], upsertions=[wanted])
            answer = peer.ask(request, 0)
            assert [one.error_code for one in answer.results] == [0], answer

    def _make_token(self, peer: SaslPeer) -> tuple[str, str]:
        """Make a delegation token; return its id and its hmac, once SCRAM knows it."""
        made = peer.ask(
            CreateDelegationTokenRequest(
                owner_principal_type=None,
                owner_principal_name=None,
                renewers=[],
                max_lifetime_ms=-1,
            ),
            3,
        )
        assert made.error_code == 0, made
        hmac = base64.b64encode(made.hmac).decode()
        deadline = time.monotonic() + _SETTLE_S
        while True:
            with SaslPeer(self.ports["SETUP"]) as one:
                try:
                    one.log_in_scram("SCRAM-SHA-256", made.token_id, hmac, is_token=True)
                    return made.token_id, hmac
                except Exception:
                    if time.monotonic() > deadline:
                        raise


def accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except OSError:
        return False
    return True


@contextmanager
def running(
    kind: type[OdradekProcess] | type[KafkaProcess], folder: Path, keys: Keys
) -> Iterator[Secured]:
    """Start a broker, set it up, and stop it in the end."""
    ports = {name: free_port() for name in ("SSL", "SASL_SSL", "SETUP")}
    process = kind(folder)
    listeners = {
        "SSL": ports["SSL"], "SASL_SSL": ports["SASL_SSL"], "SETUP": ports["SETUP"],
        "PLAINTEXT": process.port,
    }  # fmt: skip
    settings = _settings(listeners, keys)
    if isinstance(process, KafkaProcess):
        # It reads keys from no file that it was not told of.
        process.flags = (
            f"{_ALLOWED}.urls={keys.jwks.as_uri()}",
            f"{_ALLOWED}.files={keys.jwks}",
        )
        controller = f"CONTROLLER://127.0.0.1:{process.controller_port}"
        settings["listeners"] += f",{controller}"
        settings["listener.security.protocol.map"] += ",CONTROLLER:PLAINTEXT"
        handler = f"{_MODULES}oauthbearer.OAuthBearerValidatorCallbackHandler"
        prefix = "listener.name.sasl_ssl.oauthbearer"
        settings[f"{prefix}.sasl.server.callback.handler.class"] = handler
        settings["advertised.listeners"] = ",".join(
            f"{name}://localhost:{port}" for name, port in listeners.items()
        )
    process.settings = settings
    process.start()
    try:
        secured = Secured(process, ports)
        for port in ports.values():  # Kafka opens its listeners one after the other
            wait_until(lambda port=port: accepts(port), f"port {port} is open")
        secured.set_up()
        yield secured
    finally:
        process.stop()


def _settings(listeners: dict[str, int], keys: Keys) -> dict[str, str]:
    plain = f"{_MODULES}plain.PlainLoginModule required"
    people = (
        f'user_alice="{PASSWORD}" user_{ADMIN}="{ADMIN_PASSWORD}"'
    )
    told = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items()),
        "advertised.listeners": ",".join(
            f"{name}://localhost:{port}" for name, port in listeners.items()
        ),
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL,SETUP:SASL_PLAINTEXT"
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys.folder / "server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(keys.ca),
        "listener.name.ssl.ssl.client.auth": "required",
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.setup.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "delegation.token.secret.key": "the-key-of-all-tokens",
        "sasl.oauthbearer.jwks.endpoint.url": keys.jwks.as_uri(),
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "listener.name.sasl_ssl.oauthbearer.sasl.jaas.config": (
            f"{_MODULES}oauthbearer.OAuthBearerLoginModule required;"
        ),
    }
    for name in ("sasl_ssl", "setup"):
        told[f"listener.name.{name}.plain.sasl.jaas.config"] = f"{plain} {people};"
        for scram in ("scram-sha-256", "scram-sha-512"):
            told[f"listener.name.{name}.{scram}.sasl.jaas.config"] = (
                f"{_MODULES}scram.ScramLoginModule required;"
            )
    return told
