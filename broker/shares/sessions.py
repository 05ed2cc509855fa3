"""Share sessions: the broker remembers what a member of a share group fetches (KIP-932).

A request of epoch 0 begins a session and names all partitions; those that follow count on (epoch
1, 2, ...) and name only what has changed; -1 ends it. A session belongs to the connection that
began it, and goes with it.

Kafka's sources: ShareSession, ShareSessionCache, SharePartitionManager.newContext.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from protocol.errors import ErrorCode

FIRST_EPOCH, FINAL_EPOCH = 0, -1
_EPOCH_MAX = 2**31 - 1


class TopicPartition(NamedTuple):
    """A partition by its topic's id."""

    topic_id: bytes
    partition: int


class MemberKey(NamedTuple):
    """Whose session it is."""

    group_id: str
    member_id: str


class ShareSession:
    """The partitions of one member, in the order in which they get their turn."""

    __slots__ = ("connection", "epoch", "partitions", "unknown")

    def __init__(self, partitions: Iterable[TopicPartition], connection: object) -> None:
        # Topics that nobody knew when they were named; ids come into being only once.
        self.unknown: set[bytes] = set()
        # By partition, whether its next answer is told even when there is no news in it.
        self.partitions = dict.fromkeys(partitions, False)
        self.connection = connection
        self.epoch = FIRST_EPOCH + 1  # which the next request has to have

    def tell(self, partition: TopicPartition, *, has_records: bool, has_failed: bool) -> bool:
        """Take note of an answer, and tell whether there is news in it."""
        must_tell = self.partitions.get(partition, False)
        if partition in self.partitions:
            if has_records:
                del self.partitions[partition]  # its next turn comes after all others
            self.partitions[partition] = has_failed  # so that the end of an error is told
        return must_tell or has_records or has_failed


class ShareSessions:
    """All sessions; the event loop owns it."""

    def __init__(
        self,
        sessions_max: Callable[[], int],
        on_lost: Callable[[MemberKey, ShareSession], None],
        on_empty: Callable[[str], None],
    ) -> None:
        """`on_lost` hears of a lost session, `on_empty` of a group that has none any more."""
        self._sessions_max, self._on_lost, self._on_empty = sessions_max, on_lost, on_empty
        self._sessions: dict[MemberKey, ShareSession] = {}
        self._counts: Counter[str] = Counter()

    def __len__(self) -> int:
        """Return how many sessions there are."""
        return len(self._sessions)

    def get(self, key: MemberKey) -> ShareSession | None:
        """Return a member's session."""
        return self._sessions.get(key)

    def begin(
        self, key: MemberKey, partitions: Iterable[TopicPartition], connection: object
    ) -> ShareSession | None:
        """Begin a session, in the place of the one that there is; None when there are too many."""
        self.end(key)
        if len(self._sessions) >= self._sessions_max():
            return None
        session = self._sessions[key] = ShareSession(partitions, connection)
        self._counts[key.group_id] += 1
        return session

    def resume(
        self,
        key: MemberKey,
        epoch: int,
        added: Iterable[TopicPartition] = (),
        forgotten: Iterable[TopicPartition] = (),
    ) -> ShareSession | ErrorCode:
        """Take the next request of a session; one that is added is told of in any case."""
        session = self._sessions.get(key)
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        for one in added:
            session.partitions.setdefault(one, True)
        for one in forgotten:
            session.partitions.pop(one, None)
        session.epoch = next_epoch(epoch)
        return session

    def end(self, key: MemberKey) -> ShareSession | None:
        """Forget a member's session."""
        session = self._sessions.pop(key, None)
        if session is not None:
            self._counts[key.group_id] -= 1
        return session

    def end_all(self) -> None:
        """Forget all sessions."""
        self._sessions.clear()
        self._counts.clear()

    def connection_lost(self, connection: object, group_id: str, member_id: str) -> None:
        """Forget the session that a lost connection has begun, if it is still that one."""
        key = MemberKey(group_id, member_id)
        session = self._sessions.get(key)
        if session is not None and session.connection is connection:
            self.end(key)
            self._on_lost(key, session)
        if self._counts[group_id] <= 0:
            del self._counts[group_id]
            self._on_empty(group_id)


def next_epoch(epoch: int) -> int:
    """Return the epoch of the request after that of an epoch."""
    return epoch + 1 if epoch < _EPOCH_MAX else FIRST_EPOCH + 1
