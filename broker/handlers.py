"""The contract of a handler: its type, its answers, and the order that clients may rely on.

    handle(services, context, request) -> one of

    a response         it is sent at once
    None               nothing is sent: a Produce request with acks=0
    an awaitable       its result, a response or None, is sent once it is there
    Staged             an awaitable; requests after this one wait until it has begun
    Patient            an awaitable that waits for more: `hurry` makes it come with what it has
    CloseConnection    is raised where no response can report the failure

A connection's requests are served one after the other, so that each finds the effects of the one
before it, and responses leave in the order of their requests. Only Produce requests overlap: each
is appended in its turn, and they wait for the disk together (`Dispatcher.may_overlap`). A request
that waits behind a Patient answer hurries it (`Dispatcher.may_hurry`).

A handler runs on the event loop. A long one is served in slices: loops over client-decided
counts go over `paced(items)`, and state shared with others may change between two items.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Callable, Generator, Hashable
from typing import Any, Generic, TypeVar

from odradek.broker.context import RequestContext
from odradek.broker.hosts.listener import Listener
from odradek.broker.services import Services

T = TypeVar("T")

# The request and the response are messages of one API, which no type can say for all of them.
Handle = Callable[[Services, RequestContext, Any], Any]
# All that an API's answers to clients of a listener depend on (network/remembered.py).
Stamp = Callable[[Services, Listener], Hashable]
# Returns whether an answer would still be the same, though its stamp is.
Holds = Callable[[], bool]
# Returns that for the answer that a request has just had.
Grounds = Callable[[Services, Any], Holds]


class Staged(Generic[T]):
    """An answer that takes a while to begin: later requests wait until it has begun."""

    __slots__ = ("_answer", "begun")

    def __init__(self, answer: Awaitable[T], begun: Future[None]) -> None:
        self._answer, self.begun = answer, begun

    def __await__(self) -> Generator[object, None, T]:
        """Wait for the answer."""
        return self._answer.__await__()


class Patient(Generic[T]):
    """An answer that waits for more records: `hurry` makes it come with those that are there."""

    __slots__ = ("_answer", "hurry")

    def __init__(self, answer: Awaitable[T], hurry: Callable[[], None]) -> None:
        self._answer, self.hurry = answer, hurry

    def __await__(self) -> Generator[object, None, T]:
        """Wait for the answer."""
        return self._answer.__await__()
