"""Fetch sessions (KIP-227): the broker remembers a client's partitions and its last answers.

A full request (epoch 0) names all partitions and begins a session. The requests that follow (epoch
1, 2, …) name only the changes, and answers leave out partitions without news. The number of
sessions is limited; a new session may replace

    a session that was not used for two minutes, the longest unused first;
    for a follower, the smallest session of a consumer;
    a smaller session of its own kind that is more than two minutes old.

The number of partitions in all sessions is limited, too; sessions that were not used for two
minutes make room. A client without a session gets its answer all the same, and names all
partitions in each request. Nothing here reads a clock or waits for anything.

Invariants:

1. `partition_count` is the sum of the sizes of all sessions, at most PARTITIONS_TOTAL_MAX.
2. Sessions are in the order of their last use.
3. Each epoch of a session is taken once: a repeated or late request is refused.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping

from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.fetch import FetchPartition, PartitionData
from odradek.storage.log import Log

NO_SESSION, FIRST_EPOCH = 0, 0
# Kafka's MIN_INCREMENTAL_FETCH_SESSION_EVICTION_MS, which is a constant there, too.
EVICTION_MS = 120_000
_ID_MAX = _EPOCH_MAX = 2**31 - 1
# They take some 150 MB. One client can begin all sessions that there are, with invented names.
PARTITIONS_TOTAL_MAX = 500_000

Key = tuple[str | bytes, int]
"""A partition in a session: the topic's name, or its id since version 13, and the number."""


class WantedPartition:
    """A partition that a client fetches, and the client's last answer for it."""

    __slots__ = ("high_watermark", "idle_log", "log_start_offset", "request", "topic", "topic_id")

    def __init__(self, topic: str | None, topic_id: bytes, request: FetchPartition) -> None:
        self.topic = topic  # None for an id that is not known so far
        self.topic_id = topic_id
        self.request = request
        self.high_watermark = self.log_start_offset = -1
        # The log, if nothing was left to read in it up to the high watermark.
        self.idle_log: Log | None = None

    def key(self, *, by_id: bool) -> Key:
        """Return the partition's key in a session."""
        topic = self.topic_id if by_id else self.topic
        assert topic is not None, "requests without topic ids have names"
        return topic, self.request.partition

    def is_news(self, data: PartitionData) -> bool:
        """Return whether an answer has news for the client."""
        return (
            bool(data.records)
            or data.high_watermark != self.high_watermark
            or data.log_start_offset != self.log_start_offset
            or data.error_code != 0
            or data.diverging_epoch.epoch >= 0
            or data.preferred_read_replica >= 0
        )

    def note(self, data: PartitionData, idle_log: Log | None) -> bool:
        """Remember an answer, and return whether it has news for the client."""
        is_news = self.is_news(data)
        # An error resets it, so that the end of the error is news.
        self.high_watermark = -1 if data.error_code else data.high_watermark
        self.log_start_offset = data.log_start_offset
        self.idle_log = idle_log
        return is_news


class Session:
    """One client's partitions, in the order of their turns."""

    __slots__ = (
        "_basis", "created_ms", "epoch", "id", "is_privileged", "last_used_ms", "partitions",
        "size", "uses_topic_ids",
    )  # fmt: skip

    def __init__(
        self,
        session_id: int,
        partitions: dict[Key, WantedPartition],
        now_ms: int,
        *,
        is_privileged: bool,
        uses_topic_ids: bool,
    ) -> None:
        self.id, self.partitions = session_id, partitions
        self.is_privileged, self.uses_topic_ids = is_privileged, uses_topic_ids
        self.created_ms = self.last_used_ms = now_ms
        self.size = len(partitions)  # when it was last used
        self.epoch = FIRST_EPOCH + 1  # the next request must have this epoch
        self._basis: object = None

    def look(self, basis: object) -> tuple[list[WantedPartition], list[Log]]:
        """Return the partitions that may have news, and the logs of the others.

        A log has no news if it has not changed since the client read all of it. That holds as
        long as the basis is the same: the topics, and the way of reading.
        """
        if basis != self._basis:
            self._basis = basis
            for one in self.partitions.values():
                one.idle_log = None
        fresh, idle = [], []
        for one in self.partitions.values():
            log = one.idle_log
            if (
                log is not None
                and log.high_watermark == one.high_watermark
                and log.log_start_offset == one.log_start_offset
            ):
                idle.append(log)
            else:
                fresh.append(one)
        return fresh, idle

    def note(self, one: WantedPartition, data: PartitionData, idle_log: Log | None) -> bool:
        """Remember an answer, and return whether it has news for the client.

        A partition that had records gets its next turn after all others.
        """
        is_news = one.note(data, idle_log)
        if data.records:
            key = one.key(by_id=self.uses_topic_ids)
            self.partitions[key] = self.partitions.pop(key)
        return is_news

    def update(
        self, wanted: Mapping[Key, WantedPartition], forgotten: Iterable[Key]
    ) -> None:
        """Add and change the partitions that a request names, then remove those it forgets."""
        partitions = self.partitions
        for key, one in wanted.items():
            known = partitions.setdefault(key, one)
            if known is not one:
                known.request, known.idle_log = one.request, None
        for key in forgotten:
            partitions.pop(key, None)


class FetchSessions:
    """All sessions, the longest unused first. The event loop owns it."""

    def __init__(
        self,
        random_source: random.Random,
        slots: Callable[[], int],
        partitions_max: Callable[[], int],
    ) -> None:
        self._random, self._slots, self._partitions_max = random_source, slots, partitions_max
        self._sessions: dict[int, Session] = {}
        self.partition_count = 0  # the sum over all sessions, each as of its last use
        self.evictions = 0

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self._sessions)

    def begin(
        self,
        partitions: dict[Key, WantedPartition],
        now_ms: int,
        *,
        is_privileged: bool,
        uses_topic_ids: bool,
    ) -> int:
        """Begin a session if there is room, or room can be made; return its id or NO_SESSION."""
        size = len(partitions)
        if size > self._partitions_max() or not self._make_room_for(size, now_ms):
            return NO_SESSION
        if len(self._sessions) >= self._slots() and not self._evict(is_privileged, size, now_ms):
            return NO_SESSION
        session = Session(
            self._new_id(),
            partitions,
            now_ms,
            is_privileged=is_privileged,
            uses_topic_ids=uses_topic_ids,
        )
        self._sessions[session.id] = session
        self.partition_count += size
        return session.id

    def resume(
        self,
        session_id: int,
        epoch: int,
        wanted: Mapping[Key, WantedPartition],
        forgotten: Iterable[Key],
        now_ms: int,
        *,
        uses_topic_ids: bool,
    ) -> Session | ErrorCode | None:
        """Take the next request of a session; return None when it leaves no partitions in it."""
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.update(wanted, forgotten)
        size = len(session.partitions)
        if size == 0:
            self.end(session_id)
            return None
        grown_count = self.partition_count + size - session.size
        is_too_much = size > session.size and grown_count > PARTITIONS_TOTAL_MAX
        if size > self._partitions_max() or is_too_much:
            self.end(session_id)  # the client begins again, and continues without a session
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        session.epoch = next_epoch(epoch)
        session.last_used_ms = now_ms
        self.partition_count += size - session.size
        session.size = size
        self._sessions[session_id] = self._sessions.pop(session_id)
        return session

    def end(self, session_id: int) -> None:
        """Remove a session, if there is one of that id."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partition_count -= session.size

    def _make_room_for(self, added_count: int, now_ms: int) -> bool:
        """Remove sessions that are not used any more, until there is room for more partitions."""
        while self.partition_count + added_count > PARTITIONS_TOTAL_MAX:
            stalest = next(iter(self._sessions.values()), None)
            if stalest is None or now_ms - stalest.last_used_ms <= EVICTION_MS:
                return False
            self.end(stalest.id)
            self.evictions += 1
        return True

    def _evict(self, is_privileged: bool, size: int, now_ms: int) -> bool:
        """Make room for a session if another one is worth less."""
        stalest = next(iter(self._sessions.values()), None)
        if stalest is None:
            return False
        if now_ms - stalest.last_used_ms > EVICTION_MS:
            victim = stalest
        else:
            open_to_all = (
                one
                for one in self._sessions.values()
                if one.last_used_ms - one.created_ms > EVICTION_MS
                or (is_privileged and not one.is_privileged)
            )
            least = min(open_to_all, key=_worth, default=None)
            if least is None or (is_privileged, size, NO_SESSION) < _worth(least):
                return False
            victim = least
        self.end(victim.id)
        self.evictions += 1
        return True

    def _new_id(self) -> int:
        while True:
            drawn = self._random.randint(NO_SESSION + 1, _ID_MAX)
            if drawn not in self._sessions:
                return drawn


def next_epoch(epoch: int) -> int:
    """Return the epoch of the request that follows a request of `epoch`."""
    return epoch + 1 if epoch < _EPOCH_MAX else FIRST_EPOCH + 1


def _worth(session: Session) -> tuple[bool, int, int]:
    return session.is_privileged, session.size, session.id
