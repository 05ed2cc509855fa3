"""The topics of a siege, their promises, and the clients that write and read them.

Shared topics are in the bucket. The others are local: on the disks of brokers that are never wiped
(`stage.Plan`), since a wiped disk loses them by design. A killed process loses nothing that it has
written, so that their readers, too, keep what they have read. In the middle of a siege an
administrator may bring them to the bucket.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from confluent_kafka.admin import NewTopic

from tests.siege.crew import Load

_DELETE_RETENTION_S = 10.0
_SMALL = {"internal.segment.bytes": "30000", "file.delete.delay.ms": "1000"}
_COMPACT = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": str(int(_DELETE_RETENTION_S * 1000)),
}
_SHORT = {"internal.segment.bytes": "10000", "retention.bytes": "20000"}
_COMPACTED = {"compacted": True, "delete_retention_s": _DELETE_RETENTION_S}


@dataclass(frozen=True)
class Topic:
    """A topic that is there all the time; clients write tombstones to those with "table"."""

    partitions: int
    config: Mapping[str, str] = field(default_factory=dict)
    promises: Mapping[str, object] = field(default_factory=dict)
    is_local: bool = False

    def created(self, name: str, homes: Sequence[int]) -> NewTopic:
        """Return the request for the topic; a local one is at `homes`, node ids."""
        config = {**_SMALL, **self.config}
        if not self.is_local:
            return NewTopic(name, self.partitions, 1, config=config)
        places = [[homes[number % len(homes)]] for number in range(self.partitions)]
        config["odradek.storage"] = "local"
        return NewTopic(name, self.partitions, replica_assignment=places, config=config)

    def word(self, name: str, homes: Sequence[int]) -> str:
        """Return the topic as an argument of a client's process."""
        at = ":" + ",".join(map(str, homes)) if self.is_local else ""
        return f"{name}:{self.partitions}{at}"


EVENTS, TABLE, COPIES = "events", "table", "copies"
LOCAL_EVENTS, LOCAL_TABLE = "local-events", "local-table"
# Administrators alter its cleanup.policy: its first records may go, and those with a later one.
MIXED = "mixed-table"
TOPICS: Mapping[str, Topic] = {
    EVENTS: Topic(3),
    TABLE: Topic(2, _COMPACT, _COMPACTED),
    COPIES: Topic(3),
    LOCAL_EVENTS: Topic(2, promises={"keeps_deletions": False}, is_local=True),
    LOCAL_TABLE: Topic(2, _COMPACT, _COMPACTED, is_local=True),
    MIXED: Topic(1, {**_COMPACT, **_SHORT}, {**_COMPACTED, "retained": True}),
}
_TABLES = (TABLE, LOCAL_TABLE, MIXED)
_STREAMS = (EVENTS, LOCAL_EVENTS)
_ALL = (*_STREAMS, *_TABLES)
LOADS = (
    Load("idempotent", "first", _ALL),
    Load("idempotent-ahead", "second", (EVENTS,)),
    Load("idempotent-ahead", "third", (LOCAL_EVENTS,)),
    Load("plain", "plain", _ALL),
    Load("transactional", "txn-1", _ALL),
    Load("transactional", "txn-2", _ALL),
    Load("reader", "reader", _ALL),
    Load("uncommitted-reader", "early", _ALL),
    Load("scanner", "scanner", _TABLES),
    Load("classic-member", "classic-1", _STREAMS),
    Load("classic-member", "classic-2", _STREAMS),
    Load("member", "new-1", _STREAMS),
    Load("member", "new-2", _STREAMS),
    Load("copier", "copier-1", (EVENTS,)),
    Load("copier", "copier-2", (EVENTS,)),
    Load("deleter", "deleter", _STREAMS),
    Load("administrator", "administrator", tuple(TOPICS)),
    Load("java-idempotent", "java-1", _STREAMS),
    Load("java-member", "java-2", _STREAMS),
    Load("java-sharer", "java-3", (EVENTS,)),
    Load("java-sharer", "java-4", (EVENTS,)),
    Load("go-idempotent", "go-1", _STREAMS),
    Load("go-member", "go-2", _STREAMS),
)
