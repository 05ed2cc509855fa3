"""The history of a simulated cluster: each operation of the clients, and its outcome.

An operation is noted when it begins; its outcome stays UNKNOWN unless it is answered. `at` counts
all that was noted, so that it orders beginnings and ends.
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


@dataclass(slots=True)
class Append:
    """A batch. Values are "<producer>-<number>"; numbers grow."""

    producer: str
    place: Place
    values: tuple[str, ...]
    # It is sent once, without a producer id: its order is not promised.
    is_plain: bool = False
    transaction: Transaction | None = None
    outcome: Outcome = Outcome.UNKNOWN
    offset: int = -1


@dataclass(slots=True)
class Transaction:
    """A transaction; its appends name it."""

    producer: str
    number: int
    # When its client first asked for its commit; None if it did not.
    commit_at: int | None = None
    outcome: Outcome = Outcome.UNKNOWN


@dataclass(frozen=True, slots=True)
class Read:
    """A record that a consumer has read."""

    reader: str
    place: Place
    offset: int
    epoch: int
    value: str
    is_committed: bool
    at: int


@dataclass(frozen=True, slots=True)
class Start:
    """A log start offset that a client was given; a promise as the answer to a deletion."""

    place: Place
    offset: int
    is_promise: bool = False


@dataclass(slots=True)
class Deletion:
    """A request to delete the records before an offset (DeleteRecords)."""

    place: Place
    offset: int
    outcome: Outcome = Outcome.UNKNOWN


@dataclass(slots=True)
class OffsetCommit:
    """An offset that a group has committed, perhaps in a transaction."""

    group: str
    place: Place
    offset: int
    transaction: Transaction | None = None
    outcome: Outcome = Outcome.UNKNOWN
    done_at: int | None = None


@dataclass(frozen=True, slots=True)
class OffsetFetch:
    """A committed offset that a group has found, -1 for none."""

    group: str
    place: Place
    offset: int
    begun_at: int


@dataclass(frozen=True, slots=True)
class Led:
    """A broker was seen to lead a partition."""

    partition: tuple[str, int]  # the topic's id
    epoch: int
    node_id: int


@dataclass(frozen=True, slots=True)
class CatalogChange:
    """A change that the catalog has committed."""

    revision: int
    node_id: int
    has_session: bool


@dataclass(slots=True)
class TopicChange:
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
    """Everything that the checker reads."""

    appends: list[Append] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    # What readers found in the end, by place: all records, and the committed ones.
    final: dict[Place, list[Read]] = field(default_factory=dict)
    final_committed: dict[Place, list[Read]] = field(default_factory=dict)
    # The log start offsets that clients were given, and those in the end.
    starts: list[Start] = field(default_factory=list)
    final_starts: dict[Place, int] = field(default_factory=dict)
    deletions: list[Deletion] = field(default_factory=list)
    commits: list[OffsetCommit] = field(default_factory=list)
    fetches: list[OffsetFetch] = field(default_factory=list)
    led: list[Led] = field(default_factory=list)
    catalog_changes: list[CatalogChange] = field(default_factory=list)
    topic_changes: list[TopicChange] = field(default_factory=list)
    # What each broker, and the catalog itself, knew in the end.
    views: dict[str, View] = field(default_factory=dict)
    # Problems that were seen at once.
    troubles: list[str] = field(default_factory=list)
    at: int = 0

    def add(self, event: Any) -> Any:
        """Note an event; return it."""
        self.at += 1
        lists: dict[type, list[Any]] = {
            Append: self.appends,
            Transaction: self.transactions,
            Read: self.reads,
            Start: self.starts,
            Deletion: self.deletions,
            OffsetCommit: self.commits,
            OffsetFetch: self.fetches,
            Led: self.led,
            CatalogChange: self.catalog_changes,
            TopicChange: self.topic_changes,
        }
        lists[type(event)].append(event)
        return event

    def tick(self) -> int:
        """Return the present moment, later than all before it."""
        self.at += 1
        return self.at
