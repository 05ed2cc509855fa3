"""Moves of partitions between brokers, asked for over HTTP.

    POST /api/cluster/rebalance         brokers of one host lead equal shares; with
                                        between_hosts=true all brokers do
    POST /api/cluster/drain?broker=N    a broker leads nothing afterwards

The answer has the number of moves that have begun, and how many of them copy a partition to
another host. Both need the admin token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from odradek.broker.errors import MetadataError
from odradek.broker.metadata.members import ANY_HOST, NO_LEADER
from odradek.broker.topics.placement import Targets, drain_targets, even_targets, fair_targets
from odradek.broker.web.requests import Parameters, Problem, answer

if TYPE_CHECKING:
    from odradek.broker.web.access import Access
    from odradek.broker.web.services import WebServices


def add_cluster_move_routes(app: web.Application, broker: WebServices, access: Access) -> None:
    """Add the routes that move partitions to an application."""

    async def rebalance(request: web.Request) -> web.Response:
        access.require(request)
        between_hosts = Parameters(request, ("between_hosts",)).flag(
            "between_hosts", default=False
        )
        choose = even_targets if between_hosts else fair_targets
        return await _move(broker, choose((one.record for one in broker.topics), broker.brokers))

    async def drain(request: web.Request) -> web.Response:
        access.require(request)
        node_id = Parameters(request, ("broker",)).number("broker")
        if node_id is None:
            raise Problem(400, "name the broker: broker=")
        if broker.brokers.get(node_id) is None:
            raise Problem(404, f"there is no broker {node_id}, or it is away")
        if len(broker.brokers) == 1:
            raise Problem(
                409, f"no other broker is there to lead the partitions of broker {node_id}"
            )
        records = (one.record for one in broker.topics)
        return await _move(broker, drain_targets(records, broker.brokers, node_id))

    app.router.add_post("/api/cluster/rebalance", rebalance)
    app.router.add_post("/api/cluster/drain", drain)


async def _move(broker: WebServices, targets: Targets) -> web.Response:
    copies = sum(_is_copy(broker, *key, to) for key, to in targets.items())
    if targets:
        assert broker.handovers is not None, "a broker without a catalog is alone"
        try:
            await broker.handovers.assign(targets)
        except MetadataError as error:
            raise Problem(503, str(error)) from error
    moves = sum(to != NO_LEADER for to in targets.values())
    return answer({"moves": moves, "copies": copies})


def _is_copy(broker: WebServices, topic_id: bytes, number: int, to: int) -> bool:
    """Return whether a move goes to another host."""
    topic, member = broker.topics.by_id(topic_id), broker.brokers.get(to)
    return (
        topic is not None
        and member is not None
        and topic.record.leaders[number].host not in (member.host, ANY_HOST)
    )
