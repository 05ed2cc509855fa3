"""The TLS of a connection, from librdkafka's properties."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

from odradek.broker.security.tls.contexts import load_keys
from odradek.broker.security.tls.stores import read_key_store
from odradek.cli.refusals import CommandError
from odradek.config.errors import ConfigError
from odradek.config.tls import TlsConfig

Properties = Mapping[str, str]

_PROTOCOL = "security.protocol"
_CA, _CERTIFICATE, _KEY, _CRL = "ssl.ca", "ssl.certificate", "ssl.key", "ssl.crl.location"
_KEY_STORE = "ssl.keystore.location"
_SYSTEM = "probe"  # librdkafka's word for the authorities of the system


def protocol_of(properties: Properties) -> str:
    """Return the security protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
    return properties.get(_PROTOCOL, "PLAINTEXT").upper()


def context_of(properties: Properties) -> ssl.SSLContext | None:
    """Return the TLS, None without it. Raises CommandError for files that cannot be used."""
    if not protocol_of(properties).endswith("SSL"):
        return None
    try:
        return _context(properties)
    except ConfigError as error:
        raise CommandError(str(error)) from error
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise CommandError(f"TLS cannot be used: {error}: see the properties ssl.…") from error


def _context(properties: Properties) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if properties.get("enable.ssl.certificate.verification", "true").lower() == "false":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif properties.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
        context.check_hostname = False
    if suites := properties.get("ssl.cipher.suites"):
        context.set_ciphers(suites)
    _trust(context, properties)
    keys = _key_settings(properties)
    if keys is not None:
        store = read_key_store(keys)
        assert store is not None, "the settings name one"
        load_keys(context, store)
    return context


def _trust(context: ssl.SSLContext, properties: Properties) -> None:
    location, inline = properties.get(f"{_CA}.location"), properties.get(f"{_CA}.pem")
    if inline:
        context.load_verify_locations(cadata=inline)
    elif location and location != _SYSTEM:
        is_folder = Path(location).is_dir()
        context.load_verify_locations(**{"capath" if is_folder else "cafile": location})
    else:
        context.load_default_certs()
    if revoked := properties.get(_CRL):
        context.load_verify_locations(cafile=revoked)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _key_settings(properties: Properties) -> TlsConfig | None:
    """Return the settings of the own key and certificate, None where there are none."""
    if store := properties.get(_KEY_STORE):
        return TlsConfig(
            ssl_keystore_type="PKCS12",
            ssl_keystore_location=store,
            ssl_keystore_password=properties.get("ssl.keystore.password"),
        )
    key, chain = _text(properties, _KEY), _text(properties, _CERTIFICATE)
    if key is None and chain is None:
        return None
    return TlsConfig(
        ssl_keystore_type="PEM",
        ssl_keystore_key=key,
        ssl_keystore_certificate_chain=chain,
        ssl_key_password=properties.get("ssl.key.password"),
    )


def _text(properties: Properties, name: str) -> str | None:
    """Return a PEM text, which the properties have, or a file that they name."""
    inline, location = properties.get(f"{name}.pem"), properties.get(f"{name}.location")
    return inline or (Path(location).read_text("latin-1") if location else None)
