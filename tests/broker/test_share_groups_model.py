"""Share groups under generated members, topics that change, and crashes at each record.

State of partitions is begun beside the group, as the coordinator has it done: it may take its
time, fail, or be lost with a crash. At every step members have partitions with state only;
epochs only grow; and when nothing more happens, everything that is read is somebody's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.coordination.effects import Caller
from odradek.broker.groups.share.group import ShareGroup, ShareState
from odradek.broker.groups.share.heartbeats import HeartbeatAnswer
from odradek.broker.groups.share.member import JOINING_EPOCH, LEAVING_EPOCH
from odradek.broker.groups.share.partitions import Begun
from odradek.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.broker.consumer_world import GROUP, ConsumerWorld, Crash, Crashed
from tests.broker.group_fakes import FakeTopics
from tests.profiles import examples

TOPICS = ("a", "b", "c")
SESSION_MS = 45_000
# Of a state that was not begun, until a heartbeat has that tried again.
RETRY_MS = 30_000
_MOVES = (
    *("join",) * 5,
    *("beat",) * 10,
    *("begin",) * 6,
    *("fail", "change", "leave") * 2,
    *("grow", "delete", "time", "restart", "vanish"),
)


@dataclass
class Client:
    """A share consumer: what it reads, and what it believes."""

    topics: tuple[str, ...]
    epoch: int = JOINING_EPOCH
    must_tell_all: bool = True


class Scene:
    """A world with its clients, the state that is to be begun, and what must always hold."""

    def __init__(self) -> None:
        self.world = ConsumerWorld(topics=FakeTopics({}))
        for name in TOPICS[:2]:
            self.world.grow(name, 3)
        self.clients: dict[str, Client] = {}
        self.count = 0
        self.epoch_seen = 0
        self.to_begin: list[Mapping[bytes, Begun]] = []

    @property
    def group(self) -> ShareGroup | None:
        """The group, if there is one."""
        return self.world.shard.shares.get(GROUP)

    def join(self, topics: tuple[str, ...]) -> None:
        name = f"m{self.count}"
        self.count += 1
        self.clients[name] = Client(topics)
        self.beat(name)

    def beat(self, name: str) -> None:
        """Send a client's heartbeat and take in the answer, if one comes."""
        client = self.clients[name]
        try:
            answer = self._heartbeat(
                name, client.epoch, list(client.topics) if client.must_tell_all else None
            )
        except Crashed:
            client.must_tell_all = True  # as clients do after any failure
            self.to_begin.clear()  # the broker was about to
            return
        response = answer.response
        if response.error_code:
            client.epoch, client.must_tell_all = JOINING_EPOCH, True
            return
        assert response.member_epoch >= client.epoch, "a member's epoch only grows"
        client.epoch, client.must_tell_all = response.member_epoch, False
        if answer.to_begin:
            self.to_begin.append(answer.to_begin)

    def leave(self, name: str) -> None:
        # After a crash it is gone all the same: its session will end.
        with contextlib.suppress(Crashed):
            self._heartbeat(name, LEAVING_EPOCH, None)
        del self.clients[name]

    def begin(self, *, succeeds: bool) -> None:
        """Note what has become of the state that was to be begun first."""
        if not self.to_begin:
            return
        asked = {
            topic_id: sorted(one.partitions) for topic_id, one in self.to_begin.pop(0).items()
        }
        shares, now_ms = self.world.shard.shares, self.world.now_ms
        note = shares.begun if succeeds else shares.not_begun
        with contextlib.suppress(Crashed):
            self.world.perform(note(GROUP, asked, object(), now_ms))

    def check(self) -> None:
        """Hold what must be true at every moment."""
        group = self.group
        if group is None:
            return
        assert group.epoch >= self.epoch_seen, "a group's epoch only grows"
        self.epoch_seen = group.epoch
        assert group.targets.epoch <= group.epoch
        assert group.targets.by_member.keys() <= group.members.keys()
        names = self.world.topics.names()
        there = {self.world.topics.id_of(name) for name in names}
        begun = group.partitions.initialized if group.partitions else {}
        for member in group.members.values():
            assert member.epoch <= group.targets.epoch
            for topic_id, numbers in member.assigned.items():
                if topic_id in there:
                    assert set(numbers) <= begun[topic_id].partitions, "state comes first"

    def restart(self) -> None:
        """Start the broker again: it knows no more what it was about to begin."""
        self.world.restart()
        self.to_begin.clear()

    def settle(self) -> None:
        """Let everybody come to rest."""
        self.world.crash = None
        # Whoever has gone without a word is found out, the others go on beating meanwhile.
        for _ in range(8 + len(self.clients)):
            self.world.pass_time(SESSION_MS // 3)
            for name in self.clients:
                self.beat(name)
                self.begin(succeeds=True)
                self.check()

    def _heartbeat(self, name: str, epoch: int, topics: list[str] | None) -> HeartbeatAnswer:
        token = object()
        request = ShareGroupHeartbeatRequest(
            group_id=GROUP, member_id=name, member_epoch=epoch, subscribed_topic_names=topics
        )
        world = self.world
        caller = Caller(token, 1, world.client_id, world.client_host)
        world.perform(world.shard.shares.heartbeat(request, caller, world.now_ms))
        answer = world.replies[token]
        assert isinstance(answer, HeartbeatAnswer)
        return answer


_some_topics = st.lists(st.sampled_from(TOPICS), min_size=1, max_size=3, unique=True).map(tuple)


@settings(max_examples=examples(50))
@given(data=st.data())
def test_partitions_have_state_before_they_are_read_and_all_are_in_the_end(
    data: st.DataObject,
) -> None:
    scene = Scene()
    for _ in range(data.draw(st.integers(10, 60), label="steps")):
        _step(scene, data)
        scene.check()
    _check_replay(scene)
    if data.draw(st.booleans(), label="restarts"):
        scene.restart()
    scene.settle()
    if not scene.clients:
        return
    group, topics = scene.group, scene.world.topics
    assert group is not None and group.state is ShareState.STABLE
    assert set(group.members) == set(scene.clients)
    wanted = {
        (topics.id_of(name), partition)
        for client in scene.clients.values()
        for name in client.topics
        for partition in range(topics.partition_count(name))
    }
    assigned = {
        (topic_id, partition)
        for member in group.members.values()
        for topic_id, numbers in member.assigned.items()
        for partition in numbers
    }
    assert assigned == wanted


def _step(scene: Scene, data: st.DataObject) -> None:
    world, clients = scene.world, scene.clients
    move = data.draw(st.sampled_from(_MOVES), label="move")
    if data.draw(st.integers(0, 9), label="crashes") == 0:
        world.crash = data.draw(st.sampled_from(Crash), label="crash")
    if move in ("begin", "fail"):
        scene.begin(succeeds=move == "begin")
    elif move in ("grow", "delete"):
        name = data.draw(st.sampled_from(TOPICS), label="topic")
        if move == "grow":
            world.grow(name, world.topics.partition_count(name) + 1)
        elif name in world.topics.by_name:
            with contextlib.suppress(Crashed):
                world.delete_topic(name)
    elif move == "time":
        with contextlib.suppress(Crashed):
            world.pass_time(data.draw(st.integers(1, SESSION_MS * 2), label="ms"))
    elif move == "restart":
        scene.restart()
    elif move == "join" or not clients:
        scene.join(data.draw(_some_topics, label="topics"))
    else:
        name = data.draw(st.sampled_from(sorted(clients)), label="member")
        if move == "beat":
            scene.beat(name)
        elif move == "change":
            clients[name].topics = data.draw(_some_topics, label="topics")
            clients[name].must_tell_all = True
        elif move == "leave":
            scene.leave(name)
        else:
            del clients[name]
    world.crash = None


def _check_replay(scene: Scene) -> None:
    """What the log has makes the same group."""
    group = scene.group
    if group is None:
        return
    world = scene.world
    again = ConsumerWorld(config=world.config, topics=world.topics, log=world.log)
    again.restart()
    made = again.shard.shares.get(GROUP)
    assert made is not None
    assert made.members == group.members
    assert (made.epoch, made.metadata_hash) == (group.epoch, group.metadata_hash)
    assert made.targets == group.targets
    assert made.subscriptions == group.subscriptions
    assert _noted(made, world) == _noted(group, world)


def _noted(group: ShareGroup, world: ConsumerWorld) -> object:
    partitions = group.partitions
    return None if partitions is None else partitions.stored(world.topics.name_of)
