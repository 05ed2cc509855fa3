"""What a handler is told of a request, besides its body."""

from __future__ import annotations

from asyncio import Future
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from broker.composition import Broker
    from broker.server import Listener


T = TypeVar("T")


class CloseConnection(Exception):
    """The client cannot be told in a response; its connection is closed, for the reason given."""


class Staged(Generic[T]):
    """An answer that takes a while to begin with: requests after it wait until it has begun."""

    __slots__ = ("_answer", "begun")

    def __init__(self, answer: Awaitable[T], begun: Future[None]) -> None:
        self._answer, self.begun = answer, begun

    def __await__(self) -> Generator[object, None, T]:
        """Wait for the answer."""
        return self._answer.__await__()


class Patient(Generic[T]):
    """An answer that waits for more to tell: `hurry` makes it come with what there is."""

    __slots__ = ("_answer", "hurry")

    def __init__(self, answer: Awaitable[T], hurry: Callable[[], None]) -> None:
        self._answer, self.hurry = answer, hurry

    def __await__(self) -> Generator[object, None, T]:
        """Wait for the answer."""
        return self._answer.__await__()


@dataclass(slots=True)
class ConnectedClient:
    """What is known of a connection's other end; the names are told with ApiVersions."""

    port: int = 0
    software_name: str = "unknown"
    software_version: str = "unknown"
    # Called when the connection is lost, by who wants to hear of it.
    on_lost: dict[str, Callable[[], None]] = field(default_factory=dict)


@dataclass(slots=True)
class RequestContext:
    """A request's surroundings: the broker, the connection, the header."""

    broker: Broker
    listener: Listener
    client_host: str  # "/127.0.0.1", as Kafka prints addresses
    api_version: int
    correlation_id: int
    client_id: str
    client: ConnectedClient = field(default_factory=ConnectedClient)

    def advertised(self) -> tuple[str, int]:
        """Return the host and port that clients of this listener are told to connect to."""
        return self.listener.advertised_host, self.listener.advertised_port
