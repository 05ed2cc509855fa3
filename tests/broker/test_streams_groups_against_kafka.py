"""Streams groups beside Apache Kafka: the same requests, the same answers, the same records.

Each request goes to a running Kafka and to our machine, whose topics have the ids of Kafka's. The
records of __consumer_offsets are compared, too: as values, in their order.
"""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass, field
from typing import Any

import pytest

from bench.processes import KafkaProcess
from odradek.broker.errors import Refusal
from odradek.broker.groups.config import GroupConfig
from odradek.broker.groups.records import GroupRecord, OffsetRecord, Record
from odradek.broker.groups.registry import OwnConfigs
from odradek.broker.groups.share.groups import default_config
from odradek.broker.groups.streams import checks, descriptions, heartbeats
from odradek.broker.groups.streams.configured import StatusCode
from odradek.broker.groups.streams.records import Kind, StreamsRecord
from odradek.broker.groups.streams.tasks import Tasks, by_subtopology
from odradek.broker.groups.streams.turn import StreamsGroupConfig
from odradek.protocol.compiler import decode, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.streams_group_describe import (
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from odradek.protocol.messages.streams_group_heartbeat import (
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    TaskIds,
    Topology,
)
from tests.broker.beside_kafka import BesideKafka
from tests.broker.consumer_world import ConsumerWorld
from tests.broker.group_fakes import FakeTopics
from tests.broker.kafka_peer import Peer
from tests.broker.streams_topologies import counting, joining, stateless, subtopology
from tests.broker.streams_topologies import topic as internal_topic
from tests.broker.test_consumer_groups_against_kafka import shown, wait_for_partitions
from tests.broker.written_by_both import WrittenByBoth
from tests.support.asking import GROUP, await_coordinator, await_topic, create_topics
from tests.support.requests import creatable

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(600)]

# As in the settings of both brokers (beside_kafka.SETTINGS).
CONFIG = StreamsGroupConfig(
    members_max=5, assignment_interval_ms=0, initial_delay_ms=0, standby_count=1
)
CONFIGS = OwnConfigs(default_config, lambda group_id: CONFIG)
STEPS = 40
PROCESSES = ["p-1", "p-2", "p-3"]


@pytest.fixture(scope="module")
def kafka(beside_kafka: BesideKafka) -> KafkaProcess:
    return beside_kafka.theirs


@dataclass
class Both:
    """Kafka and our machine side by side, for one group."""

    kafka: KafkaProcess
    peer: Peer
    group: str
    world: ConsumerWorld = field(
        default_factory=lambda: ConsumerWorld(GroupConfig(), FakeTopics({}), own=CONFIGS)
    )
    written: WrittenByBoth = field(init=False)

    def __post_init__(self) -> None:
        self.written = WrittenByBoth(self.kafka, self.group, self.world.log, _plain_record)
        await_coordinator(self.peer, GROUP, self.group)
        self.written.theirs()

    def ask(self, operation: str, request: Any, version: int = 0) -> Any:
        """Ask both; compare the answers and the records; return the answer."""
        theirs = self.peer.ask(request, version)
        ours = self._ours(operation, request, version)
        ours = decode(type(ours), version, memoryview(encode(ours, version)))  # as it travels
        if operation == "heartbeat" and theirs.active_tasks is None:
            self._drop_repeated(request, ours)
        assert in_order(shown(ours)) == in_order(shown(theirs)), (operation, request)
        self.written.check((operation, request))
        return theirs

    def heartbeat(self, member_id: str, epoch: int, **fields: Any) -> Any:
        """Send a heartbeat; wait for the internal topics that Kafka then creates."""
        request = StreamsGroupHeartbeatRequest(
            group_id=self.group, member_id=member_id, member_epoch=epoch, **fields
        )
        answer = self.ask("heartbeat", request)
        codes = [one.status_code for one in answer.status or ()]
        if StatusCode.MISSING_INTERNAL_TOPICS in codes:
            group = self.world.shard.streams.get(self.group)
            assert group is not None
            configured = group.unlogged.configured
            if configured is not None:
                for name, one in configured.missing.items():
                    self.follow(name, one.partition_count)
        return answer

    def describe(self) -> None:
        """Compare the descriptions of the group."""
        self.ask("describe", StreamsGroupDescribeRequest(group_ids=[self.group]))

    def create(self, name: str, count: int) -> None:
        """Create a topic at both."""
        create_topics(self.peer, creatable(name, count))
        self.follow(name, count)

    def follow(self, name: str, count: int) -> None:
        """Wait until Kafka's coordinator knows a topic; then create it at ours."""
        topic_id = await_topic(self.peer, name).topic_id
        wait_for_partitions(self.peer, name, topic_id, count)
        self.world.grow(name, count, topic_id)

    def _drop_repeated(self, request: Any, ours: Any) -> None:
        """Drop tasks that Kafka does not repeat: those of a member that reports others."""
        if request.active_tasks is None or ours.active_tasks is None:
            return
        group = self.world.shard.streams.get(self.group)
        assert group is not None
        assigned = group.members[request.member_id].assigned.tasks
        for role in ("active", "standby", "warmup"):
            name = f"{role}_tasks"
            assert by_subtopology(getattr(ours, name)) == getattr(assigned, role)
            setattr(ours, name, None)
        owned = Tasks(by_subtopology(request.active_tasks), by_subtopology(request.standby_tasks))
        assert owned != assigned, "tasks are repeated that the member has"

    def _ours(self, operation: str, request: Any, version: int) -> Any:
        streams = self.world.shard.streams
        if operation == "describe":
            group = streams.get(self.group)
            if group is None:
                error, message = ErrorCode.GROUP_ID_NOT_FOUND, streams.missing(self.group)
                return StreamsGroupDescribeResponse(
                    groups=[descriptions.refused(self.group, error, message)]
                )
            return StreamsGroupDescribeResponse(groups=[descriptions.described(group)])
        if operation != "heartbeat":
            return self.world.ask(operation, request, version)
        try:
            checks.check_heartbeat(request, self.world.topics)
        except Refusal as error:
            return heartbeats.refuse(error.code, str(error)).response
        return self.world.ask("streams.heartbeat", request).response


def in_order(answer: Any) -> Any:
    """Sort the lists whose order differs from one Kafka to the next."""
    for one in answer.get("partitions_by_user_endpoint") or ():
        for partitions in (one["active_partitions"], one["standby_partitions"]):
            partitions.sort(key=repr)
    return answer


def _plain_record(record: Record) -> tuple[Any, ...]:
    if isinstance(record, OffsetRecord):
        committed = record.committed
        told = None if committed is None else committed._replace(commit_timestamp_ms=0)
        return "offset", record.topic, record.partition, told
    if isinstance(record, GroupRecord):
        return "classic", record.value is None
    assert isinstance(record, StreamsRecord)
    if record.value is None:
        return record.kind.name, record.member_id, None
    told_value = asdict(record.value)
    if record.kind is Kind.TARGET_EPOCH:
        told_value["assignment_timestamp"] = told_value["assignment_timestamp"] > 0
    return record.kind.name, record.member_id, told_value


@dataclass
class Player:
    """A member as it knows itself."""

    name: str
    process: str
    epoch: int = 0
    endpoint_epoch: int = 0
    active: list[TaskIds] = field(default_factory=list)
    standby: list[TaskIds] = field(default_factory=list)
    # The last answer, whose tasks it does not have yet.
    given: Any = None


class Play:
    """A script of random requests of a few members, each drawn from its own view."""

    def __init__(self, both: Both, topology: Topology, seed: int, *, has_endpoints: bool) -> None:
        self.both, self.topology, self.chance = both, topology, random.Random(seed)
        self.has_endpoints = has_endpoints
        self.players: list[Player] = []
        self.count = 0

    def run(self) -> None:
        """Play, and compare the replayed group with the one that has lived on."""
        for _ in range(STEPS):
            self.act()
        self.check_replay()

    def check_replay(self) -> None:
        """Compare the group with the one that its records make."""
        world = self.both.world
        before = world.shard.streams.get(self.both.group)
        world.restart()
        after = world.shard.streams.get(self.both.group)
        if before is None or after is None:
            assert before is after
            return
        for name in ("epoch", "members", "targets", "target_epoch", "topology", "last_configs"):
            assert getattr(before, name) == getattr(after, name), name

    def act(self) -> None:
        roll, chance = self.chance.random(), self.chance
        player = chance.choice(self.players) if self.players else None
        if player is None or roll < 0.15:
            self.join()
        elif roll < 0.22:
            self.both.heartbeat(player.name, -1, shutdown_application=chance.random() < 0.2)
            self.players.remove(player)
        elif roll < 0.30:
            self.both.describe()
        elif roll < 0.36:
            self.commit(player)
        elif roll < 0.42:
            epoch = chance.choice([player.epoch - 1, player.epoch + 1, 0, -3])
            self.strange(player, epoch)
        else:
            self.go_on(player)

    def join(self) -> None:
        self.count += 1
        player = Player(f"m-{self.count}", self.chance.choice(PROCESSES))
        answer = self.both.heartbeat(player.name, 0, **self.first(player))
        if answer.error_code == 0:
            self.players.append(player)
            self.take(player, answer)

    def first(self, player: Player) -> dict[str, Any]:
        """Return the fields of a heartbeat that joins."""
        chance = self.chance
        fields: dict[str, Any] = {
            "rebalance_timeout_ms": 60_000,
            "topology": self.topology,
            "active_tasks": [],
            "standby_tasks": [],
            "warmup_tasks": [],
            "process_id": player.process,
            "client_tags": [KeyValue(key=key, value="1") for key in chance.sample("abc", 2)],
        }
        if chance.random() < 0.3:
            fields["rack_id"] = "r"
        if self.has_endpoints and chance.random() < 0.7:
            fields["user_endpoint"] = Endpoint(host=player.name, port=40_000)
        return fields

    def go_on(self, player: Player) -> None:
        """Send a heartbeat; a member takes its time to give up and to take over tasks."""
        fields: dict[str, Any] = {"endpoint_information_epoch": player.endpoint_epoch}
        if player.given is not None and self.chance.random() < 0.8:
            player.active = player.given.active_tasks
            player.standby = player.given.standby_tasks
            player.given = None
        if self.chance.random() < 0.7:
            fields |= {
                "active_tasks": player.active,
                "standby_tasks": player.standby,
                "warmup_tasks": [],
            }
        if self.chance.random() < 0.1:
            fields["process_id"] = player.process
        answer = self.both.heartbeat(player.name, player.epoch, **fields)
        if answer.error_code == 0:
            self.take(player, answer)
        else:
            self.players.remove(player)

    def strange(self, player: Player, epoch: int) -> None:
        """Send a heartbeat at another epoch than that of the member."""
        fields: dict[str, Any] = {}
        if epoch == 0:
            fields = self.first(player)
            player.active, player.standby, player.given = [], [], None
        elif self.chance.random() < 0.5:
            fields = {
                "active_tasks": player.active,
                "standby_tasks": player.standby,
                "warmup_tasks": [],
            }
        answer = self.both.heartbeat(player.name, epoch, **fields)
        if answer.error_code == 0:
            self.take(player, answer)

    def take(self, player: Player, answer: Any) -> None:
        player.epoch = answer.member_epoch
        player.endpoint_epoch = answer.endpoint_information_epoch
        if answer.active_tasks is not None:
            player.given = answer

    def commit(self, player: Player) -> None:
        """Commit an offset of a source topic."""
        names = [name for one in self.topology.subtopologies for name in one.source_topics]
        name = self.chance.choice(names)
        topic_id = self.both.world.topics.id_of(name)
        if topic_id is None:
            return
        index = self.chance.randrange(self.both.world.topics.partition_count(name))
        partition = OffsetCommitRequestPartition(
            partition_index=index, committed_offset=7, committed_metadata=""
        )
        topic = OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=[partition])
        request = OffsetCommitRequest(
            group_id=self.both.group,
            generation_id_or_member_epoch=player.epoch - self.chance.choice([0, 1, 2, -1]),
            member_id=player.name,
            topics=[topic],
        )
        self.both.ask("offsets.commit", request, 9)


@pytest.mark.parametrize("seed", range(12))
def test_members_that_come_and_go_are_served_as_by_kafka(kafka: KafkaProcess, seed: int) -> None:
    with Peer(kafka.port) as peer:
        both = Both(kafka, peer, f"streams-{seed}")
        source = f"in-{seed}"
        both.create(source, 1 + seed % 4 * 2)
        topology = counting(f"app-{seed}", source) if seed % 3 else stateless(source)
        Play(both, topology, seed, has_endpoints=seed % 2 == 0).run()


def begin(both: Both, topology: Topology, name: str = "m", **fields: Any) -> Any:
    """Let a member join."""
    return both.heartbeat(
        name, 0,
        rebalance_timeout_ms=60_000, topology=topology, process_id=name,
        active_tasks=[], standby_tasks=[], warmup_tasks=[],
        **fields,
    )  # fmt: skip


def test_topics_that_are_missing_or_do_not_fit_are_reported_as_by_kafka(
    kafka: KafkaProcess,
) -> None:
    with Peer(kafka.port) as peer:
        both = Both(kafka, peer, "unfit")
        topology = joining("unfit-a", "unfit-b")
        epoch = begin(both, topology).member_epoch
        both.describe()
        both.create("unfit-a", 2)
        epoch = both.heartbeat("m", epoch).member_epoch
        both.create("unfit-b", 3)
        answer = both.heartbeat("m", epoch)
        assert [one.status_code for one in answer.status] == [
            StatusCode.INCORRECTLY_PARTITIONED_TOPICS
        ]
        both.describe()


def test_other_topologies_are_refused_or_stale_as_by_kafka(kafka: KafkaProcess) -> None:
    with Peer(kafka.port) as peer:
        both = Both(kafka, peer, "topologies")
        both.create("topologies-a", 2)
        newer = Topology(epoch=3, subtopologies=stateless("topologies-a").subtopologies)
        begin(both, newer)
        answer = begin(both, stateless("topologies-a"), "stale")
        assert StatusCode.STALE_TOPOLOGY in [one.status_code for one in answer.status]
        for other in (
            Topology(epoch=4, subtopologies=newer.subtopologies),
            Topology(epoch=3, subtopologies=[subtopology("1", ["topologies-a"])]),
            Topology(epoch=3, subtopologies=[subtopology("0", ["topologies-a"] * 2)]),
        ):
            begin(both, other, "other")
        both.describe()


def test_invalid_heartbeats_are_refused_as_by_kafka(kafka: KafkaProcess) -> None:
    with Peer(kafka.port) as peer:
        both = Both(kafka, peer, "invalid")
        valid = stateless("invalid-a")
        both.create("invalid-a", 1)
        fixed = Topology(
            epoch=0,
            subtopologies=[subtopology("0", ["invalid-a"], changelogs=[internal_topic("c", 3)])],
        )
        loop = Topology(
            epoch=0, subtopologies=[subtopology("0", sinks=["r"], inner=[internal_topic("r")])]
        )
        unwritten = Topology(
            epoch=0, subtopologies=[subtopology("0", inner=[internal_topic("r")])]
        )
        empty = Topology(epoch=0, subtopologies=[subtopology("0")])
        for topology in (fixed, loop, unwritten, empty):
            assert begin(both, topology).error_code == ErrorCode.STREAMS_INVALID_TOPOLOGY
        join: dict[str, Any] = {
            "rebalance_timeout_ms": 1, "topology": valid,
            "active_tasks": [], "standby_tasks": [], "warmup_tasks": [],
        }  # fmt: skip
        tasks = [TaskIds(subtopology_id="0", partitions=[0])]
        for epoch, fields in (
            (0, {**join, "topology": None}),
            (0, {**join, "rebalance_timeout_ms": -1}),
            (0, {**join, "active_tasks": None}),
            (0, {**join, "standby_tasks": tasks}),
            (0, {**join, "warmup_tasks": tasks}),
            (0, {**join, "instance_id": "i"}),
            (0, {**join, "rack_id": " "}),
            (0, {**join, "task_offsets": []}),
            (1, join),
            (1, {"active_tasks": []}),
            (-1, {}),
            (-2, {}),
            (-3, {}),
            (5, {}),
        ):
            assert both.heartbeat("m", epoch, **fields).error_code, (epoch, fields)
        both.describe()
        begin(both, valid)
        for strange in (
            TaskIds(subtopology_id="9", partitions=[0]),
            TaskIds(subtopology_id="0", partitions=[1]),
        ):
            both.heartbeat("m", 2, active_tasks=[strange], standby_tasks=[], warmup_tasks=[])
