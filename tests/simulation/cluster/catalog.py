"""The catalog of a simulation: a real SQLite behind a connection that fails as the seed decides.

    away      the database cannot be reached for a while; nothing happens
    refused   one operation fails before it has begun
    lost      the change is committed, its answer is lost
    late      the answer is lost, and the change is committed later: before the next change, but
              reads may still find the database without it

It also notes each change with the session that made it, for the checker.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from odradek.broker.catalog.engines import CatalogAway
from odradek.broker.catalog.sqlite_file import SqliteEngine
from odradek.broker.catalog.statements import CatalogStatements
from odradek.broker.metadata.sqlite import SqliteConnection
from odradek.broker.metadata.statements import Connection
from odradek.broker.metadata.store import Resource, TopicRecord
from tests.histories.history import CatalogChange, History
from tests.simulation.cluster.loop import SimulatedLoop

T = TypeVar("T")

State = tuple[int, dict[int, int], int]
"""The revision, the epoch of each broker's open session, and the end of the WAL."""

_WRITE = "BEGIN IMMEDIATE"
_LINES = ("metadata", "session", "news", "wal", "shared", "segments")
# How long a database that is away keeps a caller waiting, at most.
_AWAY_DELAY_S = 2.0
_SLOW_DELAY_S = 0.3
_SLOW_COMMIT_S = 2.0
_LATE_S = 0.5
_SLOW_LOAD_S = 1.0


class SimulatedCatalog:
    """The database and its troubles."""

    def __init__(self, path: Path, loop: SimulatedLoop, seed: int, history: History) -> None:
        self.path, self.loop, self.history = path, loop, history
        self.chance = random.Random(f"catalog {seed}")
        self.away_until_s = 0.0
        self.slow_until_s = 0.0
        # By how much its clock has jumped.
        self.offset_ms = 0
        # Of all operations, the share that is refused, and whose answer is lost.
        self.refused_share = self.lost_share = 0.0
        # The node ids of brokers whose sessions are open.
        self.open_sessions: frozenset[int] = frozenset()
        # Whether brokers take long to load their logs.
        self.loads_slowly = self.chance.random() < 0.3
        self._late: sqlite3.Connection | None = None
        self._reading: sqlite3.Connection | None = None
        self._engines: list[SimulatedEngine] = []
        # Until when the commits of a process take long, by its name.
        self.slow_commits: dict[str, float] = {}
        loop.delay_of = self._delay_of

    @property
    def is_away(self) -> bool:
        """Whether the database cannot be reached now."""
        return self.loop.time() < self.away_until_s

    def engine(self, _: str) -> SimulatedEngine:
        """Return a connection for a broker; see engines.open_engine."""
        made = SimulatedEngine(self)
        self._engines.append(made)
        return made

    def revision(self) -> int:
        """Return the number of changes."""
        return self.read(lambda connection: _state(connection)[0])

    def epoch_of(self, topic_id: bytes, number: int) -> int:
        """Return the leader epoch of a partition, -1 if there is no such partition."""
        found = "SELECT leader_epoch FROM partition WHERE topic_id = ? AND number = ?"
        rows = self.read(lambda connection: connection.execute(found, (topic_id, number)))
        return rows[0][0] if rows else -1

    def load(self) -> tuple[Sequence[TopicRecord], Mapping[Resource, Mapping[str, str]]]:
        """Return the topics and the settings."""

        def read(connection: Connection) -> Any:
            statements = CatalogStatements(connection)
            return statements.topics(), statements.configs()

        return self.read(read)

    def read(self, work: Callable[[Connection], T]) -> T:
        """Read the database as it is, without any trouble."""
        if self._reading is None:
            self._reading = sqlite3.connect(self.path, isolation_level=None)
        return work(SqliteConnection(self._reading))

    def heal(self) -> None:
        """End all troubles."""
        self.away_until_s = self.slow_until_s = 0.0
        self.refused_share = self.lost_share = 0.0
        self.slow_commits.clear()
        self.commit_late()

    def close(self) -> None:
        """Close all connections."""
        if self._reading is not None:
            self._reading.close()
        for engine in self._engines:
            engine.close()

    def keep_late(self, database: sqlite3.Connection) -> None:
        """Commit a connection's transaction some time later."""
        self._late = database
        wait_s = self.chance.random() * _LATE_S
        context = self.loop.clients.context()
        self.loop.call_later(wait_s, self._commit, database, context=context)

    def commit_late(self) -> None:
        """Commit what is late: whoever wants to write waits for that."""
        if self._late is not None:
            self._commit(self._late)

    def _commit(self, database: sqlite3.Connection) -> None:
        if self._late is database:
            self._late = None
            database.execute("COMMIT")
            database.close()

    def _delay_of(self, executor: ThreadPoolExecutor) -> float | None:
        if executor._thread_name_prefix == "load" and self.loads_slowly:
            return self.chance.random() * _SLOW_LOAD_S
        if not executor._thread_name_prefix.startswith(_LINES):
            return None
        if executor._thread_name_prefix == "wal":
            until_s = self.slow_commits.get(self.loop.current.name, 0.0)
            if self.loop.time() < until_s:
                return self.chance.random() * _SLOW_COMMIT_S
        if self.is_away:
            return self.chance.random() * _AWAY_DELAY_S
        if self.loop.time() < self.slow_until_s:
            return self.chance.random() * _SLOW_DELAY_S
        return None


class SimulatedEngine(SqliteEngine):
    """A connection of one broker; see engines.Engine."""

    def __init__(self, catalog: SimulatedCatalog) -> None:
        super().__init__(catalog.path)
        self._catalog = catalog
        self._owner = catalog.loop.current.name

    def clock(self, connection: Connection) -> tuple[str, int]:
        """Return the time of the catalog's machine."""
        return "simulated", int(self._catalog.loop.time() * 1_000) + self._catalog.offset_ms

    def _run(self, begin: str, work: Callable[[Connection], T]) -> T:
        catalog, chance = self._catalog, self._catalog.chance
        if catalog.is_away:
            self.close()
            raise CatalogAway("the catalog is away")
        if chance.random() < catalog.refused_share:
            raise CatalogAway("the catalog refuses an operation")
        if begin != _WRITE:
            return self._alone(begin, work)
        catalog.commit_late()
        noted = self._noting(work)
        if chance.random() >= catalog.lost_share:
            return self._alone(begin, noted)
        if chance.random() < 0.5:
            self._alone(begin, noted)
        else:
            self._begin_late(noted)
        self.close()
        raise CatalogAway("the catalog's answer was lost")

    def _alone(self, begin: str, work: Callable[[Connection], T]) -> T:
        """See SqliteEngine._run: nobody else has a transaction."""
        with self._explaining():
            database = self._database or self._open()
            database.execute(begin)
            try:
                result = work(SqliteConnection(database))
            except BaseException:
                database.execute("ROLLBACK")
                raise
            database.execute("COMMIT")
            return result

    def _begin_late(self, work: Callable[[Connection], Any]) -> None:
        database = self._database or self._open()
        database.execute(_WRITE)
        try:
            with self._explaining():
                work(SqliteConnection(database))
        except BaseException:
            database.execute("ROLLBACK")
            raise
        self._database = None
        self._catalog.keep_late(database)

    def _noting(self, work: Callable[[Connection], T]) -> Callable[[Connection], T]:
        """Note the revision that some work leads to, and whether its session was open before."""

        def noting(connection: Connection) -> T:
            before = _state(connection)
            result = work(connection)
            after = _state(connection)
            self._catalog.open_sessions = frozenset(after[1])
            self._check_entries(connection, before[2], after)
            if after[0] != before[0]:
                node_id = int(self._owner.partition("-")[2] or -1)
                opened = after[1].get(node_id) != before[1].get(node_id)
                is_open = opened or node_id in before[1]
                self._catalog.history.add(CatalogChange(after[0], node_id, is_open))
            return result

        return noting

    def _check_entries(self, connection: Connection, place: int, after: State) -> None:
        """Note entries of the WAL that were committed by a closed session."""
        if after[2] > place:
            query = "SELECT DISTINCT session FROM wal_entry WHERE place > ?"
            for (session,) in connection.execute(query, (place,)):
                if session not in after[1].values():
                    problem = f"fence: session {session} has committed, and it is closed"
                    self._catalog.history.troubles.append(problem)

    def _open(self) -> sqlite3.Connection:
        database = super()._open()
        database.execute("PRAGMA synchronous = OFF")
        return database


def _state(connection: Connection) -> State:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'wal_entry'"):
        return 0, {}, 0
    ((revision,),) = connection.execute("SELECT number FROM revision")
    rows = connection.execute("SELECT node_id, epoch FROM session WHERE closed_at_ms IS NULL")
    ((place,),) = connection.execute("SELECT coalesce(max(place), 0) FROM wal_entry")
    return revision, dict(rows), place
