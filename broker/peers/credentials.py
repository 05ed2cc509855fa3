"""How this broker shows itself to others: the listener to ask, its certificate, its login.

All is by the settings in force, so that a new connection has new certificates and logins.
"""

from __future__ import annotations

import ssl
from functools import partial
from typing import TYPE_CHECKING

from odradek.broker.metadata.configs import Configs
from odradek.broker.peers.connections import LogIn
from odradek.config.inter_broker import (
    InterBrokerConfig,
    OwnLogin,
    inter_broker_listener,
    own_login,
)
from odradek.config.sasl import SaslConfig
from odradek.config.tls import PROTOCOLS as TLS

if TYPE_CHECKING:
    from odradek.broker.security.tls.contexts import Made
    from odradek.broker.security.tls.listeners import Tls


class Credentials:
    """The credentials of this broker at others; the event loop owns it."""

    def __init__(self, configs: Configs, tls: Tls | None) -> None:
        self._configs = configs
        config = configs.of(InterBrokerConfig)
        self.listener = inter_broker_listener(config, configs.broker.advertised_endpoints)
        self._tls = None
        if tls is not None and self.listener.protocol in TLS:
            self._tls = tls.listeners[self.listener.name]
        # The context of new connections, and the certificates that it was made from.
        self._context: tuple[Made, ssl.SSLContext] | None = None

    @property
    def context(self) -> ssl.SSLContext | None:
        """The TLS of a new connection; None without TLS."""
        tls = self._tls
        if tls is None:
            return None
        if self._context is None or self._context[0] is not tls.made:
            from odradek.broker.security.tls.contexts import make_client_context

            self._context = tls.made, make_client_context(tls.config, tls.made)
        return self._context[1]

    @property
    def log_in(self) -> LogIn | None:
        """The login over a new connection; None without SASL."""
        login = self._login()
        if login is None:
            return None
        from odradek.broker.peers.logins import log_in

        return partial(log_in, login=login)

    @property
    def principal(self) -> str:
        """The principal that others know this broker by, for an error."""
        login = self._login()
        if login is not None:
            return f"User:{login.username}"
        if self._tls is None or self._tls.config.ssl_client_auth == "none":
            return "User:ANONYMOUS"
        return "the principal of its certificate"

    def _login(self) -> OwnLogin | None:
        if not self.listener.protocol.startswith("SASL_"):
            return None
        return own_login(
            self._configs.of(InterBrokerConfig).sasl_mechanism_inter_broker_protocol,
            self.listener.name,
            lambda listener, mechanism: self._configs.of_listener(
                SaslConfig, listener, mechanism.lower()
            ),
        )
