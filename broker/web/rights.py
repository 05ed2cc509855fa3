"""The rights that a person who logged in needs for each route; the admin token needs none.

    an operation on the topic or the group that the request names
    DESCRIBE on the cluster for the other routes that read, ALTER for those that change
    none for lists: they leave out topics and groups that the person may not describe
    none for the page's actions and their views: the handlers of Kafka's requests check them
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from typing import TYPE_CHECKING

from aiohttp import web

from odradek.broker.security.authorization import CLUSTER_NAME, AclOperation, ResourceKind
from odradek.broker.web.console.routes import ACTION_PATHS, VIEWS
from odradek.broker.web.requests import ACTOR, Problem
from odradek.dataclass import dataclass

if TYPE_CHECKING:
    from odradek.broker.web.console.actor import Actor
    from odradek.broker.web.services import WebServices


@dataclass(frozen=True, slots=True)
class Right:
    """An operation on the resource that a parameter names."""

    operation: AclOperation
    parameter: str = "topic"
    kind: ResourceKind = ResourceKind.TOPIC


_DESCRIBE, _READ = Right(AclOperation.DESCRIBE), Right(AclOperation.READ)
_ALTER = Right(AclOperation.ALTER)
RIGHTS: Mapping[str, Right] = {
    "/api/topic": _DESCRIBE,
    "/api/cleaner/plan": _DESCRIBE,
    "/api/cleaner/why": _DESCRIBE,
    "/api/cleaner/history": _DESCRIBE,
    "/api/records": _READ,
    "/api/latest": _READ,
    "/api/get": _READ,
    "/api/group": Right(AclOperation.DESCRIBE, "group", ResourceKind.GROUP),
    "/api/cleaner/run": _ALTER,
    "/api/cleaner/retry": _ALTER,
    "/api/cleaner/verify": _ALTER,
}
CHECKED_ELSEWHERE = frozenset(
    (
        "/api/topics",
        "/api/groups",
        "/api/login",
        *VIEWS,
        *ACTION_PATHS,
    )
)


def require_route(broker: WebServices, actor: Actor, request: web.Request) -> None:
    """Raise Problem unless a person may make a request."""
    path = request.path
    if path in CHECKED_ELSEWHERE:
        return
    right = RIGHTS.get(path)
    name = None if right is None else request.query.get(right.parameter)
    if right is not None and name:
        operation, kind = right.operation, right.kind
    else:
        reads = request.method in ("GET", "HEAD")
        operation = AclOperation.DESCRIBE if reads else AclOperation.ALTER
        kind, name = ResourceKind.CLUSTER, CLUSTER_NAME
    require_right(broker, actor, operation, kind, name)


def require_right(
    broker: WebServices, actor: Actor, operation: AclOperation, kind: ResourceKind, name: str
) -> None:
    """Raise Problem unless a person may perform an operation."""
    if not actor.context(broker).may(operation, kind, name):
        where = "" if kind is ResourceKind.CLUSTER else f" {name}"
        raise Problem(
            403, f"{actor} lacks the right {operation.name} on {kind.name.lower()}{where}"
        )


def describable(
    broker: WebServices, request: web.Request, kind: ResourceKind, names: Iterable[str]
) -> Set[str] | None:
    """Return the names that the person of a request may describe; None for all."""
    actor: Actor | None = request.get(ACTOR)
    return None if actor is None else actor.describable(broker, kind, names)
