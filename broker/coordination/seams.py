"""What coordinators need from the rest of the broker."""

from __future__ import annotations

from asyncio import Future, TimerHandle
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

KeyValue = tuple[bytes, bytes | None]


class InternalTopic(Protocol):
    """The partitions of an internal topic."""

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has, or will have once it is created."""

    def append(self, partition: int, records: Sequence[KeyValue]) -> Future[None]:
        """Append records as one batch; resolved when they are durable enough to answer for.

        The future may be done when it is returned. One that fails carries an error that
        broker.errors explains.
        """

    def replay(self, partition: int) -> Iterable[KeyValue]:
        """Read all records of a partition, oldest first; none when it does not exist."""


class Topics(Protocol):
    """The topics that offsets are committed for."""

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic, None when there is none of this id."""

    def id_of(self, name: str) -> bytes | None:
        """Return the id of a topic, None when there is none of this name."""

    def partition_count(self, name: str) -> int:
        """Return how many partitions a topic has, 0 when there is none of this name."""


class WallClock(Protocol):
    """The time of day, as it is written into records."""

    def now_ms(self) -> int:
        """Return the milliseconds since 1970."""


class Loop(Protocol):
    """Of the event loop, what coordinators use."""

    def time(self) -> float:
        """Return the seconds of a clock that never goes back."""

    def call_later(self, delay: float, callback: Callable[[], object]) -> TimerHandle:
        """Call back after a delay in seconds."""

    def create_future(self) -> Future[Any]:
        """Make a future of this loop."""


class Requester(Protocol):
    """Of a request's context, what coordinators must know."""

    @property
    def api_version(self) -> int: ...
    @property
    def client_id(self) -> str: ...
    @property
    def client_host(self) -> str: ...
