"""Sends requests to the brokers of a cluster, one after the other, as a command needs them.

A request is repeated where the answer says that nothing was done: another broker leads the
partition or coordinates the group, or the coordinator still loads. Other failures end the command.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from odradek.cli.client import NEWS_PAUSE_S, NEWS_S, Connection, unreachable
from odradek.cli.refusals import (
    Act,
    AnswerError,
    CommandError,
    check,
    no_broker,
    no_partition,
    no_topic,
    refused,
)
from odradek.cli.wire.links import Access, Away, Link, Unsupported
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)

T = TypeVar("T")

GROUP, TRANSACTION = 0, 1  # kinds of coordinators
_PORT = 9092
# Nothing was done when an answer has one of these.
_PASSING = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
_BACKOFF_S = 0.1
# The least version that answers several keys, and that creates no topic.
_KEYS_VERSION, _NO_CREATION_VERSION = 4, 4
_NO_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)
_TOPICS = Act("list topics")


class Wire:
    """The connections of a command; a context manager."""

    def __init__(self, connection: Connection, request_timeout_s: float) -> None:
        """Read the properties of the connection; raises CommandError."""
        self._address = connection.address
        self._connect_timeout_s = connection.connect_timeout_s
        self._request_timeout_s = request_timeout_s
        self._access = Access(connection.properties)
        self._links: dict[int, Link] = {}
        self._first: Link | None = None
        self.brokers: dict[int, MetadataResponseBroker] = {}
        self._runner = asyncio.Runner()

    def __enter__(self) -> Wire:
        """Connect to the first broker that answers; raises CommandError without one."""
        try:
            self._runner.run(self._connect())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Close all connections."""
        self._runner.run(self._close())
        self._runner.close()

    def ask(
        self,
        request: Any,
        response: type[T],
        act: Act,
        *,
        node: int | None = None,
        least: int = 0,
    ) -> T:
        """Return the answer of a broker, or of any; raises CommandError."""
        return self._runner.run(self._ask(node, request, response, act, least))

    def ask_each(
        self, requests: Mapping[int, Any], response: type[T], act: Act, *, least: int = 0
    ) -> dict[int, T]:
        """Return the answers of several brokers, which are asked at the same time."""

        async def gather() -> list[T]:
            return await asyncio.gather(
                *(self._ask(node, one, response, act, least) for node, one in requests.items())
            )

        return dict(zip(requests, self._runner.run(gather()), strict=True))

    def repeat(self, attempt: Callable[[], T], codes: Callable[[T], Iterable[int]]) -> T:
        """Attempt until the answer has none of the codes by which nothing was done."""
        deadline_s = time.monotonic() + self._request_timeout_s
        while True:
            found = attempt()
            if _PASSING.isdisjoint(codes(found)) or time.monotonic() > deadline_s:
                return found
            time.sleep(_BACKOFF_S)

    def ask_coordinator(
        self,
        key: str,
        request: Any,
        response: type[T],
        act: Act,
        codes: Callable[[T], Iterable[int]],
        *,
        kind: int = GROUP,
    ) -> tuple[int, T]:
        """Return the coordinator of a key, and its answer; `codes` returns the answer's codes."""

        def attempt() -> tuple[int, T]:
            node = self._coordinator(key, kind, act)
            return node, self.ask(request, response, act, node=node)

        return self.repeat(attempt, lambda found: codes(found[1]))

    def topics(self, names: Iterable[str] | None = None) -> dict[str, MetadataResponseTopic]:
        """Return the metadata of topics that exist, or of all; take note of the brokers."""
        with _refusing(_TOPICS):
            answer = self._runner.run(self._metadata(names))
        return {one.name: one for one in answer.topics if one.name and not one.error_code}

    def require_topic(self, name: str) -> MetadataResponseTopic:
        """Return the metadata of a topic; raises CommandError when it does not exist."""
        act = Act(f"find topic {name}", f"DESCRIBE on topic {name}")
        # A broker knows a topic that another has created a little later.
        end_s = time.monotonic() + (NEWS_S if len(self.brokers) > 1 else 0.0)
        while True:
            with _refusing(act):
                (found,) = self._runner.run(self._metadata([name])).topics
            if found.error_code not in _NO_TOPIC:
                break
            if time.monotonic() > end_s:
                raise CommandError(no_topic(name, self.topics()))
            time.sleep(NEWS_PAUSE_S)
        check(found.error_code, act)
        return found

    def require_partitions(self, topic: str, numbers: Iterable[int] = ()) -> list[int]:
        """Return the chosen partitions, or all; raises CommandError for one that is missing."""
        known = sorted(one.partition_index for one in self.require_topic(topic).partitions)
        wanted = sorted(set(numbers))
        for number in wanted:
            if number not in known:
                raise CommandError(no_partition(topic, number, len(known)))
        return wanted or known

    def require_broker(self, number: int) -> None:
        """Raise CommandError when no broker has this id."""
        if number not in self.brokers:
            raise CommandError(no_broker(number, self.brokers))

    def _coordinator(self, key: str, kind: int, act: Act) -> int:
        """Return the broker that coordinates a group or a transactional id."""
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])

        def attempt() -> FindCoordinatorResponse:
            return self.ask(request, FindCoordinatorResponse, act, least=_KEYS_VERSION)

        found = self.repeat(attempt, lambda one: [one.coordinators[0].error_code])
        (one,) = found.coordinators
        check(one.error_code, act, one.error_message)
        if one.node_id not in self.brokers:
            self.topics([])  # which asks for the brokers, too
        return one.node_id

    async def _connect(self) -> None:
        reason = ""
        for text in self._address.split(","):
            host, port = _host_and_port(text)
            try:
                self._first = await Link.open(host, port, self._access, self._connect_timeout_s)
                await self._metadata([])
                return
            except (Away, Unsupported) as error:
                reason = str(error) if self._first is None else ""
                await self._close()
        raise CommandError(unreachable(self._address, reason))

    async def _metadata(self, names: Iterable[str] | None) -> MetadataResponse:
        topics = None if names is None else [MetadataRequestTopic(name=one) for one in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        link = await self._link(None)
        answer = await link.ask(
            request, MetadataResponse, _NO_CREATION_VERSION, self._request_timeout_s
        )
        self.brokers = {one.node_id: one for one in answer.brokers}
        return answer

    async def _ask(
        self, node: int | None, request: Any, response: type[T], act: Act, least: int
    ) -> T:
        with _refusing(act, node):
            link = await self._link(node)
            return await link.ask(request, response, least, self._request_timeout_s)

    async def _link(self, node: int | None) -> Link:
        """Return the connection to a broker, a new one if need be. Raises Away."""
        if node is None:
            if self._first is not None and self._first.is_usable:
                return self._first
            node = min(self.brokers)
        known = self._links.get(node)
        if known is None or not known.is_usable:
            broker = self.brokers.get(node)
            if broker is None:
                raise Away("it is not in the cluster")
            known = self._links[node] = await Link.open(
                broker.host, broker.port, self._access, self._connect_timeout_s
            )
        return known

    async def _close(self) -> None:
        for link in filter(None, (self._first, *self._links.values())):
            link.close()
        self._first = None
        self._links.clear()
        await asyncio.sleep(0)  # for the transports, which close at the next turn of the loop


@contextmanager
def _refusing(act: Act, node: int | None = None) -> Iterator[None]:
    """Raise CommandError where a broker is away, or does not serve the request."""
    try:
        yield
    except Away as error:
        where = "" if node is None else f"broker {node} does not answer: "
        raise CommandError(f"could not {act.what}: {where}{error}") from error
    except Unsupported as error:
        raise refused(AnswerError(ErrorCode.UNSUPPORTED_VERSION), act) from error


def _host_and_port(text: str) -> tuple[str, int]:
    """Return the parts of an address as librdkafka reads it: [PROTOCOL://]HOST[:PORT]."""
    host, colon, port = text.strip().rpartition("://")[2].rpartition(":")
    if not colon or not port.isdigit():
        return f"{host}{colon}{port}".strip("[]"), _PORT
    return host.strip("[]"), int(port)
