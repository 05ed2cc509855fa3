"""How clients log in: the settings of SASL, and their checks before a start.

    listeners=EXTERNAL://:9093
    listener.security.protocol.map=EXTERNAL:SASL_PLAINTEXT
    listener.name.external.sasl.enabled.mechanisms=PLAIN
    listener.name.external.plain.sasl.jaas.config=org.apache...PlainLoginModule required \\
        user_alice="a secret";

A listener, and a mechanism of a listener, may set each of these for itself. A JAAS text without
a mechanism's prefix is for the mechanism whose login module it names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from odradek.config.errors import ConfigError
from odradek.config.jaas import LoginModule, parse_jaas
from odradek.config.listeners import Listener
from odradek.config.option import option, options
from odradek.config.scram_users import MECHANISMS, OPTION, parse_scram_users
from odradek.config.values import at_least, int32, int64, password, words

PLAIN = "PLAIN"
SCRAM_SHA_256, SCRAM_SHA_512 = MECHANISMS
OAUTHBEARER = "OAUTHBEARER"
GSSAPI = "GSSAPI"

_KAFKAS = "org.apache.kafka.common.security"
# The supported mechanisms, each with its login module on the broker's side.
LOGIN_MODULES = {
    PLAIN: f"{_KAFKAS}.plain.PlainLoginModule",
    SCRAM_SHA_256: f"{_KAFKAS}.scram.ScramLoginModule",
    SCRAM_SHA_512: f"{_KAFKAS}.scram.ScramLoginModule",
    OAUTHBEARER: f"{_KAFKAS}.oauthbearer.OAuthBearerLoginModule",
    GSSAPI: "com.sun.security.auth.module.Krb5LoginModule",
}
_USER = "user_"


@options
class SaslConfig:
    """The SASL settings of a listener, or of one of its mechanisms."""

    sasl_enabled_mechanisms: tuple[str, ...] = option(
        "sasl.enabled.mechanisms",
        default=(GSSAPI,),
        valid=words(empty=True),
        dynamic="per-broker",
        doc="How clients of SASL listeners may log in: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, "
        "OAUTHBEARER, or GSSAPI (Kerberos), Kafka's default.",
    )
    sasl_jaas_config: password | None = option(
        "sasl.jaas.config",
        default=None,
        dynamic="per-broker",
        doc="A login module with its options, for one mechanism of a listener: "
        "listener.name.<listener>.plain.sasl.jaas.config has the users of PLAIN as "
        'user_<name>="<password>".',
    )
    connections_max_reauth_ms: int64 = option(
        "connections.max.reauth.ms",
        default=0,
        doc="How long a login lasts: a client that has not logged in again by then is "
        "disconnected at its next request (KIP-368). 0 means for ever.",
    )
    sasl_server_max_receive_size: int32 = option(
        "sasl.server.max.receive.size",
        default=512 * 1024,
        doc="The largest message, in bytes, that the broker accepts from a client that has not "
        "logged in.",
    )
    connection_failed_authentication_delay_ms: int32 = option(
        "connection.failed.authentication.delay.ms",
        default=100,
        valid=at_least(0),
        doc="How long the answer to a failed login is delayed, so that guessing takes long; it "
        "must be shorter than connections.max.idle.ms.",
    )
    odradek_authentication_timeout_ms: int32 = option(
        "odradek.authentication.timeout.ms",
        default=30_000,
        valid=at_least(1),
        doc="How long a client may take to log in after it connects to a SASL listener, or to "
        "log in again after it begins to. A slower client is disconnected.",
    )
    odradek_scram_users: password | None = option(
        "odradek.scram.users",
        default=None,
        doc="SCRAM users that the broker creates at the start where they are missing, so that "
        "somebody can log in to create others: SCRAM-SHA-256=[name=...,password=...]; and so on. "
        "Existing users stay unchanged.",
    )


def jaas_option(listener: str, mechanism: str) -> str:
    """Return the name of the option with the login module of a listener's mechanism."""
    return f"listener.name.{listener}.{mechanism}.sasl.jaas.config".lower()


def jaas_of(config: SaslConfig, shared: SaslConfig, mechanism: str) -> LoginModule | None:
    """Return the login module of a mechanism, None where it has none.

    `config` is the mechanism's, `shared` its listener's. Raises ConfigError for a text that
    cannot be read or is for another mechanism; the error shows nothing of the text.
    """
    text = config.sasl_jaas_config
    if text is None:
        return None
    module = parse_jaas(text)
    wanted = LOGIN_MODULES[mechanism]
    if module.name == wanted:
        return module
    if text == shared.sasl_jaas_config:
        return None  # set without a mechanism's prefix, and for another mechanism
    raise ConfigError(f"is not about {mechanism}: begin it with {wanted} required")


def users_of(module: LoginModule) -> dict[str, str]:
    """Return the users of a login module of PLAIN, with their passwords."""
    return {
        name.removeprefix(_USER): secret
        for name, secret in module.options.items()
        if name.startswith(_USER)
    }


def sasl_problems(config: SaslConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the problems that do not depend on the listeners."""
    try:
        parse_scram_users(config.odradek_scram_users or "")
    except ConfigError as error:
        for problem in error.problems:
            yield problem, (OPTION,)


def sasl_listener_problems(
    listeners: Iterable[Listener], config_of: Callable[[str, str], SaslConfig], idle_max_ms: int
) -> Iterator[str]:
    """Yield the problems that keep SASL listeners from letting anybody in.

    `config_of` returns the settings of a listener, or of one of its mechanisms. Each problem
    names its listener.
    """
    for listener in listeners:
        if not listener.protocol.startswith("SASL_"):
            continue
        shared = config_of(listener.name, "")
        prefix = f"listener {listener.name}:"
        delay_ms = shared.connection_failed_authentication_delay_ms
        if 0 <= idle_max_ms <= delay_ms:
            yield (
                f"{prefix} connection.failed.authentication.delay.ms={delay_ms} should always "
                f"be less than connections.max.idle.ms={idle_max_ms} to prevent failed "
                "authentication responses from timing out"
            )
        if not shared.sasl_enabled_mechanisms:
            yield (
                f"{prefix} no SASL mechanisms are enabled: set sasl.enabled.mechanisms to some "
                f"of {', '.join(LOGIN_MODULES)}"
            )
        for mechanism in shared.sasl_enabled_mechanisms:
            if mechanism not in LOGIN_MODULES:
                yield (
                    f"{prefix} sasl.enabled.mechanisms has {mechanism}, which is not supported: "
                    f"set it to some of {', '.join(LOGIN_MODULES)}"
                )
                continue
            name = jaas_option(listener.name, mechanism)
            try:
                module = jaas_of(config_of(listener.name, mechanism), shared, mechanism)
            except ConfigError as error:
                yield f"{prefix} {name} {error}"
                continue
            if mechanism == PLAIN and not (module and users_of(module)):
                yield (
                    f"{prefix} {mechanism} is enabled and has no users: set {name} to "
                    f'{LOGIN_MODULES[mechanism]} required user_alice="...";'
                )
