"""The settings of a mechanism at a listener, for mechanisms with a login module."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.config.sasl import SaslConfig

if TYPE_CHECKING:
    from odradek.broker.security.composition import Security


def settings_of(security: Security, listener: str, name: str) -> Callable[[bool], SaslConfig]:
    """Return a function for the settings in force: its own, or (false) those of its listener."""

    def config(of_mechanism: bool) -> SaslConfig:
        mechanism = name.lower() if of_mechanism else ""
        return security.configs.of_listener(SaslConfig, listener, mechanism)

    return config
