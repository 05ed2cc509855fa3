"""Clients, time, a slow or failing log and crashes in any order: what always holds of a group."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.broker.coordination.effects import Timer
from odradek.broker.groups.config import GroupConfig
from odradek.broker.groups.effects import (
    GroupRemoved,
    OffsetsDeleted,
    OffsetsRemoved,
    OffsetsStored,
    Ticket,
    TimerKind,
    TransactionEnded,
    UndecidedOffsetsStored,
)
from odradek.broker.groups.records import OffsetRecord
from odradek.broker.groups.state import ClassicGroup, GroupState
from odradek.protocol.errors import ErrorCode
from tests.broker.group_world import GROUP, World, code, subscription
from tests.profiles import examples

Partition = tuple[str, int]

CLIENTS = ("a", "b", "c", "static-d", "static-e")
PROTOCOLS = (
    (("range", subscription("t")),),
    (("range", subscription("t")), ("sticky", b"")),
    (("sticky", b""), ("range", subscription("t"))),
    (("sticky", b"\xff"),),
)
FAILURES = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
CONFIG = GroupConfig(offsets_retention_ms=5_000, max_size=4)
# Longer than any timeout that the clients below ask for.
LONG_MS = 900_000


@dataclass(slots=True)
class Client:
    """A consumer: what it knows of itself, and what it waits for."""

    instance: str | None
    member_id: str = ""
    generation: int = -1
    leads: bool = False
    others: tuple[str, ...] = ()
    waits_for: int = 0
    is_synced: bool = False


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.world = World(CONFIG)
        self.clients = {
            name: Client(name if name.startswith("static") else None) for name in CLIENTS
        }
        self.joins: dict[int, Client] = {}
        self.syncs: dict[int, int] = {}  # The generation that each SyncGroup named.
        self.commits: dict[int, dict[Partition, int]] = {}
        # As acknowledged, in that order: by partition the place in that order and the offset.
        self.offsets: dict[Partition, tuple[int, int]] = {}
        # What is committed in open transactions: place, producer, partition, offset.
        self.undecided: list[tuple[int, int, Partition, int]] = []
        self.transactional: dict[int, tuple[int, dict[Partition, int]]] = {}
        self.ends: dict[int, tuple[int, bool]] = {}
        self.place = 0
        self.group: ClassicGroup | None = None
        self.generation = 0
        self.seen: set[int] = set()

    # Clients.

    @rule(
        name=st.sampled_from(CLIENTS),
        protocols=st.sampled_from(PROTOCOLS),
        version=st.sampled_from((3, 8, 9)),
        session_ms=st.sampled_from((10_000, 30_000)),
        rebalance_ms=st.sampled_from((0, 20_000, 60_000)),
    )
    def join(self, name: str, version: int, **options: Any) -> None:
        client = self.clients[name]
        if client.instance is not None:
            version = 9
        number = self.world.join(
            client.member_id, version=version, instance=client.instance, **options
        )
        self.joins[number] = client
        client.waits_for = number

    @rule(name=st.sampled_from(CLIENTS))
    def sync(self, name: str) -> None:
        client = self.clients[name]
        mark = b"%d:" % client.generation
        assignments = {member: mark + member.encode() for member in client.others}
        number = self.world.sync(
            client.member_id,
            client.generation,
            assignments if client.leads else None,
            instance=client.instance,
        )
        self.syncs[number] = client.generation
        client.waits_for, client.is_synced = number, True

    @rule(name=st.sampled_from(CLIENTS))
    def heartbeat(self, name: str) -> None:
        client = self.clients[name]
        error = self.world.heartbeat(client.member_id, client.generation, instance=client.instance)
        if error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.member_id = ""
        if error is not ErrorCode.NONE:
            client.generation = -1

    @rule(
        names=st.sets(st.sampled_from(CLIENTS), min_size=1, max_size=4).map(sorted),
        protocols=st.sampled_from(PROTOCOLS[:3]),
        rounds=st.integers(1, 8),
    )
    def behave(self, names: list[str], protocols: Any, rounds: int) -> None:
        """Let some clients do what consumers do, so that groups come to be stable at all."""
        for _ in range(rounds):
            for name in names:
                self._behave(name, protocols)
            self.world.pass_time(2_000)

    def _behave(self, name: str, protocols: Any) -> None:
        client = self.clients[name]
        self._learn_answers()
        if client.waits_for not in self.world.answers and client.waits_for in self.world.asked:
            return
        if not client.member_id or client.generation < 0:
            options = {"session_ms": 10_000, "rebalance_ms": 20_000, "protocols": protocols}
            self.join(name, version=9, **options)
        elif client.is_synced:
            self.heartbeat(name)
        else:
            self.sync(name)

    @rule(name=st.sampled_from(CLIENTS))
    def leave(self, name: str) -> None:
        client = self.clients[name]
        self.world.leave(client.member_id)
        client.member_id = ""

    @rule(name=st.sampled_from(CLIENTS))
    def restart(self, name: str) -> None:
        self.clients[name].member_id = ""

    @rule(name=st.sampled_from(CLIENTS), partition=st.integers(0, 2), offset=st.integers(0, 99))
    def commit(self, name: str, partition: int, offset: int) -> None:
        client = self.clients[name]
        self._commit({("t", partition): offset}, client.member_id, client.generation)

    @rule(topic=st.sampled_from("tu"), offset=st.integers(0, 99))
    def commit_outside_the_group(self, topic: str, offset: int) -> None:
        self._commit({(topic, 0): offset, (topic, 1): offset}, "", -1)

    def _commit(
        self, offsets: dict[Partition, int], member_id: str, generation: int
    ) -> None:
        world = self.world
        self.commits[world.commit(offsets, member_id=member_id, generation=generation)] = offsets

    @rule(
        producer_id=st.sampled_from((1, 2, 3)),
        topic=st.sampled_from("tu"),
        partition=st.integers(0, 1),
        offset=st.integers(0, 99),
        name=st.sampled_from((*CLIENTS, "nobody")),
    )
    def commit_in_transaction(
        self, producer_id: int, topic: str, partition: int, offset: int, name: str
    ) -> None:
        client = self.clients.get(name, Client(None))
        offsets = {(topic, partition): offset}
        number = self.world.commit_in_transaction(
            offsets, producer_id, member_id=client.member_id, generation=client.generation
        )
        self.transactional[number] = producer_id, offsets

    @rule(producer_id=st.sampled_from((1, 2, 3)), is_commit=st.booleans())
    def end_transaction(self, producer_id: int, is_commit: bool) -> None:
        number = self.world.end_transaction(producer_id, is_commit=is_commit)
        self.ends[number] = producer_id, is_commit

    # The administrator, time, the log, the machine.

    @rule()
    def delete_group(self) -> None:
        self._remove(lambda: self.world.delete())

    @rule(topic=st.sampled_from("tu"))
    def delete_topic(self, topic: str) -> None:
        self._remove(lambda: self.world.delete_topic(topic))

    @rule(topic=st.sampled_from("tu"), partition=st.integers(0, 2))
    def delete_offsets(self, topic: str, partition: int) -> None:
        self._remove(lambda: self.world.delete_offsets((topic, partition)))

    @rule()
    def expire(self) -> None:
        self._remove(self.world.expire)

    def _remove(self, act: Any) -> None:
        """Do what removes offsets with the log held, to see which ones it decides on."""
        world = self.world
        was_held, world.is_held = world.is_held, True
        before = len(world.appending)
        act()
        world.is_held = was_held
        if not was_held and before == 0:
            while world.appending:
                self.finish_append(ErrorCode.NONE)

    @rule(duration_ms=st.sampled_from((1, 1_000, 3_000, 9_000, 20_000, 60_000)))
    def pass_time(self, duration_ms: int) -> None:
        self.world.pass_time(duration_ms)

    @rule()
    def hold_the_log(self) -> None:
        self.world.is_held = True

    @rule()
    def release_the_log(self) -> None:
        self.world.is_held = False
        while self.world.appending:
            self.finish_append(ErrorCode.NONE)

    @precondition(lambda self: self.world.appending)
    @rule(error=st.sampled_from((ErrorCode.NONE, ErrorCode.NONE, *FAILURES)))
    def finish_append(self, error: ErrorCode) -> None:
        _, ticket = self.world.appending[0]
        self.world.finish_append(error)
        if error is ErrorCode.NONE:
            self._learn_removals(ticket)
        self._learn_answers()

    @rule(kept=st.integers(0, 3))
    def crash(self, kept: int) -> None:
        reached = list(self.world.appending)[:kept]
        self.world.crash(kept)
        for _, ticket in reached:
            # Stored, though nobody has been told.
            if isinstance(ticket, OffsetsStored | UndecidedOffsetsStored | TransactionEnded):
                assert isinstance(ticket.token, int)
                self._learn_stored(ticket.token)
            self._learn_removals(ticket)

    # What the clients learn.

    def _learn_removals(self, ticket: Ticket) -> None:
        if isinstance(ticket, OffsetsDeleted | OffsetsRemoved | GroupRemoved):
            for record in ticket.records:
                assert isinstance(record, OffsetRecord) and record.committed is None
                removed = record.topic, record.partition
                self.offsets.pop(removed, None)
                self.undecided = [one for one in self.undecided if one[2] != removed]

    def _learn_stored(self, number: int) -> None:
        """Take in what the log has: of a partition the last commit counts, once it is decided."""
        if number in self.ends:
            ended, is_commit = self.ends[number]
            for place, _, partition, offset in [o for o in self.undecided if o[1] == ended]:
                if is_commit and place > self.offsets.get(partition, (-1, 0))[0]:
                    self.offsets[partition] = place, offset
            self.undecided = [one for one in self.undecided if one[1] != ended]
            return
        self.place += 1
        if number in self.commits:
            for partition, offset in self.commits[number].items():
                self.offsets[partition] = self.place, offset
            return
        producer_id, offsets = self.transactional[number]
        for partition, offset in offsets.items():
            is_same = [one for one in self.undecided if one[1:3] == (producer_id, partition)]
            self.undecided = [one for one in self.undecided if one not in is_same]
            self.undecided.append((self.place, producer_id, partition, offset))

    def _learn_answers(self) -> None:
        for number in sorted(self.world.answers.keys() - self.seen):
            self.seen.add(number)
            answer = self.world.answers[number]
            if number in self.joins:
                self._learn_join(self.joins[number], answer)
            elif number in self.syncs and answer.error_code == ErrorCode.NONE:
                mark = b"%d:" % self.syncs[number]
                assert answer.assignment == b"" or answer.assignment.startswith(mark)
            elif number in self.commits or number in self.transactional:
                if set(self.world.commit_errors(number)) == {ErrorCode.NONE}:
                    self._learn_stored(number)
            elif number in self.ends and answer is ErrorCode.NONE:
                self._learn_stored(number)

    @staticmethod
    def _learn_join(client: Client, answer: Any) -> None:
        match code(answer.error_code):
            case ErrorCode.NONE:
                client.member_id, client.generation = answer.member_id, answer.generation_id
                client.is_synced = False
                client.leads = answer.leader == answer.member_id and not answer.skip_assignment
                client.others = tuple(member.member_id for member in answer.members)
            case ErrorCode.MEMBER_ID_REQUIRED:
                client.member_id = answer.member_id
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.FENCED_INSTANCE_ID:
                client.member_id = ""

    # What always holds.

    @invariant()
    def clients_have_learned(self) -> None:
        self._learn_answers()

    @invariant()
    def the_group_is_sound(self) -> None:
        group = self.world.shard.groups.get(GROUP)
        if group is not self.group:  # Deleted and made again, or another after a crash.
            self.group, self.generation = group, 0
        if group is None:
            return
        assert group.generation >= self.generation
        self.generation = group.generation
        membership = group.membership
        members = membership.members
        assert (membership.leader_id in members) if members else membership.leader_id is None
        assert membership.pending_syncs <= members.keys()
        assert not membership.pending_joins.keys() & members.keys()
        assert membership.parked_join_count == sum(
            member.parked_join is not None for member in members.values()
        )
        assert membership.supporters == Counter(
            name for member in members.values() for name, _ in member.protocols
        )
        assert membership.member_by_instance == {
            member.instance_id: member_id
            for member_id, member in members.items()
            if member.instance_id is not None
        }
        assert (group.state is GroupState.EMPTY) <= (not members)

    @invariant()
    def something_will_happen(self) -> None:
        """Whoever waits has a deadline: no state holds for ever by itself."""
        group = self.world.shard.groups.get(GROUP)
        if group is None:
            return
        timers, state = self.world.timers, group.state
        if state is GroupState.PREPARING_REBALANCE:
            assert Timer(GROUP, TimerKind.JOIN) in timers
        if state is GroupState.COMPLETING_REBALANCE and group.membership.pending_syncs:
            assert Timer(GROUP, TimerKind.SYNC) in timers
        for member in group.membership.all():
            assert member.keeps_session_by_waiting() or (
                Timer(GROUP, TimerKind.SESSION, member.member_id) in timers
            )
        for member_id in group.membership.pending_joins:
            assert Timer(GROUP, TimerKind.SESSION, member_id) in timers

    @invariant()
    def the_log_says_what_is_so(self) -> None:
        if self.world.appending:
            return
        live = self.world.shard.groups.get(GROUP)
        stored = self.world.replayed().groups.get(GROUP)
        known = {partition: offset for partition, (_, offset) in self.offsets.items()}
        assert offsets_of(live) == offsets_of(stored) == known
        undecided = {(producer_id, partition) for _, producer_id, partition, _ in self.undecided}
        assert undecided_of(live) == undecided_of(stored) == undecided
        if live is not None and live.state is GroupState.STABLE:
            assert stored is not None
            assert generation_of(live) == generation_of(stored)

    def teardown(self) -> None:
        self.release_the_log()
        self.world.pass_time(LONG_MS)
        self.clients_have_learned()
        assert self.world.asked == set(self.world.answers), "a request was never answered"
        group = self.world.shard.groups.get(GROUP)
        assert group is None or not group.membership.members
        self.the_log_says_what_is_so()


def offsets_of(group: ClassicGroup | None) -> dict[Partition, int]:
    if group is None:
        return {}
    assert not group.offsets.pending
    return {
        (topic, partition): committed.offset
        for topic, partitions in group.offsets.by_topic.items()
        for partition, committed in partitions.items()
    }


def undecided_of(group: ClassicGroup | None) -> set[tuple[int, Partition]]:
    waiting = {} if group is None else group.offsets.undecided
    return {(producer_id, key) for key, producers in waiting.items() for producer_id in producers}


def generation_of(group: ClassicGroup) -> object:
    protocol = group.protocol or ""
    members = {
        member.member_id: (
            member.instance_id,
            member.client_id,
            member.client_host,
            member.session_timeout_ms,
            member.rebalance_timeout_ms,
            member.metadata(protocol),
            member.assignment,
        )
        for member in group.membership.all()
    }
    return (
        group.generation,
        group.protocol_type,
        protocol,
        group.membership.leader_id,
        members,
        group.subscribed_topics,
    )


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=examples(60), stateful_step_count=60)
