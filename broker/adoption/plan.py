"""Decides what to take over from Kafka's data, what to leave behind, and which obstacles exist.

Pure: this module makes a plan from the data that was read, and broker.adoption.adopt carries it
out. An obstacle stops the adoption, unless it is forced: then the obstacle's subject is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field

from odradek.broker.adoption.image import ClusterImage, PartitionState, TopicState
from odradek.broker.adoption.quotas import adopted_quotas
from odradek.broker.adoption.rights import adopted_acls, strange_acls
from odradek.broker.adoption.survey import FoundDirectory, FoundPartition
from odradek.broker.adoption.users import adopted_users
from odradek.broker.metadata.configs import ALL_BROKERS
from odradek.broker.metadata.store import ResourceType, TopicRecord
from odradek.broker.security.acls import Acl
from odradek.broker.security.credentials import ScramCredential
from odradek.broker.security.quotas.entities import Entity
from odradek.broker.security.scram_users import Key
from odradek.broker.topics import names as topic_names
from odradek.broker.topics.plans import internal_topic
from odradek.config.dynamic import check_dynamic
from odradek.config.effective import resolve_apart, resolve_broker, resolve_topic
from odradek.config.errors import ConfigError
from odradek.config.resolution import Layer, Source
from odradek.config.share import ShareConfig
from odradek.config.topic import TopicConfig
from odradek.dataclass import dataclass
from odradek.protocol.wire import encode_uuid
from odradek.storage.checkpoints import TopicPartition

# Without the metadata, the producer ids that Kafka gave out are unknown. Kafka counts from zero, a
# thousand at a time: no cluster reaches this number.
_PRODUCER_IDS_SKIPPED = 1 << 32
# More partitions than any topic of Kafka has; without the metadata, the names of directories alone
# give their number.
_PARTITIONS_MAX = 100_000
# If Kafka gets its data back, it continues from its own ids, which must not reach ours.
_PRODUCER_IDS_LEFT_TO_KAFKA = 1_000_000
# Ids that stand for no particular directory (DirectoryId): unassigned, lost, migrating.
_RESERVED_DIRECTORY_IDS = tuple(bytes(15) + bytes([number]) for number in range(3))


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A problem that prevents part of the adoption, and its subject."""

    subject: str
    text: str


@dataclass(frozen=True, slots=True)
class AdoptedTopic:
    """A topic that is taken over, with the directories that hold its partitions."""

    record: TopicRecord
    overrides: Mapping[str, str]
    config: TopicConfig
    partitions: tuple[FoundPartition, ...]
    leader_epochs: Mapping[TopicPartition, int]


@dataclass(slots=True)
class Plan:
    """The result of an adoption, its obstacles, and notes for the operator."""

    cluster_id: str
    node_id: int
    next_producer_id: int
    topics: list[AdoptedTopic] = field(default_factory=list)
    # By the resource's name: "" for all brokers, or the node id.
    broker_configs: dict[str, Mapping[str, str]] = field(default_factory=dict)
    acls: list[Acl] = field(default_factory=list)
    users: Mapping[Key, ScramCredential] = field(default_factory=dict)
    obstacles: list[Obstacle] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    quotas: Mapping[Entity, Mapping[str, float]] = field(default_factory=dict)


def make_plan(directories: Sequence[FoundDirectory], image: ClusterImage) -> Plan:
    """Plan the adoption of the log directories of one node."""
    node_id = directories[0].node_id
    next_producer_id = image.next_producer_id + _PRODUCER_IDS_LEFT_TO_KAFKA
    plan = Plan(directories[0].cluster_id, node_id, next_producer_id)
    plan.quotas = adopted_quotas(image)
    found: dict[TopicPartition, list[FoundPartition]] = {}
    for directory in directories:
        for partition in directory.partitions:
            found.setdefault((partition.topic, partition.number), []).append(partition)
    home_ids = {directory.directory_id for directory in directories}
    for topic in sorted(image.topics.values(), key=lambda topic: topic.name):
        here = {number: found.pop((topic.name, number), []) for number in topic.partitions}
        problems = list(_misplaced(topic, here, node_id, home_ids))
        plan.obstacles += (Obstacle(f"topic {topic.name}", problem) for problem in problems)
        if not problems:
            overrides = image.configs.get((ResourceType.TOPIC, topic.name), {})
            plan.topics.append(_adopted(topic, here, overrides, plan))
    for name in (ALL_BROKERS, str(node_id)):
        settings = image.configs.get((ResourceType.BROKER, name), {})
        plan.broker_configs[name] = _accepted_by_broker(name, settings, node_id, plan.obstacles)
    plan.users = adopted_users(image)
    plan.acls += adopted_acls(image)
    plan.obstacles += (Obstacle("ACLs", problem) for problem in strange_acls(image))
    if plan.acls:
        plan.notes.append(
            "ACLs take effect where authorizer.class.name is set, with super.users, as in Kafka: "
            "without it, every client may do everything"
        )
    for strays in found.values():
        plan.notes += (
            f"{stray.path} belongs to no topic of this cluster: it is left alone"
            for stray in strays
        )
    return plan


def image_of(
    directories: Iterable[FoundDirectory], new_id: Callable[[], bytes]
) -> ClusterImage:
    """Make up the metadata from the partitions' directories alone.

    The settings of the topics are unknown. Defaults could delete records, so all records are kept.
    """
    image = ClusterImage()
    names: dict[str, TopicState] = {}
    for directory in directories:
        for one in directory.partitions:
            if one.number >= _PARTITIONS_MAX:
                continue  # the plan reports it as a directory of no topic
            image.next_producer_id = max(image.next_producer_id, one.producer_id_max + 1)
            known = names.get(one.topic)
            if known is None:
                topic_id = one.topic_id or new_id()
                known = names[one.topic] = TopicState(one.topic, topic_id, None)
                image.topics[topic_id] = known
                image.configs[ResourceType.TOPIC, one.topic] = _cautious_settings(one.topic)
            for number in range(one.number + 1):
                nowhere = PartitionState([], [], -1, [], [], [])
                known.partitions.setdefault(number, nowhere)
            known.partitions[one.number].replicas = [directory.node_id]
    image.next_producer_id += _PRODUCER_IDS_SKIPPED
    return image


def _cautious_settings(name: str) -> dict[str, str]:
    if name not in topic_names.INTERNAL:
        return {"cleanup.policy": ""}
    shares = resolve_apart(ShareConfig, [])
    found = internal_topic(name, resolve_broker([]).config, shares)
    return {key: value for key, value in found.configs.items() if value is not None}


def _misplaced(
    topic: TopicState,
    here: Mapping[int, Sequence[FoundPartition]],
    node_id: int,
    home_ids: set[str],
) -> Iterator[str]:
    """Iterate over the reasons why this node alone cannot serve the partitions of a topic."""
    # The name becomes part of paths, and damaged or made-up metadata may contain any name.
    wrong = topic_names.problem(topic.name)
    if wrong is not None:
        yield wrong
    for number, state in sorted(topic.partitions.items()):
        found = here[number]
        flaws = [one.flaw for one in found if one.flaw is not None]
        if flaws:
            yield flaws[0]
        elif node_id not in state.replicas:
            where = f"only on {_brokers(state.replicas)}" if state.replicas else "nowhere here"
            yield f"partition {number} is {where}"
        elif not state.is_whole_on(node_id):
            others = _brokers([*state.in_sync, *state.eligible] or state.last_known)
            yield f"partition {number} lags behind here; {others} has all of it"
        elif len(found) > 1:
            yield f"partition {number} is in both {' and '.join(str(one.path) for one in found)}"
        elif not found:
            directory_id = _directory_id(state, node_id)
            if directory_id and directory_id not in home_ids:
                yield f"partition {number} is in another log directory, of id {directory_id}"
        elif found[0].topic_id not in (topic.topic_id, None):
            yield f"{found[0].path} belongs to an older topic of that name: move it away"


def _brokers(ids: Iterable[int]) -> str:
    unique = sorted(set(ids))
    return f"broker{'s' if len(unique) > 1 else ''} {', '.join(map(str, unique))}"


def _directory_id(state: PartitionState, node_id: int) -> str:
    """Return the id of the log directory that holds a node's replica, "" when it is unknown."""
    at = state.replicas.index(node_id)
    if at >= len(state.directories) or state.directories[at] in _RESERVED_DIRECTORY_IDS:
        return ""
    return encode_uuid(state.directories[at])


def _adopted(
    topic: TopicState,
    here: Mapping[int, Sequence[FoundPartition]],
    overrides: Mapping[str, str],
    plan: Plan,
) -> AdoptedTopic:
    accepted, config = _accepted_by_topic(topic.name, overrides, plan.obstacles)
    found = tuple(here[number][0] for number in sorted(here) if here[number])
    created_ms = topic.created_ms
    if created_ms is None:
        created_ms = min((one.created_ms for one in found), default=0)
    record = TopicRecord(
        topic.name, topic.topic_id, len(topic.partitions), replication_factor=1,
        created_ms=created_ms,
        made_count=len(topic.partitions) if all(here.values()) else 0,
    )  # fmt: skip
    # Odradek is a new leader: clients compare its epoch, and ignore metadata with an older one.
    epochs = {
        (topic.name, one.number): max(
            topic.partitions[one.number].leader_epoch, one.leader_epoch + 1
        )
        for one in found
    }
    plan.notes += (
        f"{topic.name}-{number} has no directory yet: it begins empty"
        for number in sorted(here)
        if not here[number]
    )
    return AdoptedTopic(record, accepted, config, found, epochs)


def _accepted_by_topic(
    name: str, overrides: Mapping[str, str], obstacles: list[Obstacle]
) -> tuple[Mapping[str, str], TopicConfig]:
    """Return the settings that are valid here, and the resulting config."""

    def check(settings: Mapping[str, str]) -> None:
        if settings.get("remote.storage.enable") == "true":
            raise ConfigError("records in remote storage cannot be read here")
        resolve_topic(settings)

    accepted = _accepted(f"topic {name}", overrides, check, obstacles)
    return accepted, resolve_topic(accepted).config


def _accepted_by_broker(
    name: str, settings: Mapping[str, str], node_id: int, obstacles: list[Obstacle]
) -> Mapping[str, str]:
    """Return the settings that are valid for a running broker."""
    static = Layer(Source.STATIC_BROKER, {"node.id": str(node_id)})
    per_broker = name != ALL_BROKERS
    source = Source.DYNAMIC_BROKER if per_broker else Source.DYNAMIC_DEFAULT_BROKER

    def check(settings: Mapping[str, str]) -> None:
        check_dynamic(settings, per_broker=per_broker)
        resolve_broker([Layer(source, settings), static])

    return _accepted(f"broker {name}" if per_broker else "all brokers", settings, check, obstacles)


def _accepted(
    subject: str,
    settings: Mapping[str, str],
    check: Callable[[Mapping[str, str]], None],
    obstacles: list[Obstacle],
) -> Mapping[str, str]:
    """Return the settings that a check accepts: all of them, or else as many as it accepts."""
    try:
        check(settings)
        return settings
    except ConfigError:
        accepted: dict[str, str] = {}
    for key, value in settings.items():
        try:
            check({**accepted, key: value})
            accepted[key] = value
        except ConfigError as error:
            # The name only: a value may be a secret.
            obstacles.append(Obstacle(subject, f"setting {key} is not accepted: {error}"))
    return accepted
