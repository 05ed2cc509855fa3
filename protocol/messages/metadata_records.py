"""The records of Kafka's controllers in __cluster_metadata, KRaft's log (KIP-500).

The value of each record in the log, and in a snapshot of it, is a frame around one message:

    | frame version uvarint = 1 | message's key uvarint | version uvarint | message |

This module declares the records that describe the contents of a cluster. The others, by their
keys in PASSED_OVER, are about brokers that come and go, or hold the log's own transactions
together (KIP-868).
"""

from __future__ import annotations

from odradek.protocol.schema import field, message, struct
from odradek.protocol.wire import (
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    octets,
    string,
    uint16,
    uuid,
)

FRAME_VERSION = 1

BEGIN_TRANSACTION, END_TRANSACTION, ABORT_TRANSACTION = 23, 24, 25

PASSED_OVER = {
    7: "FenceBrokerRecord",
    8: "UnfenceBrokerRecord",
    17: "BrokerRegistrationChangeRecord",
    20: "NoOpRecord",
    21: "ZkMigrationStateRecord",
}


@struct
class BrokerEndpoint:
    """An address at which a broker listens."""

    name: string
    host: string
    port: uint16
    security_protocol: int16


@struct
class BrokerFeature:
    """The levels of a feature that a broker has."""

    name: string
    min_supported_version: int16
    max_supported_version: int16


@message(key=0, versions="0-4", flexible="0+")
class RegisterBrokerRecord:
    """A broker has started."""

    broker_id: int32
    is_migrating_zk_broker: boolean = field("2+", default=False)
    incarnation_id: uuid
    broker_epoch: int64
    end_points: list[BrokerEndpoint]
    features: list[BrokerFeature]
    rack: string | None
    fenced: boolean = field(default=True)
    in_controlled_shutdown: boolean = field("1+", default=False)
    log_dirs: list[uuid] = field("3+", tag=0)
    cordoned_log_dirs: list[uuid] | None = field("4+", tag=1, default=None)


@message(key=1, versions="0", flexible="0+")
class UnregisterBrokerRecord:
    """A broker has left for good."""

    broker_id: int32
    broker_epoch: int64


@message(key=2, versions="0", flexible="0+")
class TopicRecord:
    """A topic has been created."""

    name: string
    topic_id: uuid


@message(key=3, versions="0-2", flexible="0+")
class PartitionRecord:
    """A partition has been created; in a snapshot, a partition's present state."""

    partition_id: int32 = field(default=-1)
    topic_id: uuid
    replicas: list[int32]
    isr: list[int32]
    removing_replicas: list[int32]
    adding_replicas: list[int32]
    leader: int32 = field(default=-1)
    leader_recovery_state: int8 = field(tag=0, default=0)
    leader_epoch: int32 = field(default=-1)
    partition_epoch: int32 = field(default=-1)
    directories: list[uuid] = field("1+")
    eligible_leader_replicas: list[int32] | None = field("2+", tag=1, default=None)
    last_known_elr: list[int32] | None = field("2+", tag=2, default=None)


@message(key=4, versions="0", flexible="0+")
class ConfigRecord:
    """A setting of a topic, a broker or another resource; null removes it."""

    resource_type: int8
    resource_name: string
    name: string
    value: string | None


@message(key=5, versions="0-2", flexible="0+")
class PartitionChangeRecord:
    """A partition has changed; a field that is null, or below -1, is unchanged."""

    partition_id: int32 = field(default=-1)
    topic_id: uuid
    isr: list[int32] | None = field(tag=0, default=None)
    leader: int32 = field(tag=1, default=-2)
    replicas: list[int32] | None = field(tag=2, default=None)
    removing_replicas: list[int32] | None = field(tag=3, default=None)
    adding_replicas: list[int32] | None = field(tag=4, default=None)
    leader_recovery_state: int8 = field(tag=5, default=-1)
    directories: list[uuid] | None = field("1+", tag=8, default=None)
    eligible_leader_replicas: list[int32] | None = field("2+", tag=6, default=None)
    last_known_elr: list[int32] | None = field("2+", tag=7, default=None)


@message(key=9, versions="0", flexible="0+")
class RemoveTopicRecord:
    """A topic has been deleted."""

    topic_id: uuid


@message(key=10, versions="0", flexible="0+")
class DelegationTokenRecord:
    """A delegation token (KIP-48)."""

    owner: string
    requester: string
    renewers: list[string]
    issue_timestamp: int64
    max_timestamp: int64
    expiration_timestamp: int64
    token_id: string


@message(key=11, versions="0", flexible="0+")
class UserScramCredentialRecord:
    """The credential that a user's password is checked against (RFC 5802)."""

    name: string
    mechanism: int8
    salt: octets
    stored_key: octets
    server_key: octets
    iterations: int32


@message(key=12, versions="0", flexible="0+")
class FeatureLevelRecord:
    """The level of a feature that the cluster has finalized; 0 is none (KIP-584)."""

    name: string
    feature_level: int16


@struct
class EntityData:
    """One part of a quota's entity, such as a user; a null name is the default of all."""

    entity_type: string
    entity_name: string | None


@message(key=14, versions="0", flexible="0+")
class ClientQuotaRecord:
    """A limit for a client."""

    entity: list[EntityData]
    key: string
    value: float64
    remove: boolean


@message(key=15, versions="0", flexible="0+")
class ProducerIdsRecord:
    """A block of producer ids has been assigned; the next block begins here."""

    broker_id: int32
    broker_epoch: int64 = field(default=-1)
    next_producer_id: int64


@message(key=18, versions="0", flexible="0+")
class AccessControlEntryRecord:
    """An ACL."""

    id: uuid
    resource_type: int8
    resource_name: string
    pattern_type: int8
    principal: string
    host: string
    operation: int8
    permission_type: int8


@message(key=19, versions="0", flexible="0+")
class RemoveAccessControlEntryRecord:
    """An ACL has been removed."""

    id: uuid


@message(key=22, versions="0", flexible="0+")
class RemoveUserScramCredentialRecord:
    """A user's credential has been removed."""

    name: string
    mechanism: int8


@message(key=26, versions="0", flexible="0+")
class RemoveDelegationTokenRecord:
    """A delegation token has been removed."""

    token_id: string


@struct
class ControllerEndpoint:
    """An address at which a controller listens."""

    name: string
    host: string
    port: uint16
    security_protocol: int16


@struct
class ControllerFeature:
    """The levels of a feature that a controller has."""

    name: string
    min_supported_version: int16
    max_supported_version: int16


@message(key=27, versions="0", flexible="0+")
class RegisterControllerRecord:
    """A controller has started."""

    controller_id: int32
    incarnation_id: uuid
    zk_migration_ready: boolean
    end_points: list[ControllerEndpoint]
    features: list[ControllerFeature]


@message(key=28, versions="0", flexible="0+")
class ClearElrRecord:
    """The eligible leaders (KIP-966) of a topic, or of all for "", are forgotten."""

    topic_name: string
