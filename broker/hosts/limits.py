"""The limits of connections for single addresses: max.connections.per.ip.overrides.

The setting may name hosts, and a thread resolves a name over the network: a name that no server
knows takes ten seconds, and clients may set thousands of them. A client that connects meanwhile
waits up to a second for that, and then the former limits apply to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from odradek.broker.hosts import addresses
from odradek.config.broker import BrokerConfig

_WAIT_S = 1.0


class HostLimits:
    """The limits by address; the event loop owns it."""

    def __init__(self) -> None:
        self._text = ""
        self._by_address: Mapping[str, int] = {}
        self._resolving: asyncio.Future[Mapping[str, int]] | None = None
        self._resolved_text = ""

    def of(self, address: str) -> int | None:
        """Return the limit of an address, None when it has none of its own."""
        return self._by_address.get(address)

    async def follow(self, config: BrokerConfig) -> None:
        """Put the setting in force: after a short wait for its names, or in the background.

        One thread at a time resolves names, however many changes of the setting there are.
        """
        text = config.max_connections_per_ip_overrides
        if text == self._text:
            return
        if self._resolving is None:
            loop = asyncio.get_running_loop()
            self._resolved_text = text
            self._resolving = loop.run_in_executor(None, _resolve, config.connections_per_host)
            self._resolving.add_done_callback(self._take)
        await asyncio.wait({self._resolving}, timeout=_WAIT_S)

    def _take(self, resolved: asyncio.Future[Mapping[str, int]]) -> None:
        self._resolving = None
        if not resolved.cancelled():
            self._by_address, self._text = resolved.result(), self._resolved_text


def _resolve(counts: Mapping[str, int]) -> Mapping[str, int]:
    return {
        address: count for host, count in counts.items() for address in addresses.resolve(host)
    }
