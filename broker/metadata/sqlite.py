"""The metadata in SQLite: a database in memory, whose image is in the log directories (`images`).

Each change runs in the store's own thread, so that the event loop does not wait for the disk.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from odradek.broker.errors import MetadataError
from odradek.broker.metadata.images import Images, NoIntactImage
from odradek.broker.metadata.store import (
    Changes,
    Metadata,
    Resource,
    ResourceType,
    SecurityKind,
    TopicRecord,
)
from odradek.storage.errors import StorageError
from odradek.storage.files import FileSystem

T = TypeVar("T")

# One script for each schema version, applied in order; a released script is never changed.
_MIGRATIONS = (
    """
    CREATE TABLE cluster (
        id               TEXT NOT NULL,
        next_producer_id INTEGER NOT NULL
    );
    CREATE TABLE topic (
        id                 BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
        name               TEXT NOT NULL UNIQUE,
        partition_count    INTEGER NOT NULL CHECK (partition_count > 0),
        replication_factor INTEGER NOT NULL CHECK (replication_factor > 0),
        created_ms         INTEGER NOT NULL,
        is_deleting        INTEGER NOT NULL DEFAULT 0
    );
    CREATE TABLE config (
        resource_type INTEGER NOT NULL,
        resource_name TEXT NOT NULL,
        name          TEXT NOT NULL,
        value         TEXT NOT NULL,
        PRIMARY KEY (resource_type, resource_name, name)
    );
    """,
    "ALTER TABLE topic ADD COLUMN made_count INTEGER NOT NULL DEFAULT 0;",
    "CREATE TABLE feature (name TEXT NOT NULL PRIMARY KEY, level INTEGER NOT NULL);",
    """
    CREATE TABLE security (
        kind  INTEGER NOT NULL,
        name  TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (kind, name)
    );
    """,
)


class SqliteMetadata:
    """Metadata in SQLite, held in memory and written as a whole with each change.

    Only the process that holds the log directories (`LogDirectory` locks them) may change it.
    """

    def __init__(
        self, fs: FileSystem, directories: Sequence[Path], new_cluster_id: Callable[[], str]
    ) -> None:
        """Read the database, or begin a new one with a new cluster id.

        Raises MetadataError when no image is intact, or it is newer than this program.
        """
        self._images = Images(fs, directories)
        self._made: dict[bytes, int] = {}
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metadata")
        # Autocommit: every transaction below begins and ends with visible statements.
        self._database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        try:
            with self._naming_the_file():
                written = self._images.read()
                if written is not None:
                    self._database.deserialize(written)
                self._prepare(new_cluster_id)
                # The image that memory returns to when a change cannot be written.
                self._image = self._database.serialize()
        except MetadataError:
            self._database.close()
            raise
        self.is_new = written is None
        self._is_written = written == self._image

    @property
    def revision(self) -> int:
        return self._images.generation

    async def load(self) -> Metadata:
        return await self._in_thread(self._load)

    async def settle(self) -> None:
        def settle() -> None:
            self._images.mend()
            if not self._is_written:
                self._write(self._image)

        await self._in_thread(settle)

    async def create_topics(self, topics: Sequence[tuple[TopicRecord, Mapping[str, str]]]) -> None:
        def change() -> None:
            for topic, configs in topics:
                self._database.execute(
                    "INSERT INTO topic VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (
                        topic.topic_id,
                        topic.name,
                        topic.partition_count,
                        topic.replication_factor,
                        topic.created_ms,
                        topic.is_deleting,
                        topic.made_count,
                    ),
                )
                self._replace_configs(Resource(ResourceType.TOPIC, topic.name), configs)

        await self._in_transaction(change)

    def note_made(self, topic_id: bytes, count: int) -> None:
        self._made[topic_id] = count

    async def begin_deletion(self, topic_ids: Sequence[bytes]) -> None:
        def change() -> None:
            self._database.executemany(
                "UPDATE topic SET is_deleting = 1 WHERE id = ?", [(i,) for i in topic_ids]
            )

        await self._in_transaction(change)

    async def finish_deletion(self, topic_ids: Sequence[bytes]) -> None:
        def change() -> None:
            self._database.executemany(
                "DELETE FROM config WHERE resource_type = ?"
                " AND resource_name = (SELECT name FROM topic WHERE id = ?)",
                [(ResourceType.TOPIC, topic_id) for topic_id in topic_ids],
            )
            self._database.executemany("DELETE FROM topic WHERE id = ?", [(i,) for i in topic_ids])

        await self._in_transaction(change)

    async def set_partition_counts(self, counts: Mapping[bytes, int]) -> None:
        def change() -> None:
            self._database.executemany(
                "UPDATE topic SET partition_count = ? WHERE id = ?",
                [(count, topic_id) for topic_id, count in counts.items()],
            )

        await self._in_transaction(change)

    async def replace_configs(self, changes: Mapping[Resource, Mapping[str, str]]) -> None:
        def change() -> None:
            for resource, configs in changes.items():
                self._replace_configs(resource, configs)

        await self._in_transaction(change)

    async def finalize_features(self, levels: Mapping[str, int]) -> None:
        def change() -> None:
            self._database.executemany(
                "INSERT OR REPLACE INTO feature VALUES (?, ?)", list(levels.items())
            )

        await self._in_transaction(change)

    async def change_security(self, kind: SecurityKind, changes: Changes) -> None:
        def change() -> None:
            self._database.executemany(
                "DELETE FROM security WHERE kind = ? AND name = ?",
                [(kind, name) for name in changes],
            )
            self._database.executemany(
                "INSERT INTO security VALUES (?, ?, ?)",
                [(kind, name, value) for name, value in changes.items() if value is not None],
            )

        await self._in_transaction(change)

    async def allocate_producer_ids(self, count: int) -> int:
        def change() -> int:
            ((first,),) = self._database.execute("SELECT next_producer_id FROM cluster")
            self._database.execute("UPDATE cluster SET next_producer_id = ?", (first + count,))
            assert isinstance(first, int)
            return first

        return await self._in_transaction(change)

    async def close(self) -> None:
        try:
            if self._made:
                await self._in_transaction(lambda: None)
        finally:
            await self._in_thread(self._database.close)
            self._thread.shutdown()

    def _prepare(self, new_cluster_id: Callable[[], str]) -> None:
        ((version,),) = self._database.execute("PRAGMA user_version")
        if version > len(_MIGRATIONS):
            raise MetadataError(
                f"{self._images.path} has schema version {version}, written by a newer release: "
                f"this one knows versions up to {len(_MIGRATIONS)}"
            )
        for number, script in enumerate(_MIGRATIONS[version:], start=version + 1):
            # executescript commits an open transaction, so the script has its own.
            self._database.executescript(
                f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {number}; COMMIT;"
            )
        if not list(self._database.execute("SELECT id FROM cluster")):
            self._database.execute("INSERT INTO cluster VALUES (?, 0)", (new_cluster_id(),))

    def _load(self) -> Metadata:
        ((cluster_id,),) = self._database.execute("SELECT id FROM cluster")
        rows = self._database.execute(
            "SELECT name, id, partition_count, replication_factor, created_ms, is_deleting,"
            " made_count FROM topic ORDER BY name"
        )
        topics = tuple(
            TopicRecord(name, topic_id, partitions, replicas, created_ms, bool(doomed), made)
            for name, topic_id, partitions, replicas, created_ms, doomed, made in rows
        )
        configs: dict[Resource, dict[str, str]] = {}
        for kind, name, key, value in self._database.execute(
            "SELECT resource_type, resource_name, name, value FROM config ORDER BY name"
        ):
            configs.setdefault(Resource(ResourceType(kind), name), {})[key] = value
        features = dict(self._database.execute("SELECT name, level FROM feature"))
        security: dict[SecurityKind, dict[str, str]] = {}
        for kind, name, value in self._database.execute(
            "SELECT kind, name, value FROM security ORDER BY name"
        ):
            security.setdefault(SecurityKind(kind), {})[name] = value
        return Metadata(cluster_id, topics, configs, features, security)

    def _note_made(self, made: Mapping[bytes, int]) -> None:
        self._database.executemany(
            "UPDATE topic SET made_count = ? WHERE id = ?",
            [(count, topic_id) for topic_id, count in made.items()],
        )

    def _replace_configs(self, resource: Resource, configs: Mapping[str, str]) -> None:
        owner = (int(resource.type), resource.name)
        self._database.execute(
            "DELETE FROM config WHERE resource_type = ? AND resource_name = ?", owner
        )
        self._database.executemany(
            "INSERT INTO config VALUES (?, ?, ?, ?)",
            [(*owner, name, value) for name, value in configs.items()],
        )

    async def _in_transaction(self, change: Callable[[], T]) -> T:
        def transact() -> T:
            made = dict(self._made)
            self._database.execute("BEGIN IMMEDIATE")
            try:
                result = change()
                self._note_made(made)
                self._database.execute("COMMIT")
            finally:
                # It is still open only after a failure.
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
            image = self._database.serialize()
            try:
                self._write(image)
            except StorageError:
                self._database.deserialize(self._image)
                raise
            for topic_id, count in made.items():
                if self._made.get(topic_id) == count:
                    del self._made[topic_id]
            return result

        return await self._in_thread(transact)

    def _write(self, image: bytes) -> None:
        self._images.write(image)
        self._image, self._is_written = image, True

    async def _in_thread(self, operation: Callable[[], T]) -> T:
        with self._naming_the_file():
            return await asyncio.get_running_loop().run_in_executor(self._thread, operation)

    @contextmanager
    def _naming_the_file(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise MetadataError(f"{self._images.path}: {error}") from error
        except (NoIntactImage, StorageError) as error:
            raise MetadataError(str(error)) from error
