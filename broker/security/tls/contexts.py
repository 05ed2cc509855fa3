"""Creates OpenSSL's contexts from a listener's settings."""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from odradek.broker.security.tls.stores import (
    KeyStore,
    TrustStore,
    read_key_store,
    read_trust_store,
)
from odradek.config.errors import ConfigError
from odradek.config.tls import TLS_1_2, TLS_1_3, TlsConfig
from odradek.dataclass import dataclass

# OpenSSL's suites of TLS 1.3. Python's contexts have no setting for them. The two sides agree on
# the first one whenever the client supports it.
_TLS_1_3_SUITES = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
)
_VERIFY = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}
_SUITES_OPTION = "ssl.cipher.suites"


@dataclass(frozen=True, slots=True, eq=False)
class Made:
    """A context, and the stores that it was created from."""

    context: ssl.SSLContext
    key_store: KeyStore
    trust_store: TrustStore | None
    # The suites of TLS 1.3 that a connection may use.
    tls_1_3_suites: frozenset[str]


def make_context(config: TlsConfig) -> Made:
    """Read a listener's stores and create its context. Raises ConfigError."""
    keys = read_key_store(config)
    if keys is None:
        raise ConfigError(
            "TLS needs a certificate, and none is set: set ssl.keystore.location and "
            "ssl.keystore.type (PEM or PKCS12), or ssl.keystore.key and "
            "ssl.keystore.certificate.chain"
        )
    trusted = read_trust_store(config)
    asks = config.ssl_client_auth != "none"
    if asks and trusted is None:
        raise ConfigError(
            f"ssl.client.auth={config.ssl_client_auth} needs certificates to trust, and none are "
            "set: set ssl.truststore.location and ssl.truststore.type, or "
            "ssl.truststore.certificates"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    # As in Java, any trusted certificate may end a chain.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    suites = _set_suites(context, config)
    load_keys(context, keys)
    if trusted is not None:
        _load_trusted(context, trusted)
    context.verify_mode = _VERIFY[config.ssl_client_auth]
    return Made(context, keys, trusted, suites)


def make_client_context(config: TlsConfig, made: Made) -> ssl.SSLContext:
    """Create the context of connections to other brokers, from the stores of a listener.

    Without a trust store the system's authorities are trusted, as Java's are in Kafka. Raises
    ConfigError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = config.ssl_endpoint_identification_algorithm != ""
    _set_suites(context, config)
    load_keys(context, made.key_store)
    if made.trust_store is None:
        context.load_default_certs()
    else:
        _load_trusted(context, made.trust_store)
    return context


def check_accepts_itself(config: TlsConfig, made: Made) -> None:
    """Raise ConfigError unless brokers with these stores accept each other (SslEngineValidator).

    Host names are not checked, since the other brokers' differ.
    """
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = make_client_context(config, made)
    context.check_hostname = False
    waiting = [
        context.wrap_bio(to_client, to_server),
        made.context.wrap_bio(to_server, to_client, server_side=True),
    ]
    while waiting:
        one = waiting.pop(0)
        try:
            one.do_handshake()
        except ssl.SSLWantReadError:
            waiting.append(one)
        except ssl.SSLError as error:
            origin = made.trust_store.origin if made.trust_store else "the system's authorities"
            reason = getattr(error, "verify_message", None) or error.reason or "TLS failed"
            raise ConfigError(
                f"{made.key_store.origin}: {origin} does not accept this certificate, so other "
                f"brokers would not either: {reason}: let ssl.truststore.location or "
                "ssl.truststore.certificates have its authority"
            ) from None


def load_keys(context: ssl.SSLContext, keys: KeyStore) -> None:
    """Let a context show a key store's certificates. Raises ConfigError."""
    text = "\n".join([*keys.certificates, keys.key, ""])
    try:
        with _as_file(text) as path:
            # Without this function, OpenSSL would ask for the password at the terminal.
            context.load_cert_chain(path, password=lambda: keys.password or "")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            why = "the private key does not belong to the first certificate"
        elif keys.is_encrypted:
            why = "the private key cannot be read: is ssl.key.password its password?"
        else:
            why = f"the key or a certificate cannot be used: {error.reason or 'not valid PEM'}"
        raise ConfigError(f"{keys.origin}: {why}") from None
    except ValueError:  # the password is too long
        raise ConfigError(f"{keys.origin}: ssl.key.password cannot be used") from None


def _load_trusted(context: ssl.SSLContext, trusted: TrustStore) -> None:
    try:
        context.load_verify_locations(cadata="\n".join(trusted.certificates))
    except (ssl.SSLError, ValueError):
        raise ConfigError(f"{trusted.origin}: a certificate in it cannot be read") from None


@contextlib.contextmanager
def _as_file(text: str) -> Iterator[str]:
    """Write a text to a file for OpenSSL: in memory where the system can, never on a disk then."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("odradek-tls", os.MFD_CLOEXEC)
        path = f"/proc/self/fd/{descriptor}"
    else:
        descriptor, path = tempfile.mkstemp(prefix="odradek-tls-")  # 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("latin-1"))
            file.flush()
            yield path
    finally:
        if not path.startswith("/proc"):
            Path(path).unlink()


def _set_suites(context: ssl.SSLContext, config: TlsConfig) -> frozenset[str]:
    """Set versions and cipher suites; return those of TLS 1.3. Raises ConfigError."""
    versions = set(config.ssl_enabled_protocols) or {TLS_1_2, TLS_1_3}
    named = config.ssl_cipher_suites
    newer = frozenset(named).intersection(_TLS_1_3_SUITES)
    older = [one for one in named if one not in newer]
    if named:
        versions -= {TLS_1_2} if not older else set()
        versions -= {TLS_1_3} if not newer else set()
        if TLS_1_3 in versions and _TLS_1_3_SUITES[0] not in newer:
            raise ConfigError(
                f"{_SUITES_OPTION}: TLS 1.3 cannot be served without {_TLS_1_3_SUITES[0]}: add "
                f"it, or remove {', '.join(sorted(newer))}"
            )
    if not versions:
        raise ConfigError(
            f"{_SUITES_OPTION} has no suite of a version in ssl.enabled.protocols"
        )
    if older:
        _set_older(context, older)
    context.minimum_version = (
        ssl.TLSVersion.TLSv1_2 if TLS_1_2 in versions else ssl.TLSVersion.TLSv1_3
    )
    context.maximum_version = (
        ssl.TLSVersion.TLSv1_3 if TLS_1_3 in versions else ssl.TLSVersion.TLSv1_2
    )
    return newer or frozenset(_TLS_1_3_SUITES)


def _set_older(context: ssl.SSLContext, suites: Iterable[str]) -> None:
    for one in suites:
        try:
            context.set_ciphers(openssl_name(one))
        except ssl.SSLError:
            raise ConfigError(f"{_SUITES_OPTION}: {one} is not among OpenSSL's") from None
    context.set_ciphers(":".join(map(openssl_name, suites)))


def openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a TLS 1.2 suite; other names than those of RFCs stay unchanged.

    TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 is ECDHE-RSA-AES128-GCM-SHA256.
    """
    if not suite.startswith("TLS_") or "_WITH_" not in suite:
        return suite
    exchange, _, rest = suite.removeprefix("TLS_").partition("_WITH_")
    for known in ("AES", "CAMELLIA", "ARIA"):
        for bits in ("128", "256"):
            rest = rest.replace(f"{known}_{bits}_", f"{known}{bits}_")
    rest = rest.replace("_CBC_", "_").removesuffix(
        "_SHA256" if "CHACHA20_POLY1305" in rest or "_CCM" in rest else ""
    )
    prefix = "" if exchange == "RSA" else f"{exchange}_"
    return f"{prefix}{rest}".replace("_", "-")
