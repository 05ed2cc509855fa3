"""The TLS of each listener: its context in force, and how another takes its place.

New settings come by AlterConfigs, for `listener.name.<listener>.ssl.*`, or by SIGHUP; each time,
and once a minute, the files are checked for changes. A store is refused if it cannot be used or
if its certificate is for another name (Kafka's SslFactory); the store in force stays. Connections
keep the context with which they began.
"""

from __future__ import annotations

import dataclasses
import logging
import ssl
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from odradek.broker.counters.metrics import Metrics
from odradek.broker.security.principals import USER, Principal
from odradek.broker.security.tls.contexts import Made, check_accepts_itself, make_context
from odradek.broker.security.tls.der import alternative_names_of, end_of
from odradek.broker.security.tls.handshakes import Handshakes
from odradek.broker.security.tls.inner import InnerConnection
from odradek.broker.security.tls.interrupting import TookTooLong, at_most
from odradek.broker.security.tls.names import subject_name
from odradek.broker.security.tls.reasons import HandshakeFailed
from odradek.broker.security.tls.transport import TlsTransport
from odradek.config.effective import resolve_listener
from odradek.config.errors import ConfigError, raise_any
from odradek.config.java_rules import NoRuleApplies
from odradek.config.option import DAY_MS
from odradek.config.per_listener import PREFIX
from odradek.config.principal_rules import OPTION, PrincipalRules
from odradek.config.resolution import Layer
from odradek.config.tls import TlsConfig
from odradek.dataclass import dataclass

logger = logging.getLogger(__name__)

SSL = "SSL"
Layers = Sequence[Layer]
# How long before a certificate's end the log begins to warn of it, once a day.
_NOTICE_MS = 14 * DAY_MS
# The bound of the time to map the name of one certificate; 20 microseconds are usual.
_MAPPING_MAX_S = 0.05
# The bound of the characters of a certificate in the log.
_SHOWN_MAX = 500
# Detects that a file was replaced: its modification time, its size, its inode.
_Stamps = tuple[tuple[int, int, int] | None, ...]


class TlsListener:
    """One listener that speaks TLS; the event loop owns it."""

    def __init__(
        self,
        name: str,
        protocol: str,
        config: TlsConfig,
        metrics: Metrics,
        *,
        is_for_brokers: bool = False,
    ) -> None:
        """Read the stores. Raises ConfigError.

        `is_for_brokers` is whether the brokers of a cluster ask each other here, by these stores.
        """
        self.name, self.protocol = name, protocol
        self.config, self._is_for_brokers = config, is_for_brokers
        self._metrics = metrics
        self.stamps = _stamps(config)
        self.made = self.make(config)
        self.handshakes = Handshakes(lambda: self.config.odradek_tls_handshakes_max)
        self._rules = PrincipalRules(config.ssl_principal_mapping_rules)
        # Why the present files are not in use; "" when they are.
        self.problem = ""
        # When the log has last warned of the certificate's end.
        self._noticed_ms = 0

    def make(self, config: TlsConfig) -> Made:
        """Read the stores of settings, and create their context. Raises ConfigError."""
        made = make_context(config)
        if self._is_for_brokers:
            check_accepts_itself(config, made)
        return made

    @property
    def ends_ms(self) -> int:
        """The end of the certificate's validity."""
        return int(end_of(self.made.key_store.own_certificate).timestamp() * 1000)

    def notice_end(self, now_ms: int) -> None:
        """Warn, once a day, of a certificate that ends soon or has ended."""
        ends_ms = self.ends_ms
        if ends_ms - now_ms > _NOTICE_MS or now_ms - self._noticed_ms < DAY_MS:
            return
        self._noticed_ms = now_ms
        logger.warning(
            "certificate %s listener=%s end=%s keystore=%s",
            "has ended" if ends_ms <= now_ms else "ends soon",
            self.name,
            end_of(self.made.key_store.own_certificate).isoformat(),
            self.made.key_store.origin,
        )

    def wrap(self, connection: InnerConnection) -> TlsTransport:
        """Put TLS between a new connection and its socket."""
        return TlsTransport(connection, self)

    def identify(self, connection: InnerConnection, tls: ssl.SSLObject) -> None:
        """Set the principal of a connection's client. Raises HandshakeFailed."""
        suite = tls.cipher()
        if tls.version() == "TLSv1.3" and suite and suite[0] not in self.made.tls_1_3_suites:
            raise HandshakeFailed(f"ssl.cipher.suites does not have {suite[0]}")
        if self.protocol != SSL:  # SASL identifies the client later
            return
        certificate = tls.getpeercert(binary_form=True)
        if certificate is None:
            return
        try:
            with at_most(_MAPPING_MAX_S):
                name = self._rules.apply(subject_name(certificate))
        except (NoRuleApplies, ValueError) as error:
            raise HandshakeFailed(str(error)[:_SHOWN_MAX]) from None
        except TookTooLong:
            raise HandshakeFailed(
                f"{OPTION} took more than {_MAPPING_MAX_S:g} s for the name of the certificate: "
                "write groups that end at a comma, ([^,]*) instead of (.*)"
            ) from None
        connection.client.principal = Principal(USER, name)

    def succeeded(self, connection: InnerConnection) -> None:
        """Count a client that is let in; with SASL, its login is counted instead."""
        if self.protocol == SSL:
            self._metrics.authentications[self.name, "successful_authentication"] += 1
        logger.debug(
            "TLS handshake done peer=%s listener=%s principal=%s",
            connection.peer,
            self.name,
            connection.client.principal,
        )

    def failed(self, connection: InnerConnection, reason: str) -> None:
        """Count and log a handshake that failed."""
        self._metrics.authentications[self.name, "failed_authentication"] += 1
        logger.warning(
            "refused TLS handshake peer=%s listener=%s reason=%s",
            connection.peer,
            self.name,
            reason,
        )

    def put_in_force(self, config: TlsConfig, made: Made, stamps: _Stamps) -> None:
        """Use a new context for the connections to come."""
        self.config, self.made, self.stamps = config, made, stamps
        self._rules = PrincipalRules(config.ssl_principal_mapping_rules)
        self.problem, self._noticed_ms = "", 0
        logger.info(
            "replaced certificates listener=%s keystore=%s truststore=%s",
            self.name,
            made.key_store.origin,
            made.trust_store.origin if made.trust_store else "none",
        )


@dataclass(frozen=True, slots=True)
class _Prepared:
    """The settings and the context that take effect once the settings are stored."""

    listener: TlsListener
    config: TlsConfig
    made: Made
    stamps: _Stamps


class Tls:
    """All listeners that speak TLS; the event loop owns it."""

    def __init__(
        self,
        listeners: Iterable[tuple[str, str]],
        layers: Layers,
        metrics: Metrics,
        now_ms: Callable[[], int],
        between_brokers: str = "",
    ) -> None:
        """Read the stores of all listeners, each given as name and protocol.

        `between_brokers` is the name of the listener on which brokers ask each other, "" for
        none. Raises ConfigError.
        """
        self._now_ms = now_ms
        self.listeners: dict[str, TlsListener] = {}
        self._prepared: list[_Prepared] = []
        problems: list[str] = []
        for name, protocol in listeners:
            try:
                config = _config_of(name, protocol, layers)
                self.listeners[name] = TlsListener(
                    name, protocol, config, metrics, is_for_brokers=name == between_brokers
                )
            except ConfigError as error:
                problems += (f"listener {name}: {one}" for one in error.problems)
        raise_any(problems)
        for one in self.listeners.values():
            one.notice_end(now_ms())

    def check(self, layers: Layers) -> None:
        """Create contexts for new settings and for changed files. Raises ConfigError."""
        self._prepared = []
        for one in self.listeners.values():
            config = _config_of(one.name, one.protocol, layers)
            stamps = _stamps(config)
            if config != one.config or stamps != one.stamps:
                self._prepared.append(_prepare(one, config, stamps))

    def take_up(self) -> None:
        """Put the contexts that `check` has created in force."""
        for one in self._prepared:
            one.listener.put_in_force(one.config, one.made, one.stamps)
        self._prepared = []

    def look_at_files(self) -> None:
        """Use files that have changed; log, once, those that cannot be used."""
        for one in self.listeners.values():
            one.notice_end(self._now_ms())
            stamps = _stamps(one.config)
            if stamps == one.stamps:
                continue
            try:
                found = _prepare(one, one.config, stamps)
            except ConfigError as error:
                problem = "; ".join(error.problems)
                if problem != one.problem:
                    logger.error("kept the certificates in force: %s", problem)
                one.problem = problem
                continue
            one.put_in_force(found.config, found.made, stamps)

    def problems(self) -> Iterator[str]:
        """Iterate over the problems that an operator should look at."""
        for one in self.listeners.values():
            if one.problem:
                yield f"the certificates in use differ from those on the disk: {one.problem}"
            if one.ends_ms <= self._now_ms():
                yield f"listener {one.name}: its certificate has ended, and clients refuse it"


def _prepare(listener: TlsListener, config: TlsConfig, stamps: _Stamps) -> _Prepared:
    """Create another context. Raises ConfigError when it may not replace the present one."""
    try:
        made = listener.make(config)
        _check_successor(listener.made, made, config)
    except ConfigError as error:
        raise ConfigError(
            *(f"listener {listener.name}: {problem}" for problem in error.problems)
        ) from None
    return _Prepared(listener, config, made, stamps)


def _check_successor(old: Made, new: Made, config: TlsConfig) -> None:
    """Refuse certificates that clients would not accept as the same broker's (SslFactory)."""
    if old.trust_store is None and new.trust_store is not None:
        raise ConfigError(
            "Cannot add SSL truststore to an existing listener for which no truststore was "
            "configured."
        )
    before, after = old.key_store.own_certificate, new.key_store.own_certificate
    names = [subject_name(one) for one in (before, after)]
    if not config.ssl_allow_dn_changes and names[0].lower() != names[1].lower():
        raise ConfigError(
            f"Keystore DistinguishedName does not match: existing={names[0]}, new={names[1]}; "
            "ssl.allow.dn.changes=true lets it change"
        )
    lost = alternative_names_of(before) - alternative_names_of(after)
    if not config.ssl_allow_san_changes and lost:
        shown = ", ".join(sorted(map(_shown_name, lost)))
        raise ConfigError(
            f"Keystore SubjectAltNames do not match: the new certificate lacks {shown}; "
            "ssl.allow.san.changes=true lets them change"
        )


def _shown_name(encoded: bytes) -> str:
    tag, text = encoded[0], encoded[2:]
    is_text = tag in (0x81, 0x82, 0x86)  # a mail address, a DNS name, a URI
    return text.decode("ascii", "backslashreplace") if is_text else encoded.hex()


def _config_of(name: str, protocol: str, layers: Layers) -> TlsConfig:
    config = resolve_listener(TlsConfig, layers, name)
    own = f"{PREFIX}{name.lower()}.ssl.client.auth"
    if protocol != SSL and not any(own in layer.values for layer in layers):
        # The broker-wide ssl.client.auth is for listeners without SASL (ChannelBuilders).
        return dataclasses.replace(config, ssl_client_auth="none")
    return config


def _stamps(config: TlsConfig) -> _Stamps:
    return tuple(
        _stamp(path) for path in (config.ssl_keystore_location, config.ssl_truststore_location)
    )


def _stamp(path: str | None) -> tuple[int, int, int] | None:
    if path is None:
        return None
    try:
        found = Path(path).stat()
    except (OSError, ValueError):  # a path that contains a null byte raises ValueError
        return 0, 0, 0
    return found.st_mtime_ns, found.st_size, found.st_ino
