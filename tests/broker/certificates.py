"""Certificates for tests: an authority, and what it signs, as PEM and PKCS#12 files.

    authority = Authority("a CA")
    server = authority.issue("broker", hosts=("localhost", "127.0.0.1"))
    server.pem_file(tmp_path / "server.pem")            key, certificate, chain: Kafka's PEM store
    authority.pem_file(tmp_path / "ca.pem")             what to trust
    client = authority.issue("alice", unit="Sales")     the principal User:CN=alice,OU=Sales
    expired = authority.issue("late", days=(-2, -1))

Keys are of the curve P-256, which take no time to make.
"""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LOOPBACK = ("localhost", "127.0.0.1")
# The key of an authority signs certificates, and nothing else.
_SIGNS = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True)
class Identity:
    """A private key, its certificate, and the authorities' above it."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    chain: tuple[x509.Certificate, ...] = ()

    def key_pem(self, password: str | None = None) -> str:
        """Return the key as PKCS#8, the only form that Kafka reads."""
        encrypted = _encryption(password)
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encrypted).decode()

    def chain_pem(self) -> str:
        """Return the certificate, then those above it."""
        every = (self.certificate, *self.chain)
        return "".join(one.public_bytes(Encoding.PEM).decode() for one in every)

    def pem_file(self, path: Path, password: str | None = None) -> Path:
        """Write key and certificates as Kafka's ssl.keystore.type=PEM has them."""
        path.write_text(self.key_pem(password) + self.chain_pem())
        return path

    def key_file(self, path: Path, password: str | None = None) -> Path:
        """Write the key alone, as librdkafka's ssl.key.location has it."""
        path.write_text(self.key_pem(password))
        return path

    def chain_file(self, path: Path) -> Path:
        """Write the certificates alone, as librdkafka's ssl.certificate.location has them."""
        path.write_text(self.chain_pem())
        return path

    def pkcs12_file(self, path: Path, password: str) -> Path:
        """Write all as PKCS#12."""
        data = pkcs12.serialize_key_and_certificates(
            b"one", self.key, self.certificate, list(self.chain), _encryption(password)
        )
        path.write_bytes(data)
        return path


class Authority:
    """Signs certificates; its own is signed by itself, or by another authority."""

    def __init__(self, name: str = "An Authority", above: Authority | None = None) -> None:
        self.key = ec.generate_private_key(ec.SECP256R1())
        subject = _name(name, None)
        signer = self if above is None else above
        issuer = subject if above is None else above.certificate.subject
        builder = _begun(subject, issuer, self.key, (-1, 30))
        builder = builder.add_extension(x509.BasicConstraints(True, None), critical=True)
        builder = builder.add_extension(_SIGNS, critical=True)
        builder = _linked(builder, self.key, signer.key)
        self.certificate = builder.sign(signer.key, hashes.SHA256())
        self.chain: tuple[x509.Certificate, ...] = (
            () if above is None else (self.certificate, *above.chain)
        )

    def issue(
        self,
        name: str = "broker",
        *,
        unit: str | None = None,
        hosts: Sequence[str] = LOOPBACK,
        days: tuple[float, float] = (-1, 30),
        subject: x509.Name | None = None,
        uses: Sequence[x509.ObjectIdentifier] = (
            ExtendedKeyUsageOID.SERVER_AUTH,
            ExtendedKeyUsageOID.CLIENT_AUTH,
        ),
    ) -> Identity:
        """Sign a certificate for hosts, valid from so many days from now until so many."""
        key = ec.generate_private_key(ec.SECP256R1())
        whose = subject or _name(name, unit)
        builder = _begun(whose, self.certificate.subject, key, days)
        builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        if hosts:
            names = x509.SubjectAlternativeName([_host(one) for one in hosts])
            builder = builder.add_extension(names, critical=False)
        builder = _linked(builder, key, self.key)
        return Identity(key, builder.sign(self.key, hashes.SHA256()), self.chain)

    def pem(self) -> str:
        """Return its certificate."""
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def pem_file(self, path: Path) -> Path:
        """Write its certificate as Kafka's ssl.truststore.type=PEM, and others, have it."""
        path.write_text(self.pem())
        return path

    def pkcs12_file(self, path: Path, password: str) -> Path:
        """Write its certificate as a PKCS#12 store that Java trusts."""
        entry = pkcs12.PKCS12Certificate(self.certificate, b"ca")
        path.write_bytes(pkcs12.serialize_java_truststore([entry], _encryption(password)))
        return path


def _begun(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    days: tuple[float, float],
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    first, last = (now + datetime.timedelta(days=one) for one in days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(first)
        .not_valid_after(last)
    )


def _linked(
    builder: x509.CertificateBuilder,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
) -> x509.CertificateBuilder:
    """Name both keys, as RFC 5280 wants it; Python does from 3.13 on."""
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    other = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    return builder.add_extension(own, critical=False).add_extension(other, critical=False)


def _name(common_name: str, unit: str | None) -> x509.Name:
    # Most significant first, as in real ones; RFC 2253 prints them the other way round.
    units = [] if unit is None else [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, unit)]
    return x509.Name([*units, x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _encryption(password: str | None) -> KeySerializationEncryption:
    return NoEncryption() if password is None else BestAvailableEncryption(password.encode())
