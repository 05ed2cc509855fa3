"""Finds out that a broker's process has ended before its lease ends.

The system refuses connections to a port where no process listens. A machine that is lost, or cut
off, refuses nothing: then the lease decides. A broker that loads its data refuses them, too: it
listens, then makes sure of its session, and serves only then (Membership.confirm). One that stops
refuses none before it has left the cluster (Server.turn_away).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from odradek.broker.catalog.silences import Key, Lease
from odradek.broker.metadata.members import Endpoint, Member

# Shorter than the interval of heartbeats, which wait for it.
_TIMEOUT_S = 0.2


def late(leases: Sequence[Lease], left_max_ms: int) -> list[Lease]:
    """Return the leases that have not been extended lately.

    Those of brokers that share log directories are left out: a process that refuses connections
    while it starts may write there.
    """
    hosts = Counter(one.session.member.host for one in leases)
    return [
        one
        for one in leases
        if one.left_ms is not None
        and one.left_ms <= left_max_ms
        and hosts[one.session.member.host] == 1
    ]


async def ended(leases: Sequence[Lease]) -> set[Key]:
    """Return the leases of brokers whose processes have ended; all are looked at at once."""
    found = await asyncio.gather(*(has_ended(one.session.member) for one in leases))
    return {one.key for one, is_so in zip(leases, found, strict=True) if is_so}


async def has_ended(member: Member) -> bool:
    """Return whether each address of a broker refuses connections."""
    return all(await asyncio.gather(*map(_refuses, member.endpoints)))


async def _refuses(endpoint: Endpoint) -> bool:
    connecting = asyncio.open_connection(endpoint.host, endpoint.port)
    try:
        _, writer = await asyncio.wait_for(connecting, _TIMEOUT_S)
    except ConnectionRefusedError:
        return True
    except OSError:  # no answer, no such host, or one of several addresses is another machine's
        return False
    writer.close()
    return False
