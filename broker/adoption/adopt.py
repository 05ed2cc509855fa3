"""Adopts the data of Apache Kafka: reads it, and writes odradek.db beside it.

Kafka's own files stay unchanged, so until Odradek has served the data, Kafka can use it again.
The database is created elsewhere and appears last: a crash before that leaves no file that
disturbs Kafka or the next attempt.

    odradek-adopted-epoch-checkpoint   in each log directory: see storage/checkpoints.py
    odradek.db                         the data is adopted
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from odradek.broker.adoption.errors import AdoptionError
from odradek.broker.adoption.groups import GroupCounts, count_groups
from odradek.broker.adoption.image import ClusterImage
from odradek.broker.adoption.left_behind import left_behind, left_of_groups, remarks
from odradek.broker.adoption.plan import Plan, image_of, make_plan
from odradek.broker.adoption.quotas import store_quotas
from odradek.broker.adoption.survey import FoundDirectory, read_owner, survey
from odradek.broker.adoption.users import store_users
from odradek.broker.ids import random_id
from odradek.broker.metadata.images import COPY_NAME, DATABASE_NAME
from odradek.broker.metadata.sqlite import SqliteMetadata
from odradek.broker.metadata.store import Resource, ResourceType, SecurityKind
from odradek.broker.security.acls import to_row
from odradek.broker.topics import names as topic_names
from odradek.dataclass import dataclass
from odradek.storage import checkpoints
from odradek.storage.directory import LOCK, METADATA_DIRECTORY
from odradek.storage.files import FileSystem
from odradek.storage.kraft import MetadataLog
from odradek.storage.real_files import RealFileSystem


@dataclass(frozen=True, slots=True)
class Source:
    """The directories to adopt: the log directories, in order, and Kafka's metadata.

    `metadata` is the directory that has __cluster_metadata-0 when none of the log directories has
    it; with `without_metadata`, there is none.
    """

    directories: Sequence[Path]
    metadata: Path | None = None
    without_metadata: bool = False


@dataclass(frozen=True, slots=True)
class Prepared:
    """An adoption that is ready to be carried out; `left` has parts left behind, with meanings."""

    directories: tuple[FoundDirectory, ...]
    plan: Plan
    groups: GroupCounts
    left: tuple[tuple[str, str], ...]


def is_adopted(fs: FileSystem, source: Source) -> bool:
    """Return whether a log directory has a database already."""
    names = (DATABASE_NAME, COPY_NAME)
    return any(fs.exists(path / name) for path in source.directories for name in names)


def lock(fs: FileSystem, source: Source) -> list[object]:
    """Lock the directories against brokers for the lifetime of the returned values.

    Raises DirectoryInUse when one is running.
    """
    paths = [*source.directories, *([source.metadata] if source.metadata else [])]
    return [fs.lock(path / LOCK) for path in dict.fromkeys(paths) if fs.exists(path / LOCK)]


def prepare(fs: FileSystem, source: Source) -> Prepared:
    """Read all data, and plan the adoption. Changes nothing.

    Raises AdoptionError for data that cannot be adopted, and StorageError.
    """
    directories = survey(fs, source.directories)
    for one in directories[1:]:
        if (one.cluster_id, one.node_id) != (directories[0].cluster_id, directories[0].node_id):
            raise AdoptionError(
                f"{one.path} belongs to cluster {one.cluster_id}, node {one.node_id}, but "
                f"{directories[0].path} to cluster {directories[0].cluster_id}, node "
                f"{directories[0].node_id}: adopt them one by one"
            )
    torn_bytes = 0
    if source.without_metadata:
        chance = random.SystemRandom()
        image = image_of(directories, lambda: random_id(chance))
    else:
        log = MetadataLog(fs, _metadata_directory(fs, source, directories[0].cluster_id))
        image = ClusterImage()
        image.apply(log.read())
        torn_bytes = log.torn_bytes
    plan = make_plan(directories, image)
    taken = {topic.record.topic_id for topic in plan.topics}
    plan.notes += remarks(image, taken, directories, torn_bytes)
    offsets = [topic for topic in plan.topics if topic.record.name == topic_names.CONSUMER_OFFSETS]
    groups = count_groups(fs, [one.path for topic in offsets for one in topic.partitions])
    left = (*left_behind(image, plan.node_id), *left_of_groups(groups))
    return Prepared(directories, plan, groups, left)


async def carry_out(fs: FileSystem, prepared: Prepared) -> None:
    """Carry out a plan; the database appears last.

    Raises MetadataError or StorageError; the directories can be adopted again after either.
    """
    plan = prepared.plan
    for directory in prepared.directories:
        epochs = {
            (one.topic, one.number): topic.leader_epochs[one.topic, one.number]
            for topic in plan.topics
            for one in topic.partitions
            if one.path.parent == directory.path
        }
        checkpoints.write_offsets(fs, directory.path / checkpoints.ADOPTED_EPOCHS, epochs)
    with TemporaryDirectory() as scratch:
        store = SqliteMetadata(RealFileSystem(), [Path(scratch)], lambda: plan.cluster_id)
        try:
            await store.create_topics([(topic.record, topic.overrides) for topic in plan.topics])
            await store.replace_configs(
                {
                    Resource(ResourceType.BROKER, name): settings
                    for name, settings in plan.broker_configs.items()
                }
            )
            rows = {to_row(acl): "" for acl in plan.acls}
            await store.change_security(SecurityKind.ACL, rows)
            await store_users(store, plan.users)
            await store.allocate_producer_ids(plan.next_producer_id)
            await store_quotas(store, plan.quotas)
        finally:
            await store.close()
        image = (Path(scratch) / DATABASE_NAME).read_bytes()
    # The first start copies it to the other directories.
    fs.write_atomically(prepared.directories[0].path / DATABASE_NAME, image, is_private=True)


def _metadata_directory(fs: FileSystem, source: Source, cluster_id: str) -> Path:
    """Return the directory of the metadata log. Raises AdoptionError unless there is one."""
    if source.metadata is not None:
        given = source.metadata
        home = given.parent if given.name == METADATA_DIRECTORY else given
        if not fs.exists(home / METADATA_DIRECTORY):
            raise AdoptionError(f"{home} has no {METADATA_DIRECTORY}")
        other, _, _ = read_owner(fs, home)
        if other != cluster_id:
            raise AdoptionError(
                f"{home} has the metadata of cluster {other}, but the data is of {cluster_id}"
            )
        return home / METADATA_DIRECTORY
    candidates = [path / METADATA_DIRECTORY for path in source.directories]
    found = [path for path in candidates if fs.exists(path)]
    if len(found) == 1:
        return found[0]
    if found:
        raise AdoptionError(
            f"there is metadata in {' and in '.join(map(str, found))}: choose the directory of "
            "metadata.log.dir with --metadata-dir"
        )
    raise AdoptionError(
        f"no {METADATA_DIRECTORY} here, which has the topics' settings. Give the directory of "
        "metadata.log.dir in Kafka's server.properties with --metadata-dir; or adopt with "
        "--without-metadata, which keeps all records of all topics until you set their "
        "cleanup.policy"
    )
