"""Consumer groups under generated members, topics that change, and crashes at each record.

Members behave as clients do: they give up what they are not assigned any more, tell what they
own, come back with what they last knew when an answer was lost, and begin again when fenced. At
every step no partition has two owners; epochs only grow; and when nothing more happens,
everything that is read comes to somebody.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.groups.consumer.group import ConsumerGroup, ConsumerState
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_heartbeat import TopicPartitions
from tests.broker.consumer_world import GROUP, ConsumerWorld, Crash, Crashed
from tests.broker.group_fakes import FakeTopics
from tests.broker.holders import Holder
from tests.profiles import examples

TOPICS = ("a", "b", "c")
SESSION_MS = 45_000
_MOVES = (
    *("join",) * 5,
    *("beat",) * 10,
    *("take",) * 6,
    *("give up", "change", "leave") * 2,
    *("grow", "delete", "time", "restart", "vanish"),
)
Partition = tuple[bytes, int]


@dataclass
class Client(Holder[Partition]):
    """A consumer, and what it reads."""

    name: str
    topics: tuple[str, ...]
    instance: str | None = None
    expression: str | None = None
    assignor: str | None = None


class Scene:
    """A world with its clients, and what must always hold."""

    def __init__(self) -> None:
        self.world = ConsumerWorld(topics=FakeTopics({}))
        for name in TOPICS[:2]:
            self.world.grow(name, 3)
        self.clients: dict[str, Client] = {}
        self.count = 0
        self.epoch_seen = 0

    def join(self, topics: tuple[str, ...], **fields: Any) -> None:
        name = f"m{self.count}"
        self.count += 1
        self.clients[name] = Client(name, topics, **fields)
        self.beat(name)

    def beat(self, name: str) -> None:
        """Send a client's heartbeat and take in the answer, if one comes."""
        client = self.clients[name]
        tells_all = client.must_tell_all
        try:
            answer = self.world.heartbeat(
                name,
                client.epoch,
                instance_id=client.instance,
                rebalance_timeout_ms=60_000 if tells_all else -1,
                subscribed_topic_names=list(client.topics) if tells_all else None,
                subscribed_topic_regex=client.expression if tells_all else None,
                server_assignor=client.assignor,
                topic_partitions=_told(set() if client.epoch == 0 else client.owned),
            )
        except Crashed:
            client.must_tell_all = True  # as clients do after any failure
            return
        if answer.error_code == ErrorCode.NONE:
            assert answer.member_epoch >= client.epoch, "a member's epoch only grows"
            client.epoch, client.must_tell_all = answer.member_epoch, False
            if answer.assignment is not None:
                client.assigned = {
                    (one.topic_id, partition)
                    for one in answer.assignment.topic_partitions
                    for partition in one.partitions
                }
        elif answer.error_code == ErrorCode.UNRELEASED_INSTANCE_ID:
            del self.clients[name]
        else:
            client.reset()

    def leave(self, name: str, *, for_good: bool) -> None:
        client = self.clients[name]
        epoch = -1 if for_good or client.instance is None else -2
        # After a crash it is gone all the same: its session will end.
        with contextlib.suppress(Crashed):
            self.world.heartbeat(name, epoch, instance_id=client.instance)
        del self.clients[name]

    def check(self) -> None:
        """Hold what must be true at every moment."""
        group = self.world.shard.consumers.get(GROUP)
        if group is None:
            return
        owners: dict[Partition, str] = {}
        for name, client in self.clients.items():
            if name not in group.members:
                continue  # fenced: it will hear of it, and has no say any more
            for partition in client.owned:
                assert owners.setdefault(partition, name) == name, "two owners"
        assert group.epoch >= self.epoch_seen, "a group's epoch only grows"
        self.epoch_seen = group.epoch
        assert all(m.epoch <= group.targets.epoch <= group.epoch for m in group.members.values())

    def settle(self) -> ConsumerGroup | None:
        """Let everybody come to rest; return the group, if anybody is left."""
        self.world.crash = None
        self.world.restart()
        # Whoever has gone without a word is found out, the others go on beating meanwhile.
        for _ in range(4):
            self.world.pass_time(SESSION_MS // 3)
            self.round()
        for _ in range(6 + 2 * len(self.clients)):
            self.round()
        return self.world.shard.consumers.get(GROUP)

    def round(self) -> None:
        for name in list(self.clients):
            self.beat(name)
            if name in self.clients:
                self.clients[name].take()
            self.check()


@settings(max_examples=examples(50))
@given(data=st.data())
def test_no_partition_has_two_owners_and_all_are_read_in_the_end(data: st.DataObject) -> None:
    scene = Scene()
    for _ in range(data.draw(st.integers(10, 60), label="steps")):
        _step(scene, data)
        scene.check()
    _check_replay(scene.world)
    group = scene.settle()
    if not scene.clients:
        return
    assert group is not None
    assert group.state is ConsumerState.STABLE
    assert set(group.members) == set(scene.clients)
    read = {name for name in scene.world.topics.names() if group.is_subscribed_to(name)}
    wanted = {
        (scene.world.topics.id_of(name), partition)
        for name in read
        for partition in range(scene.world.topics.partition_count(name))
    }
    owned = [partition for client in scene.clients.values() for partition in client.owned]
    assert len(owned) == len(set(owned))
    assert set(owned) == wanted


def _step(scene: Scene, data: st.DataObject) -> None:
    world, clients = scene.world, scene.clients
    names = sorted(clients)
    move = data.draw(st.sampled_from(_MOVES), label="move")
    if data.draw(st.integers(0, 9), label="crashes") == 0:
        world.crash = data.draw(st.sampled_from(Crash), label="crash")
    if move == "join" or (not names and move not in ("grow", "time", "restart", "delete")):
        scene.join(
            data.draw(_some_topics, label="topics"),
            instance=data.draw(st.sampled_from([None, None, "i", "j"]), label="instance"),
            expression=data.draw(st.sampled_from([None, None, "[ac]"]), label="expression"),
            assignor=data.draw(st.sampled_from([None, "range", "uniform"]), label="assignor"),
        )
    elif move == "grow":
        name = data.draw(st.sampled_from(TOPICS), label="topic")
        world.grow(name, world.topics.partition_count(name) + 1)
    elif move == "delete":
        name = data.draw(st.sampled_from(TOPICS), label="topic")
        if name in world.topics.by_name:
            _delete(scene, name)
    elif move == "time":
        _pass_time(scene, data.draw(st.integers(1, SESSION_MS * 2), label="ms"))
    elif move == "restart":
        world.restart()
    else:
        name = data.draw(st.sampled_from(names), label="member")
        client = clients[name]
        if move == "beat":
            scene.beat(name)
        elif move == "take":
            client.take()
        elif move == "give up":
            client.give_up()
        elif move == "change":
            client.topics = data.draw(_some_topics, label="topics")
            client.must_tell_all = True
        elif move == "leave":
            scene.leave(name, for_good=data.draw(st.booleans(), label="for good"))
        else:
            del clients[name]
    world.crash = None


_some_topics = st.lists(st.sampled_from(TOPICS), max_size=3, unique=True).map(tuple)


def _delete(scene: Scene, name: str) -> None:
    """Delete a topic: nobody can read it any more."""
    topic_id = scene.world.topics.id_of(name)
    scene.world.delete_topic(name)
    for client in scene.clients.values():
        client.owned = {one for one in client.owned if one[0] != topic_id}


def _pass_time(scene: Scene, duration_ms: int) -> None:
    with contextlib.suppress(Crashed):
        scene.world.pass_time(duration_ms)


def _told(owned: set[Partition]) -> list[TopicPartitions]:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(owned):
        by_topic.setdefault(topic_id, []).append(partition)
    return [TopicPartitions(topic_id=t, partitions=some) for t, some in by_topic.items()]


def _check_replay(world: ConsumerWorld) -> None:
    """What the log has makes the same group."""
    group = world.shard.consumers.get(GROUP)
    if group is None:
        return
    again = ConsumerWorld(config=world.config, topics=world.topics, log=world.log)
    again.restart()
    made = again.group()
    assert made.members == group.members
    assert made.epoch == group.epoch and made.metadata_hash == group.metadata_hash
    assert made.targets == group.targets
    assert made.partition_epochs == group.partition_epochs
    assert made.subscriptions == group.subscriptions
    assert made.resolved == group.resolved
