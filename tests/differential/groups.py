"""A group of several members, played to both brokers: they join, sync, commit, leave, come back.

Each member has a connection of its own, since whoever waits for the others can ask nothing else
meanwhile. What a member waits for is known from the protocol: a newcomer for all the others to
join again, which they do when a heartbeat tells them of the rebalance.

The leader leaves last, and is never the one that is gone: Kafka takes the next one from a hash
map.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from odradek.protocol.messages.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.describe_groups import DescribeGroupsRequest
from odradek.protocol.messages.heartbeat import HeartbeatRequest
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.list_groups import ListGroupsRequest
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
from odradek.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.differential.actors import Actor, Found, Stage
from tests.differential.play import Play
from tests.differential.world import MEMBERS_MAX, World

_LONG_MS = 1_800_000  # no rebalance ends for want of a member
_SHORT_MS = 3_000  # some do, and the others have come by then
_REBALANCE_TIMEOUT_SINCE = 1
_ID_REQUIRED_SINCE, _STATIC_SINCE, _STATIC_JOIN_SINCE, _BATCH_SINCE = 4, 3, 5, 3
_JOIN_LAST, _SYNC_LAST, _HEARTBEAT_LAST, _LEAVE_LAST = 9, 5, 4, 5
_LIST_LAST, _DELETE_LAST = 5, 2
_COMMIT_FIRST, _COMMIT_LAST, _FETCH_LAST, _IDS_SINCE = 2, 10, 10, 10
_COMMIT_STATIC_SINCE, _FETCH_GROUPS_SINCE = 7, 8
_REBALANCE_IN_PROGRESS = 27

_ACTS = (
    *("join", "join", "leave", "wrong", "wrong", "offsets", "offsets"),
    *("again", "back", "gone", "administer"),
)


class GroupScript:
    """Draws what members of one group do, and yields where the brokers differ."""

    def __init__(self, play: Play, world: World, name: str) -> None:
        self.world, self.name = world, f"{name}-{world.seed}"
        self.random = Random(self.name)
        self.actors: list[Actor] = []  # the leader is the first
        self.stage = Stage(play)
        self.watcher = self.stage.actor(0)
        self.begun = 0
        self.rebalance_ms = _LONG_MS

    def run(self, steps: int) -> Iterator[Found]:
        """Do so many things, then have all leave."""
        try:
            for _ in range(steps):
                yield from self._step()
            yield from self._leave(self.actors[::-1])
            yield from self._describe()
            for _ in range(2):
                yield from self._administer(self.watcher)
            yield from self._delete_group(self.watcher)
            yield from self._describe()
        finally:
            for actor in (*self.actors, self.watcher):
                actor.close()

    def _step(self) -> Iterator[Found]:
        if not self.actors:
            yield from self._newcomers(1)
            return
        match self.random.choice(_ACTS):
            case "join" if len(self.actors) < MEMBERS_MAX:
                room = MEMBERS_MAX - len(self.actors)
                yield from self._newcomers(min(self.random.choice((1, 2)), room))
            case "join":
                yield from self._one_too_many()
            case "leave" if len(self.actors) > 1:
                count = self.random.randint(1, len(self.actors) - 1)
                yield from self._leave(self.random.sample(self.actors[1:], count))
                if self.random.random() < 0.5:
                    yield from self._heartbeats()
                yield from self._rebalance([])
            case "wrong":
                yield from self._wrong()
            case "offsets":
                yield from self._offsets()
            case "again":  # the leader asks for a rebalance
                yield from self._rebalance([], first=self.actors[0])
            case "back":
                yield from self._come_back()
            case "gone":
                yield from self._be_gone()
            case "administer":
                yield from self._administer(self.random.choice([self.watcher, *self.actors]))
                yield from self._delete_group(self.watcher)
        yield from self._heartbeats()
        yield from self._describe()

    # --- what they do -------------------------------------------------------------------------

    def _newcomers(self, count: int) -> Iterator[Found]:
        new = [self._actor() for _ in range(count if self.actors else 1)]
        for actor in new:
            version = self._version(actor, _STATIC_JOIN_SINCE, _JOIN_LAST)
            if version >= _ID_REQUIRED_SINCE and actor.instance is None:
                yield from self._ask(actor, self._join(actor), version, "member_id")
        yield from self._rebalance(new)

    def _one_too_many(self) -> Iterator[Found]:
        actor = self._actor()
        version = self._version(actor, _STATIC_JOIN_SINCE, _JOIN_LAST)
        yield from self._ask(actor, self._join(actor), version)
        actor.close()

    def _rebalance(
        self,
        new: list[Actor],
        first: Actor | None = None,
        absent: Sequence[Actor] = (),
        silent: Sequence[Actor] = (),
    ) -> Iterator[Found]:
        """Have all join: who begins it, the others once they have heard of it; then sync.

        Those that are absent do not join, and the silent ones do not sync.
        """
        old = [actor for actor in self.actors if actor not in absent]
        self.actors = self.actors + new
        begin = [*new, *([first] if first else [])]
        joining = begin + [actor for actor in old if actor is not first]
        for number, actor in enumerate(joining):
            if begin and number == len(begin):
                self._await_rebalance(actor)
            has_id = actor.member_id or actor.instance
            high = _JOIN_LAST if has_id else _ID_REQUIRED_SINCE - 1
            low = actor.first(_STATIC_JOIN_SINCE)
            if self.rebalance_ms == _SHORT_MS:
                low = max(low, _REBALANCE_TIMEOUT_SINCE)
            version = self.random.randint(low, high)
            self.stage.begin(actor, self._join(actor), version)
        self.actors = [actor for actor in self.actors if actor not in absent]
        # The leader's answer names them all: by then each has told its own id.
        for actor in [*reversed(self.actors[1:]), self.actors[0]]:
            yield from self.stage.finish(actor, "member_id", "generation_id")
        syncing = [actor for actor in self.actors if actor not in silent]
        self.random.shuffle(syncing)
        for actor in syncing:
            version = self._version(actor, _STATIC_SINCE, _SYNC_LAST)
            self.stage.begin(actor, self._sync(actor), version)
        for actor in syncing:
            yield from self.stage.finish(actor)

    def _leave(self, leaving: list[Actor]) -> Iterator[Found]:
        """Leave together, as an admin client has it, or one by one."""
        is_together = self.random.random() < 0.5
        for group in [leaving] if is_together else [[one] for one in leaving]:
            if not group:
                continue
            is_static = any(one.instance for one in group)
            low = _BATCH_SINCE if is_static or is_together else 0
            version = self.random.randint(low, _LEAVE_LAST)
            by_instance = self.random.random() < 0.5
            request = LeaveGroupRequest(
                group_id=self.name,
                member_id=group[0].member_id,
                members=[
                    MemberIdentity(
                        member_id="" if one.instance and by_instance else one.member_id,
                        group_instance_id=one.instance,
                    )
                    for one in group
                ],
            )
            yield from self._ask(group[0], request, version)
        for actor in leaving:
            self.actors.remove(actor)
            actor.close()

    def _come_back(self) -> Iterator[Found]:
        """Have a static member start again: it takes its own place, and nobody rebalances."""
        static = [one for one in self.actors if one.instance]
        if not static:
            return
        actor = self.random.choice(static)
        old = replace(actor, number=-1)
        actor.member_id = ""
        version = self.random.randint(_STATIC_JOIN_SINCE, _JOIN_LAST)
        yield from self._ask(actor, self._join(actor), version, "member_id", "generation_id")
        if not actor.member_id:  # refused: a full group takes it for a newcomer
            actor.member_id, actor.generation_id = old.member_id, old.generation_id
            return
        yield from self._ask(old, self._heartbeat(old), _HEARTBEAT_LAST)
        yield from self._ask(actor, self._sync(actor), _SYNC_LAST)

    def _be_gone(self) -> Iterator[Found]:
        """Have members send nothing any more: no heartbeat, no join, or no sync."""
        leader, *followers = self.actors
        missed = self.random.choice(("heartbeat", "join", "sync"))
        # A static one that does not join is still waited for, until its session ends.
        mortal = [one for one in followers if missed == "heartbeat" or not one.instance]
        if not mortal:
            return
        gone = self.random.sample(mortal, self.random.randint(1, min(2, len(mortal))))
        if missed == "heartbeat":
            for one in gone:
                one.session_ms = _SHORT_MS
            yield from self._rebalance([], first=leader)
        else:
            self.rebalance_ms = _SHORT_MS
            yield from self._rebalance([], first=leader)
            absent, silent = (gone, []) if missed == "join" else ([], gone)
            yield from self._rebalance([], first=leader, absent=absent, silent=silent)
            self.rebalance_ms = _LONG_MS
        self.actors = [one for one in self.actors if one not in gone]
        self._await_size(len(self.actors))
        for one in gone:
            yield from self._ask(one, self._heartbeat(one), _HEARTBEAT_LAST)
            one.close()
        yield from self._heartbeats()
        yield from self._rebalance([], first=leader)

    def _administer(self, actor: Actor) -> Iterator[Found]:
        """List groups, and delete an offset."""
        listing = ListGroupsRequest(
            states_filter=self.random.choice(([], ["Stable"], ["empty", "Dead"], ["none"])),
            types_filter=self.random.choice(([], [], ["Classic"], ["consumer"], ["none"])),
        )
        yield from self._ask(actor, listing, self.random.randint(0, _LIST_LAST))
        topics = self.random.sample(self.world.topics, 2)
        deletion = OffsetDeleteRequest(
            group_id=self.name,
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic,
                    partitions=[
                        OffsetDeleteRequestPartition(partition_index=index)
                        for index in self.random.sample(range(5), 2)
                    ],
                )
                for topic in topics
            ],
        )
        yield from self._ask(actor, deletion, 0)

    def _delete_group(self, actor: Actor) -> Iterator[Found]:
        deletion = DeleteGroupsRequest(groups_names=[self.name, f"no-{self.name}"])
        yield from self._ask(actor, deletion, self.random.randint(0, _DELETE_LAST))

    def _wrong(self) -> Iterator[Found]:
        """Ask what a member may not."""
        actor = self.random.choice(self.actors)
        wrong = replace(
            actor,
            number=-1,
            instance=self.random.choice((actor.instance, None, "nobody")),
            member_id=self.random.choice((actor.member_id, actor.member_id, "", "nobody")),
            generation_id=actor.generation_id + self.random.choice((-1, 1, 7)),
            protocols=("none",),
        )
        for made, first, static_since, last in (
            (self._heartbeat(wrong), 0, _STATIC_SINCE, _HEARTBEAT_LAST),
            (self._sync(wrong), 0, _STATIC_SINCE, _SYNC_LAST),
            (self._join(wrong), 0, _STATIC_JOIN_SINCE, _JOIN_LAST),
            (self._commit(wrong), _COMMIT_FIRST, _COMMIT_STATIC_SINCE, _COMMIT_LAST),
        ):
            version = self.random.randint(max(first, wrong.first(static_since)), last)
            yield from self._ask(actor, made, version)

    def _offsets(self) -> Iterator[Found]:
        actor = self.random.choice(self.actors)
        low = max(_COMMIT_FIRST, actor.first(_COMMIT_STATIC_SINCE))
        version = self.random.randint(low, _COMMIT_LAST)
        yield from self._ask(actor, self._commit(actor), version)
        topic = self.world.topics[0]
        everything = self.random.random() < 0.3
        asked = OffsetFetchRequestTopics(
            name=topic, topic_id=self.world.topic_ids[topic], partition_indexes=[0, 1, 2]
        )
        request = OffsetFetchRequest(
            group_id=self.name,
            topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[0, 1, 2])],
            groups=[
                OffsetFetchRequestGroup(
                    group_id=self.name,
                    member_id=actor.member_id,
                    topics=None if everything else [asked],
                )
            ],
            require_stable=self.random.random() < 0.5,
        )
        yield from self._ask(actor, request, self.random.randint(1, _FETCH_LAST))

    def _heartbeats(self) -> Iterator[Found]:
        for actor in self.actors:
            version = self._version(actor, _STATIC_SINCE, _HEARTBEAT_LAST)
            yield from self._ask(actor, self._heartbeat(actor), version)

    def _describe(self) -> Iterator[Found]:
        request = DescribeGroupsRequest(
            groups=[self.name], include_authorized_operations=self.random.random() < 0.5
        )
        for version in (self.random.randint(0, 6), 6):
            yield from self._ask(self.watcher, request, version)

    # --- requests -----------------------------------------------------------------------------

    def _join(self, actor: Actor) -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id=self.name,
            session_timeout_ms=actor.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=actor.member_id,
            group_instance_id=actor.instance,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=self._subscription(name, actor))
                for name in actor.protocols
            ],
        )

    def _sync(self, actor: Actor) -> SyncGroupRequest:
        is_leader = actor is self.actors[0]
        return SyncGroupRequest(
            group_id=self.name,
            generation_id=actor.generation_id,
            member_id=actor.member_id,
            group_instance_id=actor.instance,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                SyncGroupRequestAssignment(
                    member_id=one.member_id, assignment=f"for {one.number}".encode()
                )
                for one in (self.actors if is_leader else [])
            ],
        )

    def _heartbeat(self, actor: Actor) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self.name,
            generation_id=actor.generation_id,
            member_id=actor.member_id,
            group_instance_id=actor.instance,
        )

    def _commit(self, actor: Actor) -> OffsetCommitRequest:
        topic = self.world.topics[0]
        return OffsetCommitRequest(
            group_id=self.name,
            generation_id_or_member_epoch=actor.generation_id,
            member_id=actor.member_id,
            group_instance_id=actor.instance,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=self.world.topic_ids[topic],
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=self.random.randint(0, 2),
                            committed_offset=self.random.randint(0, 99),
                            committed_metadata=self.random.choice((None, "", "a note")),
                        )
                    ],
                )
            ],
        )

    def _subscription(self, protocol: str, actor: Actor) -> bytes:
        """Encode what a consumer reads; over what is no subscription Kafka never ends a join."""
        topics = self.world.topics[: actor.number % 2]
        data = f"{protocol} {actor.number}".encode()
        reads = b"".join(struct.pack(">h", len(one)) + one.encode() for one in topics)
        return struct.pack(">hi", 0, len(topics)) + reads + struct.pack(">i", len(data)) + data

    # --- asking -------------------------------------------------------------------------------

    def _actor(self) -> Actor:
        self.begun += 1
        instance = f"static-{self.begun}" if self.random.random() < 0.4 else None
        protocols = self.random.choice((("range",), ("range", "sticky")))
        return self.stage.actor(self.begun, instance, protocols=protocols)

    def _version(self, actor: Actor, static_since: int, last: int) -> int:
        return self.random.randint(actor.first(static_since), last)

    def _ask(self, actor: Actor, request: Any, version: int, *learned: str) -> Iterator[Found]:
        yield from self.stage.ask(actor, request, version, *learned)

    def _await_rebalance(self, actor: Actor) -> None:
        """Wait until both brokers have heard of all newcomers, and tell others of it."""
        self._await_size(len(self.actors))
        self.stage.wait_until(
            actor,
            self._heartbeat(actor),
            _HEARTBEAT_LAST,
            lambda answer: answer.error_code == _REBALANCE_IN_PROGRESS,
        )

    def _await_size(self, size: int) -> None:
        describing = DescribeGroupsRequest(groups=[self.name])
        self.stage.wait_until(
            self.watcher, describing, 0, lambda answer: len(answer.groups[0].members) == size
        )
