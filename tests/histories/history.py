"""The history of a cluster: each operation of its clients, and its outcome.

An operation is noted when it begins; its outcome stays UNKNOWN unless it is answered. `at` counts
all that was noted, so that it orders beginnings and ends; `done_at` is that of an end.

    begins    at, time_s         time_s: seconds of a monotonic clock that all clients share;
    ends      done_at, done_s    0.0 in a simulation
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

Place = tuple[str, int]
"""The name of a topic, and the number of a partition."""


KEYS = 5


def key_of(value: str) -> bytes:
    """Return the key of a record by its value."""
    return b"k%d" % (int(value.rpartition("-")[2]) % KEYS)


class Outcome(Enum):
    """The outcome of an operation, as its client knows it."""

    UNKNOWN = "unknown"
    DONE = "done"  # acknowledged; of a transaction: committed
    UNDONE = "undone"  # refused for good; of a transaction: aborted


@dataclass(frozen=True, slots=True)
class Topic:
    """The promises of a topic."""

    # A record that anybody has read stays, at its offset. Shared topics promise this, local ones
    # as long as no machine loses its power.
    keeps_reads: bool = False
    is_compacted: bool = False
    delete_retention_s: float = 0.0
    # Its first records go by themselves, by their age or size.
    is_retained: bool = False
    # Records that were deleted (DeleteRecords) stay deleted. A killed leader of a local topic may
    # bring them back, as Kafka's: it stores log start offsets each minute.
    keeps_deletions: bool = True


LOCAL, SHARED = Topic(), Topic(keeps_reads=True)


@dataclass(slots=True, kw_only=True)
class Event:
    """Something that began, and may have ended."""

    at: int = 0
    done_at: int | None = None
    time_s: float = 0.0
    done_s: float = 0.0


@dataclass(slots=True)
class Append(Event):
    """A batch. Values are "<producer>-<number>"; numbers grow."""

    producer: str
    place: Place
    values: tuple[str, ...]
    # It is sent without a producer id: its order is not promised.
    is_plain: bool = False
    transaction: Transaction | None = None
    outcome: Outcome = Outcome.UNKNOWN
    offset: int = -1
    # A plain batch that is sent again when its answer is lost: it may be there more than once.
    is_repeated: bool = False
    # Of the values, those of records that delete their keys.
    tombstones: frozenset[str] = frozenset()


@dataclass(slots=True)
class Transaction(Event):
    """A transaction; its appends name it."""

    producer: str
    number: int
    # When its client first asked for its commit; None if it did not.
    commit_at: int | None = None
    outcome: Outcome = Outcome.UNKNOWN


@dataclass(slots=True)
class Read(Event):
    """A record that a consumer has read; `at` is the moment of the answer."""

    reader: str
    place: Place
    offset: int
    epoch: int  # -1 if unknown
    value: str
    is_committed: bool


@dataclass(slots=True)
class Scan(Event):
    """All records that a reader has found between the log's first offset and its end.

    `end` is the offset at which it found no more, asked for after all others.
    """

    reader: str
    place: Place
    start: int
    end: int
    is_committed: bool
    reads: list[Read]


@dataclass(slots=True)
class Watermark(Event):
    """A high watermark that somebody was given; by a leader if the node is unknown (-1)."""

    client: str
    place: Place
    epoch: int
    offset: int
    node_id: int = -1


@dataclass(slots=True)
class Start(Event):
    """A log start offset that a client was given; a promise as the answer to a deletion."""

    place: Place
    offset: int
    is_promise: bool = False


@dataclass(slots=True)
class Deletion(Event):
    """A request to delete the records before an offset (DeleteRecords)."""

    place: Place
    offset: int
    outcome: Outcome = Outcome.UNKNOWN


@dataclass(slots=True)
class OffsetCommit(Event):
    """An offset that a group has committed, perhaps in a transaction."""

    group: str
    place: Place
    offset: int
    transaction: Transaction | None = None
    outcome: Outcome = Outcome.UNKNOWN
    # The group has read all records before the offset.
    is_position: bool = False


@dataclass(slots=True)
class OffsetFetch(Event):
    """A committed offset that a group has found, -1 for none."""

    group: str
    place: Place
    offset: int


@dataclass(slots=True)
class ShareDelivery(Event):
    """A record that a member of a share group was given."""

    group: str
    member: str
    place: Place
    offset: int
    value: str
    count: int = 1


class Acknowledgement(Enum):
    """The kinds of an acknowledgement, by their names in KIP-932."""

    ACCEPT = "accept"
    RELEASE = "release"
    REJECT = "reject"


@dataclass(slots=True)
class ShareAck(Event):
    """An acknowledgement of the records from one offset to another, both included."""

    group: str
    member: str
    place: Place
    first: int
    last: int
    kind: Acknowledgement
    outcome: Outcome = Outcome.UNKNOWN


@dataclass(slots=True)
class Led(Event):
    """A broker was seen to lead a partition."""

    partition: tuple[str, int]  # the topic's id
    epoch: int
    node_id: int
    topic: str = ""


@dataclass(slots=True)
class Disruption(Event):
    """A trouble that was made on purpose, of a broker or, with -1, of all."""

    name: str
    node_id: int = -1


@dataclass(slots=True)
class CatalogChange(Event):
    """A change that the catalog has committed."""

    revision: int
    node_id: int
    has_session: bool


@dataclass(slots=True)
class TopicChange(Event):
    """A change of a topic: its creation, its deletion, its number of partitions, a setting."""

    kind: str
    topic: str
    topic_id: str = ""
    value: int = 0
    outcome: Outcome = Outcome.UNKNOWN


@dataclass(frozen=True, slots=True)
class View:
    """The metadata of one broker: comparable, by topic id."""

    topics: Mapping[str, Any]
    members: tuple[int, ...]


@dataclass
class History:
    """Everything that the checks read."""

    # The promises of topics, by name; others are local ones.
    topics: dict[str, Topic] = field(default_factory=dict)
    appends: list[Append] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    scans: list[Scan] = field(default_factory=list)
    watermarks: list[Watermark] = field(default_factory=list)
    # The records that readers found in the end, by place: all, and the committed ones.
    final: dict[Place, list[Read]] = field(default_factory=dict)
    final_committed: dict[Place, list[Read]] = field(default_factory=dict)
    # The log start offsets that clients were given, and the first and last ones in the end.
    starts: list[Start] = field(default_factory=list)
    final_starts: dict[Place, int] = field(default_factory=dict)
    final_ends: dict[Place, int] = field(default_factory=dict)
    deletions: list[Deletion] = field(default_factory=list)
    commits: list[OffsetCommit] = field(default_factory=list)
    fetches: list[OffsetFetch] = field(default_factory=list)
    deliveries: list[ShareDelivery] = field(default_factory=list)
    acks: list[ShareAck] = field(default_factory=list)
    led: list[Led] = field(default_factory=list)
    disruptions: list[Disruption] = field(default_factory=list)
    catalog_changes: list[CatalogChange] = field(default_factory=list)
    topic_changes: list[TopicChange] = field(default_factory=list)
    # The metadata that each broker, and the catalog itself, had in the end.
    views: dict[str, View] = field(default_factory=dict)
    # Problems that were seen at once.
    troubles: list[str] = field(default_factory=list)
    at: int = 0

    def add(self, event: Any) -> Any:
        """Note an event, now unless it has a moment of its own; return it."""
        self.at += 1
        event.at = event.at or self.at
        self._list_of(type(event)).append(event)
        return event

    def end(self, event: Any, outcome: Outcome) -> None:
        """Note the outcome of an operation."""
        event.outcome, event.done_at = outcome, self.tick()

    def tick(self) -> int:
        """Return the present moment, later than all before it."""
        self.at += 1
        return self.at

    def topic(self, place: Place) -> Topic:
        """Return the promises of a partition's topic."""
        return self.topics.get(place[0], LOCAL)

    def events(self) -> list[Event]:
        """Return all events, kind by kind."""
        return [one for kind in _KINDS for one in self._list_of(kind)]

    def _list_of(self, kind: type) -> list[Any]:
        found: list[Any] = getattr(self, _KINDS[kind])
        return found


_KINDS: dict[type, str] = {
    Append: "appends",
    Transaction: "transactions",
    Read: "reads",
    Scan: "scans",
    Watermark: "watermarks",
    Start: "starts",
    Deletion: "deletions",
    OffsetCommit: "commits",
    OffsetFetch: "fetches",
    ShareDelivery: "deliveries",
    ShareAck: "acks",
    Led: "led",
    Disruption: "disruptions",
    CatalogChange: "catalog_changes",
    TopicChange: "topic_changes",
}
