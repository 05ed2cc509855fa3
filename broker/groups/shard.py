"""The groups of one partition of __consumer_offsets: a state machine without clock or I/O.

Every operation is told the time and returns what it has decided (effects.py). Effects are to
be carried out in order; a `Persist` is answered, once the log has its records or has failed,
by calling `stored` with its ticket, in the order in which the records were appended.

The same machine replays the log when the broker starts: `replay` for each record, then
`loaded`. Kafka's source: GroupCoordinatorShard.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from broker.coordination.effects import (
    Caller,
    Effect,
    EndTransaction,
    Note,
    Persist,
    Reload,
    Reply,
    Timer,
    Token,
)
from broker.coordination.seams import InTransaction
from broker.groups import (
    commits,
    deletion,
    joining,
    rebalance,
    responses,
    sessions,
    syncing,
    transactional,
)
from broker.groups.config import GroupConfig
from broker.groups.consumer import commits as consumer_commits
from broker.groups.consumer import conversion, heartbeats
from broker.groups.consumer.effects import ConsumerStored, ConsumerTimer
from broker.groups.consumer.group import ConsumerGroup
from broker.groups.consumer.groups import ConsumerGroups
from broker.groups.consumer.records import ConsumerRecord
from broker.groups.effects import (
    AssignmentStored,
    EmptyGroupStored,
    GroupRemoved,
    OffsetsDeleted,
    OffsetsRemoved,
    OffsetsStored,
    StaticMemberStored,
    Ticket,
    TimerKind,
    TransactionEnded,
    UndecidedOffsetsStored,
)
from broker.groups.modern.topics import NO_TOPICS, TopicView
from broker.groups.offsets import GroupOffsets
from broker.groups.records import GroupRecord, KeyValue, OffsetRecord, Record
from broker.groups.replaying import OffsetReplay
from broker.groups.share.groups import Configs as ShareConfigs
from broker.groups.share.groups import ShareGroups, default_config
from broker.groups.share.records import ShareRecord
from broker.groups.share.turn import ShareStored, ShareTimer
from broker.groups.state import ClassicGroup, GroupState, Turn
from protocol.errors import ErrorCode
from protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from protocol.messages.join_group import JoinGroupRequest
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.offset_commit import OffsetCommitRequest
from protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from protocol.messages.sync_group import SyncGroupRequest
from protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from storage.transactions import Marker

# From this version of OffsetCommit on an unknown group is told as such (KIP-848).
_COMMIT_UNKNOWN_GROUP_VERSION = 9
# Tombstones in one append: keeps the batch small for any max.message.bytes.
_TOMBSTONES_MAX = 512


class Shard:
    """Owns the groups of one partition."""

    __slots__ = (
        "_in_transactions",
        "_replay",
        "config",
        "consumers",
        "groups",
        "partition",
        "shares",
    )

    def __init__(
        self,
        partition: int,
        config: GroupConfig,
        topics: TopicView = NO_TOPICS,
        share_config: ShareConfigs = default_config,
    ) -> None:
        self.partition = partition
        self.config = config
        # Groups of the classic protocol, of the consumer protocol, and share groups; none is in
        # two of them. Only share groups have no offsets here.
        self.groups: dict[str, ClassicGroup] = {}
        self.consumers = ConsumerGroups(topics, self.groups)
        self.shares = ShareGroups(topics, share_config, lambda name: self.group(name) is not None)
        # The groups that each producer with an open transaction has committed offsets for.
        self._in_transactions: dict[int, set[str]] = {}
        self._replay = OffsetReplay(self._offsets_of)

    def group(self, group_id: str) -> commits.Group | None:
        """Return a group that may have offsets by its id."""
        return self.groups.get(group_id) or self.consumers.get(group_id)

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, now_ms: int
    ) -> list[Effect]:
        """Carry out a ConsumerGroupHeartbeat; answered when what follows from it is stored."""
        if self.shares.get(request.group_id) is not None:
            message = f"Group {request.group_id} is not a consumer group."
            refusal = heartbeats.refuse(ErrorCode.GROUP_ID_NOT_FOUND, message)
            return [Reply(caller.token, refusal)]
        return self.consumers.heartbeat(request, caller, self.config, now_ms)

    def join(self, request: JoinGroupRequest, caller: Caller, now_ms: int) -> list[Effect]:
        """Carry out a JoinGroup; the answer may come with a later operation."""
        error = self._join_problem(request)
        if error is not ErrorCode.NONE:
            version = caller.api_version
            refusal = responses.join_error(error, request.member_id, api_version=version)
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
            removal = tuple(conversion.tombstones(consumers))
            turn.effects.append(Persist(removal, self.consumers.ticket()))
        joining.join(turn, request, caller)
        if known is None:
            self.groups[group.group_id] = group  # also when it refuses the member, as in Kafka
            joining.store_new_group(turn)
        return turn.effects

    def sync(self, request: SyncGroupRequest, caller: Caller, now_ms: int) -> list[Effect]:
        """Carry out a SyncGroup; the answer may come with a later operation."""
        if not request.group_id:
            return [Reply(caller.token, responses.sync_error(ErrorCode.INVALID_GROUP_ID))]
        group = self.consumers.get(request.group_id)
        if group is not None:
            return self.consumers.sync(group, request, caller, self.config, now_ms)
        turn = self._turn(request.group_id, now_ms)
        if turn is None:
            return [Reply(caller.token, responses.sync_error(ErrorCode.UNKNOWN_MEMBER_ID))]
        syncing.sync(turn, request, caller)
        return turn.effects

    def heartbeat(self, request: HeartbeatRequest, caller: Caller, now_ms: int) -> list[Effect]:
        """Carry out a Heartbeat."""
        group = self.consumers.get(request.group_id)
        if group is not None:
            return self.consumers.classic_heartbeat(
                group, request, caller, self.config, now_ms
            )
        # Offsets may have made a group of the empty id: it has no members.
        turn = self._turn(request.group_id, now_ms) if request.group_id else None
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
        turn = self._turn(request.group_id, now_ms)
        if turn is None:
            return [Reply(caller.token, sessions.leave_unknown_group(leaving, caller))]
        sessions.leave(turn, leaving, caller)
        return turn.effects

    def commit(self, request: OffsetCommitRequest, caller: Caller, now_ms: int) -> list[Effect]:
        """Carry out an OffsetCommit whose topics are known by name; answered when stored."""
        if self.shares.get(request.group_id) is not None:
            refusal = commits.commit_error(request, ErrorCode.GROUP_ID_NOT_FOUND)
            return [Reply(caller.token, refusal)]
        group = self.group(request.group_id)
        if isinstance(group, ConsumerGroup):
            error = consumer_commits.commit_problem(group, request, caller.api_version)
            if error is not ErrorCode.NONE:
                return [Reply(caller.token, commits.commit_error(request, error))]
            consumer_turn = self.consumers.turn(group, self.config, now_ms)
            commits.store(consumer_turn, request, caller)
            return consumer_turn.effects
        if group is None:
            if request.generation_id_or_member_epoch >= 0:
                is_new_client = caller.api_version >= _COMMIT_UNKNOWN_GROUP_VERSION
                error = (
                    ErrorCode.GROUP_ID_NOT_FOUND if is_new_client else ErrorCode.ILLEGAL_GENERATION
                )
                return [Reply(caller.token, commits.commit_error(request, error))]
            # A simple group: a consumer that assigns its partitions itself.
            group = ClassicGroup(request.group_id, state_since_ms=now_ms)
            self.groups[request.group_id] = group
        turn = Turn(group, self.config, now_ms)
        commits.commit(turn, request, caller)
        return turn.effects

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, caller: Caller, now_ms: int
    ) -> list[Effect]:
        """Carry out a TxnOffsetCommit whose transaction has the group; answered when stored."""
        if self.shares.get(request.group_id) is not None:
            unfit = transactional.refusal(request, ErrorCode.GROUP_ID_NOT_FOUND)
            return [Reply(caller.token, unfit)]
        group = self.group(request.group_id)
        if isinstance(group, ConsumerGroup):
            topic_ids = [self.consumers.topics.id_of(one.name) or b"" for one in request.topics]
            error = consumer_commits.transaction_problem(group, request, topic_ids)
            if error is not ErrorCode.NONE:
                return [Reply(caller.token, transactional.refusal(request, error))]
            consumer_turn = self.consumers.turn(group, self.config, now_ms)
            transactional.store(consumer_turn, request, caller)
            return consumer_turn.effects
        if group is None:
            if request.generation_id >= 0:
                refusal = transactional.refusal(request, ErrorCode.ILLEGAL_GENERATION)
                return [Reply(caller.token, refusal)]
            group = ClassicGroup(request.group_id, state_since_ms=now_ms)
            self.groups[request.group_id] = group
        turn = Turn(group, self.config, now_ms)
        transactional.commit(turn, request, caller)
        return turn.effects

    def end_transaction(self, marker: Marker, token: Token) -> list[Effect]:
        """Have a marker stored, and what it decides done; answered with an ErrorCode."""
        ticket = TransactionEnded(marker.producer_id, marker.is_commit, token)
        return [EndTransaction(marker, ticket)]

    def delete(self, group_id: str, token: Token) -> list[Effect]:
        """Remove an empty group and its offsets; answered with an ErrorCode when stored."""
        group = self.group(group_id)
        if group is None or group.state is GroupState.DEAD:
            return [Reply(token, ErrorCode.GROUP_ID_NOT_FOUND)]
        if not _is_empty(group):
            return [Reply(token, ErrorCode.NON_EMPTY_GROUP)]
        return list(self._remove(group, commits.all_offsets(group), token))

    def delete_offsets(self, request: OffsetDeleteRequest, token: Token) -> list[Effect]:
        """Remove offsets of a group in topics that it does not read; answered when stored."""
        group = self.group(request.group_id)
        error = deletion.problem(request, group)
        if group is None or error is not ErrorCode.NONE:
            return [Reply(token, OffsetDeleteResponse(error_code=error))]
        records, response = deletion.plan(group, request)
        if not records:
            return [Reply(token, response)]
        return [Persist(records, OffsetsDeleted(records, token, response))]

    def topic_deleted(self, name: str, topic_id: bytes) -> list[Effect]:
        """Remove the offsets of a deleted topic from all groups."""
        effects: list[Effect] = []
        for group in self._all():
            effects += _remove_offsets(commits.offsets_of_topic(group, name, topic_id))
        return effects

    def expire(self, now_ms: int) -> list[Effect]:
        """Remove offsets past their retention, and groups that have neither members nor any."""
        effects: list[Effect] = []
        for group in self._all():
            records = commits.expired(group, self.config, now_ms)
            count = sum(len(partitions) for partitions in group.offsets.by_topic.values())
            is_waiting = group.offsets.pending or group.offsets.undecided
            keeps_none = len(records) == count and not is_waiting
            if keeps_none and _is_empty(group):
                effects += self._remove(group, records, None)
            else:
                effects += _remove_offsets(records)
        return effects

    def timer_fired(self, timer: Timer, now_ms: int) -> list[Effect]:
        """Do what a timer was started for."""
        if isinstance(timer.kind, ShareTimer):
            return self.shares.timer_fired(timer, now_ms)
        if isinstance(timer.kind, ConsumerTimer):
            return self.consumers.timer_fired(timer, self.config, now_ms)
        turn = self._turn(timer.owner, now_ms)
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
        """Go on after the log has a ticket's records (NONE), or could not take them."""
        match ticket:
            case ConsumerStored():
                return self.consumers.stored(ticket, error)
            case ShareStored():
                return self.shares.stored(ticket, error)
            case OffsetsStored():
                return self._offsets_stored(ticket, error)
            case UndecidedOffsetsStored():
                return self._undecided_offsets_stored(ticket, error)
            case TransactionEnded(producer_id, is_commit, token):
                if error is ErrorCode.NONE:
                    self._decide(producer_id, is_commit=is_commit)
                return [Reply(token, error)]
            case OffsetsDeleted():
                return self._offsets_deleted(ticket, error)
            case OffsetsRemoved():
                if error is ErrorCode.NONE:
                    self._apply(ticket.records)
                return _note_failure(ticket.records[0].group_id, error)
            case GroupRemoved():
                return self._group_removed(ticket, error)
            case EmptyGroupStored():
                return _note_failure(ticket.group_id, error)
        turn = self._turn(ticket.group_id, now_ms)
        if turn is None:
            return []
        if isinstance(ticket, AssignmentStored):
            syncing.assignment_stored(turn, ticket, error)
        else:
            assert isinstance(ticket, StaticMemberStored)
            joining.static_member_stored(turn, ticket, error)
        return turn.effects

    def replay_offsets(self, records: Sequence[KeyValue], start: int) -> int:
        """Take in offsets, from a record on, up to any other record; return where that is."""
        return start if self._in_transactions else self._replay.take_in(records, start)

    def replay(self, record: Record | InTransaction | Marker) -> None:
        """Take in a record of the log, while it is loaded."""
        self._replay.forget()
        match record:
            case OffsetRecord():
                if record.committed is not None:
                    self._offsets_of(record.group_id)
                self._apply((record,))
            case ConsumerRecord():
                self._replay_consumer(record)
            case ShareRecord():
                self.shares.replay(record)
            case GroupRecord(group_id, value):
                group = self.groups.get(group_id) or ClassicGroup(group_id)
                if value is None:
                    self._forget(group)
                else:
                    group.restore(value)
                    self.groups[group_id] = group
            case InTransaction(producer_id, OffsetRecord() as offset):
                self._apply_undecided(offset, producer_id)
            case Marker():
                self._decide(record.producer_id, is_commit=record.is_commit)

    def loaded(self, now_ms: int) -> list[Effect]:
        """Begin to serve what has been replayed: every member gets its session timeout."""
        self._replay.forget()
        effects: list[Effect] = [
            *self.consumers.loaded(self.config, now_ms),
            *self.shares.loaded(now_ms),
        ]
        for group in self.groups.values():
            turn = Turn(group, self.config, now_ms, effects)
            for member in group.membership.all():
                turn.restart_session(member)
            if len(group.membership) > self.config.max_size:
                rebalance.prepare_rebalance(turn, "group.max.size has been lowered")
        return effects

    def unload(self, now_ms: int) -> list[Effect]:
        """End serving: whoever waits is told to look for the coordinator again."""
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

    def _join_problem(self, request: JoinGroupRequest) -> ErrorCode:
        config = self.config
        timeout_ms = request.session_timeout_ms
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if not config.min_session_timeout_ms <= timeout_ms <= config.max_session_timeout_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if self.shares.get(request.group_id) is not None:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if request.member_id and self.group(request.group_id) is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def _turn(self, group_id: str, now_ms: int) -> Turn | None:
        group = self.groups.get(group_id)
        return None if group is None else Turn(group, self.config, now_ms)

    def _offsets_stored(self, ticket: OffsetsStored, error: ErrorCode) -> list[Effect]:
        group = self.group(ticket.request.group_id)
        assert group is not None, "offsets on their way keep their group"
        group.offsets.end(ticket.records)
        if error is not ErrorCode.NONE:
            return [Reply(ticket.token, commits.commit_error(ticket.request, error))]
        self._apply(ticket.records)
        return [Reply(ticket.token, ticket.response)]

    def _undecided_offsets_stored(
        self, ticket: UndecidedOffsetsStored, error: ErrorCode
    ) -> list[Effect]:
        group = self.group(ticket.request.group_id)
        assert group is not None, "offsets on their way keep their group"
        group.offsets.end(ticket.records)
        if error is not ErrorCode.NONE:
            return [Reply(ticket.token, transactional.refusal(ticket.request, error))]
        for record in ticket.records:
            self._apply_undecided(record, ticket.request.producer_id)
        return [Reply(ticket.token, ticket.response)]

    def _offsets_deleted(self, ticket: OffsetsDeleted, error: ErrorCode) -> list[Effect]:
        if error is not ErrorCode.NONE:
            return [Reply(ticket.token, OffsetDeleteResponse(error_code=error))]
        self._apply(ticket.records)
        return [Reply(ticket.token, ticket.response)]

    def _group_removed(self, ticket: GroupRemoved, error: ErrorCode) -> list[Effect]:
        if error is ErrorCode.NONE:
            self._apply(ticket.records)
            group = self.groups.get(ticket.group_id)
            if group is not None and _is_unused_since(group, ticket.generation):
                self._forget(group)
        effects: list[Effect] = []
        if ticket.token is None:
            effects += _note_failure(ticket.group_id, error)
        else:
            effects.append(Reply(ticket.token, error))
        if ticket.is_gone and error is not ErrorCode.NONE:
            effects.append(Reload())
        return effects

    def _apply(self, records: Sequence[OffsetRecord]) -> None:
        for record in records:
            group = self.group(record.group_id)
            if group is not None:
                group.offsets.apply(record)

    def _apply_undecided(self, record: OffsetRecord, producer_id: int) -> None:
        self._offsets_of(record.group_id).apply_undecided(record, producer_id)
        self._in_transactions.setdefault(producer_id, set()).add(record.group_id)

    def _decide(self, producer_id: int, *, is_commit: bool) -> None:
        for group_id in self._in_transactions.pop(producer_id, ()):
            group = self.group(group_id)
            if group is not None:
                group.offsets.decide(producer_id, is_commit=is_commit)

    def _offsets_of(self, group_id: str) -> GroupOffsets:
        """Return the offsets of a group; they make a simple one where there is none."""
        group = self.group(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id)
        return group.offsets

    def _replay_consumer(self, record: ConsumerRecord) -> None:
        group = self.consumers.get(record.group_id)
        if group is None:
            if record.value is None:
                return  # of a group that is gone
            classic = self.groups.pop(record.group_id, None)
            offsets = classic.offsets if classic else GroupOffsets()
            group = ConsumerGroup(record.group_id, offsets=offsets)
            self.consumers.groups[record.group_id] = group
        if self.consumers.replay(record, group):
            self._forget(group)

    def _remove(
        self, group: commits.Group, records: Sequence[OffsetRecord], token: Token | None
    ) -> Iterator[Effect]:
        """Remove an empty group with its offsets, the tombstones of which are told."""
        if isinstance(group, ClassicGroup):
            # Those who have an id and are still to join are no members yet, and do not keep it.
            group.membership.pending_joins.clear()
            generation = group.generation
            tombstones: list[Record] = [GroupRecord(group.group_id, None)]
        else:
            generation = 0
            tombstones = conversion.tombstones(group)
            self._forget(group)
        whole = len(records) - len(records) % _TOMBSTONES_MAX
        yield from _remove_offsets(records[:whole])
        rest = tuple(records[whole:])
        is_gone = isinstance(group, ConsumerGroup)
        ticket = GroupRemoved(group.group_id, generation, rest, token, is_gone)
        yield Persist((*rest, *tombstones), ticket)

    def _all(self) -> list[commits.Group]:
        return [*self.groups.values(), *self.consumers.groups.values()]

    def _forget(self, group: commits.Group) -> None:
        """Drop a group of which the log has a tombstone; offsets make it a simple one."""
        self.consumers.groups.pop(group.group_id, None)
        if group.offsets:
            self.groups[group.group_id] = ClassicGroup(group.group_id, offsets=group.offsets)
        else:
            self.groups.pop(group.group_id, None)


def _remove_offsets(records: Sequence[OffsetRecord]) -> Iterator[Effect]:
    for start in range(0, len(records), _TOMBSTONES_MAX):
        chunk = tuple(records[start : start + _TOMBSTONES_MAX])
        yield Persist(chunk, OffsetsRemoved(chunk))


def _is_empty(group: commits.Group) -> bool:
    if isinstance(group, ConsumerGroup):
        return not group.members
    return group.state is GroupState.EMPTY


def _is_unused_since(group: ClassicGroup, generation: int) -> bool:
    """Tell that nobody has joined since a generation: else the group lives on."""
    is_empty = group.state is GroupState.EMPTY and not group.membership.pending_joins
    return is_empty and group.generation == generation


def _note_failure(group_id: str, error: ErrorCode) -> list[Effect]:
    if error is ErrorCode.NONE:
        return []
    # Nobody waits for it: what the log has of the group stays true until it is written again.
    return [Note(f"failed to store group={group_id} error={error.name}", is_warning=True)]
