"""Interfaces of the coordinators to the rest of the broker."""

from __future__ import annotations

from asyncio import Future, Task, TimerHandle
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from odradek.broker.coordination.effects import Describable, Producer
from odradek.dataclass import dataclass
from odradek.protocol.batches import NO_PRODUCER_ID
from odradek.storage.transactions import Marker

T = TypeVar("T")
KeyValue = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """The records of a batch, and the producer whose transaction they belong to; -1 for none.

    `passed_over` counts records that were read and left out, which took time, too.
    """

    records: Sequence[KeyValue]
    producer_id: int = NO_PRODUCER_ID
    passed_over: int = 0


@dataclass(frozen=True, slots=True)
class InTransaction:
    """A record of the log that takes effect when its producer's transaction commits."""

    producer_id: int
    record: object


class InternalTopic(Protocol):
    """The partitions of an internal topic."""

    @property
    def partition_count(self) -> int:
        """The number of partitions that the topic has, or will have once it is created."""

    def leads(self, partition: int) -> bool:
        """Return whether this broker leads a partition, and so coordinates for it."""

    def append(
        self,
        partition: int,
        records: Sequence[KeyValue],
        producer: Producer | None = None,
        *,
        is_awaited: bool = True,
    ) -> Future[None]:
        """Append records as one batch; the future is done once they are durable enough.

        Without `is_awaited` they need not be on the disk by then. The future may be done when it
        is returned. A failed one carries an error that broker.errors explains.
        """

    def append_marker(self, partition: int, marker: Marker) -> Future[None]:
        """Append the end of a producer's transaction; the future is like that of `append`."""

    async def fetch(self, partition: int) -> None:
        """Have a partition on the disk: replay() does not wait for the bucket."""

    def replay(self, partition: int) -> Iterable[StoredBatch | Marker]:
        """Read a partition from its beginning; one that does not exist has no batches."""


class Topics(Protocol):
    """The topics for which groups commit offsets."""

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic, None when no topic has this id."""

    def id_of(self, name: str) -> bytes | None:
        """Return the id of a topic, None when no topic has this name."""

    def partition_count(self, name: str) -> int:
        """Return the number of partitions of a topic, 0 when no topic has this name."""


class WallClock(Protocol):
    """The time of day that is written into records."""

    def now_ms(self) -> int:
        """Return the milliseconds since 1970."""


class Loop(Protocol):
    """The part of the event loop that coordinators use."""

    def time(self) -> float:
        """Return the seconds of a clock that never goes back."""

    def call_later(self, delay: float, callback: Callable[[], object]) -> TimerHandle:
        """Call back after a delay in seconds."""

    def create_future(self) -> Future[Any]:
        """Create a future of this loop."""

    def create_task(self, coro: Coroutine[Any, Any, T]) -> Task[T]:
        """Begin to run a coroutine."""


@dataclass(frozen=True, slots=True)
class Time:
    """A coordinator's time: the time of day for records, and the event loop for deadlines."""

    clock: WallClock
    loop: Loop


class Requester(Protocol):
    """The part of a request's context that coordinators use."""

    @property
    def api_version(self) -> int: ...
    @property
    def client_id(self) -> str: ...
    @property
    def client_host(self) -> str: ...
    @property
    def describable(self) -> Describable | None: ...
