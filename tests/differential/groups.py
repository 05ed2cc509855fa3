"""A group of several members, played to both brokers: they join, sync, commit, leave, come back.

Each member has a connection of its own, since whoever waits for the others can ask nothing else
meanwhile. What a member waits for is known from the protocol: a newcomer for all the others to
join again, which they do when a heartbeat tells them of the rebalance.

The leader leaves last: Kafka takes the next one from a hash map.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from protocol.frames import encode_request
from protocol.messages.describe_groups import DescribeGroupsRequest
from protocol.messages.heartbeat import HeartbeatRequest
from protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.differential.answers import Difference
from tests.differential.play import SETTLE_S, Play
from tests.differential.wire import CLIENT_ID, Peer, read_answer
from tests.differential.world import World

MEMBERS_MAX = 5
_LONG_MS = 1_800_000  # no session ends meanwhile
_ID_REQUIRED_SINCE, _STATIC_SINCE, _STATIC_JOIN_SINCE, _BATCH_SINCE = 4, 3, 5, 3
_JOIN_LAST, _SYNC_LAST, _HEARTBEAT_LAST, _LEAVE_LAST = 9, 5, 4, 5
_COMMIT_FIRST, _COMMIT_LAST, _FETCH_LAST, _IDS_SINCE = 2, 10, 10, 10
_COMMIT_STATIC_SINCE, _FETCH_GROUPS_SINCE = 7, 8
_REBALANCE_IN_PROGRESS = 27

Found = tuple[str, Difference]


@dataclass
class Actor:
    """A member: its connection to each broker, and what it was told."""

    number: int
    connections: tuple[Peer, Peer]
    instance: str | None
    member_id: str = ""
    generation_id: int = -1
    protocols: tuple[str, ...] = ("range", "sticky")
    asked: tuple[Any, int] | None = None  # what waits for an answer, and its version

    def first(self, static_since: int) -> int:
        """Return the first version in which it can say who it is."""
        return 0 if self.instance is None else static_since


class GroupScript:
    """Draws what members of one group do, and yields where the brokers differ."""

    def __init__(self, play: Play, world: World, name: str) -> None:
        self.play, self.world, self.name = play, world, f"{name}-{world.seed}"
        self.random = Random(self.name)
        self.actors: list[Actor] = []  # the leader is the first
        self.watcher = Actor(0, (Peer(play.ours.port), Peer(play.theirs.port)), None)
        self.begun = 0

    def run(self, steps: int) -> Iterator[Found]:
        """Do so many things, then have all leave."""
        try:
            for _ in range(steps):
                yield from self._step()
            yield from self._leave(self.actors[::-1])
            yield from self._describe()
        finally:
            for actor in (*self.actors, self.watcher):
                _close(actor)

    def _step(self) -> Iterator[Found]:
        if not self.actors:
            yield from self._newcomers(1)
            return
        match self.random.choice(("join", "leave", "wrong", "wrong", "offsets", "again", "back")):
            case "join" if len(self.actors) < MEMBERS_MAX:
                yield from self._newcomers(self.random.choice((1, 2)))
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

    def _rebalance(self, new: list[Actor], first: Actor | None = None) -> Iterator[Found]:
        """Have all join: who begins it, the others once they have heard of it; then sync."""
        old, self.actors = self.actors, self.actors + new
        begin = [*new, *([first] if first else [])]
        joining = begin + [actor for actor in old if actor is not first]
        for number, actor in enumerate(joining):
            if begin and number == len(begin):
                self._await_rebalance(actor)
            has_id = actor.member_id or actor.instance
            high = _JOIN_LAST if has_id else _ID_REQUIRED_SINCE - 1
            version = self.random.randint(actor.first(_STATIC_JOIN_SINCE), high)
            self._begin(actor, self._join(actor), version)
        # The leader's answer names them all: by then each has told its own id.
        for actor in [*reversed(self.actors[1:]), self.actors[0]]:
            yield from self._finish(actor, "member_id", "generation_id")
        syncing = list(self.actors)
        self.random.shuffle(syncing)
        for actor in syncing:
            version = self._version(actor, _STATIC_SINCE, _SYNC_LAST)
            self._begin(actor, self._sync(actor), version)
        for actor in syncing:
            yield from self._finish(actor)

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
            _close(actor)

    def _come_back(self) -> Iterator[Found]:
        """Have a static follower start anew: it takes its own place, and nobody rebalances."""
        static = [one for one in self.actors[1:] if one.instance]
        if not static:
            return
        actor = self.random.choice(static)
        old = Actor(-1, actor.connections, actor.instance, actor.member_id, actor.generation_id)
        actor.member_id = ""
        version = self.random.randint(_STATIC_JOIN_SINCE, _JOIN_LAST)
        yield from self._ask(actor, self._join(actor), version, "member_id", "generation_id")
        yield from self._ask(old, self._heartbeat(old), _HEARTBEAT_LAST)
        yield from self._ask(actor, self._sync(actor), _SYNC_LAST)

    def _wrong(self) -> Iterator[Found]:
        """Ask what a member may not."""
        actor = self.random.choice(self.actors)
        wrong = Actor(
            -1,
            actor.connections,
            self.random.choice((actor.instance, None, "nobody")),
            self.random.choice((actor.member_id, actor.member_id, "", "nobody")),
            actor.generation_id + self.random.choice((-1, 1, 7)),
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
            session_timeout_ms=_LONG_MS,
            rebalance_timeout_ms=_LONG_MS,
            member_id=actor.member_id,
            group_instance_id=actor.instance,
            protocol_type="consumer",
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=_subscription(name, actor.number))
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

    # --- asking -------------------------------------------------------------------------------

    def _actor(self) -> Actor:
        self.begun += 1
        instance = f"static-{self.begun}" if self.random.random() < 0.4 else None
        protocols = self.random.choice((("range",), ("range", "sticky")))
        connections = Peer(self.play.ours.port), Peer(self.play.theirs.port)
        return Actor(self.begun, connections, instance, protocols=protocols)

    def _version(self, actor: Actor, static_since: int, last: int) -> int:
        return self.random.randint(actor.first(static_since), last)

    def _ask(self, actor: Actor, request: Any, version: int, *learned: str) -> Iterator[Found]:
        self._begin(actor, request, version)
        yield from self._finish(actor, *learned)

    def _begin(self, actor: Actor, request: Any, version: int) -> None:
        actor.asked = request, version
        for peer, made in self._both(actor, request):
            peer.send(encode_request(made, version, 1, CLIENT_ID))

    def _finish(self, actor: Actor, *learned: str) -> Iterator[Found]:
        """Compare the answers, and take up what an actor learns of ours."""
        assert actor.asked is not None
        request, version = actor.asked
        ours, theirs = (peer.receive() for peer in actor.connections)
        api = type(request).__name__.removesuffix("Request")
        for one in self.play.pairs.differences(api, version, ours, theirs):
            yield f"{self.name} {request}", one
        assert ours.answer is not None, f"{api}: {ours}"
        answer = read_answer(api, version, ours.answer)
        for name in learned:
            setattr(actor, name, getattr(answer, name))

    def _await_rebalance(self, actor: Actor) -> None:
        """Wait until both brokers have heard of all newcomers, and tell others of it."""
        describing, beating = DescribeGroupsRequest(groups=[self.name]), self._heartbeat(actor)
        deadline = time.monotonic() + SETTLE_S
        for (peer, described), (own, beat) in zip(
            self._both(self.watcher, describing), self._both(actor, beating), strict=True
        ):
            while (
                len(peer.ask(described, 0).groups[0].members) < len(self.actors)
                or own.ask(beat, _HEARTBEAT_LAST).error_code != _REBALANCE_IN_PROGRESS
            ):
                assert time.monotonic() < deadline, "nobody hears of the rebalance"
                time.sleep(0.005)

    def _both(self, actor: Actor, request: Any) -> Iterator[tuple[Peer, Any]]:
        made = request, self.play.pairs.for_kafka(request)
        return zip(actor.connections, made, strict=True)


def _subscription(protocol: str, number: int) -> bytes:
    """Encode a consumer's subscription to nothing; over what is none Kafka never ends a join."""
    data = f"{protocol} {number}".encode()
    return struct.pack(">hii", 0, 0, len(data)) + data


def _close(actor: Actor) -> None:
    for peer in actor.connections:
        peer.close()
