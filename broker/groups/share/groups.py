"""The share groups of one partition of __consumer_offsets: a part of its Shard.

As in Kafka, an operation decides on records and takes them in at once; its request is answered
when the log has the records. If the log refuses them, memory is ahead of the log, and the
partition is loaded again. Kafka's source: GroupMetadataManager.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from odradek.broker.coordination.effects import (
    Caller,
    Effect,
    Reply,
    Timer,
    Token,
)
from odradek.broker.errors import Refusal, message_of
from odradek.broker.groups.kinds import GroupsOfKind
from odradek.broker.groups.modern.tables import Timeline
from odradek.broker.groups.modern.topics import NO_TOPICS, TopicHashes, TopicView
from odradek.broker.groups.modern.unstored import Unstored
from odradek.broker.groups.share import administration, heartbeats
from odradek.broker.groups.share.administration import Altered, Deleting
from odradek.broker.groups.share.group import ShareGroup
from odradek.broker.groups.share.member import JOINING_EPOCH, LEAVING_EPOCH
from odradek.broker.groups.share.partitions import UNKNOWN_NAME, Begun
from odradek.broker.groups.share.records import Kind, ShareRecord
from odradek.broker.groups.share.turn import ShareGroupConfig, ShareTurn
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from odradek.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

Configs = Callable[[str], ShareGroupConfig]


def default_config(group_id: str) -> ShareGroupConfig:
    """Return Kafka's defaults for any group."""
    return ShareGroupConfig()


class ShareGroups:
    """Owns the share groups of a partition."""

    __slots__ = ("_config_of", "_hashes", "_is_taken", "groups", "topics", "unstored")

    def __init__(
        self,
        topics: TopicView = NO_TOPICS,
        config_of: Configs = default_config,
        is_taken: Callable[[str], bool] = lambda group_id: False,
        groups: GroupsOfKind[ShareGroup] | None = None,
    ) -> None:
        """`is_taken` returns whether a group of another kind has an id."""
        self.groups = GroupsOfKind[ShareGroup](Timeline()) if groups is None else groups
        self.topics = topics
        self._hashes = TopicHashes(topics)
        self._config_of, self._is_taken = config_of, is_taken
        self.unstored = Unstored()

    def get(self, group_id: str) -> ShareGroup | None:
        """Return a group by its id."""
        return self.groups.get(group_id)

    def missing(self, group_id: str) -> str:
        """Return the message that says why no share group has an id."""
        reason = "is not a share group" if self._is_taken(group_id) else "not found"
        return f"Group {group_id} {reason}."

    # --- members --------------------------------------------------------------------------

    def heartbeat(
        self, request: ShareGroupHeartbeatRequest, caller: Caller, now_ms: int
    ) -> list[Effect]:
        """Carry out a heartbeat; answered when the resulting records are stored."""
        group_id, epoch = request.group_id, request.member_epoch
        group = self.groups.get(group_id)
        if group is None and (epoch != JOINING_EPOCH or self._is_taken(group_id)):
            message = self.missing(group_id)
            if epoch != LEAVING_EPOCH and not self._is_taken(group_id):
                message = f"Share group {group_id} not found."
            return [Reply(caller.token, heartbeats.refuse(ErrorCode.GROUP_ID_NOT_FOUND, message))]
        turn = self._turn(group or ShareGroup(group_id), now_ms)
        try:
            if epoch == LEAVING_EPOCH:
                heartbeats.leave(turn, request, caller)
            else:
                heartbeats.heartbeat(turn, request, caller)
        except Refusal as error:
            # Nothing has been taken in yet.
            return [Reply(caller.token, heartbeats.refuse(error.code, message_of(error)))]
        return self._finish(turn)

    def timer_fired(self, timer: Timer, now_ms: int) -> list[Effect]:
        """Remove a member that has sent no heartbeat for its session timeout."""
        group = self.groups.get(timer.owner)
        if group is None or timer.member_id not in group.members:
            return []
        turn = self._turn(group, now_ms)
        turn.note(f"fenced member member={timer.member_id} reason='session'")
        heartbeats.remove(turn, timer.member_id)
        return self._finish(turn)

    # --- partitions with state ------------------------------------------------------------

    def begun(
        self, group_id: str, topics: Mapping[bytes, Sequence[int]], token: Token, now_ms: int
    ) -> list[Effect]:
        """Note that partitions have state now, so that they can be assigned."""
        group = self.groups.get(group_id)
        if group is None:
            return [Reply(token, ErrorCode.GROUP_ID_NOT_FOUND)]
        turn = self._turn(group, now_ms)
        named = {
            topic_id: Begun(
                self.topics.name_of(topic_id) or UNKNOWN_NAME,
                frozenset(numbers),
                now_ms,
            )
            for topic_id, numbers in topics.items()
        }
        turn.emit_partitions(administration.of(group).begun(named))
        turn.answer(token, ErrorCode.NONE, _same)
        return self._finish(turn)

    def not_begun(
        self, group_id: str, topics: Mapping[bytes, Sequence[int]], token: Token, now_ms: int
    ) -> list[Effect]:
        """Note that the state of partitions could not begin."""
        group = self.groups.get(group_id)
        if group is None or group.partitions is None or not group.partitions.initializing:
            return [Reply(token, ErrorCode.NONE)]
        turn = self._turn(group, now_ms)
        turn.emit_partitions(group.partitions.not_begun(topics))
        turn.answer(token, ErrorCode.NONE, _same)
        return self._finish(turn)

    # --- administration -------------------------------------------------------------------

    def begin_deletion(self, group_id: str, token: Token, now_ms: int) -> list[Effect]:
        """Note that all state of a group will be deleted; answered with a Deleting."""
        return self._administer(group_id, token, now_ms, administration.begin_deletion)

    def begin_offset_deletion(
        self, group_id: str, names: Sequence[str], token: Token, now_ms: int
    ) -> list[Effect]:
        """Note that the state of topics will be deleted; answered with a Deleting."""
        return self._administer(
            group_id, token, now_ms, lambda turn: administration.begin_offset_deletion(turn, names)
        )

    def topics_forgotten(
        self, group_id: str, topic_ids: Sequence[bytes], token: Token, now_ms: int
    ) -> list[Effect]:
        """Note that the state of topics was deleted."""
        group = self.groups.get(group_id)
        if group is None or group.partitions is None:
            return [Reply(token, ErrorCode.NONE)]
        turn = self._turn(group, now_ms)
        administration.forget_deleted(turn, topic_ids)
        turn.answer(token, ErrorCode.NONE, _same)
        return self._finish(turn)

    def alter(
        self, request: AlterShareGroupOffsetsRequest, token: Token, now_ms: int
    ) -> list[Effect]:
        """Note that state will begin again at other offsets; answered with an Altered."""
        group_id = request.group_id
        group = self.groups.get(group_id)
        if group is None and self._is_taken(group_id):
            refusal = Altered(ErrorCode.GROUP_ID_NOT_FOUND, self.missing(group_id))
            return [Reply(token, refusal)]
        if group is not None and group.members:
            error = ErrorCode.NON_EMPTY_GROUP
            return [Reply(token, Altered(error, administration.NOT_EMPTY))]
        refused = administration.alter_problem(request, self.topics)
        if refused is not None:
            return [Reply(token, refused)]
        turn = self._turn(group or ShareGroup(group_id), now_ms)
        altered = administration.alter(turn, request.topics)
        turn.answer(token, altered, Altered)
        return self._finish(turn)

    def remove(self, group_id: str, token: Token, now_ms: int) -> list[Effect]:
        """Remove an empty group; answered with an ErrorCode."""
        group = self.groups.get(group_id)
        if group is None:
            return [Reply(token, ErrorCode.GROUP_ID_NOT_FOUND)]
        if group.members:
            return [Reply(token, ErrorCode.NON_EMPTY_GROUP)]
        turn = self._turn(group, now_ms)
        for kind in (Kind.TARGET_EPOCH, Kind.PARTITIONS, Kind.GROUP):
            turn.emit(kind, None)
        turn.answer(token, ErrorCode.NONE, _same)
        return self._finish(turn)

    def topic_changed(self, name: str) -> None:
        """Mark the groups that read a topic, so that they look at its metadata again."""
        self._hashes.forget(name)
        for group in self.groups.values():
            if name in group.subscriptions:
                group.needs_refresh = True

    def topic_deleted(self, topic_id: bytes, now_ms: int) -> list[Effect]:
        """Remove a deleted topic from the noted partitions of all groups."""
        effects: list[Effect] = []
        for group in list(self.groups.values()):
            partitions = group.partitions
            if partitions is not None and administration.knows(partitions, topic_id):
                turn = self._turn(group, now_ms)
                turn.emit_partitions(partitions.without_topics(frozenset((topic_id,))))
                effects += self._finish(turn)
        return effects

    # --- the log --------------------------------------------------------------------------

    def replay(self, record: ShareRecord) -> None:
        """Take in a record of the log."""
        group = self.groups.get(record.group_id)
        if group is None:
            if record.value is None:
                return  # The group is gone.
            group = self.groups[record.group_id] = ShareGroup(record.group_id)
        group.apply(record)
        if group.is_removed:
            del self.groups[record.group_id]

    def loaded(self, now_ms: int) -> Iterator[Effect]:
        """Begin to serve the replayed groups: every member gets its whole session timeout."""
        for group in self.groups.values():
            turn = self._turn(group, now_ms)
            for member_id in group.members:
                turn.watch(member_id)
            yield from turn.effects

    def _turn(self, group: ShareGroup, now_ms: int) -> ShareTurn:
        config = self._config_of(group.group_id)
        return ShareTurn(group, config, now_ms, self.topics, self._hashes)

    def _finish(self, turn: ShareTurn) -> list[Effect]:
        """End an operation: store its records, and answer after them."""
        group = turn.group
        if turn.records:
            if group.is_removed:
                self.groups.pop(group.group_id, None)
            elif group.group_id not in self.groups:
                self.groups[group.group_id] = group
        return turn.effects + self.unstored.finish(turn.records, turn.answers)

    def _administer(
        self, group_id: str, token: Token, now_ms: int, decide: Callable[[ShareTurn], Deleting]
    ) -> list[Effect]:
        group = self.groups.get(group_id)
        if group is None:
            message = self.missing(group_id)
            return [Reply(token, Deleting(ErrorCode.GROUP_ID_NOT_FOUND, message))]
        if group.members:
            error = ErrorCode.NON_EMPTY_GROUP
            return [Reply(token, Deleting(error, administration.NOT_EMPTY))]
        turn = self._turn(group, now_ms)
        deleting = decide(turn)
        turn.answer(token, deleting, Deleting)
        return self._finish(turn)


def _same(error: ErrorCode) -> ErrorCode:
    return error
