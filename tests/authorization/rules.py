"""What each API asks of its client, and what one hears who may not: the table of the matrix test.

docs/authorization.md is made of it (`python -m tests.authorization.reference`). Rights are written
as "READ TOPIC", all that one way takes with + between them, and other ways after "or". Kafka's
sources: KafkaApis, ControllerApis, AclApis, ConfigHelper, AuthHelper.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from odradek.broker.security.authorization import AclOperation, ResourceKind

Right = tuple[AclOperation, ResourceKind]
Rights = frozenset[Right]

# An ACL that allows the first also allows the second (StandardAuthorizerData).
IMPLIES: Mapping[AclOperation, AclOperation] = {
    AclOperation.READ: AclOperation.DESCRIBE,
    AclOperation.WRITE: AclOperation.DESCRIBE,
    AclOperation.DELETE: AclOperation.DESCRIBE,
    AclOperation.ALTER: AclOperation.DESCRIBE,
    AclOperation.ALTER_CONFIGS: AclOperation.DESCRIBE_CONFIGS,
}
HIDDEN = "left out of the answer"
TOPIC, GROUP, CLUSTER = (f"{kind}_AUTHORIZATION_FAILED" for kind in ("TOPIC", "GROUP", "CLUSTER"))
TRANSACTIONAL_ID = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


@dataclass(frozen=True, slots=True)
class Rule:
    """What a kind of request takes."""

    api: str
    what: str  # of the API's requests, "" for all
    takes: str
    refused: str  # the answer: error codes, or words

    @property
    def name(self) -> str:
        """What the test calls it."""
        return f"{self.api} {self.what}".strip()

    @property
    def ways(self) -> tuple[Rights, ...]:
        """The sets of rights of which each suffices."""
        return tuple(parse_rights(way) for way in self.takes.split(" or "))

    def is_met(self, rights: Rights) -> bool:
        """Return whether somebody with exactly these rights is served."""
        implied = {(IMPLIES[what], kind) for what, kind in rights if what in IMPLIES}
        return any(way <= rights | implied for way in self.ways)


def parse_rights(way: str) -> Rights:
    """Read what one way takes: "READ GROUP + READ TOPIC"."""
    pairs = (one.split() for one in way.split(" + "))
    return frozenset((AclOperation[what], ResourceKind[kind]) for what, kind in pairs)


# These APIs serve every client, whatever the ACLs say.
FREE: Mapping[str, str] = {
    "ApiVersions": "every client has to ask it first",
    "DescribeCluster": "with DESCRIBE CLUSTER the answer lists the permitted operations",
    "GetTelemetrySubscriptions": "metrics go to the broker only, which asks for them",
    "PushTelemetry": "metrics go to the broker only, which asks for them",
    "SaslHandshake": "nobody is known yet",
    "SaslAuthenticate": "nobody is known yet",
    "RenewDelegationToken": "the token's owner and renewers may, and nobody else",
    "ExpireDelegationToken": "the token's owner and renewers may, and nobody else",
    "DescribeDelegationToken": "the tokens of others are left out without DESCRIBE of them",
    "CreateDelegationToken": "for others with CREATE_TOKENS of a USER",
}

RULES: tuple[Rule, ...] = (
    Rule("Produce", "by name", "WRITE TOPIC", TOPIC),
    Rule("Produce", "by id", "WRITE TOPIC", TOPIC),
    Rule(
        "Produce",
        "in a transaction",
        "WRITE TRANSACTIONAL_ID + WRITE TOPIC",
        f"{TRANSACTIONAL_ID}, {TOPIC}",
    ),
    Rule("Fetch", "by name", "READ TOPIC", TOPIC),
    Rule("Fetch", "by id", "READ TOPIC", TOPIC),
    Rule("Fetch", "by a follower", "CLUSTER_ACTION CLUSTER", TOPIC),
    Rule("ListOffsets", "", "DESCRIBE TOPIC", TOPIC),
    Rule("OffsetForLeaderEpoch", "", "CLUSTER_ACTION CLUSTER or DESCRIBE TOPIC", TOPIC),
    Rule("Metadata", "by name", "DESCRIBE TOPIC", TOPIC),
    Rule("Metadata", "by id", "DESCRIBE TOPIC", f"{TOPIC}, without the name"),
    Rule("Metadata", "of all topics", "DESCRIBE TOPIC", HIDDEN),
    Rule(
        "Metadata",
        "of a topic that it creates",
        "DESCRIBE TOPIC + CREATE CLUSTER or DESCRIBE TOPIC + CREATE TOPIC",
        TOPIC,
    ),
    Rule("DescribeTopicPartitions", "by name", "DESCRIBE TOPIC", TOPIC),
    Rule("DescribeTopicPartitions", "of all topics", "DESCRIBE TOPIC", HIDDEN),
    Rule("DescribeProducers", "", "READ TOPIC", TOPIC),
    Rule("CreateTopics", "", "CREATE CLUSTER or CREATE TOPIC", TOPIC),
    Rule(
        "CreateTopics",
        "with its settings in the answer",
        "CREATE CLUSTER + DESCRIBE_CONFIGS TOPIC or CREATE TOPIC + DESCRIBE_CONFIGS TOPIC",
        "the topic is created, the answer lacks its partitions and settings",
    ),
    Rule(
        "DeleteTopics",
        "by name",
        "DELETE CLUSTER or DELETE TOPIC",
        TOPIC,
    ),
    Rule(
        "DeleteTopics",
        "by id",
        "DELETE CLUSTER or DELETE TOPIC",
        f"{TOPIC}, with the name for those with DESCRIBE TOPIC",
    ),
    Rule("CreatePartitions", "", "ALTER TOPIC", TOPIC),
    Rule("DeleteRecords", "", "DELETE TOPIC", TOPIC),
    Rule("OffsetCommit", "by name", "READ GROUP + READ TOPIC", f"{GROUP}, {TOPIC}"),
    Rule("OffsetCommit", "by id", "READ GROUP + READ TOPIC", f"{GROUP}, {TOPIC}"),
    Rule("OffsetFetch", "by name", "DESCRIBE GROUP + DESCRIBE TOPIC", f"{GROUP}, {TOPIC}"),
    Rule("OffsetFetch", "by id", "DESCRIBE GROUP + DESCRIBE TOPIC", f"{GROUP}, {TOPIC}"),
    Rule(
        "OffsetFetch",
        "of all topics",
        "DESCRIBE GROUP + DESCRIBE TOPIC",
        f"{GROUP}; topics are {HIDDEN}",
    ),
    Rule("OffsetDelete", "", "DELETE GROUP + READ TOPIC", f"{GROUP}, {TOPIC}"),
    Rule("FindCoordinator", "of a group", "DESCRIBE GROUP", GROUP),
    Rule(
        "FindCoordinator", "of a transaction", "DESCRIBE TRANSACTIONAL_ID", TRANSACTIONAL_ID
    ),
    Rule("FindCoordinator", "of a share-partition", "CLUSTER_ACTION CLUSTER", CLUSTER),
    Rule("JoinGroup", "", "READ GROUP", GROUP),
    Rule("SyncGroup", "", "READ GROUP", GROUP),
    Rule("Heartbeat", "", "READ GROUP", GROUP),
    Rule("LeaveGroup", "", "READ GROUP", GROUP),
    Rule("DescribeGroups", "", "DESCRIBE GROUP", GROUP),
    Rule("ListGroups", "", "DESCRIBE CLUSTER or DESCRIBE GROUP", HIDDEN),
    Rule("DeleteGroups", "", "DELETE GROUP", GROUP),
    Rule("ConsumerGroupHeartbeat", "without topics", "READ GROUP", GROUP),
    Rule(
        "ConsumerGroupHeartbeat",
        "with topics",
        "READ GROUP + DESCRIBE TOPIC",
        f"{GROUP}, {TOPIC}",
    ),
    Rule(
        "ConsumerGroupDescribe",
        "",
        "DESCRIBE GROUP + DESCRIBE TOPIC",
        f"{GROUP}; {TOPIC} where members read a topic",
    ),
    Rule("ShareGroupHeartbeat", "without topics", "READ GROUP", GROUP),
    Rule(
        "ShareGroupHeartbeat",
        "with topics",
        "READ GROUP + DESCRIBE TOPIC",
        f"{GROUP}, {TOPIC}",
    ),
    Rule(
        "ShareGroupDescribe",
        "",
        "DESCRIBE GROUP + DESCRIBE TOPIC",
        f"{GROUP}; {TOPIC} where members read a topic",
    ),
    Rule("StreamsGroupHeartbeat", "without a topology", "READ GROUP", GROUP),
    Rule(
        "StreamsGroupHeartbeat",
        "with a topology",
        "READ GROUP + DESCRIBE TOPIC",
        f"{GROUP}, {TOPIC}",
    ),
    Rule(
        "StreamsGroupHeartbeat",
        "whose internal topics are missing",
        "READ GROUP + DESCRIBE TOPIC + CREATE CLUSTER or READ GROUP + DESCRIBE TOPIC "
        "+ CREATE TOPIC",
        "the topics are not created, and the status says why",
    ),
    Rule(
        "StreamsGroupDescribe",
        "",
        "DESCRIBE GROUP + DESCRIBE TOPIC",
        f"{GROUP}; {TOPIC} where the topology has topics",
    ),
    Rule("ShareFetch", "", "READ GROUP + READ TOPIC", f"{GROUP}, {TOPIC}"),
    Rule("ShareAcknowledge", "", "READ GROUP + READ TOPIC", f"{GROUP}, {TOPIC}"),
    Rule(
        "DescribeShareGroupOffsets",
        "by name",
        "DESCRIBE GROUP + DESCRIBE TOPIC",
        f"{GROUP}, {TOPIC}",
    ),
    Rule(
        "DescribeShareGroupOffsets",
        "of all topics",
        "DESCRIBE GROUP + DESCRIBE TOPIC",
        f"{GROUP}; topics are {HIDDEN}",
    ),
    Rule("AlterShareGroupOffsets", "", "READ GROUP + READ TOPIC", f"{GROUP}, {TOPIC}"),
    Rule("DeleteShareGroupOffsets", "", "DELETE GROUP + READ TOPIC", f"{GROUP}, {TOPIC}"),
    *(
        Rule(f"{verb}ShareGroupState{noun}", "", "CLUSTER_ACTION CLUSTER", CLUSTER)
        for verb, noun in (
            ("Initialize", ""),
            ("Read", ""),
            ("Write", ""),
            ("Delete", ""),
            ("Read", "Summary"),
        )
    ),
    Rule("InitProducerId", "of a transaction", "WRITE TRANSACTIONAL_ID", TRANSACTIONAL_ID),
    Rule(
        "InitProducerId",
        "without a transaction",
        "IDEMPOTENT_WRITE CLUSTER or WRITE TOPIC",
        f"{CLUSTER}, unless some topic may be written to",
    ),
    Rule(
        "AddPartitionsToTxn",
        "by a client",
        "WRITE TRANSACTIONAL_ID + WRITE TOPIC",
        f"{TRANSACTIONAL_ID}, {TOPIC}",
    ),
    Rule("AddPartitionsToTxn", "by a broker", "CLUSTER_ACTION CLUSTER", CLUSTER),
    Rule(
        "AddOffsetsToTxn",
        "",
        "WRITE TRANSACTIONAL_ID + READ GROUP",
        f"{TRANSACTIONAL_ID}, {GROUP}",
    ),
    Rule(
        "TxnOffsetCommit",
        "",
        "WRITE TRANSACTIONAL_ID + READ GROUP + READ TOPIC",
        f"{TRANSACTIONAL_ID}, {GROUP}, {TOPIC}",
    ),
    Rule("EndTxn", "", "WRITE TRANSACTIONAL_ID", TRANSACTIONAL_ID),
    Rule("WriteTxnMarkers", "", "ALTER CLUSTER or CLUSTER_ACTION CLUSTER", CLUSTER),
    Rule(
        "DescribeTransactions",
        "",
        "DESCRIBE TRANSACTIONAL_ID + DESCRIBE TOPIC",
        f"{TRANSACTIONAL_ID}; topics are {HIDDEN}",
    ),
    Rule("ListTransactions", "", "DESCRIBE TRANSACTIONAL_ID", HIDDEN),
    Rule("DescribeConfigs", "of a topic", "DESCRIBE_CONFIGS TOPIC", TOPIC),
    Rule("DescribeConfigs", "of a group", "DESCRIBE_CONFIGS GROUP", GROUP),
    Rule("DescribeConfigs", "of the broker", "DESCRIBE_CONFIGS CLUSTER", CLUSTER),
    Rule("DescribeConfigs", "of loggers", "DESCRIBE_CONFIGS CLUSTER", CLUSTER),
    Rule("DescribeConfigs", "of client metrics", "DESCRIBE_CONFIGS CLUSTER", CLUSTER),
    Rule("AlterConfigs", "of a topic", "ALTER_CONFIGS TOPIC", TOPIC),
    Rule("AlterConfigs", "of a group", "ALTER_CONFIGS GROUP", GROUP),
    Rule("AlterConfigs", "of the broker", "ALTER_CONFIGS CLUSTER", CLUSTER),
    Rule("AlterConfigs", "of client metrics", "ALTER_CONFIGS CLUSTER", CLUSTER),
    Rule("IncrementalAlterConfigs", "of a topic", "ALTER_CONFIGS TOPIC", TOPIC),
    Rule("IncrementalAlterConfigs", "of a group", "ALTER_CONFIGS GROUP", GROUP),
    Rule("IncrementalAlterConfigs", "of the broker", "ALTER_CONFIGS CLUSTER", CLUSTER),
    Rule("IncrementalAlterConfigs", "of loggers", "ALTER_CONFIGS CLUSTER", CLUSTER),
    Rule("IncrementalAlterConfigs", "of client metrics", "ALTER_CONFIGS CLUSTER", CLUSTER),
    Rule("ListConfigResources", "", "DESCRIBE_CONFIGS CLUSTER", CLUSTER),
    Rule("DescribeLogDirs", "", "DESCRIBE CLUSTER", CLUSTER),
    Rule("AlterReplicaLogDirs", "", "ALTER CLUSTER", CLUSTER),
    Rule("ElectLeaders", "", "ALTER CLUSTER", CLUSTER),
    Rule("AlterPartitionReassignments", "", "ALTER CLUSTER", CLUSTER),
    Rule("ListPartitionReassignments", "", "DESCRIBE CLUSTER", CLUSTER),
    Rule("DescribeQuorum", "", "DESCRIBE CLUSTER", CLUSTER),
    Rule("AddRaftVoter", "", "ALTER CLUSTER", CLUSTER),
    Rule("RemoveRaftVoter", "", "ALTER CLUSTER", CLUSTER),
    Rule("UnregisterBroker", "", "ALTER CLUSTER", CLUSTER),
    Rule("UpdateFeatures", "", "ALTER CLUSTER", CLUSTER),
    Rule("DescribeAcls", "", "DESCRIBE CLUSTER", CLUSTER),
    Rule("CreateAcls", "", "ALTER CLUSTER", CLUSTER),
    Rule("DeleteAcls", "", "ALTER CLUSTER", CLUSTER),
    Rule("DescribeClientQuotas", "", "DESCRIBE_CONFIGS CLUSTER", CLUSTER),
    Rule("AlterClientQuotas", "", "ALTER_CONFIGS CLUSTER", CLUSTER),
    Rule("DescribeUserScramCredentials", "", "DESCRIBE CLUSTER", CLUSTER),
    Rule("AlterUserScramCredentials", "", "ALTER CLUSTER", CLUSTER),
)
