"""A broker with much in it: topics, groups, transactions, rights, users, quotas, tokens.

What a request costs beyond its bytes is mostly what it makes the broker look through.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.processes import OdradekProcess
from odradek.broker.metadata.store import ResourceType
from odradek.broker.security.acls import PatternType, Permission
from odradek.broker.security.authorization import AclOperation, ResourceKind
from odradek.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from odradek.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from odradek.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from odradek.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from odradek.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from odradek.protocol.messages.streams_group_heartbeat import StreamsGroupHeartbeatRequest
from tests.broker.doors import DOORS, USER, Door
from tests.broker.kafka_peer import Peer
from tests.broker.memory import load_kernels
from tests.broker.streams_topologies import stateless
from tests.support.asking import create_topics
from tests.support.forking import ForkedOdradek
from tests.support.requests import altering, committing, creatable

WIDE, WIDE_COUNT = "wide", 500
NARROW = [f"t{number}" for number in range(100)]
GROUPS = [f"g{number}" for number in range(100)]
MEMBERS = [f"m{number}" for number in range(30)]
TRANSACTIONS = [f"x{number}" for number in range(100)]
USERS = [f"u{number}" for number in range(200)]
CONSUMERS, SHARERS, STREAMERS = "consumers", "sharers", "streamers"
_ACL_COUNT = 2_000
_TOKEN_COUNT = 30
_COMMITTED_COUNT = 100
_SETTINGS = {
    **DOORS["authenticated"].settings,
    "auto.create.topics.enable": "false",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": f"User:{USER}",
    "delegation.token.secret.key": "the-key-of-all-tokens",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
}


@dataclass
class Crowded:
    """The broker, the way in, and the values by which requests name what is there."""

    process: OdradekProcess
    door: Door = field(default_factory=lambda: DOORS["authenticated"])
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    # Of the first of the transactions.
    producer_id: int = -1
    hmac: bytes = b""

    def connect(self) -> Peer:
        """Connect as the super user."""
        return self.door.connect(self.process.port)

    def known(self, api_name: str) -> Mapping[str, Sequence[Any]]:
        """Return what exists by the name of a request's field."""
        topics = [WIDE, *NARROW]
        shared = {
            "topic": topics, "topics": topics, "topic_name": topics, "name": topics,
            "topic_id": [self.topic_ids[name] for name in topics],
            "partition": range(WIDE_COUNT), "partitions": range(WIDE_COUNT),
            "partition_index": range(WIDE_COUNT), "partition_indexes": range(WIDE_COUNT),
            "timestamp": range(WIDE_COUNT),
            "group_id": GROUPS, "groups": GROUPS, "groups_names": GROUPS, "group_ids": GROUPS,
            "member_id": [""], "replicas": [1], "broker_ids": [1], "replica_id": [-1],
            "transactional_id": TRANSACTIONS, "transactional_ids": TRANSACTIONS,
            "v3_and_below_transactional_id": TRANSACTIONS,
            "coordinator_keys": GROUPS, "current_leader_epoch": [-1],
            "principal_type": ["User"], "principal_name": USERS, "hmac": [self.hmac],
            "resource_type": [ResourceType.TOPIC], "resource_name": topics,
            "path": [str(self.process.data)], "subscribed_topic_names": topics,
        }  # fmt: skip
        producer = {
            "transactional_id": TRANSACTIONS[:1], "producer_id": [self.producer_id],
            "v3_and_below_transactional_id": TRANSACTIONS[:1],
            "v3_and_below_producer_id": [self.producer_id],
            "producer_epoch": [0], "v3_and_below_producer_epoch": [0],
        }  # fmt: skip
        of_producer = producer if api_name in _OF_PRODUCERS else {}
        return {**shared, **of_producer, **_OF_API.get(api_name, {})}


# Some of their requests are those of a transaction that is open.
_OF_PRODUCERS = ("AddPartitionsToTxn", "TxnOffsetCommit")
_OF_API: Mapping[str, Mapping[str, Sequence[Any]]] = {
    "AlterUserScramCredentials": {
        "name": USERS, "mechanism": [1], "iterations": [16_384],
    },
    "DescribeUserScramCredentials": {"name": USERS},
    "CreateTopics": {
        "CreatableTopicConfig.name": ["retention.ms"], "value": ["1"], "num_partitions": [-1],
        "replication_factor": [-1], "validate_only": [True],
    },
    "AlterConfigs": {
        "AlterableConfig.name": ["consumer.session.timeout.ms"], "value": ["45000"],
        "resource_type": [ResourceType.GROUP], "resource_name": GROUPS,
        "validate_only": [False],
    },
    "IncrementalAlterConfigs": {
        "AlterableConfig.name": ["cleanup.policy"], "value": ["compact"],
        "config_operation": [2, 3], "validate_only": [True],
    },
    "DescribeConfigs": {"configuration_keys": ["retention.ms"]},
    "CreateAcls": {
        "resource_type": [ResourceKind.TOPIC], "resource_pattern_type": [PatternType.LITERAL],
        "principal": ["User:bob"], "host": ["*"], "operation": [AclOperation.READ],
        "permission_type": [Permission.ALLOW],
    },
    "DeleteAcls": {
        "resource_type_filter": [ResourceKind.ANY], "pattern_type_filter": [PatternType.ANY],
        "operation": [AclOperation.ANY], "permission_type": [Permission.ANY],
        "principal_filter": [f"User:nobody{number}" for number in range(100_000)],
        "resource_name_filter": [None], "host_filter": [None],
    },
    "DescribeAcls": {
        "resource_type_filter": [ResourceKind.ANY], "pattern_type_filter": [PatternType.MATCH],
        "operation": [AclOperation.ANY], "permission_type": [Permission.ANY],
    },
    "AlterClientQuotas": {
        "entity_type": ["user"], "entity_name": USERS, "key": ["producer_byte_rate"],
        "value": [1e9], "validate_only": [True],
    },
    "DescribeClientQuotas": {"entity_type": ["user", "client-id"], "match_type": [0, 2]},
    "CreatePartitions": {"validate_only": [True], "count": [WIDE_COUNT + 1]},
    "JoinGroup": {"group_id": ["joined"], "session_timeout_ms": [10_000], "name": ["range"]},
    "OffsetCommit": {"generation_id_or_member_epoch": [-1], "member_id": [""]},
    "TxnOffsetCommit": {"generation_id": [-1], "member_id": [""]},
    "ConsumerGroupHeartbeat": {
        "group_id": [CONSUMERS], "member_id": MEMBERS, "member_epoch": [0],
        "rebalance_timeout_ms": [300_000],
    },
    "ConsumerGroupDescribe": {"group_ids": [CONSUMERS]},
    "ShareGroupHeartbeat": {
        "group_id": [SHARERS], "member_id": MEMBERS, "member_epoch": [0],
    },
    "ShareGroupDescribe": {"group_ids": [SHARERS]},
    "StreamsGroupHeartbeat": {
        "group_id": [STREAMERS], "member_id": MEMBERS, "member_epoch": [0, 1, 2],
        "rebalance_timeout_ms": [300_000],
    },
    "StreamsGroupDescribe": {"group_ids": [STREAMERS]},
    "ShareFetch": {"group_id": [SHARERS], "member_id": MEMBERS},
    "ShareAcknowledge": {"group_id": [SHARERS], "member_id": MEMBERS},
    "DescribeShareGroupOffsets": {"group_id": [SHARERS]},
    "UpdateFeatures": {"feature": ["share.version"], "validate_only": [True]},
    "Fetch": {
        "max_wait_ms": [0], "max_bytes": [1], "session_epoch": [-1, 0], "session_id": [0],
    },
}


def crowded_broker(directory: Path) -> OdradekProcess:
    """Return a broker that is not started yet."""
    return ForkedOdradek(directory, _SETTINGS, log_level="DEBUG")


def crowd(process: OdradekProcess) -> Crowded:
    """Fill a running broker, which loads its kernels first; from then on it logs at INFO."""
    crowded = Crowded(process)
    load_kernels(process, crowded.door.client_settings)
    with crowded.connect() as peer:
        changing = altering("1", {"root": "INFO"}, ResourceType.BROKER_LOGGER)
        assert [one.error_code for one in peer.ask(changing, 1).responses] == [0]
        topics = [creatable(WIDE, WIDE_COUNT), *NARROW]
        crowded.topic_ids.update(create_topics(peer, *topics))
        _add_groups(peer)
        crowded.producer_id = _add_transactions(peer)
        _add_rights(peer)
        crowded.hmac = [
            peer.ask(CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1), 3).hmac
            for _ in range(_TOKEN_COUNT)
        ][-1]
    return crowded


@contextmanager
def serving(process: OdradekProcess) -> Iterator[Crowded]:
    """Start a broker that is not started yet, fill it, and stop it in the end."""
    process.start()
    yield crowd(process)
    process.stop()
    assert "Traceback" not in process.log_text()


def _add_groups(peer: Peer) -> None:
    committed = {WIDE: dict.fromkeys(range(_COMMITTED_COUNT), 1)}
    for group_id in GROUPS:
        answered = peer.ask(committing(group_id, committed), 9)
        assert not [one for one in answered.topics[0].partitions if one.error_code]
    for member_id in MEMBERS:
        joining = ConsumerGroupHeartbeatRequest(
            group_id=CONSUMERS,
            member_id=member_id,
            member_epoch=0,
            rebalance_timeout_ms=300_000,
            subscribed_topic_names=[WIDE],
            topic_partitions=[],
        )
        assert peer.ask(joining, 1).error_code == 0
        sharing = ShareGroupHeartbeatRequest(
            group_id=SHARERS, member_id=member_id, member_epoch=0, subscribed_topic_names=[WIDE]
        )
        assert peer.ask(sharing, 1).error_code == 0
        streaming = StreamsGroupHeartbeatRequest(
            group_id=STREAMERS, member_id=member_id, member_epoch=0, rebalance_timeout_ms=300_000,
            topology=stateless(WIDE), active_tasks=[], standby_tasks=[], warmup_tasks=[],
            process_id=member_id,
        )  # fmt: skip
        assert peer.ask(streaming, 0).error_code == 0
    protocol = JoinGroupRequestProtocol(name="range", metadata=bytes(6))
    request = JoinGroupRequest(
        group_id="joined", session_timeout_ms=300_000, rebalance_timeout_ms=300_000,
        member_id="", protocol_type="consumer", protocols=[protocol],
    )  # fmt: skip
    assert peer.ask(request, 3).error_code == 0


def _add_transactions(peer: Peer) -> int:
    """Begin transactions; return the producer id of the first."""
    producer_ids = []
    for name in TRANSACTIONS:
        init = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=900_000)
        given = peer.ask(init, 4)
        assert given.error_code == 0
        producer_ids.append(given.producer_id)
        topic = AddPartitionsToTxnTopic(name=WIDE, partitions=list(range(WIDE_COUNT)))
        adding = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=given.producer_id,
            v3_and_below_producer_epoch=given.producer_epoch,
            v3_and_below_topics=[topic],
        )
        if name in TRANSACTIONS[:3]:
            peer.ask(adding, 3)
    return producer_ids[0]


def _add_rights(peer: Peer) -> None:
    creations = [
        AclCreation(
            resource_type=ResourceKind.TOPIC, resource_name=f"t{number}" + "x" * (number % 20),
            resource_pattern_type=PatternType.PREFIXED if number % 3 else PatternType.LITERAL,
            principal=f"User:u{number % 200}", host="*", operation=AclOperation.READ,
            permission_type=Permission.ALLOW,
        )
        for number in range(_ACL_COUNT)
    ]  # fmt: skip
    answered = peer.ask(CreateAclsRequest(creations=creations), 3)
    assert not [one for one in answered.results if one.error_code]
    entries = [
        EntryData(
            entity=[EntityData(entity_type="user", entity_name=name)],
            ops=[OpData(key="consumer_byte_rate", value=1e12, remove=False)],
        )
        for name in USERS
    ]
    answered = peer.ask(AlterClientQuotasRequest(entries=entries, validate_only=False), 1)
    assert not [one for one in answered.entries if one.error_code]
    upsertions = [
        ScramCredentialUpsertion(
            name=name, mechanism=1, iterations=4_096, salt=b"salt", salted_password=b"p" * 32
        )
        for name in USERS
    ]
    answered = peer.ask(
        AlterUserScramCredentialsRequest(deletions=[], upsertions=upsertions), 0
    )
    assert not [one for one in answered.results if one.error_code]
