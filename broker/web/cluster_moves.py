"""Moves of partitions between the brokers of one host, asked for over HTTP.

    POST /api/cluster/rebalance         brokers of one host lead equal shares
    POST /api/cluster/drain?broker=N    a broker leads nothing afterwards

The answer has the number of moves that have begun. Both need the admin token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from odradek.broker.errors import MetadataError
from odradek.broker.web.requests import Parameters, Problem, answer

if TYPE_CHECKING:
    from odradek.broker.web.access import Access
    from odradek.broker.web.services import WebServices


def add_cluster_move_routes(app: web.Application, broker: WebServices, access: Access) -> None:
    """Add the routes that move partitions to an application."""

    async def rebalance(request: web.Request) -> web.Response:
        access.require(request)
        Parameters(request, ())
        return await _move(broker, None)

    async def drain(request: web.Request) -> web.Response:
        access.require(request)
        node_id = Parameters(request, ("broker",)).number("broker")
        if node_id is None:
            raise Problem(400, "name the broker: broker=")
        member = broker.brokers.get(node_id)
        if member is None:
            raise Problem(404, f"there is no broker {node_id}, or it is away")
        if not any(one.host == member.host for one in broker.brokers if one is not member):
            raise Problem(
                409,
                f"no other broker has the log directories of broker {node_id}: its partitions "
                "cannot be led elsewhere",
            )
        return await _move(broker, node_id)

    app.router.add_post("/api/cluster/rebalance", rebalance)
    app.router.add_post("/api/cluster/drain", drain)


async def _move(broker: WebServices, without: int | None) -> web.Response:
    if broker.handovers is None:
        # Each broker has log directories of its own: every partition is where it has to be.
        return answer({"moves": 0})
    try:
        return answer({"moves": await broker.handovers.rebalance(without)})
    except MetadataError as error:
        raise Problem(503, str(error)) from error
