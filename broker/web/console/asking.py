"""Puts requests of Kafka's protocol to this broker, or to another one of the cluster.

A request to this broker goes to its handler directly, in the newest version. With the admin token
no authorizer is asked; a person who logged in has the rights of their principal. Another broker
gets the request from this broker, with this broker's rights: so the rights of the person are
checked here first.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from odradek.broker.api_table import APIS
from odradek.broker.apis import Handler, load
from odradek.broker.errors import CloseConnection
from odradek.broker.metadata.members import NO_LEADER
from odradek.broker.peers.errors import PeerAway
from odradek.broker.security.authorization import CLUSTER_NAME, AclOperation, ResourceKind
from odradek.broker.web.console.actor import Actor
from odradek.broker.web.requests import Problem
from odradek.broker.web.rights import require_right
from odradek.broker.web.services import WebServices
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import info_of

if TYPE_CHECKING:
    from odradek.broker.loop.slices import Slices
    from odradek.broker.metadata.changes import Changes
    from odradek.broker.peers.peers import Peers
    from odradek.broker.topics.topic import Topic

T = TypeVar("T")

_BY_KEY = {one.key: one for one in APIS}
# The status of an HTTP answer for an error of Kafka's; 400 for the others.
_STATUSES: Mapping[ErrorCode, int] = {
    ErrorCode.TOPIC_ALREADY_EXISTS: 409,
    ErrorCode.NON_EMPTY_GROUP: 409,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.UNKNOWN_TOPIC_ID: 404,
    ErrorCode.GROUP_ID_NOT_FOUND: 404,
    ErrorCode.RESOURCE_NOT_FOUND: 404,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: 404,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 403,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: 403,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: 403,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: 503,
    ErrorCode.NOT_COORDINATOR: 503,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: 503,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: 503,
    ErrorCode.KAFKA_STORAGE_ERROR: 503,
    ErrorCode.REQUEST_TIMED_OUT: 503,
}


class ConsoleServices(WebServices, Protocol):
    """The parts of a broker that actions use, besides those that routes use."""

    changes: Changes
    slices: Slices
    # None where this broker is alone.
    peers: Peers | None


class Asker:
    """Asks brokers on behalf of a person; the event loop owns it."""

    def __init__(self, broker: ConsoleServices) -> None:
        self._broker = broker
        self._handlers: dict[int, Handler] = {}

    async def ask(
        self, actor: Actor, request: Any, response: type[T], node_id: int | None = None
    ) -> T:
        """Send a request to this broker, or to another; return the answer. Raises Problem."""
        broker, key = self._broker, info_of(type(request)).key
        version = _BY_KEY[key].last
        if node_id is not None and node_id != broker.node_id:
            return await self._ask_other(node_id, request, version, response)
        handler = self._handlers.get(key)
        if handler is None:
            handler = self._handlers[key] = load(_BY_KEY[key])
        if handler.is_administrative and broker.store.is_shared:
            await broker.changes.catch_up()
        try:
            answer = handler.handle(broker, actor.context(broker, key, version), request)
            if inspect.isawaitable(answer):
                answer = await answer
        except CloseConnection as close:
            raise Problem(400, str(close)) from close
        assert isinstance(answer, response)
        return answer

    async def _ask_other(self, node_id: int, request: Any, version: int, response: type[T]) -> T:
        peers = self._broker.peers
        if node_id == NO_LEADER or peers is None:
            raise Problem(503, "no broker leads this now: try again in a moment")
        # A task of its own: steps in slices belong to none, and may have no time-out.
        asked = asyncio.ensure_future(
            peers.ask(
                node_id, request, version, response, lambda one: getattr(one, "error_code", 0)
            )
        )
        try:
            return await asked
        except PeerAway as error:
            raise Problem(503, f"{error}: try again in a moment") from error

    def topic(self, name: str) -> Topic:
        """Return a topic. Raises Problem."""
        found = self._broker.topics.get(name)
        if found is None:
            raise Problem(404, f"there is no topic {name}" if name else "name the topic")
        return found

    def topic_defaults(self) -> Mapping[str, str | None]:
        """Return the values of the settings of a topic that sets none itself."""
        entries = self._broker.configs.of_topic({}).entries
        return {one.name: one.value for one in entries.values()}

    def node_ids(self) -> Sequence[int]:
        """Return the node ids of all brokers of the cluster."""
        return sorted(one.node_id for one in self._broker.brokers)

    def leaders(self, topic: Topic, numbers: Iterable[int]) -> Mapping[int, list[int]]:
        """Return partitions of a topic by the node id of their leader."""
        found = dict[int, list[int]]()
        for number in numbers:
            other = topic.other_leader(number)
            leader = self._broker.node_id if other is None else other
            found.setdefault(leader, []).append(number)
        return found

    def describable(self, actor: Actor, kind: ResourceKind, names: Iterable[str]) -> Set[str]:
        """Return the names that a person may describe."""
        return actor.describable(self._broker, kind, names)

    def require_right(
        self, actor: Actor, operation: AclOperation, kind: ResourceKind, name: str = CLUSTER_NAME
    ) -> None:
        """Raise Problem unless a person may perform an operation."""
        require_right(self._broker, actor, operation, kind, name)


def require(code: int, message: str | None = None, what: str = "") -> None:
    """Raise Problem for an error code of an answer; `what` begins the sentence."""
    if not code:
        return
    error = ErrorCode.of(code)
    text = message or error.sentence
    raise Problem(_STATUSES.get(error, 400), f"{what}: {text}" if what else text)
