"""Moves the metadata of a single broker into a new catalog.

    1. the catalog begins with the metadata in the log directories, in one transaction
    2. the files in the log directories are renamed: they would be out of date from now on

A crash between the steps leaves both. The catalog notes the image with which it began, so that
the next attempt repeats the second step alone. Files that a broker without the catalog has changed
meanwhile are refused: an operator has to choose between the two.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from odradek.broker.catalog.engines import Engine, transact_once
from odradek.broker.catalog.passages import Origin, note_origin, read_origin, refuse_exported
from odradek.broker.catalog.schema import migrate
from odradek.broker.catalog.statements import CatalogStatements
from odradek.broker.errors import MetadataError
from odradek.broker.metadata.images import DATABASE_NAME, MOVED_SUFFIX, places
from odradek.broker.metadata.members import NO_LEADER, Leader
from odradek.broker.metadata.sqlite import SqliteMetadata
from odradek.broker.metadata.statements import Connection
from odradek.broker.metadata.store import Metadata, TopicRecord
from odradek.storage.directory import LOCK
from odradek.storage.errors import DiskFailure
from odradek.storage.files import FileSystem
from odradek.storage.meta_properties import META, check_meta, read_directory_id

logger = logging.getLogger(__name__)

def has_own(fs: FileSystem, paths: Sequence[Path]) -> bool:
    """Return whether log directories have metadata of their own."""
    return any(fs.exists(path) for path in places(paths))


async def move_in(fs: FileSystem, paths: Sequence[Path], url: str, node_id: int) -> Metadata:
    """Move the metadata in log directories into the catalog of a url; return it.

    Raises MetadataError and StorageError; the move can be repeated after either.
    """
    with locked(fs, paths):
        files = SqliteMetadata(fs, paths, lambda: "")
        try:
            metadata, generation = await files.load(), files.revision
        finally:
            await files.close()
        check_meta(fs, paths[0] / META, metadata.cluster_id, node_id)
        origin = Origin(read_directory_id(fs, paths[0]), generation)
        placed = replace(
            metadata, topics=tuple(_placed(one, origin.host, node_id) for one in metadata.topics)
        )

        def work(engine: Engine, connection: Connection) -> None:
            _begin(engine, connection, placed, origin, paths[0] / DATABASE_NAME)

        await asyncio.to_thread(transact_once, url, work)
        _retire(fs, paths)
    return metadata


@contextmanager
def locked(fs: FileSystem, paths: Sequence[Path]) -> Iterator[None]:
    """Keep brokers out of log directories. Raises DirectoryInUse while one runs."""
    locks = [fs.lock(path / LOCK) for path in paths if fs.exists(path)]
    try:
        yield
    finally:
        locks.clear()  # an error's traceback would hold them


def mark_moved(fs: FileSystem, paths: Sequence[Path]) -> None:
    """Leave a mark that the metadata is in a catalog: a broker without one must not start here.

    It would find the directories of partitions, and create their topics without settings.
    """
    mark = _moved(paths[0] / DATABASE_NAME)
    with suppress(DiskFailure):
        if not fs.exists(mark):
            fs.write_atomically(mark, b"", is_private=True)


def is_marked(fs: FileSystem, paths: Sequence[Path]) -> bool:
    """Return whether log directories say that their metadata is in a catalog."""
    return any(fs.exists(_moved(path)) for path in places(paths))


def unmark_moved(fs: FileSystem, paths: Sequence[Path]) -> None:
    """Remove the mark, and the old files."""
    for path in map(_moved, places(paths)):
        if fs.exists(path):
            fs.remove(path)


def _begin(
    engine: Engine, connection: Connection, metadata: Metadata, origin: Origin, path: Path
) -> None:
    """Begin a catalog with the metadata of a broker, or check that it began so."""
    migrate(engine, connection)
    refuse_exported(connection, engine.address)
    statements = CatalogStatements(connection)
    if statements.cluster_id() is None:
        statements.fill(metadata)
        note_origin(connection, origin)
        return
    check_origin(connection, engine.address, origin, path)


def check_origin(connection: Connection, address: str, origin: Origin, path: Path) -> None:
    """Raise MetadataError unless a catalog began with the files of an origin."""
    began = read_origin(connection)
    if began is None or began.host != origin.host:
        raise MetadataError(
            f"the catalog {address} has the metadata of a cluster already, and {path} "
            "that of another: choose an empty database, or other log.dirs"
        )
    if origin.generation > began.generation:
        raise MetadataError(
            f"{path} has changed since it was moved to the catalog {address}: move the "
            f"files {DATABASE_NAME}* away to go on with the catalog; or go on with the files, "
            "without odradek.catalog.url or with an empty database"
        )


def _placed(record: TopicRecord, host: str, node_id: int) -> TopicRecord:
    """Return a topic whose partitions a broker has, and leads once it joins."""
    return replace(
        record,
        leaders=tuple(
            Leader(NO_LEADER, 0, host, node_id, is_made=record.is_made(number))
            for number in range(record.partition_count)
        ),
    )


def _retire(fs: FileSystem, paths: Sequence[Path]) -> None:
    """Rename the files of metadata that is in the catalog now."""
    for path in places(paths):
        with suppress(DiskFailure):
            if fs.exists(path):
                fs.rename(path, _moved(path))
                fs.sync_directory(path.parent)
    logger.info("moved the metadata to the catalog, the old files are *%s", MOVED_SUFFIX)


def _moved(path: Path) -> Path:
    return Path(f"{path}{MOVED_SUFFIX}")
