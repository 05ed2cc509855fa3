"""The catalog in a file of SQLite, for brokers of one machine.

The file is in WAL mode: readers do not wait for a change, and a change is on the disk when it
returns (synchronous=FULL).
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from odradek.broker.catalog.engines import CatalogAway, DatabaseEngine
from odradek.broker.errors import MetadataError
from odradek.broker.metadata.sqlite import SqliteConnection
from odradek.broker.metadata.statements import Connection

T = TypeVar("T")

# How long a change waits for those of other processes; each takes some milliseconds.
_WAIT_S = 5.0
_POLL_S = 0.0005
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_MS_PER_S = 1_000


class SqliteEngine(DatabaseEngine[sqlite3.Connection]):
    """A connection to a database file; see Engine."""

    name = "sqlite"

    def __init__(self, path: Path, *, only_reads: bool = False) -> None:
        """With `only_reads` nothing is created or changed, and the file must exist."""
        self._path, self._only_reads = path, only_reads
        self._boot_id = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else "this machine"

    @property
    def address(self) -> str:
        """The path of the file."""
        return str(self._path)

    def transact(self, work: Callable[[Connection], T]) -> T:
        """Run work alone, and commit its changes."""
        return self._run("BEGIN IMMEDIATE", work)

    def touch(self, work: Callable[[Connection], T]) -> T:
        """Do the same as `transact`: SQLite has one writer at a time."""
        return self._run("BEGIN IMMEDIATE", work)

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run work that only reads."""
        return self._run("BEGIN", work)

    def exclude_changes(self, connection: Connection) -> None:
        """Do nothing: SQLite has one writer at a time."""

    def clock(self, connection: Connection) -> tuple[str, int]:
        """Return the machine's time since it was started; it never jumps."""
        return self._boot_id, int(time.clock_gettime(time.CLOCK_BOOTTIME) * _MS_PER_S)

    def has_table(self, connection: Connection, name: str) -> bool:
        """Return whether a table exists."""
        found = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
        return bool(connection.execute(found, (name,)))

    def _run(self, begin: str, work: Callable[[Connection], T]) -> T:
        with self._explaining():
            database = self._database or self._open()
            _execute_in_turn(database, begin)
            try:
                result = work(SqliteConnection(database))
                database.execute("COMMIT")
            finally:
                if database.in_transaction:  # it failed
                    database.execute("ROLLBACK")
            return result

    def _open(self) -> sqlite3.Connection:
        if self._only_reads:
            self._database = self._open_to_read()
            return self._database
        # The file has credentials; SQLite gives its other files the same permissions. One that is
        # there is not opened: closing it would drop the locks of this process's other connection,
        # and the next broker that stops would take itself for the last, and remove SQLite's log.
        with suppress(FileExistsError):
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        database = sqlite3.connect(
            self._path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False
        )
        try:
            # Of several that set the mode of a new file at once, SQLite refuses some right away.
            _execute_in_turn(database, "PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = FULL")
        except sqlite3.Error:
            database.close()
            raise
        self._database = database
        return database

    def _open_to_read(self) -> sqlite3.Connection:
        # Without a log beside it nobody has the file open: SQLite would create one to read it.
        is_open = Path(f"{self._path}-wal").exists()
        address = f"{self._path.absolute().as_uri()}?{'mode=ro' if is_open else 'immutable=1'}"
        return sqlite3.connect(
            address, uri=True, timeout=_WAIT_S, isolation_level=None, check_same_thread=False
        )

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.OperationalError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise CatalogAway(f"the catalog {self.address} cannot be used: {reason}") from error
        except sqlite3.Error as error:
            raise MetadataError(f"{self.address}: {error}") from error


def _execute_in_turn(database: sqlite3.Connection, statement: str) -> None:
    """Execute a statement that begins a transaction, once those of other processes have ended.

    SQLite itself sleeps for up to 100 ms between two tries. Beside a broker that commits one
    transaction after another it hardly ever finds the moment between two of them.
    """
    deadline_s = time.monotonic() + _WAIT_S
    database.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                database.execute(statement)
            except sqlite3.OperationalError as error:
                is_busy = error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not is_busy or time.monotonic() >= deadline_s:
                    raise
                time.sleep(_POLL_S)
            else:
                return
    finally:
        database.execute(f"PRAGMA busy_timeout = {_WAIT_S * _MS_PER_S:.0f}")
