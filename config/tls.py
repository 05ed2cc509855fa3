"""TLS at the listeners: certificates, who is asked for one, protocols and names.

    listeners=EXTERNAL://:9093
    listener.security.protocol.map=EXTERNAL:SSL
    listener.name.external.ssl.keystore.type=PEM
    listener.name.external.ssl.keystore.location=/etc/odradek/server.pem

A listener may set each of these for itself. What can be told of them without a look into a file
is checked here; the files are read by broker/security/tls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from config.errors import ConfigError
from config.option import option, options
from config.values import at_least, int32, one_of, password, words

TLS_1_2, TLS_1_3 = "TLSv1.2", "TLSv1.3"
PROTOCOLS = ("SSL", "SASL_SSL")
_DEFAULT = "DEFAULT"

# What a running broker takes up, for a listener (SslConfigs.RECONFIGURABLE_CONFIGS).
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
    """The settings of TLS, as a listener has them."""

    ssl_keystore_type: str = option(
        "ssl.keystore.type",
        default="JKS",
        dynamic="per-broker",
        doc="What the broker's key and certificates are kept in: PEM or PKCS12. Kafka's default, "
        "JKS, is a format of Java's alone and is not read.",
    )
    ssl_keystore_location: str | None = option(
        "ssl.keystore.location",
        default=None,
        dynamic="per-broker",
        doc="The file with the broker's private key, its certificate and those that vouch for "
        "it, in this order of certificates. It is looked at once a minute, and read again when "
        "it has changed.",
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
        doc="The broker's certificate and those that vouch for it, as PEM, with "
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
        doc="What the certificates are kept in that clients' certificates are checked against: "
        "PEM or PKCS12. JKS is not read.",
    )
    ssl_truststore_location: str | None = option(
        "ssl.truststore.location",
        default=None,
        dynamic="per-broker",
        doc="The file with the certificates that clients' certificates are checked against, "
        "where ssl.client.auth asks for some. It is read again when it has changed.",
    )
    ssl_truststore_password: password | None = option(
        "ssl.truststore.password",
        default=None,
        dynamic="per-broker",
        doc="The password of a PKCS12 file with certificates to trust.",
    )
    ssl_truststore_certificates: password | None = option(
        "ssl.truststore.certificates",
        default=None,
        dynamic="per-broker",
        doc="The certificates to trust themselves, as PEM, in place of ssl.truststore.location.",
    )
    ssl_client_auth: str = option(
        "ssl.client.auth",
        default="none",
        valid=one_of("required", "requested", "none"),
        dynamic="per-broker",
        doc="Whether clients must show a certificate (required), may (requested), or are not "
        "asked for one. At SASL_SSL listeners only listener.name.<listener>.ssl.client.auth "
        "counts.",
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
        doc="The cipher suites that clients may agree on, by the names of the RFCs; empty "
        "for OpenSSL's choice. Of TLS 1.3's, TLS_AES_256_GCM_SHA384 has to be among them, or "
        "none.",
    )
    ssl_principal_mapping_rules: str = option(
        "ssl.principal.mapping.rules",
        default=_DEFAULT,
        doc="How a client certificate's distinguished name becomes the name of a principal: "
        "rules RULE:expression/replacement/ with L or U for the case, or DEFAULT for the whole "
        "name; the first that matches counts.",
    )
    ssl_allow_dn_changes: bool = option(
        "ssl.allow.dn.changes",
        default=False,
        doc="Whether a running broker takes up a certificate of another distinguished name.",
    )
    ssl_allow_san_changes: bool = option(
        "ssl.allow.san.changes",
        default=False,
        doc="Whether a running broker takes up a certificate that lacks alternative names of "
        "the one before.",
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
        doc="How many TLS handshakes of a listener may be under way; when there are more, the "
        "oldest is given up. It bounds what connections that never finish keep in memory.",
    )


def tls_problems(config: TlsConfig) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield what is wrong with the settings whatever the files hold, and the options it is in."""
    name = "ssl.enabled.protocols"
    unknown = [one for one in config.ssl_enabled_protocols if one not in (TLS_1_2, TLS_1_3)]
    if unknown:
        yield f"{name}: {unknown[0]} is not served, {TLS_1_2} and {TLS_1_3} are", (name,)
    if config.ssl_principal_mapping_rules == _DEFAULT:
        return
    # Loaded by those alone who have such rules.
    from config.principal_rules import PrincipalRules

    try:
        PrincipalRules(config.ssl_principal_mapping_rules)
    except ConfigError as error:
        for problem in error.problems:
            yield problem, ("ssl.principal.mapping.rules",)
