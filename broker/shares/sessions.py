"""Share sessions: the broker remembers the partitions that a member fetches (KIP-932).

A request with epoch 0 begins a session and names all partitions. Later requests have the epochs
1, 2, ... and name only the changes; epoch -1 ends the session. A session belongs to the connection
that began it, and ends with the connection. A connection may have a few sessions, with as many
partitions in all of them as the broker has, and some more: a client may invent any names of
members and topics.

Kafka's sources: ShareSession, ShareSessionCache, SharePartitionManager.newContext.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable
from typing import NamedTuple

from odradek.broker.fetch.sessions import FIRST_EPOCH, next_epoch
from odradek.protocol.errors import ErrorCode

FINAL_EPOCH = -1
# Kafka's clients have a connection for each member.
SESSIONS_PER_CONNECTION_MAX = 10
# Partitions beyond the number that exist, for deleted topics: each response lists their errors.
MISSING_PARTITIONS_MAX = 1_000


class TopicPartition(NamedTuple):
    """A partition by its topic's id."""

    topic_id: bytes
    partition: int


class MemberKey(NamedTuple):
    """The group and the member of a session."""

    group_id: str
    member_id: str


class ShareSession:
    """The partitions of one member, in the order in which they get their turn."""

    __slots__ = ("connection", "epoch", "partitions", "unknown")

    def __init__(self, partitions: Iterable[TopicPartition], connection: Hashable) -> None:
        # Topics that did not exist when a request named them; a deleted id never comes back.
        self.unknown: set[bytes] = set()
        # By partition, whether the next response includes it even without news.
        self.partitions = dict.fromkeys(partitions, False)
        self.connection = connection
        self.epoch = FIRST_EPOCH + 1  # expected in the next request

    def note(self, partition: TopicPartition, *, has_records: bool, has_failed: bool) -> bool:
        """Note a partition's result; return whether the response must include it."""
        is_owed = self.partitions.get(partition, False)
        if partition in self.partitions:
            if has_records:
                del self.partitions[partition]  # Its next turn comes after all others.
            # The response after an error includes the partition, to show that the error is over.
            self.partitions[partition] = has_failed
        return is_owed or has_records or has_failed


class ShareSessions:
    """All sessions; the event loop owns it."""

    def __init__(
        self,
        sessions_max: Callable[[], int],
        on_lost: Callable[[MemberKey, ShareSession], None],
        on_empty: Callable[[str], None],
        partition_count: Callable[[], int] = lambda: 0,
    ) -> None:
        """`on_lost` is called with a lost session, `on_empty` with a group without sessions.

        `partition_count` returns the number of partitions of the broker.
        """
        self._sessions_max, self._partition_count = sessions_max, partition_count
        self._on_lost, self._on_empty = on_lost, on_empty
        self._sessions: dict[MemberKey, ShareSession] = {}
        self._counts: Counter[str] = Counter()
        # The members whose sessions a connection has begun, also sessions that have ended.
        self._begun: dict[Hashable, dict[MemberKey, None]] = {}

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self._sessions)

    def get(self, key: MemberKey) -> ShareSession | None:
        """Return a member's session."""
        return self._sessions.get(key)

    def begin(
        self, key: MemberKey, partitions: Collection[TopicPartition], connection: Hashable
    ) -> ShareSession | None:
        """Begin a session, replacing the member's present one; return None without room."""
        self.end(key)
        if (
            len(self._sessions) >= self._sessions_max()
            or not self._may_begin(key, connection)
            or self._is_too_much(connection, len(partitions))
        ):
            return None
        session = self._sessions[key] = ShareSession(partitions, connection)
        self._counts[key.group_id] += 1
        self._begun.setdefault(connection, {})[key] = None
        return session

    def resume(
        self,
        key: MemberKey,
        epoch: int,
        added: Iterable[TopicPartition] = (),
        forgotten: Collection[TopicPartition] = (),
    ) -> ShareSession | ErrorCode:
        """Take the next request of a session; its response includes all added partitions.

        A session that becomes too large is lost.
        """
        session = self._sessions.get(key)
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        for one in added:
            session.partitions.setdefault(one, True)
        for one in forgotten:
            session.partitions.pop(one, None)
        if forgotten:
            session.unknown &= {one.topic_id for one in session.partitions}
        if self._is_too_much(session.connection):
            self._lose(key, session)
            return ErrorCode.SHARE_SESSION_LIMIT_REACHED
        session.epoch = next_epoch(epoch)
        return session

    def end(self, key: MemberKey) -> ShareSession | None:
        """End a member's session, and return it."""
        session = self._sessions.pop(key, None)
        if session is not None:
            self._counts[key.group_id] -= 1
            if not self._counts[key.group_id]:
                del self._counts[key.group_id]
        return session

    def end_all(self) -> None:
        """End all sessions."""
        self._sessions.clear()
        self._counts.clear()

    def connection_lost(self, connection: Hashable) -> None:
        """End the sessions that a lost connection has begun and still has."""
        for key in self._begun.pop(connection, ()):
            session = self._sessions.get(key)
            if session is not None and session.connection is connection:
                self._lose(key, session)
            self._notify_if_empty(key.group_id)

    def _lose(self, key: MemberKey, session: ShareSession) -> None:
        self.end(key)
        self._on_lost(key, session)

    def _notify_if_empty(self, group_id: str) -> None:
        if group_id not in self._counts:
            self._on_empty(group_id)

    def _held(self, connection: Hashable) -> dict[MemberKey, ShareSession]:
        """Return the sessions that a connection has begun and still has."""
        known = ((key, self._sessions.get(key)) for key in self._begun.get(connection, ()))
        return {
            key: session
            for key, session in known
            if session is not None and session.connection is connection
        }

    def _may_begin(self, key: MemberKey, connection: Hashable) -> bool:
        """Return whether a connection may begin a session; drop members whose sessions ended."""
        begun = self._begun.get(connection, {})
        if key not in begun and len(begun) >= SESSIONS_PER_CONNECTION_MAX:
            for over in begun.keys() - self._held(connection).keys():
                del begun[over]
                self._notify_if_empty(over.group_id)
        return key in begun or len(begun) < SESSIONS_PER_CONNECTION_MAX

    def _is_too_much(self, connection: Hashable, added_count: int = 0) -> bool:
        """Return whether a connection's sessions, with added partitions, have too many."""
        held = self._held(connection).values()
        count = added_count + sum(len(session.partitions) for session in held)
        missing_min = count - MISSING_PARTITIONS_MAX
        return missing_min > 0 and missing_min > self._partition_count()
