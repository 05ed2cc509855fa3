"""Limits of connections by host names, which the network may take its time to resolve."""

from __future__ import annotations

import asyncio
import threading
from unittest import mock

from odradek.broker.hosts import addresses
from odradek.broker.hosts import limits as host_limits
from odradek.broker.hosts.limits import HostLimits
from odradek.config.broker import BrokerConfig
from tests.broker.live import PATIENCE_S, on_uvloop, until


def overriding(text: str) -> BrokerConfig:
    return BrokerConfig(max_connections_per_ip_overrides=text)


@on_uvloop
async def test_a_name_that_takes_long_holds_nobody_up() -> None:
    answered = threading.Event()
    asked: list[str] = []

    def resolve(host: str) -> list[str]:
        asked.append(host)
        answered.wait(PATIENCE_S)
        return [f"192.0.2.{len(asked)}"]

    limits = HostLimits()
    with (
        mock.patch.object(addresses, "resolve", resolve),
        mock.patch.object(host_limits, "_WAIT_S", 0.01),
    ):
        await limits.follow(overriding("slow:5"))
        assert limits.of("192.0.2.1") is None
        # However often it is changed meanwhile, one thread asks.
        await asyncio.gather(*(limits.follow(overriding(f"h{n}:6")) for n in range(20)))
        assert asked == ["slow"]
        answered.set()
        await until(lambda: limits.of("192.0.2.1") == 5)
        await limits.follow(overriding("last:7"))
        await until(lambda: limits.of("192.0.2.2") == 7)
        assert asked == ["slow", "last"] and limits.of("192.0.2.1") is None
