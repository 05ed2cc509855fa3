"""How often an address may show a wrong token: ten times a minute.

A token that the broker has made cannot be guessed at any rate; one that somebody has set may be.
Who has shown too many is not answered for a while whatever it shows, or it could go on guessing.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from ipaddress import IPv6Address

WRONG_MAX = 10
WINDOW_S = 60.0
# Addresses remembered; of more the one that was wrong longest ago is forgotten.
ADDRESSES_MAX = 4096
_IPV6_NETWORK_BITS = 64


class Guesses:
    """The wrong tokens of the last minute; the event loop owns it."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()

    def wait_s(self, address: str) -> float:
        """Return how long an address has to wait before it may show a token, 0.0 for not."""
        times = self._wrong.get(_network(address))
        if times is None or len(times) < WRONG_MAX:
            return 0.0
        return max(0.0, times[0] + WINDOW_S - self._now_s())

    def count(self, address: str) -> bool:
        """Note that an address has shown a wrong token; tell whether it has to wait now."""
        network = _network(address)
        times = self._wrong.setdefault(network, deque(maxlen=WRONG_MAX))
        times.append(self._now_s())
        self._wrong.move_to_end(network)
        if len(self._wrong) > ADDRESSES_MAX:
            self._wrong.popitem(last=False)
        return self.wait_s(address) > 0


def _network(address: str) -> str:
    """Return what one host may choose its address from: with IPv6 that is a whole network."""
    if ":" not in address:
        return address
    found = IPv6Address(address.partition("%")[0])
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return f"{int(found) >> (128 - _IPV6_NETWORK_BITS):x}"
