"""The metadata of a Kafka cluster: the sum of the records in its metadata log."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field

from odradek.broker.metadata.store import ResourceType
from odradek.dataclass import dataclass
from odradek.protocol.messages import metadata_records as records
from odradek.storage.kraft import MetadataEntry

_LEADER_UNCHANGED = -2

# The entity of a quota: pairs of a type, such as "user", and a name; None is the default.
Entity = tuple[tuple[str, str | None], ...]


@dataclass(slots=True)
class PartitionState:
    """A partition: its replicas, their log directories, and the replicas with all records."""

    replicas: list[int]
    directories: list[bytes]
    leader_epoch: int
    in_sync: list[int]
    # A broker that stops leaves in_sync, even the last one: these two lists keep it (KIP-966).
    eligible: list[int]
    last_known: list[int]

    def is_whole_on(self, node_id: int) -> bool:
        """Return whether a broker's replica has every record that was acknowledged."""
        if self.replicas == [node_id]:
            return True
        complete = [*self.in_sync, *self.eligible] or self.last_known
        return node_id in self.replicas and node_id in complete


@dataclass(slots=True)
class TopicState:
    """A topic; `created_ms` is None when only a snapshot has the topic."""

    name: str
    topic_id: bytes
    created_ms: int | None
    partitions: dict[int, PartitionState] = field(default_factory=dict)


@dataclass(slots=True)
class ClusterImage:
    """The metadata of a cluster; built by apply(), read by broker.adoption.plan."""

    topics: dict[bytes, TopicState] = field(default_factory=dict)
    # By the resource's type and name; the type is Kafka's number, also of a later Kafka.
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    next_producer_id: int = 0
    features: dict[str, int] = field(default_factory=dict)
    brokers: set[int] = field(default_factory=set)
    controllers: set[int] = field(default_factory=set)
    acls: dict[bytes, records.AccessControlEntryRecord] = field(default_factory=dict)
    # By the user's name and the mechanism's number.
    scram: dict[tuple[str, int], records.UserScramCredentialRecord] = field(default_factory=dict)
    quotas: dict[tuple[Entity, str], float] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=set)

    def apply(self, entries: Iterable[MetadataEntry]) -> None:
        """Apply the records of a metadata log, oldest first."""
        for entry in entries:
            if not self._take_topic(entry):
                self._take_cluster(entry.message)

    def _take_topic(self, entry: MetadataEntry) -> bool:
        """Apply a record if it is about topics; return whether it is."""
        match entry.message:
            case records.TopicRecord() as made:
                topic_id = made.topic_id
                self.topics[topic_id] = TopicState(made.name, topic_id, entry.written_ms)
            case records.RemoveTopicRecord() as gone:
                topic = self.topics.pop(gone.topic_id, None)
                if topic is not None:
                    self.configs.pop((ResourceType.TOPIC, topic.name), None)
            case records.PartitionRecord() as made:
                topic = self.topics.get(made.topic_id)
                if topic is not None:
                    topic.partitions[made.partition_id] = PartitionState(
                        made.replicas,
                        made.directories,
                        made.leader_epoch,
                        made.isr,
                        made.eligible_leader_replicas or [],
                        made.last_known_elr or [],
                    )
            case records.PartitionChangeRecord() as change:
                topic = self.topics.get(change.topic_id)
                if topic is not None and change.partition_id in topic.partitions:
                    _change(topic.partitions[change.partition_id], change)
            case records.ClearElrRecord() as cleared:
                for topic in self.topics.values():
                    if cleared.topic_name in ("", topic.name):
                        for partition in topic.partitions.values():
                            partition.eligible, partition.last_known = [], []
            case _:
                return False
        return True

    def _take_cluster(self, message: object) -> None:
        match message:
            case records.ConfigRecord() as setting:
                owner = (setting.resource_type, setting.resource_name)
                if setting.value is not None:
                    self.configs.setdefault(owner, {})[setting.name] = setting.value
                else:
                    self.configs.get(owner, {}).pop(setting.name, None)
            case records.ProducerIdsRecord() as block:
                self.next_producer_id = block.next_producer_id
            case records.FeatureLevelRecord() as feature:
                self.features[feature.name] = feature.feature_level
            case records.RegisterBrokerRecord() as broker:
                self.brokers.add(broker.broker_id)
            case records.UnregisterBrokerRecord() as broker:
                self.brokers.discard(broker.broker_id)
            case records.RegisterControllerRecord() as controller:
                self.controllers.add(controller.controller_id)
            case records.AccessControlEntryRecord() as acl:
                self.acls[acl.id] = acl
            case records.RemoveAccessControlEntryRecord() as acl:
                self.acls.pop(acl.id, None)
            case records.UserScramCredentialRecord() as user:
                self.scram[user.name, user.mechanism] = user
            case records.RemoveUserScramCredentialRecord() as user:
                self.scram.pop((user.name, user.mechanism), None)
            case records.ClientQuotaRecord() as quota:
                entity = tuple((one.entity_type, one.entity_name) for one in quota.entity)
                self.quotas.pop((entity, quota.key), None)
                if not quota.remove:
                    self.quotas[entity, quota.key] = quota.value
            case records.DelegationTokenRecord() as token:
                self.tokens.add(token.token_id)
            case records.RemoveDelegationTokenRecord() as token:
                self.tokens.discard(token.token_id)
            case _:
                raise AssertionError(f"no case for {message}")


def _change(partition: PartitionState, change: records.PartitionChangeRecord) -> None:
    if change.replicas is not None:
        partition.replicas = change.replicas
    if change.isr is not None:
        partition.in_sync = change.isr
    if change.eligible_leader_replicas is not None:
        partition.eligible = change.eligible_leader_replicas
    if change.last_known_elr is not None:
        partition.last_known = change.last_known_elr
    if change.directories is not None:
        partition.directories = change.directories
    if change.leader != _LEADER_UNCHANGED:
        # Records do not contain the epoch: each change of the leader, also to none, adds one.
        partition.leader_epoch += 1
