"""Streams groups under generated members, topics that change, and crashes at each record.

Members behave as Kafka's clients do: they close tasks that they are not assigned any more before
they open others, report what they have, come back with what they last knew when an answer was
lost, and begin again when fenced. Internal topics are created beside the group, which may fail.
At every step an active task has one owner, and a process has a task in one role; epochs only
grow; and when nothing more happens, every task is processed, and has its copies.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.groups.registry import OwnConfigs
from odradek.broker.groups.share.groups import default_config
from odradek.broker.groups.streams.configured import Configured, InternalTopic, configure
from odradek.broker.groups.streams.group import StreamsGroup, StreamsState
from odradek.broker.groups.streams.heartbeats import HeartbeatAnswer
from odradek.broker.groups.streams.turn import StreamsGroupConfig
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    TaskIds,
    Topology,
)
from tests.broker.consumer_world import GROUP, ConsumerWorld, Crash, Crashed
from tests.broker.group_fakes import FakeTopics
from tests.broker.holders import Holder
from tests.broker.streams_topologies import counting, stateless, subtopology, topic
from tests.profiles import examples

SOURCES = ("a", "b")
PROCESSES = ("p", "q", "r")
CONFIG = StreamsGroupConfig()
TOPOLOGIES = {
    "it keeps nothing": stateless("a", "b"),
    "it counts": counting("app", "a"),
    "it has two stores": Topology(
        epoch=0,
        subtopologies=[
            subtopology("0", ["a"], changelogs=[topic("app-0-changelog")]),
            subtopology("1", ["b"], changelogs=[topic("app-1-changelog")]),
        ],
    ),
}
_ACTIVE, _STANDBY, _WARMUP = "active", "standby", "warm-up"
_MOVES = (
    *("follow",) * 9,
    *("join", "beat", "create") * 4,
    *("take", "give up", "leave", "tell all") * 2,
    *("fail", "grow", "delete", "time", "restart", "vanish", "copies"),
)
# A role, a subtopology and a partition.
Task = tuple[str, str, int]


@dataclass
class Client(Holder[Task]):
    """A stream thread: its process, and the tasks that it has reported."""

    process: str
    told: set[Task] = field(default_factory=set)


class Scene:
    """A world with its clients and the topics to be created, and what must always hold."""

    def __init__(self, topology: Topology, config: StreamsGroupConfig) -> None:
        self.topology, self.config = topology, config
        own = OwnConfigs(default_config, lambda group_id: self.config)
        self.world = ConsumerWorld(topics=FakeTopics({}), own=own)
        for name in SOURCES:
            self.world.grow(name, 3)
        self.clients: dict[str, Client] = {}
        self.count = 0
        self.epoch_seen = 0
        self.to_create: list[InternalTopic] = []

    @property
    def group(self) -> StreamsGroup | None:
        """The group, if there is one."""
        return self.world.shard.streams.get(GROUP)

    def join(self, process: str) -> None:
        name = f"m{self.count}"
        self.count += 1
        self.clients[name] = Client(process)
        self.beat(name)

    def beat(self, name: str) -> None:
        """Send a client's heartbeat and take in the answer, if one comes."""
        client = self.clients[name]
        try:
            answer = self._heartbeat(name, client)
        except Crashed:
            client.must_tell_all = True  # as clients do after any failure
            return
        response = answer.response
        if response.error_code != ErrorCode.NONE:
            client.reset()
            return
        assert response.member_epoch >= client.epoch, "a member's epoch only grows"
        client.epoch, client.must_tell_all = response.member_epoch, False
        client.told = set(client.owned)
        if response.active_tasks is not None:
            client.assigned = {
                *_tasks(_ACTIVE, response.active_tasks),
                *_tasks(_STANDBY, response.standby_tasks or ()),
                *_tasks(_WARMUP, response.warmup_tasks or ()),
            }
        if answer.missing:
            self.to_create = list(answer.missing.values())

    def leave(self, name: str) -> None:
        client = self.clients.pop(name)
        # After a crash it is gone all the same: its session will end.
        with contextlib.suppress(Crashed):
            self._heartbeat(name, replace(client, epoch=-1))

    def create(self, *, succeeds: bool) -> None:
        """End the creation of the internal topics that were missing."""
        created, self.to_create = self.to_create, []
        for one in created if succeeds else ():
            if one.name not in self.world.topics.by_name:
                self.world.grow(one.name, one.partition_count)

    def check(self) -> None:
        """Hold what must be true at every moment."""
        group = self.group
        if group is None:
            return
        owners: dict[tuple[str, int], str] = {}
        roles: dict[tuple[str, str, int], str] = {}
        for name, client in self.clients.items():
            if name not in group.members:
                continue  # fenced: it will hear of it, and its commits are refused
            for role, subtopology_id, partition in client.owned:
                if role == _ACTIVE:
                    owner = owners.setdefault((subtopology_id, partition), name)
                    assert owner == name, "two owners"
                place = client.process, subtopology_id, partition
                assert roles.setdefault(place, name + role) == name + role, "two roles"
        assert group.epoch >= self.epoch_seen, "a group's epoch only grows"
        self.epoch_seen = group.epoch
        assert all(m.epoch <= group.target_epoch <= group.epoch for m in group.members.values())

    def configured(self) -> Configured:
        """Return the topology with the numbers that the topics give it now."""
        stored = self.group.topology if self.group else None
        assert stored is not None
        return configure(stored, self.world.topics)

    def settle(self) -> None:
        """Let everybody come to rest."""
        self.world.crash = None
        self.world.restart()
        # Whoever has gone without a word is found out, the others go on beating meanwhile.
        for _ in range(8 + 3 * len(self.clients)):
            self.world.pass_time(CONFIG.session_timeout_ms // 3)
            for name, client in self.clients.items():
                self.beat(name)
                self.create(succeeds=True)
                client.take()
                self.check()

    def _heartbeat(self, name: str, client: Client) -> HeartbeatAnswer:
        is_joining, is_leaving = client.epoch == 0, client.epoch < 0
        request = StreamsGroupHeartbeatRequest(
            group_id=GROUP, member_id=name, member_epoch=client.epoch
        )
        if is_joining:
            request.topology, request.process_id = self.topology, client.process
            request.rebalance_timeout_ms = 60_000
        if not is_leaving and (client.must_tell_all or client.owned != client.told):
            owned = set() if is_joining else client.owned
            request.active_tasks = _told(_ACTIVE, owned)
            request.standby_tasks = _told(_STANDBY, owned)
            request.warmup_tasks = _told(_WARMUP, owned)
        answer: HeartbeatAnswer = self.world.ask("streams.heartbeat", request, 0)
        return answer


@settings(max_examples=examples(500))
@given(data=st.data())
def test_no_task_has_two_owners_and_all_are_processed_in_the_end(data: st.DataObject) -> None:
    topology = TOPOLOGIES[data.draw(st.sampled_from(sorted(TOPOLOGIES)), label="application")]
    config = replace(
        CONFIG,
        initial_delay_ms=data.draw(st.sampled_from([0, 0, 0, 3_000]), label="delay"),
        assignment_interval_ms=data.draw(st.sampled_from([0, 0, 0, 1_000]), label="interval"),
        standby_count=data.draw(st.integers(0, 2), label="standby tasks"),
    )
    scene = Scene(topology, config)
    for process in data.draw(st.lists(st.sampled_from(PROCESSES), max_size=3), label="first"):
        scene.join(process)
        scene.create(succeeds=True)
    for _ in range(data.draw(st.integers(10, 80), label="steps")):
        _step(scene, data)
        scene.check()
    _check_replay(scene)
    scene.settle()
    if not scene.clients:
        return
    group = scene.group
    assert group is not None
    assert set(group.members) == set(scene.clients)
    owned = [task for client in scene.clients.values() for task in client.owned]
    configured = scene.configured()
    if not configured.is_ready:
        assert group.state is StreamsState.NOT_READY and not owned
        return
    assert group.state is StreamsState.STABLE
    assert Counter(owned) == _wanted(scene, configured)


def _wanted(scene: Scene, configured: Configured) -> Counter[Task]:
    """Return each task, and how many members have it."""
    processes = len({client.process for client in scene.clients.values()})
    copies = min(scene.config.standby_count, processes - 1)
    wanted: Counter[Task] = Counter()
    for name, one in (configured.subtopologies or {}).items():
        for partition in range(one.task_count):
            wanted[_ACTIVE, name, partition] = 1
            if one.changelogs and copies:
                wanted[_STANDBY, name, partition] = copies
    return wanted


def _step(scene: Scene, data: st.DataObject) -> None:
    world, clients = scene.world, scene.clients
    move = data.draw(st.sampled_from(_MOVES), label="move")
    if data.draw(st.integers(0, 9), label="crashes") == 0:
        world.crash = data.draw(st.sampled_from(Crash), label="crash")
    if move in ("create", "fail"):
        scene.create(succeeds=move == "create")
    elif move == "copies":
        count = data.draw(st.integers(0, 2), label="standby tasks")
        scene.config = replace(scene.config, standby_count=count)
    elif move in ("grow", "delete"):
        _change(scene, data.draw(st.sampled_from(SOURCES), label="topic"), move)
    elif move == "time":
        duration_ms = data.draw(st.integers(1, CONFIG.session_timeout_ms * 2), label="ms")
        with contextlib.suppress(Crashed):
            world.pass_time(duration_ms)
    elif move == "restart":
        world.restart()
    elif move == "join" or not clients:
        scene.join(data.draw(st.sampled_from(PROCESSES), label="process"))
    else:
        name = data.draw(st.sampled_from(sorted(clients)), label="member")
        if move == "tell all":  # as after a heartbeat that was lost on its way
            clients[name].must_tell_all = True
        if move in ("beat", "follow", "tell all"):
            scene.beat(name)
        if move in ("take", "follow"):
            clients[name].take()
        elif move == "give up":
            clients[name].give_up()
        elif move == "leave":
            scene.leave(name)
        elif move == "vanish":
            del clients[name]
    world.crash = None


def _change(scene: Scene, name: str, move: str) -> None:
    if move == "grow":
        scene.world.grow(name, scene.world.topics.partition_count(name) + 1)
    elif name in scene.world.topics.by_name:
        with contextlib.suppress(Crashed):
            scene.world.delete_topic(name)


def _tasks(role: str, ids: Iterable[TaskIds]) -> Iterable[Task]:
    return [(role, one.subtopology_id, at) for one in ids for at in one.partitions]


def _told(role: str, owned: set[Task]) -> list[TaskIds]:
    found: dict[str, list[int]] = {}
    for own_role, name, partition in sorted(owned):
        if own_role == role:
            found.setdefault(name, []).append(partition)
    return [TaskIds(subtopology_id=name, partitions=some) for name, some in found.items()]


def _check_replay(scene: Scene) -> None:
    """What the log has makes the same group."""
    group, world = scene.group, scene.world
    if group is None:
        return
    again = ConsumerWorld(config=world.config, topics=world.topics, log=world.log, own=world.own)
    again.restart()
    made = again.shard.streams.get(GROUP)
    assert made is not None
    assert _logged(made) == _logged(group)


def _logged(group: StreamsGroup) -> Mapping[str, object]:
    names = ("epoch", "metadata_hash", "validated_epoch", "last_configs", "target_epoch",
             "computed_ms", "targets")  # fmt: skip
    logged = {name: getattr(group, name) for name in names}
    topology = None if group.topology is None else group.topology.value
    return {**logged, "members": dict(group.members.items()), "topology": topology}
