"""The order of what is listed, of groups above all, in Odradek and in Apache Kafka.

Groups of all kinds come and go on both, by the same requests. What is listed comes from hash
tables in Kafka, whose order depends on what they have held before, and is to be the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from odradek.broker.metadata.store import ResourceType
from odradek.protocol.compiler import encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from odradek.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.protocol.messages.delete_groups import DeleteGroupsRequest
from odradek.protocol.messages.describe_groups import DescribeGroupsRequest
from odradek.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.list_config_resources import ListConfigResourcesRequest
from odradek.protocol.messages.list_groups import ListGroupsRequest
from odradek.protocol.messages.list_transactions import ListTransactionsRequest
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
from odradek.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from odradek.protocol.messages.share_group_describe import ShareGroupDescribeRequest
from odradek.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.broker.kafka_peer import Peer, both_brokers
from tests.support.asking import GROUP, TRANSACTION, await_coordinator, create_topics
from tests.support.requests import altering, creatable
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(400)]

SETTINGS = {
    # Several groups in most partitions, and a table of places that is neither full nor empty.
    "offsets.topic.num.partitions": "9",
    "group.consumer.assignment.interval.ms": "0",
    "group.share.assignment.interval.ms": "0",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
}
TOPICS = [f"t{number}" for number in range(12)]
PARTITION_COUNT = 25
GROUPS = 40
MEMBERS = 24
STEPS = 400


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, int]]:
    with both_brokers(tmp_path_factory.mktemp("orders"), SETTINGS) as (ours, theirs):
        for port in (ours.port, theirs.port):
            _prepare(port)
        yield ours.port, theirs.port


def _prepare(port: int) -> None:
    with Peer(port) as peer:
        create_topics(peer, *(creatable(name, PARTITION_COUNT) for name in TOPICS))
        await_coordinator(peer, GROUP, *[f"{n}" for n in range(50)])
        describe = DescribeGroupsRequest(groups=[f"{n}" for n in range(50)])
        wait_until(lambda: {one.error_code for one in peer.ask(describe, 5).groups} == {0})


@dataclass
class Script:
    """What is done with groups, from a seed; the last word is Kafka's."""

    peers: tuple[Peer, Peer]
    random: random.Random
    prefix: str
    # By group and name of a member its epoch.
    members: dict[tuple[str, str], int] = field(default_factory=dict)

    def step(self) -> None:
        """Do one thing."""
        steps: dict[Callable[[], None], int] = {
            self._beat: 50,
            self._leave: 20,
            self._commit: 30,
            self._delete_offsets: 5,
            self._join_classic: 6,
            self._delete: 4,
            self.compare: 8,
        }
        (step,) = self.random.choices(list(steps), list(steps.values()))
        step()

    def compare(self) -> None:
        """List all that there is, and compare."""
        listed = self._same(
            ListGroupsRequest(),
            5,
            lambda answer: [one for one in answer.groups if one.group_id.startswith(self.prefix)],
        )
        ids = self.random.choices([one.group_id for one in listed] or ["none"], k=20)
        asked = [*ids, ""]
        # The ids of classic members are random.
        self._same(DescribeGroupsRequest(groups=asked), 5, _ids)
        for kind in (ConsumerGroupDescribeRequest, ShareGroupDescribeRequest):
            self._same(kind(group_ids=asked, include_authorized_operations=False), 1, _members)
        for group_id in ids[:3]:
            group = OffsetFetchRequestGroup(group_id=group_id, topics=None)
            self._same(
                OffsetFetchRequest(groups=[group]),
                9,
                lambda answer: [
                    (topic.name, [one.partition_index for one in topic.partitions])
                    for topic in answer.groups[0].topics
                ],
            )

    def _same(self, request: Any, version: int, shown: Callable[[Any], Any]) -> Any:
        ours, theirs = (shown(peer.ask(request, version)) for peer in self.peers)
        assert ours == theirs, request
        return theirs

    # --- what is done ---------------------------------------------------------------------

    def _beat(self) -> None:
        group_id, member_id = self._group(), f"m{self.random.randrange(MEMBERS):02d}"
        epoch = self.members.get((group_id, member_id), 0)
        topics = self.random.sample(TOPICS, 3) if self.random.random() < 0.3 or not epoch else None
        fields = {"group_id": group_id, "member_id": member_id, "member_epoch": epoch}
        if self._is_share(group_id):
            request: Any = ShareGroupHeartbeatRequest(**fields, subscribed_topic_names=topics)
        else:
            request = ConsumerGroupHeartbeatRequest(
                **fields,
                subscribed_topic_names=topics,
                topic_partitions=None if epoch else [],
                rebalance_timeout_ms=-1 if epoch else 60_000,
            )
        answer = self._same(request, 1, lambda answer: (answer.error_code, answer.member_epoch))
        if answer[0] == 0:
            self.members[group_id, member_id] = answer[1]

    def _leave(self) -> None:
        if not self.members:
            return
        group_id, member_id = self.random.choice(list(self.members))
        del self.members[group_id, member_id]
        fields = {"group_id": group_id, "member_id": member_id, "member_epoch": -1}
        kind = (
            ShareGroupHeartbeatRequest
            if self._is_share(group_id)
            else ConsumerGroupHeartbeatRequest
        )
        self._same(kind(**fields), 1, lambda answer: answer.error_code)

    def _commit(self) -> None:
        partitions = self.random.sample(range(PARTITION_COUNT), self.random.randint(1, 6))
        topics = [
            OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=one, committed_offset=1, committed_metadata=None
                    )
                    for one in partitions
                ],
            )
            for name in self.random.sample(TOPICS, self.random.randint(1, 3))
        ]
        request = OffsetCommitRequest(
            group_id=self._group(), generation_id_or_member_epoch=-1, topics=topics
        )
        self._same(request, 9, lambda answer: answer)

    def _delete_offsets(self) -> None:
        topics = [
            OffsetDeleteRequestTopic(
                name=name,
                partitions=[
                    OffsetDeleteRequestPartition(partition_index=one)
                    for one in self.random.sample(range(PARTITION_COUNT), 12)
                ],
            )
            for name in self.random.sample(TOPICS, 4)
        ]
        request = OffsetDeleteRequest(group_id=self._group(), topics=topics)
        self._same(request, 0, lambda answer: answer.error_code)

    def _join_classic(self) -> None:
        subscription = b"\0\0" + encode(ConsumerProtocolSubscription(topics=TOPICS[:2]), 0)
        request = JoinGroupRequest(
            group_id=self._group(),
            session_timeout_ms=300_000,
            rebalance_timeout_ms=30_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
        )
        self._same(request, 9, lambda answer: answer.error_code)
        # Kafka answers before the end of an empty consumer group is committed: a list that is
        # read at once still has that group.
        wait_until(lambda: self._types(0, request.group_id) == self._types(1, request.group_id))

    def _types(self, at: int, group_id: str) -> list[str]:
        listed = self.peers[at].ask(ListGroupsRequest(), 5).groups
        return [one.group_type for one in listed if one.group_id == group_id]

    def _delete(self) -> None:
        group_ids = [self._group() for _ in range(8)]
        request = DeleteGroupsRequest(groups_names=group_ids)
        self._same(
            request, 2, lambda answer: [(one.group_id, one.error_code) for one in answer.results]
        )

    # --- by chance ------------------------------------------------------------------------

    def _group(self) -> str:
        return f"{self.prefix}-{self.random.randrange(GROUPS)}"

    def _is_share(self, group_id: str) -> bool:
        return group_id.endswith(("0", "5"))


def _ids(answer: Any) -> list[tuple[str, ErrorCode]]:
    return [(one.group_id, one.error_code) for one in answer.groups]


def _members(answer: Any) -> list[Any]:
    return [
        (one.group_id, one.error_code, one.group_epoch, [
            (member.member_id, member.subscribed_topic_names) for member in one.members
        ])
        for one in answer.groups
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(6))
def test_groups_members_and_offsets_are_listed_in_kafkas_order(
    ports: tuple[int, int], seed: int
) -> None:
    with Peer(ports[0]) as ours, Peer(ports[1]) as theirs:
        script = Script((ours, theirs), random.Random(seed), f"group{seed}")
        for _ in range(STEPS):
            script.step()
        script.compare()


@pytest.mark.parametrize("seed", range(3))
def test_other_lists_have_the_order_of_kafkas_maps(
    ports: tuple[int, int], seed: int
) -> None:
    chance = random.Random(seed)
    # So many that tables grow, and that some share a place.
    names = [f"{chance.getrandbits(40):x}-{seed}" for _ in range(14)]
    with Peer(ports[0]) as ours, Peer(ports[1]) as theirs:
        peers = ours, theirs

        def same(request: Any, version: int, shown: Callable[[Any], Any]) -> None:
            one, other = (shown(peer.ask(request, version)) for peer in peers)
            assert one == other, request

        for peer in peers:
            create_topics(peer, *names)
            for number, name in enumerate(names[:11]):
                _begin_transactions(peer, name)
                _set_metrics(peer, f"{number}-{name}")
        topics = [
            CreatePartitionsTopic(name=name, count=2, assignments=None)
            for name in chance.sample([*names, "none-1", "none-2"], 12)
        ]
        enlarge = CreatePartitionsRequest(topics=topics, timeout_ms=30_000, validate_only=True)
        same(enlarge, 3, lambda answer: [(one.name, one.error_code) for one in answer.results])
        users = [ScramCredentialUpsertion(
            name=name, mechanism=1, iterations=4096, salt=b"salt", salted_password=b"p" * 32
        ) for name in names] + [ScramCredentialUpsertion(
            name=names[0], mechanism=2, iterations=4096, salt=b"salt", salted_password=b"p" * 64
        )]  # fmt: skip
        gone = [ScramCredentialDeletion(name=f"no-{name}", mechanism=1) for name in names[:5]]
        alter = AlterUserScramCredentialsRequest(deletions=gone, upsertions=users)
        same(alter, 0, lambda answer: [(one.user, one.error_code) for one in answer.results])
        named = DescribeUserScramCredentialsRequest(users=[UserName(name=one) for one in names])
        same(named, 0, lambda answer: [one.user for one in answer.results])
        same(
            ListTransactionsRequest(state_filters=[], producer_id_filters=[]),
            0,
            lambda answer: [one.transactional_id for one in answer.transaction_states],
        )
        for peer in peers:
            wait_until(lambda peer=peer: len(_resources(peer)) == len(_resources(ours)))  # type: ignore[misc]
        assert _resources(ours) == _resources(theirs)


def _begin_transactions(peer: Peer, transactional_id: str) -> None:
    begin = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=60_000
    )
    await_coordinator(peer, TRANSACTION, transactional_id)
    wait_until(lambda: peer.ask(begin, 4).error_code == 0)


def _set_metrics(peer: Peer, name: str) -> None:
    request = altering(name, {"interval.ms": "5000"}, ResourceType.CLIENT_METRICS)
    assert peer.ask(request, 1).responses[0].error_code == 0


def _resources(peer: Peer) -> list[tuple[int, str]]:
    answer = peer.ask(ListConfigResourcesRequest(resource_types=[]), 1).config_resources
    return [
        (one.resource_type, one.resource_name)
        for one in answer
        if not one.resource_name.startswith("__")
    ]
