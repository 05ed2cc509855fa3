"""Draws requests from their declarations: whatever is declared can be asked.

A field's value is realistic (by its name, from the world) or odd (an edge of its type). How often
it is odd is drawn for each request, so that some are right in all and some in nothing.

Odd requests name topics and partitions twice, but for some APIs (NEVER_TWICE).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields as dataclass_fields
from dataclasses import is_dataclass
from random import Random
from typing import Any

from odradek.protocol.schema import Field, fields_of
from tests.differential.comparable import keep_comparable
from tests.differential.world import (
    BROKER,
    BROKER_CONFIGS,
    CLIENT_METRICS,
    GOOD_BATCHES,
    GROUP,
    GROUP_CONFIGS,
    LOGGER,
    NODE_ID,
    ODD_BATCHES,
    PARTITIONS,
    STRANGE_ID,
    TOPIC,
    TOPIC_CONFIGS,
    Member,
    World,
)

ODDITIES = (0.0, 0.0, 0.05, 0.2, 0.7)
CONFIGS: Mapping[int, Mapping[str, tuple[str, ...]]] = {
    TOPIC: TOPIC_CONFIGS,
    BROKER: BROKER_CONFIGS,
    GROUP: GROUP_CONFIGS,
}
INT32_MIN = -(2**31)
_LONG = 1_800_000  # no session ends while requests are compared

FEATURES = ("metadata.version", "eligible.leader.replicas.version", "no-such")

# Of these an array has one by each name.
_NAMED = ("AlterableConfig", "CreatableTopicConfig", "JoinGroupRequestProtocol")

Draw = Callable[["Drawing"], Any]


class Drawing:
    """Draws one request; what belongs together (a topic, a member) is chosen once for it."""

    def __init__(self, random: Random, world: World) -> None:
        self.random = random
        self.world = world
        self.oddity = random.choice(ODDITIES)
        known = world.members
        stranger = Member(random.choice(world.groups), "", -1)
        self.member = random.choice(known[-4:]) if known and random.random() < 0.7 else stranger
        self.resource = TOPIC
        self.config = ""
        self.version = 0

    def request(self, cls: type, version: int) -> Any:
        """Draw a request of a version."""
        self.version = version
        made = self._struct(cls)
        keep_comparable(made, version, self.world)
        return made

    def pick(self, *values: Any) -> Any:
        """Choose one."""
        return self.random.choice(values)

    def often(self, *values: Any) -> Any:
        """Choose the first mostly, else one of the others."""
        return values[0] if self.random.random() < 0.7 else self.random.choice(values)

    def _struct(self, cls: type) -> Any:
        values = {}
        for field in fields_of(cls):
            if self.version in field.spec.versions:
                values[field.name] = self._field(cls, field)
        return cls(**values)

    def _field(self, cls: type, field: Field) -> Any:
        is_odd = self.random.random() < self.oddity
        named = f"{cls.__name__}.{field.name}"
        if named in NEVER_NULL:
            pass
        elif field.is_nullable(self.version) and self.random.random() < (0.3 if is_odd else 0.1):
            return None
        if field.is_array:
            wholes = REALISTIC_ARRAYS.get(named)
            if wholes is not None and not is_odd:
                return wholes(self)
            counts = (0, 1, 1, 2, 5) if is_odd else (1, 1, 1, 2, 2, 3)
            if named in NEVER_EMPTY:
                counts = (1, 2)
            drawn = [self._item(named, field) for _ in range(self.random.choice(counts))]
            if is_odd and cls.__name__ not in NEVER_TWICE:
                drawn += self.random.sample(drawn, k=len(drawn) and self.random.randint(0, 1))
                return drawn
            return list({_place(one): one for one in drawn}.values())
        return self._item(named, field)

    def _item(self, named: str, field: Field) -> Any:
        if field.struct is not None:
            return self._struct(field.struct)
        is_odd = self.random.random() < self.oddity
        if is_odd:
            edges = EDGES.get(named) or EDGES.get(field.name)
            return self.random.choice(edges) if edges else self._edge(field)
        draw = REALISTIC.get(named) or REALISTIC.get(field.name)
        return draw(self) if draw else self._plain(field)

    def _plain(self, field: Field) -> Any:
        """Draw a harmless value for a field that has no meaning here."""
        assert field.primitive is not None
        kind = field.primitive.name
        if kind == "bool":
            return self.random.random() < 0.5
        if kind == "string":
            return self.pick("a", "b")
        default = field.default()
        return field.primitive.zero if default is None or field.is_array else default

    def _edge(self, field: Field) -> Any:
        assert field.primitive is not None
        kind = field.primitive.name
        if kind == "bool":
            return self.random.random() < 0.5
        if kind == "string":
            return self.pick("", "no-such", "x" * 250, "x" * 5_000, "a/b", ".", "ü🦉", " ")
        if kind == "uuid":
            return self.pick(bytes(16), STRANGE_ID, self.random.randbytes(16))
        if kind == "bytes":
            return self.pick(b"", b"\0", self.random.randbytes(9))
        if kind == "records":
            return self.pick(*ODD_BATCHES)
        if kind == "float64":
            return self.pick(0.0, -1.0, 1e300)
        bits = int(kind.removeprefix("u").removeprefix("int"))
        if kind.startswith("u"):
            return self.pick(0, 1, 2**bits - 1)
        return self.pick(0, -1, 1, 2, -2, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _place(item: Any) -> Any:
    """Return what may come once in an array: a topic, a partition, or all of an item."""
    if not is_dataclass(item):
        return item
    values = {one.name: getattr(item, one.name) for one in dataclass_fields(item)}
    if "partitions" in values or "partition_data" in values or "partition_indexes" in values:
        named = [values.get(name) for name in ("name", "topic", "topic_id")]
        return str(named)
    if "transactional_id" in values:
        return values["transactional_id"]
    if "resource_type" in values:
        return values["resource_type"], values["resource_name"]
    if type(item).__name__ in _NAMED:
        return values["name"]
    for name in ("partition", "partition_index", "index"):
        if name in values:
            return values[name]
    return repr(item)


def _topic(d: Drawing) -> str:
    return str(d.often(*d.world.topics, *d.world.spare_topics, f"nowhere-{d.world.seed}"))


def _topic_id(d: Drawing) -> bytes:
    known = list(d.world.topic_ids.values())
    return bytes(d.pick(*known[-8:], STRANGE_ID)) if known else STRANGE_ID


def _group(d: Drawing) -> str:
    return str(d.often(d.member.group_id, *d.world.groups, f"nobody-{d.world.seed}"))


def _transactional_id(d: Drawing) -> str:
    """Draw an id that has no transaction: `transactions.py` draws what they go through."""
    return str(d.often(f"nobody-{d.world.seed}", f"one-{d.world.seed}"))


def _partition(d: Drawing) -> int:
    return int(d.pick(*range(PARTITIONS), *range(PARTITIONS), PARTITIONS + 6))


def _config_name(d: Drawing) -> str:
    d.config = str(d.pick(*CONFIGS.get(d.resource, TOPIC_CONFIGS)))
    return d.config


def _config_value(d: Drawing) -> str:
    values = CONFIGS.get(d.resource, TOPIC_CONFIGS)
    return str(d.often(*values.get(d.config, ("1",))))


def _topic_config_name(d: Drawing) -> str:
    d.resource = TOPIC
    return _config_name(d)


def _resource_type(d: Drawing) -> int:
    # Not client metrics: what is to be pushed has an id, which changes with them.
    d.resource = int(d.pick(TOPIC, TOPIC, TOPIC, BROKER, BROKER, GROUP))
    return d.resource


def _resource_name(d: Drawing) -> str:
    if d.resource == BROKER:
        return str(d.often(str(NODE_ID), "", "7", "x"))
    if d.resource == GROUP:
        return str(d.pick(f"resource-{d.world.seed}", *d.world.groups))
    return _topic(d)


def _new_topic(d: Drawing) -> str:
    return str(d.often(*d.world.spare_topics, *d.world.topics))


def _client_instance(d: Drawing) -> bytes:
    return bytes(d.pick(bytes(16), d.random.randbytes(16), *d.world.client_instances))


def _one_protocol(d: Drawing) -> list[Any]:
    from odradek.protocol.messages.join_group import JoinGroupRequestProtocol

    names = d.pick(("range",), ("range", "sticky"))
    return [JoinGroupRequestProtocol(name=name, metadata=b"meta") for name in names]


def _assignments_of_nobody(d: Drawing) -> list[Any]:
    return []


def _configs_wanted(d: Drawing) -> list[str] | None:
    """Ask for all settings of a topic, or for some; all of a broker's tell where its files are."""
    is_all = d.resource == TOPIC and d.random.random() < 0.1
    return None if is_all else list({_config_name(d): None for _ in range(3)})


REALISTIC_ARRAYS: Mapping[str, Draw] = {
    "JoinGroupRequest.protocols": _one_protocol,
    "CreatableTopic.assignments": _assignments_of_nobody,
    "CreatePartitionsTopic.assignments": lambda d: None,
    "DescribeConfigsResource.configuration_keys": _configs_wanted,
    "ListGroupsRequest.states_filter": lambda d: d.pick([], ["Stable"], ["empty", "Dead"], ["x"]),
    "ListGroupsRequest.types_filter": lambda d: d.pick([], ["classic"], ["Consumer"], ["x"]),
}

# By a field's name, or by that of its struct and its own.
REALISTIC: Mapping[str, Draw] = {
    # Topics and partitions.
    "name": _topic,
    "topic": _topic,
    "topic_name": _topic,
    "topics": _topic,
    "topic_names": lambda d: d.often(*d.world.spare_topics, f"nowhere-{d.world.seed}"),
    "DeleteTopicState.name": lambda d: d.often(*d.world.spare_topics, f"nowhere-{d.world.seed}"),
    "topic_id": _topic_id,
    "partition": _partition,
    "partition_index": _partition,
    "partition_indexes": _partition,
    "partitions": _partition,
    "partition_id": _partition,
    "index": _partition,
    "CreatableTopic.name": _new_topic,
    "num_partitions": lambda d: d.pick(-1, 1, 2, PARTITIONS),
    "replication_factor": lambda d: d.pick(-1, 1, 1, 2),
    "CreatableTopicConfig.name": _topic_config_name,
    "CreatePartitionsTopic.name": _new_topic,
    "count": lambda d: d.pick(PARTITIONS, PARTITIONS + 1, PARTITIONS + 2, 1),
    "CreatableReplicaAssignment.partition_index": lambda d: d.pick(0, 0, 1),
    "broker_ids": lambda d: d.often(NODE_ID, 2),
    "broker_id": lambda d: d.often(NODE_ID, 2),
    "replicas": lambda d: d.often(NODE_ID, 2),
    # Records and offsets.
    "records": lambda d: d.pick(*GOOD_BATCHES),
    "acks": lambda d: d.pick(-1, 1, 1, 0),
    "timeout_ms": lambda d: 20_000,
    "offset": lambda d: d.pick(0, 1, -1, 2, 1_000),
    "fetch_offset": lambda d: d.pick(0, 0, 1, 2, 1_000),
    "committed_offset": lambda d: d.pick(0, 5, 77),
    "committed_leader_epoch": lambda d: d.pick(-1, 0, 3),
    "committed_metadata": lambda d: d.pick("", "a note"),
    "retention_time_ms": lambda d: d.pick(-1, 86_400_000),
    "timestamp": lambda d: d.pick(-1, -2, -3, -4, -5, -6, 0, 1_000, 1_001, 2**50),
    "current_leader_epoch": lambda d: d.often(-1, 0, 1),
    "leader_epoch": lambda d: d.pick(0, 1, -1),
    "last_fetched_epoch": lambda d: d.often(-1, 0),
    "replica_id": lambda d: d.often(-1, -2),
    "replica_epoch": lambda d: -1,
    "isolation_level": lambda d: d.pick(0, 1),
    "max_wait_ms": lambda d: d.pick(0, 10),
    "min_bytes": lambda d: d.pick(0, 1),
    "max_bytes": lambda d: d.often(1 << 20, 1),
    "partition_max_bytes": lambda d: d.often(1 << 20, 1, 100),
    "session_id": lambda d: d.often(0, *d.world.session_ids[-3:]),
    "session_epoch": lambda d: d.often(-1, 0, 1, 2),
    "rack_id": lambda d: d.often("", "a"),
    "replica_directory_id": lambda d: bytes(16),
    # Groups.
    "group_id": _group,
    "group": _group,
    "groups": _group,
    "groups_names": _group,
    "key": _group,
    "coordinator_keys": _group,
    "key_type": lambda d: 0,
    "member_id": lambda d: d.often(d.member.member_id, ""),
    "generation_id": lambda d: d.often(d.member.generation_id, -1, 1),
    "generation_id_or_member_epoch": lambda d: d.often(d.member.generation_id, -1),
    "member_epoch": lambda d: d.often(-1, d.member.generation_id),
    "group_instance_id": lambda d: d.pick(None, None, "static"),
    "session_timeout_ms": lambda d: _LONG,
    "rebalance_timeout_ms": lambda d: _LONG,
    "protocol_type": lambda d: d.often("consumer", "connect"),
    "protocol_name": lambda d: d.often("range", "sticky"),
    "assignment": lambda d: d.pick(b"assigned", b""),
    "reason": lambda d: d.pick(None, "a reason"),
    # Producers.
    "transactional_id": _transactional_id,
    "transactional_ids": _transactional_id,
    "v3_and_below_transactional_id": _transactional_id,
    "transactional_id_pattern": lambda d: d.pick(None, "one-.*", "o"),
    "InitProducerIdRequest.transactional_id": lambda d: None,
    "ProduceRequest.transactional_id": lambda d: None,
    "state_filters": lambda d: d.pick("Ongoing", "Empty", "x"),
    "transaction_timeout_ms": lambda d: 60_000,
    "producer_id": lambda d: d.often(-1, 7),
    "producer_epoch": lambda d: d.often(-1, 0),
    # Of partitions that are not there Kafka notes what keeps it from ever deleting the group.
    "AlterShareGroupOffsetsRequestPartition.partition_index": lambda d: d.pick(0, 1, 2),
    # Settings.
    "resource_type": _resource_type,
    "resource_name": _resource_name,
    "configuration_keys": _config_name,
    "config_operation": lambda d: d.pick(0, 0, 1, 2, 3),
    # Quotas that hold back no request, since those without a name are for all.
    "EntityData.entity_type": lambda d: d.pick("user", "client-id", "ip"),
    "EntityData.entity_name": lambda d: d.pick("nobody", "10.0.0.1"),
    "OpData.key": lambda d: d.pick("consumer_byte_rate", "connection_creation_rate", "x"),
    "OpData.value": lambda d: d.pick(1e9, 2e9),
    "AlterableConfig.name": _config_name,
    "value": _config_value,
    # Disks, the controller, and features.
    "path": lambda d: d.often(d.world.log_dir, "/nowhere", "relative"),
    "election_type": lambda d: d.pick(0, 1),
    "response_partition_limit": lambda d: d.often(2_000, 1, 4),
    "RequestedTopicData.topic_name": lambda d: d.often("__cluster_metadata", "a"),
    "RequestedPartitionData.partition_index": lambda d: d.often(0, 1),
    "UnregisterBrokerRequest.broker_id": lambda d: 7,
    "cluster_id": lambda d: d.pick(None, "no-such"),
    "voter_id": lambda d: d.pick(NODE_ID, 7),
    "feature": lambda d: d.pick(*FEATURES),
    "max_version_level": lambda d: d.pick(1, 30, 99),
    "upgrade_type": lambda d: d.pick(1, 2, 3),
    "resource_types": lambda d: d.pick(*CONFIGS, LOGGER, CLIENT_METRICS),
    # Clients.
    "client_instance_id": _client_instance,
    "subscription_id": lambda d: 7,
    "client_software_name": lambda d: d.pick("a-client", "b.c"),
    "client_software_version": lambda d: d.pick("1.0", "x"),
    "endpoint_type": lambda d: d.often(1, 2),
}

# Of a partition named twice Kafka appends the last batch only; an AlterConfigs that names a
# resource twice it never answers, nor a JoinGroup that names its only protocol twice.
NEVER_TWICE = frozenset(
    {
        "ProduceRequest",
        "TopicProduceData",
        "AlterConfigsRequest",
        "JoinGroupRequest",
        "AddPartitionsToTxnRequest",
        "AddPartitionsToTxnTransaction",
        "AddPartitionsToTxnTopic",
        # Kafka never answers a request for two markers of one producer in a partition.
        "WritableTxnMarker",
        "WritableTxnMarkerTopic",
    }
)

NEVER_EMPTY = frozenset(
    {
        # Kafka never answers a request for no transaction.
        "AddPartitionsToTxnRequest.transactions",
        # An empty list stands for all settings: those of a broker differ, and `directed.py` asks
        # for those of topics.
        "DescribeConfigsResource.configuration_keys",
    }
)

# Kafka never answers a Produce request that has no records at all (null) for a partition.
NEVER_NULL = frozenset(
    {"PartitionProduceData.records", "DescribeConfigsResource.configuration_keys"}
)

# Odd values of fields where just any would take too long, or would be a matter of luck, or would
# bring about what is not served yet (Kafka makes a topic of its own for transactions).
EDGES: Mapping[str, tuple[Any, ...]] = {
    "FetchRequest.replica_id": (-1, -2, NODE_ID, 5),
    "ReplicaState.replica_id": (-1, -2, NODE_ID, 5),
    "session_id": (0, 77),
    "session_epoch": (-1, 0, 1),
    # Below zero Kafka fails as it reads: UNKNOWN_SERVER_ERROR for each partition.
    "last_fetched_epoch": (-1, 0, 1),
    # Where the id of zeros is among others that are not there, Kafka fails over the whole request.
    "FetchTopic.topic_id": (STRANGE_ID,),
    "max_bytes": (0, 1, 2, 2**31 - 1),
    "partition_max_bytes": (0, 1, 2, 2**31 - 1),
    "max_wait_ms": (-1, 0, 1, INT32_MIN),
    "min_bytes": (-1, 0, INT32_MIN, 2**31 - 1),
    "timeout_ms": (20_000, 2**31 - 1),
    "session_timeout_ms": (0, -1, INT32_MIN, 2**31 - 1, _LONG),
    "rebalance_timeout_ms": (_LONG, 2**31 - 1),
    "transactional_id": ("", "ü🦉"),
    "InitProducerIdRequest.transactional_id": ("", None),
    "ProduceRequest.transactional_id": ("", None),
    "transactional_id_pattern": ("", "(", "nobody"),
    "key_type": (-1, 3, 127, -128),
    "isolation_level": (0, 1),  # over others Kafka fails: UNKNOWN_SERVER_ERROR
    "client_instance_id": (bytes(16),),
    # Kafka adds to it, and comes out below zero.
    "Cursor.partition_index": (0, -1, 2, INT32_MIN),
    # Kafka forgets even itself.
    "UnregisterBrokerRequest.broker_id": (0, -1, 7, INT32_MIN, 2**31 - 1),
    # Levels of others that Kafka has would change what it does.
    "feature": (*FEATURES, "", "x" * 250),
    "max_version_level": (-1, 2, 99, 32767),
    # The sum of two that are larger still comes out below zero in Kafka, and is let through.
    "num_partitions": (0, -1, -2, INT32_MIN, 10_001),
    "count": (0, -1, INT32_MIN, 20_000),
    # Over one resource of a type that there is not Kafka refuses all that a request describes.
    "DescribeConfigsResource.resource_type": (TOPIC, BROKER),
    "AlterShareGroupOffsetsRequestPartition.partition_index": (0, 1),
    "resource_type": (0, 1, 3, -1, 127),
}
