"""Settings of a running broker for a sweep: two brokers alike, names, and plausible values.

Both brokers have four listeners: PLAINTEXT, on which the tests ask, `tls` (SSL), `login`
(SASL_PLAINTEXT with SCRAM) and `plain`, which is of no use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.processes import KafkaProcess, OdradekProcess, free_port
from odradek.config.effective import BROKER_OPTION
from odradek.config.errors import ConfigError
from odradek.config.values import Kind
from tests.broker.certificates import Authority
from tests.support.forking import ForkedOdradek

AUTHORITY = Authority()
SERVER = AUTHORITY.issue(hosts=("localhost", "127.0.0.1"))
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
NODE, ALL = "1", ""
_PROTOCOLS = "listener.security.protocol.map"

# The forms under which a setting is written.
FORMS: Mapping[str, str] = {
    "bare": "",
    "of a plain listener": "listener.name.plain.",
    "of a TLS listener": "listener.name.tls.",
    "of a SASL listener": "listener.name.login.",
    "of a mechanism": "listener.name.login.scram-sha-256.",
    "of a mechanism that is not enabled": "listener.name.login.plain.",
    "of a mechanism without SASL": "listener.name.plain.scram-sha-256.",
    "of an unknown listener": "listener.name.stranger.",
    "of an unknown listener's mechanism": "listener.name.stranger.scram-sha-256.",
}

_CANDIDATES = {
    Kind.BOOLEAN: ("true", "false"),
    Kind.STRING: ("LogAppendTime", "producer", "gzip", "read_committed", "requested", "none", "x"),
    Kind.LIST: ("a", "compact", "broker"),
    Kind.PASSWORD: ("secret",),
    Kind.CLASS: ("java.lang.String",),
}
_THREADS = (".threads", ".pool.size", ".fetchers", "threads.per.data.dir")
_NUMBERS = ("7", "2", "1", "0.7", "1024", "2097152", "200000", "1000000000")


@dataclass(frozen=True)
class Files:
    """What settings point to: stores of both kinds, and a text that is none."""

    directory: Path

    @property
    def pem(self) -> Path:
        """A key and its certificate as PEM."""
        return SERVER.pem_file(self.directory / "server.pem")

    @property
    def trusted(self) -> Path:
        """A certificate to trust as PEM."""
        return AUTHORITY.pem_file(self.directory / "trusted.pem")

    @property
    def key_store(self) -> Path:
        """A key and its certificate as PKCS#12, with a password."""
        return SERVER.pkcs12_file(self.directory / "server.p12", "right")

    @property
    def trust_store(self) -> Path:
        """A certificate to trust as PKCS#12, with a password."""
        return AUTHORITY.pkcs12_file(self.directory / "trusted.p12", "right")

    @property
    def text(self) -> Path:
        """A file that is no store."""
        path = self.directory / "notes.txt"
        path.write_text("no store\n")
        return path


def values(files: Files, data: Path) -> dict[str, str]:
    """Return a plausible value for each option of the broker whose data is there."""
    special = {
        "advertised.listeners": "PLAINTEXT://127.0.0.1:9092",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "config.providers": "file",
        "cordoned.log.dirs": str(data),
        "early.start.listeners": "PLAINTEXT",
        "group.coordinator.cached.buffer.max.bytes": "1048577",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "log.cleaner.io.max.bytes.per.second": "1000000",
        "log.cleaner.dedupe.buffer.size": "134217729",
        "max.connections.per.ip.overrides": "127.0.0.1:5",
        "metric.reporters": "org.apache.kafka.common.metrics.JmxReporter",
        "metrics.listener": "127.0.0.1:0",
        "odradek.admin.token": "a-long-token",
        "odradek.catalog.url": f"sqlite://{data}/catalog.db",
        "odradek.http.read.token": "another-token",
        "odradek.object.store.endpoint": "http://127.0.0.1:1",
        "odradek.object.store.url": f"{data.as_uri()}/store",
        "odradek.otlp.endpoint": "http://127.0.0.1:1",
        "odradek.schema.registry.url": "http://127.0.0.1:1",
        "odradek.scram.users": "SCRAM-SHA-256=[name=alice,password=secret]",
        "principal.builder.class": (
            "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
        ),
        "process.roles": "controller",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl.jaas.config": SCRAM,
        "sasl.kerberos.principal.to.local.rules": "RULE:[1:$1],DEFAULT",
        "sasl.oauthbearer.jwks.endpoint.url": "https://127.0.0.1:1/keys",
        "ssl.cipher.suites": "TLS_AES_256_GCM_SHA384",
        "ssl.enabled.protocols": "TLSv1.3",
        "ssl.keystore.certificate.chain": SERVER.chain_pem(),
        "ssl.keystore.key": SERVER.key_pem(),
        "ssl.keystore.location": str(files.pem),
        "ssl.keystore.type": "PEM",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*)$/$1/",
        "ssl.protocol": "TLSv1.2",
        "ssl.secure.random.implementation": "SHA1PRNG",
        "ssl.truststore.certificates": AUTHORITY.pem(),
        "ssl.truststore.location": str(files.trusted),
        "ssl.truststore.type": "PEM",
    }
    return {name: special.get(name) or _plausible(name) for name in BROKER_OPTION}


def starts(
    directory: Path, settings: Mapping[str, str]
) -> tuple[OdradekProcess, KafkaProcess]:
    """Return Odradek and Kafka with the same listeners and settings, neither started."""
    ours = ForkedOdradek(directory / "ours")
    kafka = KafkaProcess(directory / "kafka", unset=["advertised.listeners"])
    ours.settings = {**_settings(ours.port, Files(directory)), **settings}
    controller = f"CONTROLLER://127.0.0.1:{kafka.controller_port}"
    common = _settings(kafka.port, Files(directory))
    kafka.settings = {
        **common,
        **settings,
        "listeners": f"{common['listeners']},{controller}",
        _PROTOCOLS: f"{common[_PROTOCOLS]},CONTROLLER:PLAINTEXT",
    }
    return ours, kafka


def _settings(port: int, files: Files) -> dict[str, str]:
    bound = {"PLAINTEXT": port, **{name: free_port() for name in ("PLAIN", "TLS", "LOGIN")}}
    return {
        "node.id": NODE,
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in bound.items()),
        _PROTOCOLS: "PLAINTEXT:PLAINTEXT,PLAIN:PLAINTEXT,TLS:SSL,LOGIN:SASL_PLAINTEXT",
        "listener.name.tls.ssl.keystore.type": "PEM",
        "listener.name.tls.ssl.keystore.location": str(files.pem),
        "listener.name.tls.ssl.truststore.type": "PEM",
        "listener.name.tls.ssl.truststore.location": str(files.trusted),
        "listener.name.login.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.login.scram-sha-256.sasl.jaas.config": SCRAM,
    }


def _plausible(name: str) -> str:
    option = BROKER_OPTION[name]
    if option.dynamic and name.endswith(_THREADS):
        # Kafka takes no more than twice as many threads as there are.
        return str(int(option.default_text or "") + 1)
    for text in _CANDIDATES.get(option.kind, _NUMBERS):
        try:
            option.read(text)
        except ConfigError:
            continue
        if text != option.default_text:
            return text
    assert option.default_text is not None, f"there is no value for {name}"
    return option.default_text
