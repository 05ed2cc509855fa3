"""The catalog in PostgreSQL, for brokers of several machines (odradek.catalog.url=postgresql://…).

Each change first takes one advisory lock, in a statement of its own. The statements after it see
all that was committed before, since READ COMMITTED gives each of them a new snapshot: a statement
that took the lock and read at once would read by the snapshot from before it waited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from odradek.broker.catalog.engines import CatalogAway, DatabaseEngine
from odradek.broker.errors import MetadataError
from odradek.broker.metadata.statements import Connection, Value

T = TypeVar("T")

# The number of the lock; other applications on the same database choose others.
_LOCK = 0x0D2A_DEC0
# A database that answers nothing is given up after this time, not after the network's minutes.
_TIMEOUT_MS = 3_000
# Tables are files: on a busy disk it takes seconds to make one.
_TABLES_TIMEOUT_MS = 60_000
# A transaction whose broker stands still is ended before others give up waiting for its locks.
_IDLE_MS = 2_000
_DEFAULTS = {
    "connect_timeout": str(_TIMEOUT_MS // 1000),
    "tcp_user_timeout": str(_TIMEOUT_MS),
    "keepalives_idle": "3",
    "application_name": "odradek",
    # Of several hosts the one that takes changes; a copy that only reads is of no use.
    "target_session_attrs": "read-write",
}
# A change is on the disk when it is answered, also where the database's default is another.
_DURABLE = (
    "SELECT set_config('synchronous_commit', 'on', false)"
    " WHERE current_setting('synchronous_commit') = 'off'"
)
# The encodings in which a database keeps any text; SQL_ASCII keeps it as it comes.
_ENCODINGS = ("UTF8", "SQL_ASCII")
# These do not mean that the database is away: a statement or its values are wrong.
_WRONG = (psycopg.IntegrityError, psycopg.ProgrammingError, psycopg.DataError)


class PostgresqlEngine(DatabaseEngine[psycopg.Connection[tuple[Any, ...]]]):
    """A connection to PostgreSQL; see Engine."""

    name = "postgresql"
    _types = (
        ("INTEGER PRIMARY KEY AUTOINCREMENT", "INTEGER GENERATED ALWAYS AS IDENTITY PRIMARY KEY"),
        ("INTEGER", "BIGINT"),
        ("BLOB", "BYTEA"),
    )

    def __init__(self, url: str) -> None:
        """Raises MetadataError for an address that is not valid."""
        try:
            given = conninfo_to_dict(url)
        except psycopg.Error as error:
            # libpq quotes the address, and so may quote the password.
            raise MetadataError(
                "odradek.catalog.url is no valid address of PostgreSQL: write "
                "postgresql://user@host:port/database"
            ) from error
        missing = {name: value for name, value in _DEFAULTS.items() if name not in given}
        # Without it a database with the encoding SQL_ASCII would answer with bytes for text.
        self._conninfo = make_conninfo(url, **missing, client_encoding="UTF8")
        place = ":".join(str(given[key]) for key in ("host", "port") if key in given)
        self._address = f"postgresql://{place}/{given.get('dbname', '')}"

    @property
    def address(self) -> str:
        """The address without the user and the password."""
        return self._address

    def transact(self, work: Callable[[Connection], T]) -> T:
        """Run work alone, and commit its changes."""

        def alone(connection: Connection) -> T:
            connection.execute("SELECT pg_advisory_xact_lock(?)", (_LOCK,))
            return work(connection)

        return self._run("BEGIN", alone)

    def touch(self, work: Callable[[Connection], T]) -> T:
        """Run work beside other changes, and commit its own."""
        return self._run("BEGIN", work)

    def read(self, work: Callable[[Connection], T]) -> T:
        """Run work that only reads."""
        return self._run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", work)

    def exclude_changes(self, connection: Connection) -> None:
        """Share the lock of `transact`."""
        connection.execute("SELECT pg_advisory_xact_lock_shared(?)", (_LOCK,))

    def clock(self, connection: Connection) -> tuple[str, int]:
        """Return the time of the database's machine."""
        ((now_ms,),) = connection.execute(
            "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint"
        )
        return "database", int(now_ms)

    def create_tables(self, connection: Connection, script: str) -> None:
        """Give the rest of the transaction time to make files."""
        connection.execute(f"SET LOCAL statement_timeout = {_TABLES_TIMEOUT_MS}")
        super().create_tables(connection, script)

    def has_table(self, connection: Connection, name: str) -> bool:
        """Return whether a table exists in the schema that new tables go to."""
        found = (
            "SELECT 1 FROM information_schema.tables"
            " WHERE table_schema = current_schema() AND table_name = ?"
        )
        return bool(connection.execute(found, (name,)))

    def _run(self, begin: str, work: Callable[[Connection], T]) -> T:
        with self._explaining():
            database = self._begin(begin)
            try:
                result = work(_Translating(database))
                database.execute("COMMIT")
            except BaseException:
                if not database.closed:
                    database.execute("ROLLBACK")
                raise
            return result

    def _begin(self, begin: str) -> psycopg.Connection[tuple[Any, ...]]:
        if self._database is not None:
            try:
                self._database.execute(begin)
            except psycopg.OperationalError:
                self.close()  # lost since it was used last: nothing of this work was done on it
            else:
                return self._database
        database = self._open()
        database.execute(begin)
        return database

    def _open(self) -> psycopg.Connection[tuple[Any, ...]]:
        # Transactions begin and end with visible statements. Statements are not prepared, so that
        # a pool of connections (PgBouncer) may stand between.
        database = psycopg.connect(self._conninfo, autocommit=True, prepare_threshold=None)
        try:
            self._check_encoding(database)
            database.execute(f"SET statement_timeout = {_TIMEOUT_MS}")
            database.execute(f"SET idle_in_transaction_session_timeout = {_IDLE_MS}")
            database.execute(_DURABLE)
        except (psycopg.Error, MetadataError):
            database.close()
            raise
        self._database = database
        return database

    def _check_encoding(self, database: psycopg.Connection[tuple[Any, ...]]) -> None:
        encoding = database.info.parameter_status("server_encoding")
        if encoding not in _ENCODINGS:
            raise MetadataError(
                f"the database of {self.address} has the encoding {encoding}: "
                "create it with ENCODING 'UTF8'"
            )

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        try:
            yield
        except _WRONG as error:
            raise MetadataError(f"{self.address}: {_one_line(error)}") from error
        except psycopg.Error as error:
            self.close()
            raise CatalogAway(
                f"the catalog {self.address} cannot be used: {_one_line(error)}"
            ) from error


class _Translating:
    """A connection that takes "?" for values; see Connection."""

    def __init__(self, database: psycopg.Connection[tuple[Any, ...]]) -> None:
        self._database = database

    def execute(self, statement: str, values: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        """Run a statement; return its rows."""
        cursor = self._database.execute(_translated(statement), values)
        return cursor.fetchall() if cursor.description else []

    def execute_many(self, statement: str, rows: Sequence[Sequence[Value]]) -> None:
        """Run a statement once for each row of values."""
        if len(rows) == 1:
            self.execute(statement, rows[0])
        elif rows:
            # It may end with a Flush, after which PostgreSQL does not count the idle time before
            # the next statement.
            self._database.cursor().executemany(_translated(statement), rows)


@cache
def _translated(statement: str) -> bytes:
    return statement.replace("%", "%%").replace("?", "%s").encode()


def _one_line(error: psycopg.Error) -> str:
    lines = (line.strip() for line in str(error).splitlines())
    return "; ".join(line for line in lines if line)
