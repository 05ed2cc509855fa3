"""The streams groups of one partition of __consumer_offsets: a part of its Shard.

As in Kafka, the records of an operation are taken in before the log has them; its request is
answered when it has. If the log refuses them, memory is ahead of the log, and the partition is
loaded again. Kafka's source: GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from odradek.broker.coordination.effects import (
    Caller,
    CancelTimer,
    Effect,
    Reply,
    Timer,
)
from odradek.broker.errors import Refusal, message_of
from odradek.broker.groups.kinds import GroupsOfKind
from odradek.broker.groups.modern.topics import TopicHashes, TopicView
from odradek.broker.groups.modern.unstored import Unstored
from odradek.broker.groups.offsets import GroupOffsets
from odradek.broker.groups.records import GroupRecord, Record
from odradek.broker.groups.state import ClassicGroup, GroupState
from odradek.broker.groups.streams.group import StreamsGroup
from odradek.broker.groups.streams.member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEFT_EPOCH,
    MemberState,
)
from odradek.broker.groups.streams.records import Kind, StreamsRecord
from odradek.broker.groups.streams.turn import (
    StreamsGroupConfig,
    StreamsTimer,
    StreamsTurn,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest

Configs = Callable[[str], StreamsGroupConfig]


def default_config(group_id: str) -> StreamsGroupConfig:
    """Return Kafka's defaults for any group."""
    return StreamsGroupConfig()


class StreamsGroups:
    """Owns the streams groups of a partition."""

    __slots__ = ("_classic", "_config_of", "_hashes", "_is_taken", "groups", "topics", "unstored")

    def __init__(
        self,
        topics: TopicView,
        config_of: Configs,
        is_taken: Callable[[str], bool],
        classic: GroupsOfKind[ClassicGroup],
        groups: GroupsOfKind[StreamsGroup],
    ) -> None:
        """`is_taken` returns whether a group of any kind has an id.

        `classic` has the classic groups of the same partition: an empty one may be replaced.
        """
        self.groups = groups
        self.topics = topics
        self._classic = classic
        self._hashes = TopicHashes(topics)
        self._config_of, self._is_taken = config_of, is_taken
        self.unstored = Unstored()

    def get(self, group_id: str) -> StreamsGroup | None:
        """Return a group by its id."""
        return self.groups.get(group_id)

    def missing(self, group_id: str, kind: str = "Group") -> str:
        """Return the message that says why no streams group has an id."""
        if self._is_taken(group_id):
            return f"Group {group_id} is not a streams group."
        return f"{kind} {group_id} not found."

    # --- members --------------------------------------------------------------------------

    def heartbeat(
        self, request: StreamsGroupHeartbeatRequest, caller: Caller, now_ms: int
    ) -> list[Effect]:
        """Carry out a heartbeat; answered when the resulting records are stored."""
        from odradek.broker.groups.streams import heartbeats

        try:
            turn = self._turn_of(request, now_ms)
            if request.member_epoch in (LEAVING_EPOCH, LEFT_EPOCH):
                heartbeats.leave(turn, request, caller)
            else:
                heartbeats.heartbeat(turn, request, caller)
        except Refusal as error:
            return [Reply(caller.token, heartbeats.refuse(error.code, message_of(error)))]
        return self._finish(turn)

    def timer_fired(self, timer: Timer, now_ms: int) -> list[Effect]:
        """Act on a timer that has fired."""
        from odradek.broker.groups.streams import heartbeats

        group = self.groups.get(timer.owner)
        if group is None:
            return []
        turn = self._turn(group, now_ms)
        if timer.kind is StreamsTimer.INITIAL:
            try:
                heartbeats.assign_delayed(turn)
            except Refusal as error:
                turn.note(f"failed to assign tasks error={error}")
        elif timer.member_id in group.members:
            turn.note(f"fenced member member={timer.member_id} timeout={timer.kind.value}")
            heartbeats.remove(turn, timer.member_id)
        return self._finish(turn)

    def topic_changed(self, name: str) -> None:
        """Mark the groups that use a topic, so that they look at its metadata again."""
        self._hashes.forget(name)
        for group in self.groups.values():
            if group.uses(name):
                group.unlogged.needs_refresh = True

    # --- the end of a group ---------------------------------------------------------------

    def tombstones(self, group: StreamsGroup) -> list[Record]:
        """List the tombstones that remove a group from the log, in Kafka's order."""
        members = group.members.in_order()
        named = [
            *((Kind.CURRENT, member_id) for member_id in members),
            *((Kind.TARGET, member_id) for member_id in members),
            (Kind.TARGET_EPOCH, ""),
            *((Kind.MEMBER, member_id) for member_id in members),
            (Kind.GROUP, ""),
            (Kind.TOPOLOGY, ""),
        ]
        return [StreamsRecord(kind, group.group_id, name, None) for kind, name in named]

    def give_way(self, group: StreamsGroup) -> list[Effect]:
        """Remove an empty group whose id gets a classic group; its offsets stay."""
        del self.groups[group.group_id]
        return [*self.stop(group), *self.unstored.finish(self.tombstones(group), ())]

    def stop(self, group: StreamsGroup) -> list[Effect]:
        """Stop the timer of an empty group."""
        return [CancelTimer(Timer(group.group_id, StreamsTimer.INITIAL))]

    # --- the log --------------------------------------------------------------------------

    def replay(self, record: StreamsRecord, offsets: Callable[[], GroupOffsets]) -> None:
        """Take in a record of the log; `offsets` returns those of a group that it creates."""
        group = self.groups.get(record.group_id)
        if group is None:
            if record.value is None:
                return  # The group is gone.
            group = StreamsGroup(record.group_id, offsets=offsets())
            self.groups[record.group_id] = group
        group.apply(record)

    def loaded(self, now_ms: int) -> Iterator[Effect]:
        """Begin to serve the replayed groups: every member gets its whole timeouts."""
        for group in self.groups.values():
            turn = self._turn(group, now_ms)
            for member in group.members.values():
                turn.watch(member.member_id)
                if member.state is MemberState.UNREVOKED_TASKS:
                    turn.watch_revocation(member)
            yield from turn.effects

    def _turn_of(self, request: StreamsGroupHeartbeatRequest, now_ms: int) -> StreamsTurn:
        """Begin a heartbeat in its group; a heartbeat that joins creates a missing group.

        Raises Refusal.
        """
        group_id, epoch = request.group_id, request.member_epoch
        group = self.groups.get(group_id)
        if group is not None:
            return self._turn(group, now_ms)
        if epoch != JOINING_EPOCH:
            kind = "Group" if epoch < JOINING_EPOCH else "Streams group"
            raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, self.missing(group_id, kind))
        classic = self._classic.get(group_id)
        if classic is None or classic.state is not GroupState.EMPTY:
            if self._is_taken(group_id):
                raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, self.missing(group_id))
            return self._turn(StreamsGroup(group_id), now_ms, is_new=True)
        turn = self._turn(StreamsGroup(group_id, offsets=classic.offsets), now_ms, is_new=True)
        turn.replaces_classic = True
        return turn

    def _turn(self, group: StreamsGroup, now_ms: int, *, is_new: bool = False) -> StreamsTurn:
        config = self._config_of(group.group_id)
        return StreamsTurn(group, config, now_ms, self.topics, self._hashes, is_new)

    def _finish(self, turn: StreamsTurn) -> list[Effect]:
        """End an operation: take in and store its records, and answer after them."""
        group = turn.group
        turn.take_in()
        records: list[Record] = [*turn.records]
        if turn.is_new:
            if turn.replaces_classic:
                self._classic.pop(group.group_id)
                records.insert(0, GroupRecord(group.group_id, None))
            self.groups[group.group_id] = group
        return turn.effects + self.unstored.finish(records, turn.answers)
