"""The surroundings of the coordinator of groups in its tests: a loop whose time the test moves, a
log whose appends end when the test says so, topics, and requests' contexts."""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from odradek.broker.context import RequestContext
from odradek.broker.coordination.effects import Producer
from odradek.broker.coordination.seams import StoredBatch, Time
from odradek.broker.groups.config import GroupConfig
from odradek.broker.groups.coordinator import GroupCoordinator
from odradek.broker.groups.records import KeyValue
from odradek.broker.hosts.listener import Listener
from odradek.broker.metadata.members import Brokers, Member
from odradek.protocol.batches import NO_PRODUCER_ID
from odradek.storage.transactions import Marker

TOPIC_ID = bytes(range(16))


class ManualLoop:
    """The event loop's clock and timers, moved by `advance`; futures are real."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.handles: list[ManualHandle] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, delay: float, callback: Callable[[], object]) -> Any:
        handle = ManualHandle(self.now_s + delay, callback)
        self.handles = [h for h in self.handles if not h.is_cancelled]
        self.handles.append(handle)
        return handle

    def create_future(self) -> Future[Any]:
        return asyncio.get_running_loop().create_future()

    async def advance(self, duration_s: float) -> None:
        """Let time pass; callbacks run at their time, and futures' callbacks after each."""
        end_s = self.now_s + duration_s
        await settle()
        while due := [h for h in self.handles if not h.is_cancelled and h.at <= end_s]:
            handle = min(due, key=lambda h: h.at)
            self.handles.remove(handle)
            self.now_s = max(self.now_s, handle.at)
            handle.callback()
            await settle()
        self.now_s = end_s


@dataclass(slots=True)
class ManualHandle:
    """A callback of the loop."""

    at: float
    callback: Callable[[], object]
    is_cancelled: bool = False

    def cancel(self) -> None:
        self.is_cancelled = True


class ManualLog:
    """A log of so many partitions; while held, its appends end by `end`."""

    def __init__(self, partition_count: int = 1) -> None:
        self.partition_count = partition_count
        self.records: dict[int, list[StoredBatch | Marker]] = {}
        self.is_held = False
        self.held: list[tuple[Future[None], int, StoredBatch | Marker]] = []
        self.replay_error: Exception | None = None

    def leads(self, partition: int) -> bool:
        return True

    def append(
        self,
        partition: int,
        records: Sequence[KeyValue],
        producer: Producer | None = None,
        *,
        is_awaited: bool = True,
    ) -> Future[None]:
        producer_id = NO_PRODUCER_ID if producer is None else producer.producer_id
        return self._append(partition, StoredBatch(records, producer_id))

    def append_marker(self, partition: int, marker: Marker) -> Future[None]:
        return self._append(partition, marker)

    def _append(self, partition: int, appended: StoredBatch | Marker) -> Future[None]:
        future: Future[None] = asyncio.get_running_loop().create_future()
        self.held.append((future, partition, appended))
        if not self.is_held:
            self.end(future)
        return future

    def end(self, future: Future[None] | None = None, error: BaseException | None = None) -> None:
        """End an append, the oldest one by default."""
        at = 0 if future is None else [held for held, _, _ in self.held].index(future)
        ended, partition, appended = self.held.pop(at)
        if error is not None:
            ended.set_exception(error)
        else:
            self.records.setdefault(partition, []).append(appended)
            ended.set_result(None)

    async def fetch(self, partition: int) -> None:
        """Do nothing: there is no bucket."""

    def replay(self, partition: int) -> Iterable[StoredBatch | Marker]:
        if self.replay_error is not None:
            raise self.replay_error
        return list(self.records.get(partition, []))


@dataclass(slots=True)
class ManualClock:
    """A wall clock that stands still unless a test moves it."""

    at_ms: int = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.at_ms


@dataclass(slots=True)
class FakeTopics:
    """Topics by name with their ids and partition counts."""

    by_name: dict[str, tuple[bytes, int]] = field(default_factory=lambda: {"t": (TOPIC_ID, 4)})

    def names(self) -> Iterable[str]:
        return list(self.by_name)

    def version(self) -> int:
        return len(self.by_name)

    def racks(self, name: str) -> Sequence[Sequence[str]]:
        return [[]] * self.partition_count(name)

    def name_of(self, topic_id: bytes) -> str | None:
        return next((n for n, (id_, _) in self.by_name.items() if id_ == topic_id), None)

    def id_of(self, name: str) -> bytes | None:
        return self.by_name[name][0] if name in self.by_name else None

    def partition_count(self, name: str) -> int:
        return self.by_name[name][1] if name in self.by_name else 0


class NoShareGroups:
    """A coordinator of share groups that has none."""

    def has(self, group_id: str) -> bool:
        return False


class NoTopics:
    """The topics of a broker that is alone, before it has any."""

    is_shared = False

    def get(self, name: str) -> None:
        return None


@dataclass(slots=True)
class FakeBroker:
    """Of a broker, what the handlers of groups use."""

    groups: GroupCoordinator
    node_id: int = 5
    share_groups: NoShareGroups = field(default_factory=NoShareGroups)
    topics: NoTopics = field(default_factory=NoTopics)
    brokers: Brokers = field(default_factory=lambda: Brokers(Member(5, "", None, ())))


class Bench:
    """A coordinator with all that is around it."""

    def __init__(self, config: GroupConfig | None = None, partition_count: int = 1) -> None:
        self.loop = ManualLoop()
        self.log = ManualLog(partition_count)
        self.clock = ManualClock()
        self.topics = FakeTopics()
        self.config = config or GroupConfig()
        self.groups = self.new_coordinator()

    def new_coordinator(self) -> GroupCoordinator:
        """Make a coordinator; a second one stands for a restart of the broker."""
        numbers = count(1)
        return GroupCoordinator(
            self.log,
            self.topics,
            self.config,
            time=Time(self.clock, self.loop),
            fresh_id=lambda: f"id{next(numbers)}",
        )

    def services(self) -> Any:
        """Return the parts of a broker that handlers of groups use."""
        return FakeBroker(self.groups)

    def context(self, version: int = 9) -> Any:
        """Make a context for a request of a version."""
        listener = Listener("PLAINTEXT", "127.0.0.1", 9092, "broker.example", 9092)
        return RequestContext(None, listener, "/127.0.0.1", version, 1, "client")


async def settle() -> None:
    """Let everything run that can run now."""
    for _ in range(10):
        await asyncio.sleep(0)
