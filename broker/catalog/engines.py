"""The databases that brokers can share, behind one small interface.

An engine runs transactions; the statements are the same for all engines. All its methods wait for
the database, so they run in threads, each engine in one thread at a time.

    transact    excludes every other change in the cluster: a check made in it stays true until
                it commits, and revisions are committed in their order
    touch       changes single rows beside other changes: the lease of a session
    read        sees the database at one moment
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Generic, Protocol, TypeVar
from urllib.parse import urlsplit

from odradek.broker.errors import MetadataError
from odradek.broker.metadata.statements import Connection

T = TypeVar("T")


class CatalogAway(MetadataError):
    """The database cannot be reached, or refuses every change for now."""


class Engine(Protocol):
    """A connection to a database; it connects again by itself. Methods raise MetadataError."""

    name: str

    @property
    def address(self) -> str:
        """The address of the database without secrets, for messages."""

    def transact(self, work: Callable[[Connection], T]) -> T:
        """Run work alone, and commit its changes."""

    def touch(self, work: Callable[[Connection], T]) -> T:
        """Run work beside other changes, and commit its own."""

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run work that only reads."""

    def exclude_changes(self, connection: Connection) -> None:
        """Keep `transact` out until this transaction of `touch` ends; others may do the same.

        A check made after it stays true until the commit. It must be the first statement: a
        transaction that has changed rows and then waits may be waited for itself.
        """

    def clock(self, connection: Connection) -> tuple[str, int]:
        """Return the clock by which leases end, as its name and its time in milliseconds.

        Leases by a clock of another name have ended.
        """

    def has_table(self, connection: Connection, name: str) -> bool:
        """Return whether a table exists."""

    def create_tables(self, connection: Connection, script: str) -> None:
        """Run a script of statements that create tables, in SQLite's words for types."""

    def close(self) -> None:
        """Close the connection."""


class _Closing(Protocol):
    def close(self) -> None: ...


D = TypeVar("D", bound=_Closing)


class DatabaseEngine(Generic[D]):
    """The parts that are the same in all engines; `D` is a library's connection."""

    # None until it is used, and after it was lost.
    _database: D | None = None
    # SQLite's words for types, and the database's own.
    _types: Sequence[tuple[str, str]] = ()

    def create_tables(self, connection: Connection, script: str) -> None:
        """Run a script, statement by statement, within the transaction."""
        for ours, theirs in self._types:
            script = script.replace(ours, theirs)
        for statement in filter(str.strip, script.split(";")):
            connection.execute(statement)

    def close(self) -> None:
        """Close the connection."""
        if self._database is not None:
            self._database.close()
            self._database = None


def open_engine(url: str, *, only_reads: bool = False) -> Engine:
    """Return the engine of an address (odradek.catalog.url), not connected yet.

    With `only_reads` the caller uses `read` alone, which leaves a file unchanged.
    """
    if urlsplit(url).scheme == "sqlite":
        from odradek.broker.catalog.sqlite_file import SqliteEngine

        return SqliteEngine(Path(urlsplit(url).path), only_reads=only_reads)
    from odradek.broker.catalog.postgresql import PostgresqlEngine

    return PostgresqlEngine(url)


def transact_once(url: str, work: Callable[[Engine, Connection], T]) -> T:
    """Run work alone in the catalog of an address, and commit its changes."""
    engine = open_engine(url)
    try:
        return engine.transact(partial(work, engine))
    finally:
        engine.close()
