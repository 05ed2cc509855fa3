"""The log directories and the catalog of one machine, for the process that starts its brokers.

    open       the directories are locked, for as long as this process or a worker lives
    prepare    the catalog exists, and has an even share of the partitions for each worker
    take_over  a worker has ended: the others lead its partitions
    rebalance  it is there again: they hand its share over to it
    settle     all have ended: the directories are as one broker leaves them

The workers hold the lock, too, since they inherit it: another process cannot open the directories
while one of them is left behind.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from odradek.broker.catalog import changes
from odradek.broker.catalog.engines import Engine, transact_once
from odradek.broker.catalog.hosts import HostStatements, rebalance, spread, take_over
from odradek.broker.catalog.moving_in import has_own, move_in
from odradek.broker.catalog.opening import open_catalog
from odradek.broker.errors import MetadataError
from odradek.broker.ids import random_id
from odradek.broker.metadata.identity import new_cluster_id
from odradek.broker.metadata.statements import Connection
from odradek.broker.topics.directories import open_directories, refuse_kafkas
from odradek.protocol.wire import encode_uuid
from odradek.storage.checkpoints import LeftLog, TopicPartition
from odradek.storage.copied_log import has_moved
from odradek.storage.directory import LogDirectory
from odradek.storage.files import FileSystem
from odradek.storage.meta_properties import read_directory_id
from odradek.storage.shared_directory import (
    HostLogDirectory,
    discard,
    processes_of,
    take_left,
)

logger = logging.getLogger(__name__)

Left = dict[TopicPartition, LeftLog]
Work = Callable[[Engine, Connection], Iterable[changes.Change]]


def refuse_lost_metadata(directories: Iterable[LogDirectory]) -> None:
    """Raise MetadataError for partitions of which new metadata knows nothing."""
    if any(one.partitions_at_start for one in directories):
        raise MetadataError(
            "the log directories have partitions, and no metadata is left: start once without "
            "workers and without a catalog, which finds the topics again"
        )


class Host:
    """The directories and the catalog; the process has no other threads or connections.

    A child process inherits memory in which no database is open.
    """

    def __init__(
        self, fs: FileSystem, paths: Sequence[Path], url: str, given_cluster_id: str | None
    ) -> None:
        self._fs, self._paths, self._url = fs, paths, url
        self._given_cluster_id = given_cluster_id
        self._random = random.SystemRandom()
        self._directories: Sequence[HostLogDirectory] = ()
        self._id = ""

    def prepare(self, node_ids: Sequence[int]) -> None:
        """Lock the directories, open the catalog, and share the partitions among workers.

        Raises MetadataError or StorageError.
        """
        cluster_id, is_new = asyncio.run(self._open_catalog(node_ids[0]))
        if is_new:
            refuse_kafkas(self._fs, self._paths)

        def open_one(path: Path) -> HostLogDirectory:
            return HostLogDirectory(self._fs, path, cluster_id=cluster_id, node_id=node_ids[0])

        self._directories, _ = open_directories(self._fs, self._paths, open_one)
        self._id = read_directory_id(self._fs, self._directories[0].path)
        if is_new:
            refuse_lost_metadata(self._directories)
        left = self._left()

        def work(engine: Engine, connection: Connection) -> Sequence[changes.Change]:
            statements = HostStatements(connection)
            doomed = self._delete_remains(statements)
            self._remove_moved(statements)
            spreading = spread(connection, engine, self._id, node_ids, left)
            return [*map(changes.topic, doomed), *spreading]

        self._change(work)
        for directory in self._directories:
            directory.discard_checkpoints()

    def take_over(self, node_id: int) -> None:
        """Let the other workers lead the partitions of one whose process has ended.

        Raises MetadataError or StorageError.
        """
        left: Left = {}
        for directory in self._directories:
            left |= take_left(self._fs, directory.path, node_id)
        self._change(
            lambda engine, connection: take_over(connection, engine, self._id, node_id, left)
        )
        for directory in self._directories:
            discard(self._fs, directory.path, node_id)

    def rebalance(self) -> None:
        """Let the workers hand partitions over, so that each leads its share.

        Raises MetadataError.
        """
        self._change(lambda _, connection: rebalance(connection, self._id))

    def settle(self, *, is_clean: bool) -> None:
        """Leave the directories as one broker leaves them, once all workers have ended.

        With `is_clean` every log was closed. Raises StorageError.
        """
        for directory in self._directories:
            directory.settle(is_clean=is_clean)

    async def _open_catalog(self, node_id: int) -> tuple[str, bool]:
        fs, paths = self._fs, self._paths
        fs.make_directory(paths[0], is_private=True)
        if has_own(fs, paths):
            await move_in(fs, paths, self._url, node_id)
        store, is_new = await open_catalog(
            self._url,
            lambda: new_cluster_id(fs, paths[0], self._given_cluster_id, self._random),
            self._new_id,
        )
        try:
            return (await store.load()).cluster_id, is_new
        finally:
            await store.close()

    def _delete_remains(self, statements: HostStatements) -> list[bytes]:
        """Delete the remains of deleted topics; return the topics that are gone now."""
        removals = statements.removals(self._id)
        doomed = [one for one in statements.topics() if one.is_deleting]
        topic_ids = {one.topic_id for one in (*removals, *doomed)}
        for directory in self._directories:
            for (name, number), topic_id in directory.partitions_at_start.items():
                if topic_id in topic_ids:
                    directory.remove([directory.vacate(f"{name}-{number}")])
        gone = [one.topic_id for one in doomed]
        statements.finish_deletion(gone)
        statements.note_removed(self._id, topic_ids)
        return gone

    def _remove_moved(self, statements: HostStatements) -> None:
        """Remove the files of partitions that other hosts have: the last stop came first."""
        leaders = {
            (record.topic_id, number): leader
            for record in statements.topics()
            for number, leader in enumerate(record.leaders)
            if leader.host != self._id
        }
        for directory in self._directories:
            for (topic, number), topic_id in directory.partitions_at_start.items():
                leader = leaders.get((topic_id or b"", number))
                name = f"{topic}-{number}"
                if leader and has_moved(self._fs, directory.path / name, leader.epoch):
                    directory.remove([directory.vacate(name)])

    def _left(self) -> Mapping[int | None, Left]:
        """Return the states in which earlier brokers have left their logs."""
        left: dict[int | None, Left] = {None: {}}
        for directory in self._directories:
            left[None] |= directory.left()
            for process in processes_of(self._fs, directory.path):
                found = take_left(self._fs, directory.path, process)
                left.setdefault(process, {}).update(found)
        return left

    def _change(self, work: Work) -> None:
        def change(engine: Engine, connection: Connection) -> int:
            return changes.note(connection, self._new_id(), work(engine, connection))

        transact_once(self._url, change)

    def _new_id(self) -> str:
        return encode_uuid(random_id(self._random))
