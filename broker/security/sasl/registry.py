"""The mechanisms by their registered names, each in a module that is imported when it is used.

A module has `make(security, listener, name)`, which returns the mechanism for a listener. A
mechanism has to be in config/sasl.py, too, with its login module.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, cast

from odradek.broker.security.sasl.exchange import Mechanism
from odradek.config.sasl import GSSAPI, OAUTHBEARER, PLAIN, SCRAM_SHA_256, SCRAM_SHA_512

if TYPE_CHECKING:
    from odradek.broker.security.composition import Security

_PACKAGE = "odradek.broker.security.sasl"
MODULES: Mapping[str, str] = {
    PLAIN: f"{_PACKAGE}.plain",
    SCRAM_SHA_256: f"{_PACKAGE}.scram",
    SCRAM_SHA_512: f"{_PACKAGE}.scram",
    OAUTHBEARER: f"{_PACKAGE}.oauthbearer",
    GSSAPI: f"{_PACKAGE}.kerberos",
}


def make_mechanism(security: Security, listener: str, name: str) -> Mechanism:
    """Return a mechanism for a listener; `name` is one of MODULES."""
    return cast("Mechanism", import_module(MODULES[name]).make(security, listener, name))
