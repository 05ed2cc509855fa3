"""Answers that are made, and a count of them: what is sent again is compared with these."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

from odradek.broker.composition import Broker
from odradek.broker.context import RequestContext
from odradek.protocol.schema import info_of


def made(module: ModuleType, broker: Broker, request: Any, version: int) -> Any:
    """Have the handler of an API make its answer."""
    listener, key = broker.server.listeners[0], info_of(type(request)).key
    context = RequestContext(None, listener, "/127.0.0.1", version, 0, "", key)
    return module.handle(broker, context, request)


def counted(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, function: str
) -> Callable[[], int]:
    """Count the calls of a module's function from now on."""
    counted, calls = getattr(module, function), 0

    def call(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return counted(*arguments)

    monkeypatch.setattr(module, function, call)
    return lambda: calls
