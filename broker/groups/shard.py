"""The groups of one partition of __consumer_offsets: a state machine without clock or I/O.

Every operation takes the time and returns its decisions as effects (coordination/effects.py). The
caller must carry them out in order. Once the log has the records of a `Persist`, or has failed to
append them, the caller calls `stored` with its ticket, in the order in which the records were
appended.

The same machine replays the log when the broker starts: `replay_offsets` and `replay` take in the
records, then `loaded` is called. Kafka's source: GroupCoordinatorShard.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from odradek.broker.coordination.effects import (
    Caller,
    Effect,
    Reply,
    Timer,
)
from odradek.broker.coordination.seams import InTransaction
from odradek.broker.groups import (
    joining,
    rebalance,
    responses,
    sessions,
    syncing,
)
from odradek.broker.groups.commits import Group
from odradek.broker.groups.config import GroupConfig
from odradek.broker.groups.consumer import conversion, heartbeats
from odradek.broker.groups.consumer.effects import ConsumerTimer, MatchExpressions
from odradek.broker.groups.consumer.group import ConsumerGroup
from odradek.broker.groups.consumer.groups import ConsumerGroups
from odradek.broker.groups.consumer.records import ConsumerRecord
from odradek.broker.groups.effects import (
    AssignmentStored,
    EmptyGroupStored,
    StaticMemberStored,
    Ticket,
    TimerKind,
    note_failure,
)
from odradek.broker.groups.kinds import GroupsOfKind
from odradek.broker.groups.listing import listed
from odradek.broker.groups.modern.topics import NO_TOPICS, TopicView
from odradek.broker.groups.modern.unstored import Stored
from odradek.broker.groups.offset_operations import OffsetOperations
from odradek.broker.groups.offsets import GroupOffsets
from odradek.broker.groups.records import GroupRecord, KeyValue, OffsetRecord, Record
from odradek.broker.groups.registry import DEFAULT_CONFIGS, OwnConfigs, Registry
from odradek.broker.groups.replaying import OffsetReplay
from odradek.broker.groups.share.groups import ShareGroups
from odradek.broker.groups.share.records import ShareRecord
from odradek.broker.groups.share.turn import ShareTimer
from odradek.broker.groups.state import ClassicGroup, GroupState, Turn
from odradek.broker.groups.streams.group import StreamsGroup
from odradek.broker.groups.streams.groups import StreamsGroups
from odradek.broker.groups.streams.records import StreamsRecord
from odradek.broker.groups.streams.turn import StreamsTimer
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.group_metadata import GroupMetadataValue
from odradek.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from odradek.protocol.messages.join_group import JoinGroupRequest
from odradek.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.list_groups import ListedGroup
from odradek.protocol.messages.sync_group import SyncGroupRequest
from odradek.storage.transactions import Marker


class Shard:
    """Owns the groups of one partition."""

    __slots__ = ("_registry", "_replay", "offsets", "partition")

    def __init__(
        self,
        partition: int,
        config: GroupConfig,
        topics: TopicView = NO_TOPICS,
        own: OwnConfigs = DEFAULT_CONFIGS,
    ) -> None:
        self.partition = partition
        self._registry = Registry(config, topics, own)
        self.offsets = OffsetOperations(self._registry)
        self._replay = OffsetReplay(self._registry.offsets_of)

    @property
    def config(self) -> GroupConfig:
        """The options that apply to operations from now on."""
        return self._registry.config

    @config.setter
    def config(self, config: GroupConfig) -> None:
        self._registry.config = config

    @property
    def groups(self) -> GroupsOfKind[ClassicGroup]:
        """The groups of the classic protocol."""
        return self._registry.classic

    @property
    def consumers(self) -> ConsumerGroups:
        """The groups of the consumer protocol."""
        return self._registry.consumers

    @property
    def shares(self) -> ShareGroups:
        """The share groups."""
        return self._registry.shares

    @property
    def streams(self) -> StreamsGroups:
        """The streams groups."""
        return self._registry.streams

    def has(self, group_id: str) -> bool:
        """Return whether a group of any kind has an id."""
        return self.group(group_id) is not None or self.shares.get(group_id) is not None

    def group(self, group_id: str) -> Group | None:
        """Return the group with an id, if it is of a kind that may have offsets."""
        return self._registry.get(group_id)

    def listed(self) -> Iterator[ListedGroup]:
        """Iterate over the entries of all groups for a list of groups, in Kafka's order."""
        return map(listed, self._registry.in_order())

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, now_ms: int
    ) -> list[Effect]:
        """Carry out a ConsumerGroupHeartbeat; answered when the resulting records are stored."""
        group_id = request.group_id
        if self.shares.get(group_id) is not None or self.streams.get(group_id) is not None:
            message = f"Group {group_id} is not a consumer group."
            refusal = heartbeats.refuse(ErrorCode.GROUP_ID_NOT_FOUND, message)
            return [Reply(caller.token, refusal)]
        return self.consumers.heartbeat(request, caller, self.config, now_ms)

    def join(self, request: JoinGroupRequest, caller: Caller, now_ms: int) -> list[Effect]:
        """Carry out a JoinGroup; the answer may come with a later operation."""
        error = self._join_problem(request)
        if error is not ErrorCode.NONE:
            # For a group of another kind, Kafka's answer names no member.
            is_other = error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
            refusal = responses.join_error(
                error, "" if is_other else request.member_id, api_version=caller.api_version
            )
            return [Reply(caller.token, refusal)]
        consumers = self.consumers.get(request.group_id)
        if consumers is not None and consumers.members:
            return self.consumers.join(consumers, request, caller, self.config, now_ms)
        known = self.groups.get(request.group_id)
        group = known or ClassicGroup(request.group_id, state_since_ms=now_ms)
        turn = Turn(group, self.config, now_ms)
        if consumers is not None:
            group.offsets = consumers.offsets
            del self.consumers.groups[request.group_id]
            turn.effects += self.consumers.unstored.finish(conversion.tombstones(consumers), ())
        streams = self.streams.get(request.group_id)
        if streams is not None:
            group.offsets = streams.offsets
            turn.effects += self.streams.give_way(streams)
        joining.join(turn, request, caller)
        if known is None:
            # As in Kafka, the group stays even when it refuses the member.
            self.groups[group.group_id] = group
            joining.store_new_group(turn)
        return turn.effects

    def sync(self, request: SyncGroupRequest, caller: Caller, now_ms: int) -> list[Effect]:
        """Carry out a SyncGroup; the answer may come with a later operation."""
        if not request.group_id:
            return [Reply(caller.token, responses.sync_error(ErrorCode.INVALID_GROUP_ID))]
        group = self.consumers.get(request.group_id)
        if group is not None:
            return self.consumers.sync(group, request, caller, self.config, now_ms)
        turn = self._registry.turn(request.group_id, now_ms)
        if turn is None:
            return [Reply(caller.token, responses.sync_error(ErrorCode.UNKNOWN_MEMBER_ID))]
        syncing.sync(turn, request, caller)
        return turn.effects

    def heartbeat(self, request: HeartbeatRequest, caller: Caller, now_ms: int) -> list[Effect]:
        """Carry out a Heartbeat."""
        group = self.consumers.get(request.group_id)
        if group is not None:
            return self.consumers.classic_heartbeat(group, request, caller, self.config, now_ms)
        # A commit of offsets may have created a group with the empty id, which has no members.
        turn = self._registry.turn(request.group_id, now_ms) if request.group_id else None
        if turn is None:
            error = ErrorCode.UNKNOWN_MEMBER_ID if request.group_id else ErrorCode.INVALID_GROUP_ID
            return [Reply(caller.token, HeartbeatResponse(error_code=error))]
        sessions.heartbeat(turn, request, caller)
        return turn.effects

    def leave(self, request: LeaveGroupRequest, caller: Caller, now_ms: int) -> list[Effect]:
        """Carry out a LeaveGroup."""
        if not request.group_id:
            return [Reply(caller.token, sessions.leave_error(ErrorCode.INVALID_GROUP_ID))]
        leaving = request.members
        if caller.api_version < sessions.BATCH_VERSION:
            leaving = [MemberIdentity(member_id=request.member_id)]
        group = self.consumers.get(request.group_id)
        if group is not None:
            return self.consumers.leave(group, leaving, caller, self.config, now_ms)
        turn = self._registry.turn(request.group_id, now_ms)
        if turn is None:
            return [Reply(caller.token, sessions.leave_unknown_group(leaving, caller))]
        sessions.leave(turn, leaving, caller)
        return turn.effects

    def expressions_matched(
        self, action: MatchExpressions, found: Mapping[str, frozenset[str]], now_ms: int
    ) -> list[Effect]:
        """Take in the topics that a consumer group's regular expressions match."""
        return self.consumers.expressions_matched(action, found, self.config, now_ms)

    def timer_fired(self, timer: Timer, now_ms: int) -> list[Effect]:
        """Act on a timer that has fired."""
        if isinstance(timer.kind, ShareTimer):
            return self.shares.timer_fired(timer, now_ms)
        if isinstance(timer.kind, StreamsTimer):
            return self.streams.timer_fired(timer, now_ms)
        if isinstance(timer.kind, ConsumerTimer):
            return self.consumers.timer_fired(timer, self.config, now_ms)
        turn = self._registry.turn(timer.owner, now_ms)
        if turn is None or turn.group.state is GroupState.DEAD:
            return []
        if timer.kind is TimerKind.SESSION:
            sessions.session_timer_fired(turn, timer.member_id)
        elif timer.kind is TimerKind.JOIN:
            rebalance.join_timer_fired(turn)
        else:
            rebalance.sync_timer_fired(turn)
        return turn.effects

    def stored(self, ticket: Ticket, error: ErrorCode, now_ms: int) -> list[Effect]:
        """Continue once the log has a ticket's records (NONE), or has failed to append them."""
        match ticket:
            case Stored():
                return ticket.unstored.stored(ticket, error)
            case EmptyGroupStored():
                return note_failure(ticket.group_id, error)
            case AssignmentStored() | StaticMemberStored():
                return self._classic_stored(ticket, error, now_ms)
            case _:
                return self.offsets.stored(ticket, error)

    def replay_offsets(self, records: Sequence[KeyValue], start: int) -> int:
        """Take in offsets from an index on; return the index of the first record for `replay`."""
        return start if self.offsets.is_any_undecided else self._replay.take_in(records, start)

    def replay(self, record: Record | InTransaction | Marker) -> None:
        """Take in a record of the log while the partition is being loaded."""
        self._replay.forget()
        match record:
            case OffsetRecord():
                if record.committed is not None:
                    self._registry.offsets_of(record.group_id)
                self.offsets.apply((record,))
            case ConsumerRecord():
                self._replay_consumer(record)
            case ShareRecord():
                self.shares.replay(record)
            case StreamsRecord():
                self._replay_streams(record)
            case GroupRecord(group_id, value):
                self._replay_classic(group_id, value)
            case InTransaction(producer_id, OffsetRecord() as offset):
                self.offsets.apply_undecided(offset, producer_id)
            case Marker():
                self.offsets.decide(record.producer_id, is_commit=record.is_commit)

    def loaded(self, now_ms: int) -> list[Effect]:
        """Begin to serve the replayed groups: every member gets its whole session timeout."""
        self._replay.forget()
        effects: list[Effect] = [
            *self.consumers.loaded(self.config, now_ms),
            *self.shares.loaded(now_ms),
            *self.streams.loaded(now_ms),
        ]
        for group in self.groups.values():
            turn = Turn(group, self.config, now_ms, effects)
            for member in group.membership.all():
                turn.restart_session(member)
            if len(group.membership) > self.config.max_size:
                rebalance.prepare_rebalance(turn, "group.max.size has been lowered")
        return effects

    def unload(self, now_ms: int) -> list[Effect]:
        """Stop serving: answer parked requests so that clients look for the coordinator again."""
        effects: list[Effect] = []
        gone = ErrorCode.NOT_COORDINATOR
        for group in self.groups.values():
            turn = Turn(group, self.config, now_ms, effects)
            for member in group.membership.all():
                join = group.membership.unpark_join(member)
                if join is not None:
                    version = join.api_version
                    refusal = responses.join_error(gone, member.member_id, api_version=version)
                    turn.reply(join, refusal)
                sync, member.parked_sync = member.parked_sync, None
                turn.reply(sync, responses.sync_error(gone))
            group.move_to(GroupState.DEAD, now_ms)
        return effects

    def _classic_stored(
        self, ticket: AssignmentStored | StaticMemberStored, error: ErrorCode, now_ms: int
    ) -> list[Effect]:
        turn = self._registry.turn(ticket.group_id, now_ms)
        if turn is None:
            return []
        if isinstance(ticket, AssignmentStored):
            syncing.assignment_stored(turn, ticket, error)
        else:
            joining.static_member_stored(turn, ticket, error)
        return turn.effects

    def _join_problem(self, request: JoinGroupRequest) -> ErrorCode:
        config = self.config
        timeout_ms = request.session_timeout_ms
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if not config.min_session_timeout_ms <= timeout_ms <= config.max_session_timeout_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        streams = self.streams.get(request.group_id)
        if self.shares.get(request.group_id) is not None or (streams and streams.members):
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.member_id and not self._may_have_members(request.group_id):
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def _may_have_members(self, group_id: str) -> bool:
        """Return whether a group exists that is not of another kind and without members.

        Kafka, too, refuses a member id for a consumer group without members, but it then forgets
        the group until its next start.
        """
        group = self._registry.get(group_id)
        if isinstance(group, ConsumerGroup | StreamsGroup):
            return bool(group.members)
        return group is not None

    def _replay_classic(self, group_id: str, value: GroupMetadataValue | None) -> None:
        known = self._registry.get(group_id)
        if value is None:
            if known is not None:
                self._registry.forget(known)
            return
        # The offsets stay, even if the group was of another kind.
        offsets = known.offsets if known else GroupOffsets()
        group = self.groups.get(group_id) or ClassicGroup(group_id, offsets=offsets)
        group.restore(value)
        # Added before the consumer group is removed, so that the new group gets its place.
        self.groups[group_id] = group
        self.consumers.groups.pop(group_id, None)
        self.streams.groups.pop(group_id, None)

    def _replay_consumer(self, record: ConsumerRecord) -> None:
        group = self.consumers.get(record.group_id)
        if group is None:
            if record.value is None:
                return  # The group is gone.
            classic = self.groups.get(record.group_id)
            offsets = classic.offsets if classic else GroupOffsets()
            group = ConsumerGroup(record.group_id, offsets=offsets)
            # Added before the simple group is removed, so that the new group gets its place.
            self.consumers.groups[record.group_id] = group
            self.groups.pop(record.group_id)
        if self.consumers.replay(record, group):
            self._registry.forget(group)

    def _replay_streams(self, record: StreamsRecord) -> None:
        known, group_id = self._registry.get(record.group_id), record.group_id
        self.streams.replay(record, lambda: known.offsets if known else GroupOffsets())
        group = self.streams.get(group_id)
        if group is None:
            return
        if group is not known:
            # Removed after the group was added, so that the new group gets their place.
            self.groups.pop(group_id)
            self.consumers.groups.pop(group_id, None)
        if group.is_removed:
            self._registry.forget(group)
