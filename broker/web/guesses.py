"""Slows down the wrong tokens of an address, and never a right one.

A token is compared before any other check, so a request with a right token is served at once,
whatever else came from its address. The first ten wrong tokens of a minute are answered at once,
too: people mistype. The answer to each further one is held for a second, as long as there is a
place to hold it, and its connection is closed.

This does not stop an attacker with many connections, and need not: the length of a token makes
guessing infeasible. A token that the broker creates has 128 random bits. An event loop answers
fewer than 10,000 requests a second, so half of all such tokens take 2**127 / 10,000 s, which is
5 * 10**26 years. The shortest token that may be set (config/http.py) has 8 characters: if random,
of 64 kinds, these are 48 bits, and half of all take 2**47 / 10,000 s: 450 years of a loop that
does nothing else.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable
from ipaddress import IPv6Address

WRONG_MAX = 10
WINDOW_S = 60.0
HOLD_S = 1.0
# At most one in this number of all connections is held, so that others always have places.
HELD_SHARE = 8
HELD_MAX = 16
# The addresses that are remembered; the one whose last wrong token is oldest makes room.
ADDRESSES_MAX = 4096
_IPV6_NETWORK_BITS = 64


class Guesses:
    """The wrong tokens of the last minute; the event loop owns it."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()

    def wait_s(self, address: str) -> float:
        """Return for how long an address's wrong tokens are still slowed down, 0.0 for not."""
        times = self._wrong.get(_network(address))
        if times is None or len(times) < WRONG_MAX:
            return 0.0
        return max(0.0, times[0] + WINDOW_S - self._now_s())

    def count(self, address: str) -> bool:
        """Count a wrong token of an address; return whether it is one too many."""
        is_too_many = self.wait_s(address) > 0
        network = _network(address)
        times = self._wrong.setdefault(network, deque(maxlen=WRONG_MAX))
        times.append(self._now_s())
        self._wrong.move_to_end(network)
        if len(self._wrong) > ADDRESSES_MAX:
            self._wrong.popitem(last=False)
        return is_too_many


class Holds:
    """The places where answers to wrong tokens are held; the event loop owns it."""

    def __init__(self, connections_max: Callable[[], int]) -> None:
        self._connections_max = connections_max
        self.count = 0

    async def hold(self) -> None:
        """Wait for a second if there is a place, else not at all."""
        if self.count >= min(HELD_MAX, self._connections_max() // HELD_SHARE):
            return
        self.count += 1
        try:
            await asyncio.sleep(HOLD_S)
        finally:
            self.count -= 1


def _network(address: str) -> str:
    """Return the network from which one host may choose addresses; with IPv4, the address."""
    if ":" not in address:
        return address
    found = IPv6Address(address.partition("%")[0])
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return f"{int(found) >> (128 - _IPV6_NETWORK_BITS):x}"
