"""The TLS of the command line's own client, from librdkafka's properties."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from odradek.cli.refusals import CommandError
from odradek.cli.wire.logins import login_of, mechanism_of
from odradek.cli.wire.security import context_of, protocol_of
from tests.broker.certificates import Authority, Identity

PASSWORD = "a-password"
OURS, OTHER = Authority("Ours"), Authority("Another")


@pytest.fixture(scope="module")
def server() -> Identity:
    """The certificate of localhost."""
    return OURS.issue("broker", hosts=["localhost"])


def _shown(
    properties: dict[str, str], server: Identity, folder: Path, host: str = "localhost"
) -> str | None:
    """Return the name in the client's certificate after a handshake, None without one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(server.pem_file(folder / "server.pem"))
    context.load_verify_locations(OURS.pem_file(folder / "trusted.pem"))
    context.verify_mode = ssl.CERT_OPTIONAL
    made = context_of({"security.protocol": "ssl", **properties})
    assert made is not None
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = made.wrap_bio(to_client, to_server, server_hostname=host)
    broker = context.wrap_bio(to_server, to_client, server_side=True)
    waiting = [client, broker]
    while waiting:
        one = waiting.pop(0)
        try:
            one.do_handshake()
        except ssl.SSLWantReadError:
            waiting.append(one)
    found = broker.getpeercert()
    subject = dict(part for parts in found["subject"] for part in parts) if found else {}
    return subject.get("commonName")  # type: ignore[return-value]


def _revoked(identity: Identity, file: Path) -> Path:
    now = datetime.now(UTC)
    entry = x509.RevokedCertificateBuilder().serial_number(identity.certificate.serial_number)
    builder = x509.CertificateRevocationListBuilder().issuer_name(OURS.certificate.subject)
    builder = builder.last_update(now - timedelta(days=1)).next_update(now + timedelta(days=1))
    builder = builder.add_revoked_certificate(entry.revocation_date(now).build())
    file.write_bytes(builder.sign(OURS.key, hashes.SHA256()).public_bytes(Encoding.PEM))
    return file


@pytest.mark.parametrize("form", ["inline", "files", "encrypted", "pkcs12"])
def test_the_own_certificate_is_shown(form: str, server: Identity, tmp_path: Path) -> None:
    ann = OURS.issue("ann")
    key, chain = tmp_path / "key.pem", tmp_path / "chain.pem"
    given = {
        "inline": lambda: {"ssl.key.pem": ann.key_pem(), "ssl.certificate.pem": ann.chain_pem()},
        "files": lambda: {
            "ssl.key.location": str(ann.key_file(key)),
            "ssl.certificate.location": str(ann.chain_file(chain)),
        },
        "encrypted": lambda: {
            "ssl.key.location": str(ann.key_file(key, PASSWORD)),
            "ssl.key.password": PASSWORD,
            "ssl.certificate.location": str(ann.chain_file(chain)),
        },
        "pkcs12": lambda: {
            "ssl.keystore.location": str(ann.pkcs12_file(tmp_path / "ann.p12", PASSWORD)),
            "ssl.keystore.password": PASSWORD,
        },
    }[form]()
    assert _shown({"ssl.ca.pem": OURS.pem(), **given}, server, tmp_path) == "ann"


def test_the_server_has_to_be_trusted(server: Identity, tmp_path: Path) -> None:
    trusted = {"ssl.ca.location": str(OURS.pem_file(tmp_path / "ca.pem"))}
    assert _shown(trusted, server, tmp_path) is None
    with pytest.raises(ssl.SSLCertVerificationError, match="certificate verify failed"):
        _shown({"ssl.ca.pem": OTHER.pem()}, server, tmp_path)
    unverified = {"enable.ssl.certificate.verification": "false"}
    assert _shown(unverified, server, tmp_path, "elsewhere") is None


def test_the_server_has_to_have_its_name(server: Identity, tmp_path: Path) -> None:
    trusted = {"ssl.ca.pem": OURS.pem()}
    with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
        _shown(trusted, server, tmp_path, "elsewhere")
    unnamed = {**trusted, "ssl.endpoint.identification.algorithm": "none"}
    assert _shown(unnamed, server, tmp_path, "elsewhere") is None


def test_a_revoked_certificate_is_not_trusted(server: Identity, tmp_path: Path) -> None:
    revoked = _revoked(server, tmp_path / "crl.pem")
    given = {"ssl.ca.pem": OURS.pem(), "ssl.crl.location": str(revoked)}
    with pytest.raises(ssl.SSLCertVerificationError, match="revoked"):
        _shown(given, server, tmp_path)
    assert _shown(given, OURS.issue(hosts=["localhost"]), tmp_path) is None


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    given = {"security.protocol": "SSL", "ssl.keystore.location": str(tmp_path / "none.p12")}
    with pytest.raises(CommandError, match=r"ssl\.keystore\.location|none\.p12"):
        context_of({**given, "ssl.keystore.password": PASSWORD})


def test_without_tls_or_sasl_there_is_neither() -> None:
    assert protocol_of({}) == "PLAINTEXT"
    assert context_of({"security.protocol": "sasl_plaintext"}) is None
    assert login_of({"security.protocol": "ssl", "sasl.mechanism": "PLAIN"}) is None
    given = {"security.protocol": "sasl_ssl", "sasl.mechanisms": "scram-sha-256"}
    assert mechanism_of(given) == "SCRAM-SHA-256" and login_of(given) is not None
