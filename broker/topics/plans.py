"""Decides whether topics can be created and enlarged as asked, and plans the changes.

These functions are pure: they make or refuse a plan, which broker.topics.registry carries out. The
rules, their order and their words are those of Kafka's ReplicationControlManager, with one broker
in the cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import field, replace

from odradek.broker.errors import EXPLAINED, Explained, Refusal, as_value
from odradek.broker.metadata.members import Brokers, Leader
from odradek.broker.metadata.store import TopicRecord
from odradek.broker.topics import names as topic_names
from odradek.broker.topics.placement import assigned_leaders, choose_leaders
from odradek.broker.topics.states import Wanted
from odradek.config.broker import BrokerConfig
from odradek.config.object_store import LOCAL, OBJECT, STORAGE
from odradek.config.resolution import Resolved
from odradek.config.share import ShareConfig
from odradek.config.topic import SEGMENT_BYTES_MIN, TopicConfig
from odradek.dataclass import dataclass
from odradek.protocol.errors import ErrorCode
from odradek.protocol.pacing import paced

# QuorumController.MAX_RECORDS_PER_USER_OP: the most partitions that one request may create.
PARTITIONS_PER_REQUEST_MAX = 10_000

_DEFAULT = -1

Replicas = Sequence[int]


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that a client asks for; -1 leaves a count to the broker.

    `assignments` are pairs of a partition and its replicas' brokers; with them, both counts
    must be -1. `null_configs` are the settings that came without a value.
    """

    name: str
    partition_count: int = _DEFAULT
    replication_factor: int = _DEFAULT
    assignments: Sequence[tuple[int, Replicas]] = ()
    configs: Mapping[str, str] = field(default_factory=dict)
    null_configs: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Enlargement:
    """A request for more partitions: their number, and the brokers of new ones, if given."""

    name: str
    partition_count: int
    assignments: Sequence[Replicas] | None = None


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic that can be created as planned here."""

    record: TopicRecord
    overrides: Mapping[str, str]
    resolved: Resolved[TopicConfig]

    @property
    def partitions(self) -> list[Wanted]:
        """Its partitions, to be opened."""
        count, config = self.record.partition_count, self.resolved.config
        return [Wanted(self.record, number, config) for number in range(count)]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The broker's settings and the names in use, on which a plan depends."""

    broker: BrokerConfig
    resolve: Callable[[Mapping[str, str]], Resolved[TopicConfig]]
    names: Collection[str]
    names_by_collision_key: Mapping[str, str]
    brokers: Brokers
    # How many partitions each broker leads; None where the one broker leads all.
    led: Counter[int] | None


def plan_topics(
    wanted: Iterable[NewTopic],
    around: Surroundings,
    accept: Callable[[TopicPlan], None],
    *,
    new_id: Callable[[], bytes],
    now_ms: Callable[[], int],
) -> list[TopicPlan | Explained]:
    """Plan topics one after the other, each as if the topics before it existed already.

    `accept` may refuse a planned topic by one of the errors in EXPLAINED.
    """
    outcomes: list[TopicPlan | Explained] = []
    names = dict.fromkeys(around.names)
    keys = dict(around.names_by_collision_key)
    around = replace(around, names=names, names_by_collision_key=keys)
    total = 0
    for new in paced(wanted):
        try:
            check_total(total + 1)  # first, to save resolving settings of a million topics
            plan = plan_topic(new, around, topic_id=new_id(), now_ms=now_ms())
            check_total(total + plan.record.partition_count)
            accept(plan)
        except EXPLAINED as error:
            outcomes.append(as_value(error))
            continue
        total += plan.record.partition_count
        names[new.name] = None
        keys[topic_names.collision_key(new.name)] = new.name
        outcomes.append(plan)
    return outcomes


def plan_topic(new: NewTopic, around: Surroundings, *, topic_id: bytes, now_ms: int) -> TopicPlan:
    """Plan a topic. Raises Refusal, and ConfigError for settings that are not valid."""
    _check_name(new.name, around)
    if new.null_configs:
        message = f"Null value not supported for topic configs: {','.join(new.null_configs)}"
        raise Refusal(ErrorCode.INVALID_CONFIG, message)
    configs = _with_storage(new.configs, around.broker.odradek_storage)
    resolved = around.resolve(configs)
    partition_count = _place(new, around)
    leaders: tuple[Leader, ...] = ()
    if around.led is not None:
        assignments = [replicas for _, replicas in sorted(new.assignments)]
        is_shared = resolved.config.odradek_storage == OBJECT
        leaders = _new_leaders(
            around.brokers, around.led, partition_count, assignments, is_shared=is_shared
        )
    record = TopicRecord(
        new.name,
        topic_id,
        partition_count,
        replication_factor=1,
        created_ms=now_ms,
        leaders=leaders,
    )
    return TopicPlan(record, configs, resolved)


def with_new_leaders(
    record: TopicRecord, wanted: Enlargement, brokers: Brokers, led: Counter[int]
) -> TopicRecord:
    """Return an enlarged topic with leaders for its new partitions, which `led` then counts."""
    added = record.partition_count - len(record.leaders)
    is_shared = any(one.is_shared for one in record.leaders)
    new = _new_leaders(brokers, led, added, wanted.assignments or (), is_shared=is_shared)
    return replace(record, leaders=(*record.leaders, *new))


def _new_leaders(
    brokers: Brokers,
    led: Counter[int],
    count: int,
    assignments: Sequence[Replicas],
    *,
    is_shared: bool,
) -> tuple[Leader, ...]:
    members = {one.node_id: one for one in brokers}
    if assignments:
        leaders = assigned_leaders(members, assignments, is_shared=is_shared)
    else:
        leaders = choose_leaders(members.values(), led, count, is_shared=is_shared)
    led.update(one.node_id for one in leaders)
    return leaders


def check_enlargement(wanted: Enlargement, present: int, brokers: Container[int]) -> None:
    """Raise Refusal unless a topic of `present` partitions can be enlarged as wanted."""
    count, assignments = wanted.partition_count, wanted.assignments
    if count == present:
        raise Refusal(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if count < present:
        message = (
            f"The topic {wanted.name} currently has {present} partition(s); "
            f"{count} would not be an increase."
        )
        raise Refusal(ErrorCode.INVALID_PARTITIONS, message)
    added = count - present
    if assignments is not None and len(assignments) != added:
        message = (
            f"Attempted to add {added} additional partition(s), "
            f"but only {len(assignments)} assignment(s) were specified."
        )
        raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    for replicas in assignments or ():
        check_replicas(replicas, brokers)


def check_replicas(replicas: Replicas, brokers: Container[int]) -> None:
    """Raise Refusal for replicas that the brokers cannot hold: each partition has one replica.

    Kafka's source: ReplicationControlManager.validateManualPartitionAssignment.
    """
    start = "The manual partition assignment includes"
    if not replicas:
        message = f"{start} an empty replica list."
        raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    previous = None
    for broker_id in sorted(replicas):
        if broker_id not in brokers:
            message = f"{start} broker {broker_id}, but no such broker is registered."
            raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        if broker_id == previous:
            message = f"{start} the broker {broker_id} more than once."
            raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
        previous = broker_id


def check_request(wanted: Iterable[NewTopic], default_count: int) -> None:
    """Raise Refusal when the topics of one request ask for too many partitions in all.

    Kafka counts before any other check, and refuses the whole request.
    """
    total = 0
    for new in wanted:
        asked = len(new.assignments) or new.partition_count
        total += default_count if asked == _DEFAULT else max(asked, 0)
    if total > PARTITIONS_PER_REQUEST_MAX:
        message = "Excessively large number of partitions per request."
        raise Refusal(ErrorCode.POLICY_VIOLATION, message)


def check_total(
    partition_count: int, code: ErrorCode = ErrorCode.POLICY_VIOLATION
) -> None:
    """Raise Refusal when one request would create more partitions than allowed at once."""
    if partition_count > PARTITIONS_PER_REQUEST_MAX:
        message = (
            f"Unable to perform excessively large batch operation: {partition_count} "
            f"partitions, {PARTITIONS_PER_REQUEST_MAX} at most can be created at once."
        )
        raise Refusal(code, message)


def internal_topic(name: str, broker: BrokerConfig, shares: ShareConfig) -> NewTopic:
    """Describe a topic for the broker's own state, by the broker's settings.

    Kafka's sources: GroupCoordinatorService, TransactionStateManager, ShareCoordinatorService.
    """
    if name == topic_names.CONSUMER_OFFSETS:
        return NewTopic(
            name,
            partition_count=broker.offsets_topic_num_partitions,
            replication_factor=1,
            configs={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                **_segment_bytes(broker.offsets_topic_segment_bytes),
            },
        )
    if name == topic_names.SHARE_GROUP_STATE:
        return NewTopic(
            name,
            partition_count=shares.share_coordinator_state_topic_num_partitions,
            replication_factor=1,
            configs={
                "cleanup.policy": "delete",
                "compression.type": "producer",
                "min.insync.replicas": str(shares.share_coordinator_state_topic_min_isr),
                "retention.ms": "-1",
                **_segment_bytes(shares.share_coordinator_state_topic_segment_bytes),
            },
        )
    assert name == topic_names.TRANSACTION_STATE, f"{name} is not kept here"
    return NewTopic(
        name,
        partition_count=broker.transaction_state_log_num_partitions,
        replication_factor=1,
        configs={
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(broker.transaction_state_log_min_isr),
            "unclean.leader.election.enable": "false",
            **_segment_bytes(broker.transaction_state_log_segment_bytes),
        },
    )


def _check_name(name: str, around: Surroundings) -> None:
    if name == topic_names.CLUSTER_METADATA:
        message = f"Creation of internal topic {name} is prohibited."
        raise Refusal(ErrorCode.INVALID_REQUEST, message)
    if name in around.names:
        raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    problem = topic_names.problem(name)
    if problem:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    other = around.names_by_collision_key.get(topic_names.collision_key(name))
    if other:
        message = f"Topic '{name}' collides with existing topic: {other}"
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, message)


def _with_storage(configs: Mapping[str, str], default: str) -> Mapping[str, str]:
    """Return a topic's settings with the broker's storage, which it keeps, if it sets none."""
    return configs if default == LOCAL else {STORAGE: default, **configs}


def _place(new: NewTopic, around: Surroundings) -> int:
    """Return the number of a topic's partitions. Raises Refusal if its replicas cannot be held."""
    broker = around.broker
    if new.assignments:
        return _place_as_assigned(new, around.brokers)
    if new.replication_factor < _DEFAULT or new.replication_factor == 0:
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if new.partition_count < _DEFAULT or new.partition_count == 0:
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    replicas = new.replication_factor
    if replicas == _DEFAULT:
        replicas = broker.default_replication_factor
    if replicas > 1:
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replicas} time(s): The target replication "
            f"factor of {replicas} cannot be reached because only 1 broker(s) are registered or "
            "some brokers have all their log directories cordoned.",
        )
    return broker.num_partitions if new.partition_count == _DEFAULT else new.partition_count


def _place_as_assigned(new: NewTopic, brokers: Container[int]) -> int:
    if new.replication_factor != _DEFAULT:
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set "
            "to -1.",
        )
    if new.partition_count != _DEFAULT:
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    seen: set[int] = set()
    for partition, replicas in new.assignments:
        if partition in seen:
            raise Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {partition}",
            )
        check_replicas(replicas, brokers)
        seen.add(partition)
    if seen != set(range(len(seen))):
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return len(seen)


def _segment_bytes(size_bytes: int) -> dict[str, str]:
    # Tests of cleaning use sizes below the least segment.bytes; the internal option takes them.
    small = size_bytes < SEGMENT_BYTES_MIN
    return {"internal.segment.bytes" if small else "segment.bytes": str(size_bytes)}
