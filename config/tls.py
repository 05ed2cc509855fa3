"""TLS at the listeners: certificates, client authentication, protocols and names.

    listeners=EXTERNAL://:9093
    listener.security.protocol.map=EXTERNAL:SSL
    listener.name.external.ssl.keystore.type=PEM
    listener.name.external.ssl.keystore.location=/etc/odradek/server.pem

A listener may set each of these for itself. This module makes the checks that need no file;
broker/security/tls reads the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from odradek.config.errors import ConfigError
from odradek.config.option import option, options
from odradek.config.values import at_least, int32, one_of, password, words

TLS_1_2, TLS_1_3 = "TLSv1.2", "TLSv1.3"
PROTOCOLS = ("SSL", "SASL_SSL")
_DEFAULT = "DEFAULT"

# The options that a running broker applies to a listener (SslConfigs.RECONFIGURABLE_CONFIGS).
RECONFIGURABLE = (
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.key.password",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.truststore.certificates",
)


@options
class TlsConfig:
    """The TLS settings of a listener."""

    ssl_keystore_type: str = option(
        "ssl.keystore.type",
        default="JKS",
        dynamic="per-broker",
        doc="The format of the broker's key and certificates: PEM or PKCS12. Kafka's default, "
        "JKS, is a format of Java alone and is not supported.",
    )
    ssl_keystore_location: str | None = option(
        "ssl.keystore.location",
        default=None,
        dynamic="per-broker",
        doc="The file with the broker's private key and its certificates: first its own, then "
        "those that vouch for it. The broker checks the file once a minute, and reads it again "
        "when it has changed.",
    )
    ssl_keystore_password: password | None = option(
        "ssl.keystore.password",
        default=None,
        dynamic="per-broker",
        doc="The password of a PKCS12 file with the broker's key.",
    )
    ssl_keystore_key: password | None = option(
        "ssl.keystore.key",
        default=None,
        dynamic="per-broker",
        doc="The broker's private key itself, as PEM, in place of ssl.keystore.location.",
    )
    ssl_keystore_certificate_chain: password | None = option(
        "ssl.keystore.certificate.chain",
        default=None,
        dynamic="per-broker",
        doc="The broker's certificate and those that vouch for it, as PEM, for use with "
        "ssl.keystore.key.",
    )
    ssl_key_password: password | None = option(
        "ssl.key.password",
        default=None,
        dynamic="per-broker",
        doc="The password of a private key that is encrypted.",
    )
    ssl_truststore_type: str = option(
        "ssl.truststore.type",
        default="JKS",
        dynamic="per-broker",
        doc="The format of the certificates that clients' certificates are checked against, and "
        "those of other brokers of the cluster: PEM or PKCS12. JKS is not supported.",
    )
    ssl_truststore_location: str | None = option(
        "ssl.truststore.location",
        default=None,
        dynamic="per-broker",
        doc="The file with the certificates that clients' certificates are checked against, "
        "where ssl.client.auth asks for any, and those of other brokers of the cluster. The "
        "broker reads it again when it has changed.",
    )
    ssl_truststore_password: password | None = option(
        "ssl.truststore.password",
        default=None,
        dynamic="per-broker",
        doc="The password of a PKCS12 file with trusted certificates.",
    )
    ssl_truststore_certificates: password | None = option(
        "ssl.truststore.certificates",
        default=None,
        dynamic="per-broker",
        doc="The trusted certificates themselves, as PEM, in place of ssl.truststore.location.",
    )
    ssl_client_auth: str = option(
        "ssl.client.auth",
        default="none",
        valid=one_of("required", "requested", "none"),
        dynamic="per-broker",
        doc="Whether clients must show a certificate (required), may show one (requested), or "
        "are not asked for one (none). At SASL_SSL listeners only "
        "listener.name.<listener>.ssl.client.auth applies.",
    )
    ssl_enabled_protocols: tuple[str, ...] = option(
        "ssl.enabled.protocols",
        default=(TLS_1_2, TLS_1_3),
        valid=words(empty=True),
        dynamic="per-broker",
        doc="The versions of TLS that clients may speak: TLSv1.2, TLSv1.3.",
    )
    ssl_cipher_suites: tuple[str, ...] = option(
        "ssl.cipher.suites",
        default=(),
        valid=words(empty=True),
        dynamic="per-broker",
        doc="The cipher suites that clients may use, by their names in the RFCs; empty means "
        "OpenSSL's choice. If any suites of TLS 1.3 are listed, TLS_AES_256_GCM_SHA384 must be "
        "one of them.",
    )
    ssl_endpoint_identification_algorithm: str = option(
        "ssl.endpoint.identification.algorithm",
        default="https",
        dynamic="per-broker",
        doc="Whether a broker checks that the certificate of another broker of its cluster is "
        "for the host that it connects to: https, or nothing for no check.",
    )
    ssl_principal_mapping_rules: str = option(
        "ssl.principal.mapping.rules",
        default=_DEFAULT,
        doc="How a client certificate's distinguished name becomes the name of a principal: "
        "rules RULE:expression/replacement/ with L or U for the case, or DEFAULT for the whole "
        "name; the first rule that matches applies.",
    )
    ssl_allow_dn_changes: bool = option(
        "ssl.allow.dn.changes",
        default=False,
        doc="Whether a running broker accepts a new certificate with another distinguished name.",
    )
    ssl_allow_san_changes: bool = option(
        "ssl.allow.san.changes",
        default=False,
        doc="Whether a running broker accepts a new certificate that lacks alternative names of "
        "the old one.",
    )
    odradek_tls_handshake_timeout_ms: int32 = option(
        "odradek.tls.handshake.timeout.ms",
        default=10_000,
        valid=at_least(1),
        doc="How long a client has for the TLS handshake before its connection is closed.",
    )
    odradek_tls_handshakes_max: int32 = option(
        "odradek.tls.handshakes.max",
        default=1_000,
        valid=at_least(1),
        doc="How many TLS handshakes may be in progress at a listener; when there are more, the "
        "oldest is given up. This bounds the memory of connections that never finish.",
    )


def tls_problems(config: TlsConfig) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield the problems that do not depend on the files, with the names of the options."""
    name = "ssl.enabled.protocols"
    unknown = [one for one in config.ssl_enabled_protocols if one not in (TLS_1_2, TLS_1_3)]
    if unknown:
        yield f"{name}: {unknown[0]} is not supported, {TLS_1_2} and {TLS_1_3} are", (name,)
    if config.ssl_principal_mapping_rules == _DEFAULT:
        return
    # Imported only where there are such rules.
    from odradek.config.principal_rules import PrincipalRules

    try:
        PrincipalRules(config.ssl_principal_mapping_rules)
    except ConfigError as error:
        for problem in error.problems:
            yield problem, ("ssl.principal.mapping.rules",)
