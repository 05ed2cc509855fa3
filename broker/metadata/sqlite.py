"""The metadata in SQLite: a database in memory, whose image is in the log directories (`images`).

Each change runs in the store's own thread, so that the event loop does not wait for the disk.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from odradek.broker.errors import MetadataError
from odradek.broker.metadata.images import Images, NoIntactImage
from odradek.broker.metadata.schema import MIGRATIONS
from odradek.broker.metadata.statements import Statements, Value
from odradek.broker.metadata.store import Metadata, Resource, RowChanges, SecurityKind, TopicRecord
from odradek.storage.errors import StorageError
from odradek.storage.files import FileSystem

T = TypeVar("T")


class SqliteConnection:
    """A connection to SQLite, for statements."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def execute(self, statement: str, values: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        """Run a statement; return its rows."""
        return self._database.execute(statement, values).fetchall()

    def execute_many(self, statement: str, rows: Sequence[Sequence[Value]]) -> None:
        """Run a statement once for each row of values."""
        self._database.executemany(statement, rows)


def create_image(metadata: Metadata) -> bytes:
    """Return the database of a single broker with this metadata."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        _migrate(database, 0)
        Statements(SqliteConnection(database)).fill(metadata)
        return database.serialize()


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
        self._statements = Statements(SqliteConnection(self._database))
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

    @property
    def is_shared(self) -> bool:
        return False

    async def load(self) -> Metadata:
        return await self._in_thread(self._statements.load)

    async def settle(self) -> None:
        def settle() -> None:
            self._images.mend()
            if not self._is_written:
                self._write(self._image)

        await self._in_thread(settle)

    async def create_topics(self, topics: Sequence[tuple[TopicRecord, Mapping[str, str]]]) -> None:
        await self._in_transaction(lambda: self._statements.create_topics(topics))

    def note_made(self, topic_id: bytes, partitions: Sequence[int]) -> None:
        self._made[topic_id] = max(partitions, default=-1) + 1

    def note_removed(self, topic_ids: Iterable[bytes]) -> None:
        """Do nothing: files go before a deletion is finished."""

    async def begin_deletion(self, topic_ids: Sequence[bytes]) -> None:
        await self._in_transaction(lambda: self._statements.begin_deletion(topic_ids))

    async def finish_deletion(self, topic_ids: Sequence[bytes]) -> None:
        await self._in_transaction(lambda: self._statements.finish_deletion(topic_ids))

    async def enlarge_topics(self, enlarged: Sequence[TopicRecord]) -> None:
        await self._in_transaction(lambda: self._statements.enlarge_topics(enlarged))

    async def replace_configs(self, changes: Mapping[Resource, Mapping[str, str]]) -> None:
        await self._in_transaction(lambda: self._statements.replace_configs(changes))

    async def finalize_features(self, levels: Mapping[str, int]) -> None:
        await self._in_transaction(lambda: self._statements.finalize_features(levels))

    async def change_security(self, kind: SecurityKind, changes: RowChanges) -> None:
        await self._in_transaction(lambda: self._statements.change_security(kind, changes))

    async def unregister(self, node_id: int) -> None:
        """Do nothing: there are no other brokers."""

    async def allocate_producer_ids(self, count: int) -> int:
        return await self._in_transaction(lambda: self._statements.allocate_producer_ids(count))

    async def close(self) -> None:
        try:
            if self._made:
                await self._in_transaction(lambda: None)
        finally:
            await self._in_thread(self._database.close)
            self._thread.shutdown()

    def _prepare(self, new_cluster_id: Callable[[], str]) -> None:
        ((version,),) = self._database.execute("PRAGMA user_version")
        if version > len(MIGRATIONS):
            raise MetadataError(
                f"{self._images.path} has schema version {version}, written by a newer release: "
                f"this one knows versions up to {len(MIGRATIONS)}"
            )
        _migrate(self._database, version)
        if self._statements.cluster_id() is None:
            self._statements.begin_cluster(new_cluster_id())

    async def _in_transaction(self, change: Callable[[], T]) -> T:
        def transact() -> T:
            made = dict(self._made)
            self._database.execute("BEGIN IMMEDIATE")
            try:
                result = change()
                self._statements.note_made(made)
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


def _migrate(database: sqlite3.Connection, version: int) -> None:
    for number, script in enumerate(MIGRATIONS[version:], start=version + 1):
        # executescript commits an open transaction, so the script has its own.
        database.executescript(
            f"BEGIN IMMEDIATE; {script} PRAGMA user_version = {number}; COMMIT;"
        )
