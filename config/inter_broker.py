"""How the brokers of a cluster ask each other: the listener, its protocol, and the login.

    listeners=CLIENTS://:9092,INTERNAL://:9094
    listener.security.protocol.map=CLIENTS:SASL_SSL,INTERNAL:SASL_SSL
    inter.broker.listener.name=INTERNAL
    sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512
    listener.name.internal.scram-sha-512.sasl.jaas.config=org.apache...ScramLoginModule required \\
        username="broker" password="...";

As in Kafka, a login module's `username` and `password` are those of the broker itself, as a
client of the others. A broker without a catalog asks no other, and checks nothing of this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field

from odradek.config.errors import ConfigError
from odradek.config.listeners import PROTOCOLS, Listener
from odradek.config.option import option, options
from odradek.config.sasl import (
    LOGIN_MODULES,
    PLAIN,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    SaslConfig,
    jaas_of,
    jaas_option,
)
from odradek.config.tls import PROTOCOLS as TLS
from odradek.config.tls import TlsConfig
from odradek.config.values import one_of
from odradek.dataclass import dataclass

LISTENER = "inter.broker.listener.name"
PROTOCOL = "security.inter.broker.protocol"
MECHANISM = "sasl.mechanism.inter.broker.protocol"
# The mechanisms by which a broker can log in itself.
MECHANISMS = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512)
_HTTPS = "https"


@options
class InterBrokerConfig:
    """The effective settings of the requests to other brokers."""

    inter_broker_listener_name: str | None = option(
        LISTENER,
        default=None,
        doc="The listener on which the brokers of a cluster ask each other, at all of them. By "
        "default it is the one that is named as security.inter.broker.protocol. A broker "
        "without a catalog asks no other.",
    )
    security_inter_broker_protocol: str = option(
        PROTOCOL,
        default="PLAINTEXT",
        valid=one_of(*PROTOCOLS),
        doc="The name of the listener, which is that of its protocol, on which the brokers of a "
        "cluster ask each other, where inter.broker.listener.name is not set. Only one of the "
        "two may be set.",
    )
    sasl_mechanism_inter_broker_protocol: str = option(
        MECHANISM,
        default="GSSAPI",
        dynamic="per-broker",
        doc="The mechanism by which a broker logs in at others, where their listener has SASL: "
        "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. The user and the password are username and "
        "password in listener.name.<listener>.<mechanism>.sasl.jaas.config. Kafka's default, "
        "GSSAPI (Kerberos), is for clients only.",
    )


@dataclass(frozen=True, slots=True)
class OwnLogin:
    """The login of a broker at other brokers."""

    mechanism: str
    username: str
    password: str = field(repr=False)


# Returns the SASL settings of a listener, or of one of its mechanisms.
SaslOf = Callable[[str, str], SaslConfig]


def inter_broker_listener(config: InterBrokerConfig, advertised: Sequence[Listener]) -> Listener:
    """Return the listener on which brokers ask each other; raise ConfigError in Kafka's words."""
    name = config.inter_broker_listener_name
    wanted = (config.security_inter_broker_protocol if name is None else name).upper()
    for one in advertised:
        if one.name == wanted:
            return one
    raise ConfigError(
        f"{LISTENER} must be a listener name defined in advertised.listeners. The valid options "
        f"based on currently configured listeners are {','.join(one.name for one in advertised)}"
    )


def own_login(mechanism: str, listener: str, sasl_of: SaslOf) -> OwnLogin:
    """Return the login of this broker at others; raise ConfigError, which shows no secret."""
    if mechanism not in MECHANISMS:
        raise ConfigError(
            f"{MECHANISM}={mechanism} is not supported: set it to one of {', '.join(MECHANISMS)}, "
            f"the login of this broker at others on the listener {listener}"
        )
    shared = sasl_of(listener, "")
    if mechanism not in shared.sasl_enabled_mechanisms:
        raise ConfigError(
            f"{MECHANISM} must be included in sasl.enabled.mechanisms when SASL is used for "
            "inter-broker communication"
        )
    name = jaas_option(listener, mechanism)
    try:
        module = jaas_of(sasl_of(listener, mechanism), shared, mechanism)
    except ConfigError as error:  # as config/sasl.py reports it
        raise ConfigError(f"listener {listener}: {name} {error}") from None
    given = {} if module is None else module.options
    username, password = given.get("username"), given.get("password")
    if not username or not password:
        raise ConfigError(
            f"{name} has no username and password, by which this broker logs in at others: set "
            f'it to {LOGIN_MODULES[mechanism]} required username="..." password="...";'
        )
    return OwnLogin(mechanism, username, password)


def inter_broker_problems(
    config: InterBrokerConfig,
    advertised: Sequence[Listener],
    sasl_of: SaslOf,
    tls_of: Callable[[str], TlsConfig],
    *,
    is_protocol_set: bool,
) -> Iterator[str]:
    """Yield the problems that keep brokers from asking each other (Kafka's KafkaConfig)."""
    if config.inter_broker_listener_name is not None and is_protocol_set:
        yield f"Only one of {LISTENER} and {PROTOCOL} should be set."
        return
    try:
        listener = inter_broker_listener(config, advertised)
        if listener.protocol.startswith("SASL_"):
            own_login(config.sasl_mechanism_inter_broker_protocol, listener.name, sasl_of)
    except ConfigError as error:
        yield from error.problems
        return
    algorithm = tls_of(listener.name).ssl_endpoint_identification_algorithm
    if listener.protocol in TLS and algorithm.lower() not in ("", _HTTPS):
        yield (
            f"listener {listener.name}: ssl.endpoint.identification.algorithm={algorithm} is not "
            f"supported: set it to {_HTTPS}, or to nothing, which checks no host names"
        )
