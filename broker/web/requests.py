"""Helpers of the JSON routes: parameters, partitions by name, problems as answers.

A problem is answered with a status and {"error": "the advice"}.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from aiohttp import web

from odradek.broker.hosts.addresses import plain_address
from odradek.broker.metadata.members import NO_LEADER
from odradek.broker.topics.topic import Topic
from odradek.storage.errors import StorageError
from odradek.storage.log import Log

if TYPE_CHECKING:
    from odradek.broker.web.services import WebServices

_FLAGS = {"true": True, "1": True, "": True, "false": False, "0": False}
_NAMES_SHOWN_MAX = 10

# The node ids of this machine's other workers.
OTHER_WORKERS = web.AppKey("other_workers", frozenset)
# The person of a request who logged in; other requests have none.
ACTOR = web.RequestKey[Any]("actor", object)
# The address of the client for whom another worker asks.
CLIENT = "X-Odradek-Client"

to_json = partial(json.dumps, indent=2)


class Problem(Exception):
    """A request that is not carried out; the message says what to change."""

    def __init__(
        self,
        status: int,
        message: str,
        headers: Mapping[str, str] | None = None,
        facts: Mapping[str, object] | None = None,
    ) -> None:
        """`facts` are further members of the answer."""
        super().__init__(message)
        self.status = status
        self.headers, self.facts = headers or {}, facts or {}


class Answer(web.Response):
    """A response that frees its body once it is sent.

    aiohttp keeps a connection's last response until the next request, which may not come for
    75 s: 256 connections kept 2 GB of sent responses.
    """

    async def write_eof(self, data: bytes = b"") -> None:
        """Send the body, and forget it."""
        try:
            await super().write_eof(data)
        finally:
            self.body = None


def answer(
    body: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Answer with JSON that is indented for people."""
    return Answer(
        text=to_json(body) + "\n",
        status=status,
        content_type="application/json",
        headers=headers,
    )


async def answer_from_thread(make: Callable[[], object], status: int = 200) -> web.Response:
    """Answer with the result of a function, called in a thread: large bodies take a while."""
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(None, lambda: answer(make(), status))


def is_private(request: web.Request) -> bool:
    """Return whether another worker of this machine asks: nobody else has the socket's path."""
    transport = request.transport
    return transport is not None and isinstance(transport.get_extra_info("sockname"), str)


def client_address(request: web.Request) -> str:
    """Return the client's address; of all headers, only that of another worker counts."""
    if is_private(request):
        return request.headers.get(CLIENT, "")
    transport = request.transport
    peer = transport.get_extra_info("peername") if transport is not None else None
    return plain_address(str(peer[0])) if peer else ""


class Parameters:
    """The query of a request; raises Problem for unknown, repeated and invalid parameters."""

    def __init__(self, request: web.Request, known: Iterable[str]) -> None:
        self._query = request.query
        # Another worker asks these brokers, too: each answers about its own partitions.
        self.others: frozenset[int] = (
            request.app.get(OTHER_WORKERS, frozenset()) if is_private(request) else frozenset()
        )
        known = list(known)
        for name in self._query:
            if name not in known:
                hint = f"use {', '.join(known)}" if known else "there are none here"
                raise Problem(400, f"{name} is not a parameter: {hint}")
            if len(self._query.getall(name)) > 1:
                raise Problem(400, f"{name} is repeated: give it once")

    def text(self, name: str) -> str | None:
        """Return a parameter, None when it is missing."""
        return self._query.get(name)

    def number(self, name: str, digits_max: int = 10) -> int | None:
        """Return a whole number of 0 or more, None when it is missing."""
        text = self._query.get(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit() and len(text) <= digits_max):
            raise Problem(400, f"{name}={text} is not a number: write it in digits")
        return int(text)

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a parameter that is true or false."""
        text = self._query.get(name)
        if text is None:
            return default
        if text not in _FLAGS:
            raise Problem(400, f"{name}={text} is neither true nor false")
        return _FLAGS[text]


def topic_of(broker: WebServices, parameters: Parameters) -> tuple[Topic, Sequence[int]]:
    """Return the topic that a request names, and the numbers of its partitions.

    They are the named one, else all but those that other workers are asked about. Raises Problem.
    """
    name, partition = parameters.text("topic"), parameters.number("partition")
    if not name:
        raise Problem(400, "name the topic: ?topic=…")
    found = broker.topics.get(name)
    if found is None:
        names = sorted(one.name for one in broker.topics)
        none = "create it first, there are no topics yet"
        hint = f"there are {_listed(names)}" if names else none
        raise Problem(404, f"there is no topic {name}: {hint}")
    count = len(found.partitions)
    if partition is not None:
        require_partition(found, partition)
        return found, [partition]
    others = parameters.others
    return found, [one for one in range(count) if found.other_leader(one) not in others]


def require_partition(topic: Topic, number: int) -> None:
    """Raise Problem for a partition that a topic does not have."""
    count = len(topic.partitions)
    if number >= count:
        raise Problem(
            404, f"topic {topic.name} has no partition {number}: it has {count}, counted from 0"
        )


def _listed(names: Sequence[str]) -> str:
    """Write the first of some names, and how many more there are."""
    listed, rest = ", ".join(names[:_NAMES_SHOWN_MAX]), len(names) - _NAMES_SHOWN_MAX
    return f"{listed} and {rest} more" if rest > 0 else listed


def logs_of(broker: WebServices, parameters: Parameters) -> list[Log]:
    """Return the logs of the partitions that a request names. Raises Problem."""
    found, numbers = topic_of(broker, parameters)
    leaders = [(one, found.other_leader(one)) for one in numbers]
    elsewhere = [
        f"{found.name}-{one}" + ("" if leader == NO_LEADER else f" (broker {leader})")
        for one, leader in leaders
        if leader is not None
    ]
    if elsewhere:
        raise Problem(
            421,
            f"this broker does not lead {_listed(elsewhere)}: ask their leaders, by partition",
        )
    try:
        logs = [found.log(one) for one in numbers]
    except StorageError as error:
        raise Problem(
            503, f"a partition of {found.name} is offline, see /health and try again: {error}"
        ) from error
    return [log for log in logs if log is not None]
