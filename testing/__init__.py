"""Odradek for the tests of other projects: `with OdradekBroker() as broker: …`.

pytest loads `odradek.testing.plugin` in every run, so that names are imported when they are used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek.testing.broker import BrokerError, OdradekBroker

__all__ = ["BrokerError", "OdradekBroker"]


def __getattr__(name: str) -> object:
    if name in __all__:
        return getattr(importlib.import_module("odradek.testing.broker"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
