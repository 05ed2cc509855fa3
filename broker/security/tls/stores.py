"""Reads a listener's key and certificates, and those that it trusts, from PEM and PKCS#12.

Checks and their messages are those of Kafka's DefaultSslEngineFactory. JKS is Java's own format
and is not read; but stores of type JKS that keytool has written since Java 9 are PKCS#12.
"""

from __future__ import annotations

import os
import re
import ssl
import stat
from dataclasses import field
from typing import TYPE_CHECKING

from odradek.config.errors import ConfigError
from odradek.config.tls import TlsConfig
from odradek.dataclass import dataclass

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

JKS, PEM, PKCS12 = "JKS", "PEM", "PKCS12"

_JKS_MAGIC = b"\xfe\xed\xfe\xed"
_DER_SEQUENCE = b"\x30"
# No store of certificates is larger; another file at that path may be.
_FILE_BYTES_MAX = 16 * 1024 * 1024
_CERTIFICATE = re.compile(
    "-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----.+?-----END (?:TRUSTED |X509 )?CERTIFICATE"
    "-----",
    re.DOTALL,
)
_KEY = re.compile(
    "-----BEGIN ([A-Z ]*)PRIVATE KEY-----(.+?)-----END [A-Z ]*PRIVATE KEY-----", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class KeyStore:
    """A private key and its chain of certificates, the broker's own first, as PEM."""

    origin: str  # for errors: the option, and the file
    key: str = field(repr=False)
    certificates: tuple[str, ...] = field(repr=False)
    password: str | None = field(default=None, repr=False)  # of the key
    is_encrypted: bool = False

    @property
    def own_certificate(self) -> bytes:
        """The broker's own certificate as DER."""
        return ssl.PEM_cert_to_DER_cert(self.certificates[0])


@dataclass(frozen=True, slots=True)
class TrustStore:
    """The trusted certificates, which clients' certificates are checked against, as PEM."""

    origin: str
    certificates: tuple[str, ...]


def read_key_store(config: TlsConfig) -> KeyStore | None:
    """Return the broker's key and certificates; None when none are set. Raises ConfigError."""
    kind, path = config.ssl_keystore_type, config.ssl_keystore_location
    password, key = config.ssl_keystore_password, config.ssl_keystore_key
    chain = config.ssl_keystore_certificate_chain
    name = "ssl.keystore.location"
    if key is not None:
        if kind != PEM:
            raise ConfigError(
                "SSL private key can be specified only for PEM, but key store type is "
                f"{kind}: set ssl.keystore.type=PEM"
            )
        if chain is None:
            raise ConfigError(
                "SSL private key is specified, but certificate chain is not specified: set "
                "ssl.keystore.certificate.chain"
            )
        if path is not None:
            raise ConfigError(
                "Both SSL key store location and separate private key are specified: remove "
                "ssl.keystore.location or ssl.keystore.key"
            )
    elif chain is not None:
        raise ConfigError(
            "SSL certificate chain is specified, but private key is not specified: set "
            "ssl.keystore.key"
        )
    if kind == PEM and password is not None:
        raise ConfigError(
            "SSL key store password cannot be specified with PEM format, only key password may "
            "be specified: set ssl.key.password in place of ssl.keystore.password"
        )
    if key is not None and chain is not None:
        return _pem_key("ssl.keystore.key", key, chain, config.ssl_key_password)
    if path is None:
        if password is not None:
            raise ConfigError(
                "SSL key store is not specified, but key store password is specified: set "
                "ssl.keystore.location"
            )
        return None
    if kind == PEM:
        text = _text(name, path)
        return _pem_key(f"{name}={path}", text, text, config.ssl_key_password)
    if password is None:
        raise ConfigError(
            "SSL key store is specified, but key store password is not specified: set "
            "ssl.keystore.password"
        )
    return _pkcs12_key(_read_pkcs12(name, path, "ssl.keystore", kind, password), name, path)


def read_trust_store(config: TlsConfig) -> TrustStore | None:
    """Return the trusted certificates; None when none are set. Raises ConfigError."""
    kind, path = config.ssl_truststore_type, config.ssl_truststore_location
    password, inline = config.ssl_truststore_password, config.ssl_truststore_certificates
    name = "ssl.truststore.location"
    if inline is not None:
        if kind != PEM:
            raise ConfigError(
                "SSL trust store certs can be specified only for PEM, but trust store type is "
                f"{kind}: set ssl.truststore.type=PEM"
            )
        if path is not None:
            raise ConfigError(
                "Both SSL trust store location and separate trust certificates are specified: "
                "remove ssl.truststore.location or ssl.truststore.certificates"
            )
    if kind == PEM and password is not None:
        raise ConfigError(
            "SSL trust store password cannot be specified for PEM format: remove "
            "ssl.truststore.password"
        )
    if inline is not None:
        origin = "ssl.truststore.certificates"
        return TrustStore(origin, _certificates(origin, inline))
    if path is None:
        if password is not None:
            raise ConfigError(
                "SSL trust store is not specified, but trust store password is specified: set "
                "ssl.truststore.location"
            )
        return None
    origin = f"{name}={path}"
    if kind == PEM:
        return TrustStore(origin, _certificates(origin, _text(name, path)))
    found = _read_pkcs12(name, path, "ssl.truststore", kind, password)
    # In a store with a key, Java trusts only the certificate of that key.
    trusted = [found.cert] if found.cert is not None else found.additional_certs
    if not trusted:
        raise ConfigError(f"{origin}: it has no certificate")
    return TrustStore(origin, tuple(_as_pem(one.certificate) for one in trusted))


def _pem_key(origin: str, key: str, chain: str, password: str | None) -> KeyStore:
    keys = list(_KEY.finditer(key))
    if len(keys) != 1:
        found = f"{len(keys)} private keys" if keys else "no private key"
        raise ConfigError(f"{origin}: {found} found, one is expected")
    is_encrypted = "ENCRYPTED" in keys[0][1] or "ENCRYPTED" in keys[0][2]
    if is_encrypted and password is None:
        raise ConfigError(f"{origin}: the private key is encrypted, set ssl.key.password")
    if not is_encrypted and password is not None:
        raise ConfigError(f"{origin}: the private key is not encrypted, remove ssl.key.password")
    return KeyStore(origin, keys[0][0], _certificates(origin, chain), password, is_encrypted)


def _certificates(origin: str, text: str) -> tuple[str, ...]:
    found = tuple(_CERTIFICATE.findall(text))
    if not found:
        raise ConfigError(f"{origin}: no certificate found (no line BEGIN CERTIFICATE)")
    return found


def _read_pkcs12(
    name: str, path: str, prefix: str, kind: str, password: str | None
) -> PKCS12KeyAndCertificates:
    data = _read(name, path)
    if kind not in (JKS, PKCS12):
        raise ConfigError(f"{prefix}.type={kind} is not read: use {PEM} or {PKCS12}")
    if data.startswith(_JKS_MAGIC):
        raise ConfigError(
            f"{name}={path} is a JKS store, Java's own format, which is not read: convert it to "
            f"PKCS12 (keytool -importkeystore -srckeystore {path} -destkeystore {path}.p12 "
            f"-deststoretype PKCS12) and set {prefix}.type=PKCS12, or use PEM"
        )
    if not data.startswith(_DER_SEQUENCE):
        is_pem = b"-----BEGIN " in data
        advice = f"it is PEM, set {prefix}.type=PEM" if is_pem else "JKS is not read either"
        raise ConfigError(f"{name}={path} is not a PKCS12 store: {advice}")
    # Imported only where there is such a store.
    from cryptography.hazmat.primitives.serialization import pkcs12

    try:
        return pkcs12.load_pkcs12(data, None if password is None else password.encode())
    except (ValueError, TypeError):
        raise ConfigError(
            f"{name}={path} cannot be read: {prefix}.password is not its password, or the file "
            "is damaged"
        ) from None


def _pkcs12_key(found: PKCS12KeyAndCertificates, name: str, path: str) -> KeyStore:
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    if found.key is None or found.cert is None:
        raise ConfigError(f"{name}={path}: it has no private key with a certificate")
    key = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = [found.cert.certificate]
    others = [one.certificate for one in found.additional_certs]
    while len(chain) <= len(others):
        last = chain[-1]
        above = next((one for one in others if one.subject == last.issuer), None)
        if above is None or above in chain:
            break
        chain.append(above)
    return KeyStore(f"{name}={path}", key.decode(), tuple(map(_as_pem, chain)))


def _as_pem(certificate: object) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509 import Certificate

    assert isinstance(certificate, Certificate)
    return certificate.public_bytes(Encoding.PEM).decode()


def _text(name: str, path: str) -> str:
    return _read(name, path).decode("latin-1")


def _read(name: str, path: str) -> bytes:
    try:
        # Opening a pipe would block the event loop until somebody writes to it.
        with open(path, "rb", opener=_open_at_once) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"{name}={path} cannot be read: it is not a regular file")
            data = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"{name}={path} cannot be read: {error.strerror}") from None
    except ValueError:  # the path contains a null byte
        raise ConfigError(f"{name}={path!r} is not a path") from None
    if len(data) > _FILE_BYTES_MAX:
        raise ConfigError(f"{name}={path} is not a store of certificates: it is too large")
    return data


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
