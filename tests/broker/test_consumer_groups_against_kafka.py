"""Consumer groups beside Apache Kafka: the same requests, the same answers, the same records.

Each request goes to a running Kafka and to our machine, whose topics have the ids of Kafka's.
What each writes into __consumer_offsets is read, too: as values, in its order.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pytest

from bench.processes import KafkaProcess
from odradek.broker.errors import Refusal
from odradek.broker.groups.config import ConsumerSettings, GroupConfig
from odradek.broker.groups.consumer import checks, descriptions, embedded, heartbeats
from odradek.broker.groups.consumer.group import ConsumerGroup
from odradek.broker.groups.consumer.records import ConsumerRecord, Kind
from odradek.broker.groups.modern.tables import PLACES, in_set_order
from odradek.broker.groups.records import GroupRecord, OffsetRecord, Record
from odradek.broker.orders.java import uuid_hash
from odradek.protocol.compiler import decode, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from odradek.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from odradek.protocol.messages.consumer_protocol import (
    ConsumerProtocolSubscription,
    TopicPartition,
)
from odradek.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.heartbeat import HeartbeatRequest
from odradek.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from odradek.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from odradek.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from odradek.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.beside_kafka import BesideKafka
from tests.broker.consumer_world import ConsumerWorld
from tests.broker.group_fakes import FakeTopics
from tests.broker.kafka_peer import Peer
from tests.broker.written_by_both import WrittenByBoth
from tests.support.asking import GROUP, await_coordinator, create_topics
from tests.support.requests import creatable
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(600)]


# As in the settings of both brokers (beside_kafka.SETTINGS).
CONFIG = GroupConfig(
    consumer_defaults=ConsumerSettings(assignment_interval_ms=0),
    consumer_max_size=7,
    initial_rebalance_delay_ms=0,
)
VERSION = 1
NAMES = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota"]
STEPS = 45
INSTANCES = ["i-1", "i-2"]
EXPRESSIONS = ["t{}-[ab]", "t{}-.*", "t{}-(", "t{}-[^c]", "nothing"]


@pytest.fixture(scope="module")
def kafka(beside_kafka: BesideKafka) -> KafkaProcess:
    return beside_kafka.theirs


@dataclass
class Player:
    """A member as it knows itself."""

    name: str
    instance: str | None = None
    epoch: int = 0
    owned: dict[bytes, list[int]] = field(default_factory=dict)
    is_classic: bool = False
    topics: list[str] = field(default_factory=list)
    expression: str | None = None


@dataclass
class Both:
    """Kafka and our machine side by side, for one group."""

    kafka: KafkaProcess
    peer: Peer
    group: str
    world: ConsumerWorld
    written: WrittenByBoth = field(init=False)

    def __post_init__(self) -> None:
        self.written = WrittenByBoth(self.kafka, self.group, self.world.log, _plain_record)

    def ask(self, operation: str, request: Any, version: int) -> Any:
        """Ask both; hold the answers and the records against each other; return the answer."""
        theirs = self.peer.ask(request, version)
        told_id = getattr(theirs, "member_id", None) or "fresh"
        self.world.fresh_id = told_id.removeprefix("a-client-")
        ours = self._ours(operation, request, version)
        ours = decode(type(ours), version, memoryview(encode(ours, version)))  # as it travels
        assert shown(ours) == shown(theirs), (operation, request)
        group = self.world.shard.consumers.get(self.group)
        if group is not None and group.is_resolving:
            self.world.pass_time(5)  # Kafka does it in another thread
        self.written.check((operation, request))
        return theirs

    def _ours(self, operation: str, request: Any, version: int) -> Any:
        if operation == "describe":
            return self._described()
        if operation == "consumer_heartbeat":
            try:
                checks.check_heartbeat(request, version, CONFIG.consumer_assignors)
            except Refusal as error:
                return heartbeats.refuse(error.code, str(error))
        return self.world.ask(operation, request, version)

    def _described(self) -> Any:
        group = self.world.shard.group(self.group)
        if isinstance(group, ConsumerGroup):
            one = descriptions.described(group, self.world.topics, "uniform")
        else:
            why = "not found" if group is None else "is not a consumer group"
            error = ErrorCode.GROUP_ID_NOT_FOUND
            one = descriptions.refused(self.group, error, f"Group {self.group} {why}.")
        return ConsumerGroupDescribeResponse(groups=[one])


def shown(answer: Any) -> Any:
    """Return an answer as plain values."""
    told = asdict(answer) if not isinstance(answer, dict) else answer
    return _plain(told)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items() if k not in ("throttle_time_ms",)}
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, ErrorCode):
        return int(value)
    return value


def _plain_record(record: Record) -> tuple[Any, ...]:
    if isinstance(record, OffsetRecord):
        committed = record.committed
        told = None if committed is None else committed._replace(commit_timestamp_ms=0)
        return "offset", record.topic, record.partition, told
    if isinstance(record, GroupRecord):
        if record.value is None:
            return "classic", None
        told = _plain(asdict(record.value))
        # Whoever Java's table has first leads.
        told["leader"] = told["current_state_timestamp"] = None
        for member in told["members"]:
            member["assignment"] = _plain(asdict(embedded.read_assignment(member["assignment"])))
        return "classic", told
    assert isinstance(record, ConsumerRecord)
    if record.value is None:
        return record.kind.name, record.name, None
    told = asdict(record.value)
    if record.kind is Kind.TARGET_EPOCH:
        told["assignment_timestamp"] = told["assignment_timestamp"] > 0
    if record.kind is Kind.EXPRESSION:
        told["timestamp"] = told["version"] = 0
    if record.kind is Kind.TARGET:
        return record.kind.name, record.name, _in_order(record.value)
    if record.kind is Kind.CURRENT:
        return record.kind.name, record.name, _with_epochs(told)
    return record.kind.name, record.name, _plain(told)


def _in_order(value: Any) -> Any:
    # The order of partitions counts as far as a HashSet of them has it.
    return [(one.topic_id, in_set_order(tuple(one.partitions))) for one in value.topic_partitions]


def _with_epochs(told: dict[str, Any]) -> Any:
    for name in ("assigned_partitions", "partitions_pending_revocation"):
        told[name] = [
            (one["topic_id"], dict(zip(one["partitions"], one["assignment_epochs"], strict=True)))
            for one in told[name]
        ]
    return told


# After sixteen of them, those whose members share places of Java's tables, and of Kafka's own.
@pytest.mark.parametrize("seed", [*range(16), 120, 124, 162, 254, 295, 689])
def test_members_that_come_and_go_are_served_as_by_kafka(kafka: KafkaProcess, seed: int) -> None:
    with Peer(kafka.port) as peer:
        Play(kafka, peer, seed, place=None).run()


@pytest.mark.parametrize("seed", [400, 410, 414, 419, 803, 808])
def test_topics_that_share_a_place_of_tables_have_the_order_of_kafka(
    kafka: KafkaProcess, seed: int
) -> None:
    with Peer(kafka.port) as peer:
        Play(kafka, peer, seed, place=seed % PLACES).run()


def place_of(topic_id: bytes) -> int:
    """Return the place of an id in the table of a small HashMap."""
    value = uuid_hash(topic_id)
    return (value ^ value >> 16) % PLACES


class Play:
    """A script of random requests of a few members, each drawn from what they know."""

    def __init__(self, kafka: KafkaProcess, peer: Peer, seed: int, place: int | None) -> None:
        """Create the topics, with ids that have the given `place` of Java's tables, if any."""
        self.chance = random.Random(seed)
        self.names = [f"t{seed}-{letter}" for letter in "abc"]
        topics = FakeTopics({})
        group = f"g{seed}"
        self.ids: dict[str, bytes] = {}
        self.group = group
        self.peer = peer
        self.both = Both(kafka, peer, group, ConsumerWorld(CONFIG, topics))
        await_coordinator(peer, GROUP, group)
        for name in self.names:
            self.create(name, self.chance.randint(1, 5), place)
        self.both.written.theirs()
        self.players: list[Player] = []
        self.next_name = 0

    def create(self, name: str, count: int, place: int | None) -> None:
        topic_id = self.create_once(name, count)
        while place is not None and place_of(topic_id) != place:
            deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=60_000)
            assert self.peer.ask(deletion, 6).responses[0].error_code == 0
            topic_id = self.create_once(name, count)
        self.ids[name] = topic_id
        wait_for_partitions(self.peer, name, topic_id, count)
        self.both.world.grow(name, count, topic_id)

    def create_once(self, name: str, count: int) -> bytes:
        return create_topics(self.peer, creatable(name, count))[name]

    def grow(self) -> None:
        name = self.chance.choice(self.names)
        count = self.both.world.topics.partition_count(name) + self.chance.randint(1, 3)
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=10_000, validate_only=False)
        answer = self.peer.ask(request, 3)
        assert answer.results[0].error_code == 0
        wait_for_partitions(self.peer, name, self.ids[name], count)
        self.both.world.grow(name, count)

    def run(self) -> None:
        if self.chance.random() < 0.5:
            self.begin_classic()
        for step in range(STEPS):
            if self.both.world.shard.groups.get(self.group) and step:
                return  # It is a classic group again, and waits for its members.
            self.act()
            if step % 10 == 9:
                # As a broker that starts again, from what the log has.
                self.both.world.restart()

    def act(self) -> None:
        roll, chance = self.chance.random(), self.chance
        player = chance.choice(self.players) if self.players else None
        if player is None or roll < 0.15:
            self.join()
        elif roll < 0.2:
            self.join_classic()
        elif player.is_classic and roll < 0.75:
            chance.choice([self.rejoin, self.sync, self.beat_classic])(player)
        elif roll < 0.75:
            self.beat(player)
        elif roll < 0.82:
            self.leave_classic(player) if player.is_classic else self.leave(player)
        elif roll < 0.88:
            self.commit(player)
        elif roll < 0.91:
            self.grow()
        else:
            self.describe()

    def begin_classic(self) -> None:
        """Make a stable classic group of one member, which the first heartbeat upgrades."""
        player = Player("", is_classic=True, topics=[self.names[0]])
        player.name = self.rejoin(player).member_id
        answer = self.rejoin(player)
        topic_id = self.both.world.topics.id_of(self.names[0]) or b""
        partitions = list(range(self.both.world.topics.partition_count(self.names[0])))
        data = embedded.write_assignment(self.both.world.topics, {topic_id: partitions}, 1)
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=answer.generation_id,
            member_id=player.name,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=player.name, assignment=data)],
        )
        self.both.ask("sync", request, 5)
        player.epoch, player.owned = answer.generation_id, {topic_id: partitions}
        self.players.append(player)
        self.join()

    def join_classic(self) -> None:
        player = Player(NAMES[self.next_name % len(NAMES)] + str(self.next_name), is_classic=True)
        self.next_name += 1
        player.topics = self.some_topics()
        group = self.both.world.shard.consumers.get(self.group)
        # A classic group would have it wait; an empty one is forgotten by Kafka, but not by us.
        if group is None or not group.members:
            return
        if self.rejoin(player).error_code == ErrorCode.NONE:
            self.players.append(player)

    def rejoin(self, player: Player) -> JoinGroupResponse:
        topics = self.both.world.topics
        owned = [
            TopicPartition(topic=topics.name_of(topic_id) or "", partitions=list(some))
            for topic_id, some in player.owned.items()
        ]
        value = ConsumerProtocolSubscription(topics=player.topics, owned_partitions=owned)
        metadata = b"\0\1" + encode(value, 1)
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            member_id=player.name,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=metadata)],
        )
        answer: JoinGroupResponse = self.both.ask("join", request, 9)
        if answer.error_code == ErrorCode.NONE:
            player.epoch = answer.generation_id
        return answer

    def sync(self, player: Player) -> None:
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=player.epoch - self.chance.choice([0, 0, 0, 1]),
            member_id=player.name,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[],
        )
        answer = self.both.ask("sync", request, 5)
        if answer.error_code == ErrorCode.NONE:
            assigned = embedded.read_assignment(answer.assignment).assigned_partitions
            owned = embedded.by_id(self.both.world.topics, assigned)
            player.owned = {topic_id: sorted(some) for topic_id, some in owned.items()}

    def beat_classic(self, player: Player) -> None:
        request = HeartbeatRequest(
            group_id=self.group, generation_id=player.epoch, member_id=player.name
        )
        self.both.ask("heartbeat", request, 4)

    def leave_classic(self, player: Player) -> None:
        identity = MemberIdentity(member_id=player.name)
        request = LeaveGroupRequest(group_id=self.group, members=[identity])
        self.both.ask("leave", request, 5)
        self.players.remove(player)

    def describe(self) -> None:
        request = ConsumerGroupDescribeRequest(
            group_ids=[self.group], include_authorized_operations=False
        )
        self.both.ask("describe", request, 1)

    def join(self) -> None:
        player = Player(NAMES[self.next_name % len(NAMES)] + str(self.next_name))
        self.next_name += 1
        player.instance = self.chance.choice([None, None, *INSTANCES])
        player.topics = self.some_topics()
        if self.chance.random() < 0.2:
            player.expression = self.chance.choice(EXPRESSIONS).format(self.both.group[1:])
        self.players = [one for one in self.players if one.name != player.name]
        self.players.append(player)
        self.beat(player)

    def some_topics(self) -> list[str]:
        return self.chance.sample([*self.names, "absent"], self.chance.randint(1, 3))

    def beat(self, player: Player) -> None:
        """Send a heartbeat, mostly as a client would."""
        is_joining, chance = player.epoch == 0, self.chance
        epoch, owned = player.epoch, player.owned
        if not is_joining and chance.random() < 0.1:
            epoch += chance.choice([-1, 1])
        if not is_joining and chance.random() < 0.1:
            player.topics = self.some_topics()
        tells = is_joining or chance.random() < 0.8
        is_full = is_joining or chance.random() < 0.3
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=player.name,
            member_epoch=epoch,
            instance_id=player.instance,
            rack_id=chance.choice([None, "r"]),
            rebalance_timeout_ms=60_000 if is_full else -1,
            subscribed_topic_names=player.topics if is_full else None,
            subscribed_topic_regex=player.expression if is_full else None,
            server_assignor=chance.choice([None, None, "range", "uniform", "odd"]),
            topic_partitions=told_partitions({} if epoch == 0 else owned) if tells else None,
        )
        answer = self.both.ask("consumer_heartbeat", request, VERSION)
        self.learn(player, answer)

    def learn(self, player: Player, answer: ConsumerGroupHeartbeatResponse) -> None:
        if answer.error_code == ErrorCode.NONE:
            player.epoch = answer.member_epoch
            if answer.assignment is not None:
                parts = answer.assignment.topic_partitions
                player.owned = {one.topic_id: list(one.partitions) for one in parts}
        elif answer.error_code in (
            ErrorCode.FENCED_MEMBER_EPOCH,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.GROUP_ID_NOT_FOUND,
        ):
            player.epoch, player.owned = 0, {}
        elif answer.error_code != ErrorCode.UNSUPPORTED_ASSIGNOR:
            self.players.remove(player)

    def leave(self, player: Player) -> None:
        epoch = self.chance.choice([-1, -2]) if player.instance else -1
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=player.name,
            member_epoch=epoch,
            instance_id=player.instance,
        )
        self.both.ask("consumer_heartbeat", request, VERSION)
        self.players.remove(player)

    def commit(self, player: Player) -> None:
        name = self.chance.choice(self.names)
        topic_id = self.both.world.topics.id_of(name)
        assert topic_id is not None
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=self.chance.randint(0, 9), committed_metadata=""
        )
        topic = OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=[partition])
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=player.epoch - self.chance.choice([0, 0, 1, -1]),
            member_id=player.name,
            topics=[topic],
        )
        # By name, so that both are told the same; Kafka takes the id from its metadata.
        self.both.ask("offsets.commit", request, 9)


def told_partitions(owned: Mapping[bytes, Sequence[int]]) -> list[TopicPartitions]:
    return [TopicPartitions(topic_id=t, partitions=list(some)) for t, some in owned.items()]


def wait_for_partitions(peer: Peer, name: str, topic_id: bytes, count: int) -> None:
    """Wait until Kafka's coordinator has heard of a topic's partitions, not of a former one's."""
    request = ConsumerGroupHeartbeatRequest(
        group_id="probe",
        member_id="probe",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=[name],
        topic_partitions=[],
    )

    def is_known() -> bool:
        answer = peer.ask(request, VERSION)
        peer.ask(replace(request, member_epoch=-1), VERSION)
        assigned = answer.assignment.topic_partitions if answer.assignment else []
        return [(one.topic_id, len(one.partitions)) for one in assigned] == [(topic_id, count)]

    wait_until(is_known, f"Kafka's coordinator has heard of {name}")
