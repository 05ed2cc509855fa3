"""A world for the groups of one partition: a clock that is told, a log that can hold back or
fail, and a crash that leaves only what the log has.

Requests are named by the numbers that their answers come under:

    world = World()
    first = world.join()             # a request; world.answer(first) is its answer
    world.pass_time(3_000)
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, cast

from odradek.broker.coordination.deadlines import Deadlines
from odradek.broker.coordination.effects import (
    Caller,
    CancelTimer,
    Effect,
    EndTransaction,
    Note,
    Persist,
    Producer,
    Reply,
    StartTimer,
    Timer,
)
from odradek.broker.coordination.seams import InTransaction
from odradek.broker.groups.config import GroupConfig
from odradek.broker.groups.deletion import answered
from odradek.broker.groups.effects import Ticket
from odradek.broker.groups.records import GroupRecord, KeyValue, decode_record, encode_record
from odradek.broker.groups.shard import Shard
from odradek.broker.groups.state import ClassicGroup
from odradek.protocol.compiler import encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from odradek.protocol.messages.heartbeat import HeartbeatRequest
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from odradek.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from odradek.protocol.wire import ZERO_UUID
from odradek.storage.transactions import Marker

GROUP = "readers"
START_MS = 1_700_000_000_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000
Stored = KeyValue | InTransaction | Marker
RANGE = (("range", b"range metadata"),)
CONFIG = GroupConfig()


@dataclass(frozen=True, slots=True)
class Joined:
    """What a member remembers of its last successful JoinGroup."""

    member_id: str
    generation: int
    leader: str
    members: tuple[str, ...]

    @property
    def leads(self) -> bool:
        """Whether it is to assign the partitions."""
        return self.member_id == self.leader


def code(number: int) -> ErrorCode:
    """Return the error code of a number."""
    return ErrorCode(number)  # type: ignore[call-arg]  # mypy takes __new__ for the call.


def subscription(*topics: str) -> bytes:
    """Encode a consumer's subscription to topics."""
    return bytes(2) + encode(ConsumerProtocolSubscription(topics=list(topics)), 0)


class World:
    """Owns a shard, its clock, its timers and its log."""

    def __init__(self, config: GroupConfig = CONFIG) -> None:
        self.config = config
        self.now_ms = START_MS
        # A record of a transaction is wrapped, and its end is its marker.
        self.log: list[Stored] = []
        # While held, appends wait in `appending` for `finish_append`.
        self.is_held = False
        self.appending: deque[tuple[tuple[Stored, ...], Ticket]] = deque()
        self.answers: dict[int, Any] = {}
        self.asked: set[int] = set()
        self.notes: list[str] = []
        self.shard = Shard(0, config)
        self.timers: Deadlines[Timer] = Deadlines()
        self._numbers = count(1)

    # What clients do: each returns the number of the request.

    def join(
        self,
        member_id: str = "",
        *,
        group: str = GROUP,
        version: int = 9,
        instance: str | None = None,
        protocols: Sequence[tuple[str, bytes]] = RANGE,
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        client_id: str = "client",
    ) -> int:
        """Send a JoinGroup."""
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=n, metadata=m) for n, m in protocols],
        )
        caller = self._caller(version, client_id)
        return self._do(caller, self.shard.join(request, caller, self.now_ms))

    def join_new(self, **options: Any) -> int:
        """Send a newcomer's JoinGroup, and the second one where it is asked for (KIP-394)."""
        number = self.join(**options)
        answer = self.answers.get(number)
        if answer is not None and answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            return self.join(answer.member_id, **options)
        return number

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: Mapping[str, bytes] | None = None,
        *,
        group: str = GROUP,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> int:
        """Send a SyncGroup; with assignments it is the leader's."""
        given = (assignments or {}).items()
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol,
            assignments=[SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in given],
        )
        caller = self._caller(5)
        return self._do(caller, self.shard.sync(request, caller, self.now_ms))

    def heartbeat(
        self, member_id: str, generation: int, *, group: str = GROUP, instance: str | None = None
    ) -> ErrorCode:
        """Send a Heartbeat; return its error."""
        request = HeartbeatRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
        )
        caller = self._caller(4)
        number = self._do(caller, self.shard.heartbeat(request, caller, self.now_ms))
        return code(self.answers[number].error_code)

    def leave(self, *members: str | MemberIdentity, group: str = GROUP) -> list[ErrorCode]:
        """Send a LeaveGroup; return each member's error."""
        leaving = [m if isinstance(m, MemberIdentity) else identity(m) for m in members]
        request = LeaveGroupRequest(group_id=group, member_id="", members=leaving)
        caller = self._caller(5)
        number = self._do(caller, self.shard.leave(request, caller, self.now_ms))
        return [code(member.error_code) for member in self.answers[number].members]

    def commit(
        self,
        offsets: Mapping[tuple[str, int], int],
        *,
        member_id: str = "",
        generation: int = -1,
        group: str = GROUP,
        instance: str | None = None,
        version: int = 9,
        metadata: str | None = None,
        retention_ms: int = -1,
        topic_id: bytes = ZERO_UUID,
    ) -> int:
        """Send an OffsetCommit."""
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in offsets.items():
            topics.setdefault(topic, []).append(
                OffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_metadata=metadata,
                )
            )
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        caller = self._caller(version)
        return self._do(caller, self.shard.offsets.commit(request, caller, self.now_ms))

    def commit_in_transaction(
        self,
        offsets: Mapping[tuple[str, int], int],
        producer_id: int = 1,
        *,
        member_id: str = "",
        generation: int = -1,
        group: str = GROUP,
        instance: str | None = None,
        metadata: str | None = None,
    ) -> int:
        """Send a TxnOffsetCommit."""
        topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in offsets.items():
            topics.setdefault(topic, []).append(
                TxnOffsetCommitRequestPartition(
                    partition_index=partition,
                    committed_offset=offset,
                    committed_metadata=metadata,
                )
            )
        request = TxnOffsetCommitRequest(
            transactional_id=f"writer-{producer_id}",
            group_id=group,
            producer_id=producer_id,
            producer_epoch=0,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            topics=[
                TxnOffsetCommitRequestTopic(name=name, partitions=partitions)
                for name, partitions in topics.items()
            ],
        )
        caller = self._caller(5)
        effects = self.shard.offsets.commit_in_transaction(request, caller, self.now_ms)
        return self._do(caller, effects)

    def end_transaction(self, producer_id: int = 1, *, is_commit: bool = True) -> int:
        """Write the marker that ends a producer's transaction."""
        caller = self._caller(2)
        marker = Marker(producer_id, 0, 0, is_commit=is_commit, timestamp=self.now_ms)
        return self._do(caller, self.shard.offsets.end_transaction(marker, caller.token))

    def delete(self, group: str = GROUP) -> int:
        """Delete a group."""
        caller = self._caller(2)
        return self._do(caller, self.shard.offsets.delete(group, caller.token))

    def delete_offsets(self, *offsets: tuple[str, int], group: str = GROUP) -> int:
        """Send an OffsetDelete."""
        topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
        for topic, partition in offsets:
            wanted = OffsetDeleteRequestPartition(partition_index=partition)
            topics.setdefault(topic, []).append(wanted)
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[OffsetDeleteRequestTopic(name=n, partitions=p) for n, p in topics.items()],
        )
        caller = self._caller(0)
        answers = [answered(topic, ErrorCode.NONE) for topic in request.topics]
        return self._do(
            caller, self.shard.offsets.delete_offsets(request, answers, caller.token)
        )

    # What happens to the world.

    def pass_time(self, duration_ms: int) -> None:
        """Let time pass; what falls due happens in between, at its time."""
        end_ms = self.now_ms + duration_ms
        while (at := self.timers.next()) is not None and at <= end_ms:
            self.now_ms = max(self.now_ms, int(at))
            fired = self.timers.pop(self.now_ms)
            if fired is not None:
                self.carry_out(self.shard.timer_fired(fired, self.now_ms))
        self.now_ms = end_ms

    def expire(self) -> None:
        """Search for expired offsets."""
        self.carry_out(self.shard.offsets.expire(self.now_ms))

    def delete_topic(self, name: str, topic_id: bytes = ZERO_UUID) -> None:
        """Tell the groups that a topic is gone."""
        self.carry_out(self.shard.offsets.topic_deleted(name, topic_id))

    def finish_append(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """End the oldest append that is held: its records are in the log, or are not."""
        records, ticket = self.appending.popleft()
        if error is ErrorCode.NONE:
            self.log.extend(records)
        self.carry_out(self.shard.stored(ticket, error, self.now_ms))

    def release(self) -> None:
        """End all appends that are held, and hold no more."""
        self.is_held = False
        while self.appending:
            self.finish_append()

    def crash(self, kept: int = 0) -> None:
        """Lose everything but the log, and start again from it; nobody is answered any more.

        Of the appends that are held the first `kept` have reached the log.
        """
        for records, _ in list(self.appending)[:kept]:
            self.log.extend(records)
        self.appending.clear()
        self.asked = set(self.answers)
        self.timers = Deadlines()
        self.shard = self.replayed()
        self.carry_out(self.shard.loaded(self.now_ms))

    def replayed(self) -> Shard:
        """Read the log into a new shard."""
        shard = Shard(0, self.config)
        for stored in self.log:
            match stored:
                case Marker():
                    shard.replay(stored)
                case InTransaction(producer_id, encoded):
                    key, value = cast(KeyValue, encoded)
                    shard.replay(InTransaction(producer_id, decode_record(key, value)))
                case (key, value):
                    if shard.replay_offsets([(key, value)], 0):
                        continue  # as the coordinator does
                    record = decode_record(key, value)
                    assert record is not None
                    shard.replay(record)
        return shard

    def carry_out(self, effects: Sequence[Effect]) -> None:
        """Carry effects out as the coordinator does."""
        queue = deque(effects)
        while queue:
            match queue.popleft():
                case Reply(token, response):
                    assert isinstance(token, int)
                    assert token in self.asked, "an answer to nobody"
                    assert token not in self.answers, "a second answer"
                    self.answers[token] = response
                case Persist(records, ticket, producer):
                    encoded = tuple(_stored(record, producer) for record in records)
                    queue.extend(self._append(encoded, ticket))
                case EndTransaction(marker, ticket):
                    queue.extend(self._append((marker,), ticket))
                case StartTimer(timer, delay_ms):
                    self.timers.set(timer, self.now_ms + max(delay_ms, 1))
                case CancelTimer(timer):
                    self.timers.cancel(timer)
                case Note(text):
                    self.notes.append(text)

    def _append(self, stored: tuple[Stored, ...], ticket: Any) -> Sequence[Effect]:
        if self.is_held or self.appending:
            self.appending.append((stored, ticket))
            return []
        self.log.extend(stored)
        return self.shard.stored(ticket, ErrorCode.NONE, self.now_ms)

    # What there is to see.

    def answer(self, number: int) -> Any:
        """Return the answer of a request, None while it waits."""
        return self.answers.get(number)

    def error(self, number: int) -> ErrorCode:
        """Return the error of a request's answer."""
        answer = self.answers[number]
        return answer if isinstance(answer, ErrorCode) else code(answer.error_code)

    def commit_errors(self, number: int) -> list[ErrorCode]:
        """Return the errors of an OffsetCommit, partition by partition."""
        answer = self.answers[number]
        return [code(p.error_code) for topic in answer.topics for p in topic.partitions]

    def joined(self, number: int) -> Joined:
        """Return what a successful JoinGroup has told."""
        assert self.error(number) is ErrorCode.NONE
        answer = self.answers[number]
        members = tuple(member.member_id for member in answer.members)
        return Joined(answer.member_id, answer.generation_id, answer.leader, members)

    def group(self, group: str = GROUP) -> ClassicGroup:
        """Return a group."""
        return self.shard.groups[group]

    def offset(self, topic: str, partition: int, group: str = GROUP) -> int | None:
        """Return a committed offset."""
        found = self.shard.groups.get(group)
        committed = found.offsets.get(topic, partition) if found else None
        return committed.offset if committed else None

    def replayed_offset(self, topic: str, partition: int, group: str = GROUP) -> int | None:
        """Return a committed offset as the log has it."""
        found = self.replayed().groups.get(group)
        committed = found.offsets.get(topic, partition) if found else None
        return committed.offset if committed else None

    @staticmethod
    def group_tombstone(group: str = GROUP) -> KeyValue:
        """Return the record that removes a group."""
        return encode_record(GroupRecord(group, None))

    # Common beginnings.

    def stable_group(self, size: int = 1, **options: Any) -> list[Joined]:
        """Make a stable group of so many dynamic members; the first one leads."""
        numbers = [self.join_new(**options) for _ in range(size)]
        while self.answers.get(numbers[0]) is None:
            self.pass_time(self.config.initial_rebalance_delay_ms)
        members = [self.joined(number) for number in numbers]
        self.sync_all(members)
        return members

    def sync_all(self, members: Sequence[Joined]) -> list[bytes]:
        """Have all members of a generation sync; each is assigned its own id."""
        own_ids = {m.member_id: m.member_id.encode() for m in members}
        numbers = [
            self.sync(m.member_id, m.generation, own_ids if m.leads else None) for m in members
        ]
        return [self.answers[number].assignment for number in numbers]

    def with_config(self, **options: Any) -> None:
        """Change options of groups."""
        self.config = self.shard.config = replace(self.config, **options)

    def _caller(self, version: int, client_id: str = "client") -> Caller:
        number = next(self._numbers)
        self.asked.add(number)
        return Caller(number, version, client_id, "/127.0.0.1", f"id{number}")

    def _do(self, caller: Caller, effects: Sequence[Effect]) -> int:
        self.carry_out(effects)
        assert isinstance(caller.token, int)
        return caller.token


def _stored(record: Any, producer: Producer | None) -> Stored:
    encoded = encode_record(record)
    return encoded if producer is None else InTransaction(producer.producer_id, encoded)


def identity(member_id: str = "", instance: str | None = None) -> MemberIdentity:
    """Name a member that leaves."""
    return MemberIdentity(member_id=member_id, group_instance_id=instance)
