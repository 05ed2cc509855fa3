"""What coordinators need from the rest of the broker."""

from __future__ import annotations

from asyncio import Future, TimerHandle
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from broker.coordination.effects import Describable, Producer
from protocol.batches import NO_PRODUCER_ID
from storage.transactions import Marker

KeyValue = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """The records of a batch, and whose transaction they are part of; -1 is for none.

    Reading them took as long as that of so many more records.
    """

    records: Sequence[KeyValue]
    producer_id: int = NO_PRODUCER_ID
    passed_over: int = 0


@dataclass(frozen=True, slots=True)
class InTransaction:
    """A record of the log that counts once its producer's transaction is committed."""

    producer_id: int
    record: object


class InternalTopic(Protocol):
    """The partitions of an internal topic."""

    @property
    def partition_count(self) -> int:
        """How many partitions the topic has, or will have once it is created."""

    def append(
        self, partition: int, records: Sequence[KeyValue], producer: Producer | None = None
    ) -> Future[None]:
        """Append records as one batch; resolved when they are durable enough to answer for.

        The future may be done when it is returned. One that fails carries an error that
        broker.errors explains.
        """

    def append_marker(self, partition: int, marker: Marker) -> Future[None]:
        """Append what ends a producer's transaction; the future is as that of `append`."""

    def replay(self, partition: int) -> Iterable[StoredBatch | Marker]:
        """Read a partition from its beginning; nothing when it does not exist."""


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
    @property
    def describable(self) -> Describable | None: ...
