"""The mechanisms and settings of one SASL listener, by the settings in force."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from odradek.broker.security.sasl.exchange import Exchange, Mechanism
from odradek.broker.security.sasl.registry import make_mechanism
from odradek.config.sasl import SaslConfig

if TYPE_CHECKING:
    from odradek.broker.security.composition import Security


class SaslListener:
    """A listener's settings and mechanisms; one for all its connections."""

    def __init__(self, security: Security, name: str) -> None:
        self.name = name
        self._security = security
        self._mechanisms: dict[str, Mechanism] = {}

    @property
    def config(self) -> SaslConfig:
        """The settings in force, except those of single mechanisms."""
        return self._security.configs.of_listener(SaslConfig, self.name)

    @property
    def enabled(self) -> Sequence[str]:
        """The mechanisms that clients may choose from."""
        return self.config.sasl_enabled_mechanisms

    def now_ms(self) -> int:
        """Return the time, in milliseconds since the epoch."""
        return self._security.now_ms()

    def begin(self, mechanism: str) -> Exchange:
        """Begin an exchange of an enabled mechanism."""
        found = self._mechanisms.get(mechanism)
        if found is None:
            found = make_mechanism(self._security, self.name, mechanism)
            self._mechanisms[mechanism] = found
        return found.begin()

    def lifetime_ms(self, mechanism: str, expires_ms: int | None) -> int | None:
        """Return the lifetime of a login that begins now; None is without end (KIP-368).

        It is connections.max.reauth.ms, but ends with the credential.
        """
        configs = self._security.configs
        config = configs.of_listener(SaslConfig, self.name, mechanism.lower())
        bounds = []
        if config.connections_max_reauth_ms > 0:
            bounds.append(config.connections_max_reauth_ms)
        if expires_ms is not None:
            bounds.append(max(0, expires_ms - self.now_ms()))
        return min(bounds, default=None)
