"""Moves the metadata of a catalog back into the log directories of a single broker.

    1. the catalog notes that this broker takes the metadata: no broker joins any more
    2. the leader epochs of the catalog are written, from which the logs go on
    3. the image appears in the log directories: the broker can start without the catalog
    4. marks of the move into the catalog are removed; a catalog that workers have had in the first
       log directory gets another name, since a start would use it

A crash before the third step leaves directories that only the same command, given again, makes
complete: a start refuses them, for the mark says that the metadata is in a catalog. The catalog
stays as it was at the first step, so that brokers with other topics can be exported, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from odradek.broker.catalog.engines import Engine, transact_once
from odradek.broker.catalog.moving_in import (
    has_own,
    locked,
    mark_moved,
    unmark_moved,
)
from odradek.broker.catalog.passages import is_exported_to, note_export, read_origin
from odradek.broker.catalog.schema import migrate
from odradek.broker.catalog.sessions import close_session, expired_sessions, open_sessions
from odradek.broker.catalog.statements import CatalogStatements
from odradek.broker.errors import MetadataError
from odradek.broker.metadata.images import DATABASE_NAME, Images, NoIntactImage
from odradek.broker.metadata.sqlite import create_image
from odradek.broker.metadata.statements import Connection
from odradek.broker.metadata.store import Metadata, ResourceType, TopicRecord
from odradek.config.workers import CATALOG_NAME
from odradek.dataclass import dataclass
from odradek.storage import checkpoints
from odradek.storage.checkpoints import TopicPartition
from odradek.storage.files import FileSystem
from odradek.storage.meta_properties import META, read_properties
from odradek.storage.partition_directories import deleted_name, list_partitions, partition_keys
from odradek.storage.shared_directory import processes_of

_NAMED_MAX = 10
_EXPORTED_SUFFIX = ".exported"

Found = Mapping[TopicPartition, tuple[Path, bytes | None]]
"""The directories of partitions, each with the id of its topic, if it is noted."""


@dataclass(frozen=True, slots=True)
class Export:
    """The metadata that a broker gets, and the topics that it does not get."""

    node_id: int
    metadata: Metadata
    left_out: tuple[str, ...]
    # The directories of those topics, which belong to no topic from now on.
    strays: tuple[Path, ...]
    # The directories of topics that others have deleted.
    doomed: tuple[Path, ...]
    epochs: Mapping[TopicPartition, int]
    generation: int


@dataclass(frozen=True, slots=True)
class _Owner:
    """The broker to which log directories belong; `hosts` has the ids of all of them."""

    cluster_id: str
    node_id: int
    hosts: tuple[str, ...]


async def move_out(
    fs: FileSystem, paths: Sequence[Path], url: str, *, only_here: bool = False
) -> Export:
    """Move the metadata of a catalog into the log directories of one broker; return it.

    With `only_here` topics with partitions of other brokers are left out. Raises MetadataError
    and StorageError; the move can be repeated after either.
    """
    file = Path(urlsplit(url).path) if urlsplit(url).scheme == "sqlite" else None
    if file is not None and not file.exists():
        raise MetadataError(f"there is no catalog {file}")
    with locked(fs, paths):
        is_there = has_own(fs, paths)
        if not is_there:
            _refuse_left(fs, paths)
        owner = _read_owner(fs, paths)
        found = {
            key: (path / f"{key[0]}-{key[1]}", topic_id)
            for path in paths
            for key, topic_id in list_partitions(fs, path).items()
        }

        def work(engine: Engine, connection: Connection) -> Export:
            taken = _take(engine, connection, owner, found, only_here=only_here, is_there=is_there)
            mark_moved(fs, paths)  # before the catalog notes that nobody may use it
            return taken

        taken = await asyncio.to_thread(transact_once, url, work)
        if is_there:  # a crash has interrupted the move at its end
            _mend(fs, paths)
        else:
            _write(fs, paths, taken, found)
        unmark_moved(fs, paths)
        if file == paths[0].absolute() / CATALOG_NAME:
            fs.rename(file, Path(f"{file}{_EXPORTED_SUFFIX}"))
            fs.sync_directory(paths[0])
    return taken


def _refuse_left(fs: FileSystem, paths: Sequence[Path]) -> None:
    """Raise MetadataError for directories that workers have left without a stop.

    The directories have no checkpoints then: each worker has its own, or the catalog has them.
    """
    for path in paths:
        has_none = not fs.exists(path / checkpoints.RECOVERY_POINTS)
        if processes_of(fs, path) or (has_none and partition_keys(fs, path)):
            raise MetadataError(
                f"the broker or the workers of {path} have not stopped as asked: start and stop "
                "them once, then try again"
            )


def _read_owner(fs: FileSystem, paths: Sequence[Path]) -> _Owner:
    """Return the broker of log directories. Raises MetadataError unless it is one broker."""
    owners: list[tuple[str, str]] = []
    hosts: list[str] = []
    for path in paths:
        found = read_properties(fs, path / META) if fs.exists(path / META) else {}
        try:
            owners.append((found["cluster.id"], found["node.id"]))
            hosts.append(found["directory.id"])
        except KeyError as error:
            raise MetadataError(
                f"{path} is not a log directory of a broker: {META} has no {error.args[0]}"
            ) from error
    if len(set(owners)) > 1:
        raise MetadataError("these log directories belong to several brokers: name those of one")
    cluster_id, node_id = owners[0]
    return _Owner(cluster_id, int(node_id), tuple(hosts))


def _take(
    engine: Engine,
    connection: Connection,
    owner: _Owner,
    found: Found,
    *,
    only_here: bool,
    is_there: bool,
) -> Export:
    """Note in the catalog that a broker takes the metadata, and return it."""
    if not engine.has_table(connection, "cluster"):
        raise MetadataError(f"the catalog {engine.address} is empty")
    migrate(engine, connection)
    statements = CatalogStatements(connection)
    if statements.cluster_id() != owner.cluster_id:
        raise MetadataError(
            f"the catalog {engine.address} has cluster {statements.cluster_id()}, the log "
            f"directories belong to cluster {owner.cluster_id}"
        )
    host = _host(connection, engine, owner)
    is_again = is_exported_to(connection, host)
    if is_there and not is_again:
        raise MetadataError(
            f"the log directories have metadata of their own, {DATABASE_NAME}: move it away, or "
            "start the broker with the catalog once"
        )
    taken = _plan(connection, statements, owner.node_id, host, found)
    if is_again:
        return taken
    if taken.left_out and not only_here:
        raise MetadataError(
            f"these topics have partitions of other brokers: {_some(taken.left_out)}. Move their "
            "partitions to this broker or delete the topics, then try again; --only-here leaves "
            "the topics out"
        )
    _refuse_missing(taken.metadata, statements, found)
    _close_sessions(engine, connection, host)
    note_export(connection, host, owner.node_id)
    return taken


def _host(connection: Connection, engine: Engine, owner: _Owner) -> str:
    """Return the id by which the catalog knows the log directories. Raises MetadataError."""
    rows = connection.execute(
        "SELECT host FROM partition UNION SELECT host FROM session UNION SELECT host FROM origin"
    )
    known = {host for (host,) in rows}
    for host in owner.hosts:
        if host in known:
            return host
    raise MetadataError(
        f"the catalog {engine.address} knows no broker with these log directories: name all "
        "directories of its log.dirs"
    )


def _plan(
    connection: Connection,
    statements: CatalogStatements,
    node_id: int,
    host: str,
    found: Found,
) -> Export:
    held, origin = statements.load(), read_origin(connection)
    ((revision,),) = connection.execute("SELECT number FROM revision")
    # A topic that is being deleted goes at the next start, wherever its other partitions are.
    own = [
        one
        for one in held.topics
        if one.is_deleting or all(leader.host == host for leader in one.leaders)
    ]
    left_out = {one.name for one in held.topics} - {one.name for one in own}
    configs = {
        owner: values
        for owner, values in held.configs.items()
        if owner.type is not ResourceType.TOPIC or owner.name not in left_out
    }
    removed = {one.topic_id for one in statements.removals(host)}
    return Export(
        node_id,
        replace(held, topics=tuple(map(_alone, own)), configs=configs),
        tuple(sorted(left_out)),
        tuple(sorted(path for (name, _), (path, _) in found.items() if name in left_out)),
        tuple(sorted(path for path, topic_id in found.values() if topic_id in removed)),
        {
            (one.name, number): leader.epoch
            for one in own
            for number, leader in enumerate(one.leaders)
            if not one.is_deleting and (one.name, number) in found
        },
        # Later than every image that a disk may still have.
        (origin.generation if origin else 0) + revision,
    )


def _alone(record: TopicRecord) -> TopicRecord:
    """Return a topic of a broker that leads all partitions."""
    made = [one.is_made for one in record.leaders]
    count = made.index(False) if False in made else len(made)
    return replace(record, leaders=(), made_count=count)


def _refuse_missing(metadata: Metadata, statements: CatalogStatements, found: Found) -> None:
    """Raise MetadataError for partitions that have had files, which are nowhere here."""
    names = {one.name for one in metadata.topics if not one.is_deleting}
    missing = [
        f"{one.name}-{number}"
        for one in statements.topics()
        for number, leader in enumerate(one.leaders)
        if one.name in names
        and leader.is_made
        and found.get((one.name, number), (None, b""))[1] not in (one.topic_id, None)
    ]
    if missing:
        raise MetadataError(
            f"none of the directories has {_some(missing)}: name all directories of the broker's "
            "log.dirs. If the files are lost, start the broker with the catalog and "
            "odradek.create.missing.partitions=true once, or delete the topics"
        )


def _close_sessions(engine: Engine, connection: Connection, host: str) -> None:
    """Close the sessions that have ended. Raises MetadataError while another broker runs.

    Those of this host have: their process does not hold the log directories.
    """
    opened = open_sessions(connection)
    ended = {one.epoch for one in expired_sessions(connection, engine)}
    live = [
        f"broker {one.member.node_id}"
        for one in opened
        if one.epoch not in ended and one.member.host != host
    ]
    if live:
        raise MetadataError(
            f"the catalog {engine.address} is in use by {_some(live)}: stop all brokers, then "
            "try again. One that has crashed counts for broker.session.timeout.ms"
        )
    for one in opened:
        close_session(connection, engine, one.epoch)


def _mend(fs: FileSystem, paths: Sequence[Path]) -> None:
    images = Images(fs, paths)
    try:
        images.read()
    except NoIntactImage as error:
        raise MetadataError(str(error)) from error
    images.mend()


def _write(fs: FileSystem, paths: Sequence[Path], taken: Export, found: Found) -> None:
    for path in paths:
        epochs = {
            key: epoch for key, epoch in taken.epochs.items() if found[key][0].parent == path
        }
        if epochs:
            checkpoints.write_offsets(fs, path / checkpoints.ADOPTED_EPOCHS, epochs)
    for doomed in taken.doomed:  # a start removes it
        fs.rename(doomed, doomed.parent / deleted_name(doomed))
        fs.sync_directory(doomed.parent)
    images = Images(fs, paths)
    images.skip_to(taken.generation)
    images.write(create_image(taken.metadata))


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else ""
    return ", ".join(names[:_NAMED_MAX]) + more
