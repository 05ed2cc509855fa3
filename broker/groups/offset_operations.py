"""Operations on the offsets of the groups of one partition, a part of the Shard's machine.

They are commits, transactions, deletion and expiry, and the removal of groups without offsets.
Kafka's source: OffsetMetadataManager.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from odradek.broker.coordination.effects import (
    Caller,
    Effect,
    EndTransaction,
    Persist,
    Reload,
    Reply,
    Token,
)
from odradek.broker.groups import commits, deletion, transactional
from odradek.broker.groups.commits import Group
from odradek.broker.groups.consumer import commits as consumer_commits
from odradek.broker.groups.consumer import conversion
from odradek.broker.groups.consumer.group import ConsumerGroup
from odradek.broker.groups.effects import (
    GroupRemoved,
    OffsetsDeleted,
    OffsetsRemoved,
    OffsetsStored,
    OffsetTicket,
    TransactionEnded,
    UndecidedOffsetsStored,
    note_failure,
)
from odradek.broker.groups.records import GroupRecord, OffsetRecord, Record
from odradek.broker.groups.registry import Registry
from odradek.broker.groups.state import ClassicGroup, GroupState, Turn
from odradek.broker.groups.streams import commits as streams_commits
from odradek.broker.groups.streams.commits import StreamsCommit
from odradek.broker.groups.streams.group import StreamsGroup
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offset_commit import OffsetCommitRequest
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponseTopic,
)
from odradek.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from odradek.storage.transactions import Marker

# From this version of OffsetCommit on, the error names an unknown group as such (KIP-848).
_COMMIT_UNKNOWN_GROUP_VERSION = 9
# Tombstones in one append: the batch stays small for any max.message.bytes.
_TOMBSTONES_MAX = 512


class OffsetOperations:
    """Acts on the offsets of the groups of one partition; owned by its Shard."""

    __slots__ = ("_groups", "_in_transactions")

    def __init__(self, groups: Registry) -> None:
        self._groups = groups
        # By producer with an open transaction, the groups for which it has committed offsets.
        self._in_transactions: dict[int, set[str]] = {}

    @property
    def is_any_undecided(self) -> bool:
        """Whether an open transaction has offsets."""
        return bool(self._in_transactions)

    def commit(self, request: OffsetCommitRequest, caller: Caller, now_ms: int) -> list[Effect]:
        """Carry out an OffsetCommit whose topics are known by name; answered when stored."""
        if self._groups.shares.get(request.group_id) is not None:
            refusal = commits.refusal(request, ErrorCode.GROUP_ID_NOT_FOUND)
            return [Reply(caller.token, refusal)]
        group = self._groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            error = consumer_commits.commit_problem(group, request, caller.api_version)
            if error is not ErrorCode.NONE:
                return [Reply(caller.token, commits.refusal(request, error))]
            consumer_turn = self._groups.consumers.turn(group, self._groups.config, now_ms)
            commits.store(consumer_turn, request, caller)
            return consumer_turn.effects
        if isinstance(group, StreamsGroup):
            error = streams_commits.commit_problem(group, request, caller.api_version)
            if error is not ErrorCode.NONE:
                return [Reply(caller.token, commits.refusal(request, error))]
            streams_turn = StreamsCommit(group, self._groups.config, now_ms)
            commits.store(streams_turn, request, caller)
            return streams_turn.effects
        if group is None:
            if request.generation_id_or_member_epoch >= 0:
                is_new_client = caller.api_version >= _COMMIT_UNKNOWN_GROUP_VERSION
                error = (
                    ErrorCode.GROUP_ID_NOT_FOUND if is_new_client else ErrorCode.ILLEGAL_GENERATION
                )
                return [Reply(caller.token, commits.refusal(request, error))]
            # A simple group: a consumer that assigns its partitions itself.
            group = self._groups.add(request.group_id, now_ms)
        turn = Turn(group, self._groups.config, now_ms)
        commits.commit(turn, request, caller)
        return turn.effects

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, caller: Caller, now_ms: int
    ) -> list[Effect]:
        """Carry out a TxnOffsetCommit whose transaction has the group; answered when stored."""
        if self._groups.shares.get(request.group_id) is not None:
            unfit = transactional.refusal(request, ErrorCode.GROUP_ID_NOT_FOUND)
            return [Reply(caller.token, unfit)]
        group = self._groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            topics = self._groups.consumers.topics
            topic_ids = [topics.id_of(one.name) or b"" for one in request.topics]
            error = consumer_commits.transaction_problem(group, request, topic_ids)
            if error is not ErrorCode.NONE:
                return [Reply(caller.token, transactional.refusal(request, error))]
            consumer_turn = self._groups.consumers.turn(group, self._groups.config, now_ms)
            transactional.store(consumer_turn, request, caller)
            return consumer_turn.effects
        if isinstance(group, StreamsGroup):
            error = streams_commits.transaction_problem(group, request)
            if error is not ErrorCode.NONE:
                return [Reply(caller.token, transactional.refusal(request, error))]
            streams_turn = StreamsCommit(group, self._groups.config, now_ms)
            transactional.store(streams_turn, request, caller)
            return streams_turn.effects
        if group is None:
            if request.generation_id >= 0:
                refusal = transactional.refusal(request, ErrorCode.ILLEGAL_GENERATION)
                return [Reply(caller.token, refusal)]
            group = self._groups.add(request.group_id, now_ms)
        turn = Turn(group, self._groups.config, now_ms)
        transactional.commit(turn, request, caller)
        return turn.effects

    def end_transaction(self, marker: Marker, token: Token) -> list[Effect]:
        """Store a marker, and then apply it; answered with an ErrorCode."""
        ticket = TransactionEnded(marker.producer_id, marker.is_commit, token)
        return [EndTransaction(marker, ticket)]

    def delete(self, group_id: str, token: Token) -> list[Effect]:
        """Remove an empty group and its offsets; answered with an ErrorCode when stored."""
        group = self._groups.get(group_id)
        if group is None or group.state is GroupState.DEAD:
            return [Reply(token, ErrorCode.GROUP_ID_NOT_FOUND)]
        if not _is_empty(group):
            return [Reply(token, ErrorCode.NON_EMPTY_GROUP)]
        return list(self._remove(group, commits.all_offsets(group), token))

    def delete_offsets(
        self,
        request: OffsetDeleteRequest,
        answers: Sequence[OffsetDeleteResponseTopic],
        token: Token,
    ) -> list[Effect]:
        """Remove offsets of a group in topics that it does not read; answered when stored.

        `answers` are the answers for the topics in case the group reads none of them.
        """
        group = self._groups.get(request.group_id)
        error = deletion.problem(request, group)
        if group is None or error is not ErrorCode.NONE:
            return [Reply(token, OffsetDeleteResponse(error_code=error))]
        records, response = deletion.plan(group, request, answers)
        if not records:
            return [Reply(token, response)]
        return [Persist(records, OffsetsDeleted(records, token, response))]

    def topic_deleted(self, name: str, topic_id: bytes) -> list[Effect]:
        """Remove the offsets of a deleted topic from all groups."""
        effects: list[Effect] = []
        for group in self._groups.all():
            effects += _remove_offsets(commits.offsets_of_topic(group, name, topic_id))
        return effects

    def expire(self, now_ms: int) -> list[Effect]:
        """Remove expired offsets, and groups with neither members nor offsets."""
        effects: list[Effect] = []
        for group in self._groups.all():
            records = commits.expired(group, self._groups.config, now_ms)
            count = sum(len(partitions) for partitions in group.offsets.by_topic.values())
            is_waiting = group.offsets.pending or group.offsets.undecided
            keeps_none = len(records) == count and not is_waiting
            if keeps_none and _is_empty(group):
                effects += self._remove(group, records, None)
            else:
                effects += _remove_offsets(records)
        return effects

    def stored(self, ticket: OffsetTicket, error: ErrorCode) -> list[Effect]:
        """Continue after the log has a ticket's records (NONE), or could not take them."""
        match ticket:
            case OffsetsStored():
                return self._offsets_stored(ticket, error)
            case UndecidedOffsetsStored():
                return self._undecided_offsets_stored(ticket, error)
            case TransactionEnded(producer_id, is_commit, token):
                if error is ErrorCode.NONE:
                    self.decide(producer_id, is_commit=is_commit)
                return [Reply(token, error)]
            case OffsetsDeleted():
                return self._offsets_deleted(ticket, error)
            case OffsetsRemoved():
                if error is ErrorCode.NONE:
                    self.apply(ticket.records)
                return note_failure(ticket.records[0].group_id, error)
            case GroupRemoved():
                return self._group_removed(ticket, error)

    def apply(self, records: Sequence[OffsetRecord]) -> None:
        """Take in records that the log has."""
        for record in records:
            group = self._groups.get(record.group_id)
            if group is not None:
                group.offsets.apply(record)

    def apply_undecided(self, record: OffsetRecord, producer_id: int) -> None:
        """Take in a record of a producer's open transaction."""
        self._groups.offsets_of(record.group_id).apply_undecided(record, producer_id)
        self._in_transactions.setdefault(producer_id, set()).add(record.group_id)

    def decide(self, producer_id: int, *, is_commit: bool) -> None:
        """Take in the end of a producer's transaction."""
        for group_id in self._in_transactions.pop(producer_id, ()):
            group = self._groups.get(group_id)
            if group is not None:
                group.offsets.decide(producer_id, is_commit=is_commit)

    def _offsets_stored(self, ticket: OffsetsStored, error: ErrorCode) -> list[Effect]:
        group = self._groups.get(ticket.request.group_id)
        assert group is not None, "offsets on their way keep their group"
        group.offsets.end(ticket.records)
        if error is not ErrorCode.NONE:
            return [Reply(ticket.token, commits.refusal(ticket.request, error))]
        self.apply(ticket.records)
        return [Reply(ticket.token, ticket.response)]

    def _undecided_offsets_stored(
        self, ticket: UndecidedOffsetsStored, error: ErrorCode
    ) -> list[Effect]:
        group = self._groups.get(ticket.request.group_id)
        assert group is not None, "offsets on their way keep their group"
        group.offsets.end(ticket.records)
        if error is not ErrorCode.NONE:
            return [Reply(ticket.token, transactional.refusal(ticket.request, error))]
        for record in ticket.records:
            self.apply_undecided(record, ticket.request.producer_id)
        return [Reply(ticket.token, ticket.response)]

    def _offsets_deleted(self, ticket: OffsetsDeleted, error: ErrorCode) -> list[Effect]:
        if error is not ErrorCode.NONE:
            return [Reply(ticket.token, OffsetDeleteResponse(error_code=error))]
        self.apply(ticket.records)
        return [Reply(ticket.token, ticket.response)]

    def _group_removed(self, ticket: GroupRemoved, error: ErrorCode) -> list[Effect]:
        if error is ErrorCode.NONE:
            self.apply(ticket.records)
            group = self._groups.classic.get(ticket.group_id)
            if group is not None and _is_unused_since(group, ticket.generation):
                self._groups.forget(group)
        effects: list[Effect] = []
        if ticket.token is None:
            effects += note_failure(ticket.group_id, error)
        else:
            effects.append(Reply(ticket.token, error))
        if ticket.is_gone and error is not ErrorCode.NONE:
            effects.append(Reload())
        return effects

    def _remove(
        self, group: Group, records: Sequence[OffsetRecord], token: Token | None
    ) -> Iterator[Effect]:
        """Remove an empty group with its offsets; `records` are the offsets' tombstones."""
        if isinstance(group, ClassicGroup):
            # Pending members have an id but have not joined; they do not keep the group.
            group.membership.pending_joins.clear()
            generation = group.generation
            tombstones: list[Record] = [GroupRecord(group.group_id, None)]
        else:
            generation = 0
            if isinstance(group, StreamsGroup):
                tombstones = self._groups.streams.tombstones(group)
                yield from self._groups.streams.stop(group)
            else:
                tombstones = conversion.tombstones(group)
            self._groups.forget(group)
        whole = len(records) - len(records) % _TOMBSTONES_MAX
        yield from _remove_offsets(records[:whole])
        rest = tuple(records[whole:])
        is_gone = not isinstance(group, ClassicGroup)
        ticket = GroupRemoved(group.group_id, generation, rest, token, is_gone)
        yield Persist((*rest, *tombstones), ticket)


def _remove_offsets(records: Sequence[OffsetRecord]) -> Iterator[Effect]:
    for start in range(0, len(records), _TOMBSTONES_MAX):
        chunk = tuple(records[start : start + _TOMBSTONES_MAX])
        yield Persist(chunk, OffsetsRemoved(chunk))


def _is_empty(group: Group) -> bool:
    if isinstance(group, ClassicGroup):
        return group.state is GroupState.EMPTY
    return not group.members


def _is_unused_since(group: ClassicGroup, generation: int) -> bool:
    """Return whether no member has joined since a generation; otherwise the group stays."""
    is_empty = group.state is GroupState.EMPTY and not group.membership.pending_joins
    return is_empty and group.generation == generation
