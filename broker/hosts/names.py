"""Resolves host names that clients send, which may take the network a long time.

A name without an answering server takes ten seconds and more, and a request may have thousands. So
names have threads of their own, and a request has PATIENCE_S: a name whose turn has not come by
then counts as unknown. Kafka resolves one name after the other in its controller, which makes no
other changes meanwhile (ClientQuotaControlManager.isValidIpEntity).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from odradek.broker.hosts import addresses

PATIENCE_S = 10.0
_THREADS = 2

Addresses = Mapping[str, Sequence[str]]
"""The addresses of hosts; a host without any is unknown."""


class HostNames:
    """The threads; owned by the event loop. They start with the first name."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="names")

    async def resolve(self, hosts: Collection[str]) -> Addresses:
        """Return the addresses of hosts. Without names among them it does not wait."""
        until_s = time.monotonic() + PATIENCE_S
        loop = asyncio.get_running_loop()
        found = dict(await loop.run_in_executor(None, _numbers, hosts))
        names = [host for host, there in found.items() if not there]
        if names:
            found.update(await loop.run_in_executor(self._pool, _resolve, names, until_s))
        return found


def resolve_all(hosts: Collection[str]) -> Addresses:
    """Return the addresses of hosts, however long that takes."""
    return {host: addresses.resolve(host) for host in hosts}


def _numbers(hosts: Collection[str]) -> Addresses:
    return {host: addresses.resolve_number(host) for host in hosts}


def _resolve(names: Sequence[str], until_s: float) -> Addresses:
    found: dict[str, Sequence[str]] = {}
    for name in names:
        if time.monotonic() >= until_s:
            break
        found[name] = addresses.resolve(name)
    return found
