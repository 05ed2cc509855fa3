"""The statements that read and change the tables of the metadata, for every engine.

They are written in the SQL that SQLite and PostgreSQL share, with "?" for each value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from odradek.broker.metadata.store import (
    Metadata,
    Resource,
    ResourceType,
    RowChanges,
    Rows,
    SecurityKind,
    TopicRecord,
)

Value = str | int | bytes | None
# A statement returns about so many rows at most. With a million at once, a database would end the
# statement, or the transaction that rests while they are looked at.
ROWS_MAX = 20_000
TOPICS = (
    "SELECT name, id, partition_count, replication_factor, created_ms, is_deleting, made_count"
    " FROM topic"
)
_CONFIGS = "SELECT resource_type, resource_name, name, value FROM config"


class Connection(Protocol):
    """A connection to a database, within a transaction."""

    def execute(self, statement: str, values: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        """Run a statement; return its rows."""

    def execute_many(self, statement: str, rows: Sequence[Sequence[Value]]) -> None:
        """Run a statement once for each row of values."""


def read_all(
    connection: Connection, query: str, key: Sequence[str], begin: Sequence[Value]
) -> Iterator[tuple[Any, ...]]:
    """Iterate over all rows that follow `begin` in the order of a key, a number of rows at once.

    The columns of the key are the first ones that the query names; it has no conditions.
    """
    columns, marks = ", ".join(key), ", ".join("?" * len(key))
    page = f"{query} WHERE ({columns}) > ({marks}) ORDER BY {columns} LIMIT ?"
    while rows := connection.execute(page, (*begin, ROWS_MAX)):
        yield from rows
        begin = rows[-1][: len(key)]


class Statements:
    """The statements, run on one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    # --- reading --------------------------------------------------------------------------

    def load(self) -> Metadata:
        """Return everything."""
        ((cluster_id, next_producer_id),) = self._connection.execute(
            "SELECT id, next_producer_id FROM cluster"
        )
        return Metadata(
            cluster_id,
            self.topics(),
            self.configs(),
            self.features(),
            self.security(),
            next_producer_id,
        )

    def cluster_id(self) -> str | None:
        """Return the cluster's id, None for a new database."""
        rows = self._connection.execute("SELECT id FROM cluster")
        return str(rows[0][0]) if rows else None

    def topics(self) -> tuple[TopicRecord, ...]:
        """Return all topics, in the order of their names."""
        return tuple(self._read_topics())

    def _read_topics(self) -> Iterator[TopicRecord]:
        return map(read_topic, read_all(self._connection, TOPICS, ("name",), ("",)))

    def configs(self) -> dict[Resource, dict[str, str]]:
        """Return all settings, by their owner."""
        configs: dict[Resource, dict[str, str]] = {}
        key = "resource_type", "resource_name", "name"
        for kind, owner, name, value in read_all(self._connection, _CONFIGS, key, (-1, "", "")):
            configs.setdefault(Resource(ResourceType(kind), owner), {})[name] = value
        return configs

    def configs_of(self, owner: Resource) -> dict[str, str]:
        """Return the settings of an owner."""
        rows = self._connection.execute(
            _CONFIGS + " WHERE resource_type = ? AND resource_name = ? ORDER BY name",
            (owner.type, owner.name),
        )
        return {key: value for _, _, key, value in rows}

    def features(self) -> dict[str, int]:
        """Return the levels that clients have finalized."""
        return dict(self._connection.execute("SELECT name, level FROM feature"))

    def security(self) -> dict[SecurityKind, Rows]:
        """Return the rows about security, by kind."""
        security: dict[SecurityKind, dict[str, str]] = {}
        for kind, name, value in self._connection.execute(
            "SELECT kind, name, value FROM security ORDER BY name"
        ):
            security.setdefault(SecurityKind(kind), {})[name] = value
        return dict(security)

    # --- changing -------------------------------------------------------------------------

    def begin_cluster(self, cluster_id: str, next_producer_id: int = 0) -> None:
        """Write the one row of a new database."""
        self._connection.execute(
            "INSERT INTO cluster (id, next_producer_id) VALUES (?, ?)",
            (cluster_id, next_producer_id),
        )

    def fill(self, metadata: Metadata) -> None:
        """Write everything into a new database."""
        self.begin_cluster(metadata.cluster_id, metadata.next_producer_id)
        owners = {Resource(ResourceType.TOPIC, one.name): one for one in metadata.topics}
        self.create_topics(
            (topic, metadata.configs.get(owner, {})) for owner, topic in owners.items()
        )
        self.replace_configs(
            {owner: found for owner, found in metadata.configs.items() if owner not in owners}
        )
        self.finalize_features(metadata.features)
        for kind, rows in metadata.security.items():
            self.change_security(kind, rows)

    def create_topics(self, topics: Iterable[tuple[TopicRecord, Mapping[str, str]]]) -> None:
        """Add topics, each with its settings."""
        for topic, configs in topics:
            self._connection.execute(
                "INSERT INTO topic (name, id, partition_count, replication_factor, created_ms,"
                " is_deleting, made_count) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    topic.name,
                    topic.topic_id,
                    topic.partition_count,
                    topic.replication_factor,
                    topic.created_ms,
                    int(topic.is_deleting),
                    topic.made_count,
                ),
            )
            self.replace_configs({Resource(ResourceType.TOPIC, topic.name): configs})

    def note_made(self, made: Mapping[bytes, int]) -> None:
        """Note how many partitions of topics have had their directories."""
        self._connection.execute_many(
            "UPDATE topic SET made_count = ? WHERE id = ?",
            [(count, topic_id) for topic_id, count in made.items()],
        )

    def begin_deletion(self, topic_ids: Sequence[bytes]) -> None:
        """Mark topics whose files will be removed."""
        self._connection.execute_many(
            "UPDATE topic SET is_deleting = 1 WHERE id = ?", [(one,) for one in topic_ids]
        )

    def finish_deletion(self, topic_ids: Sequence[bytes]) -> None:
        """Remove topics and their settings."""
        self._connection.execute_many(
            "DELETE FROM config WHERE resource_type = ?"
            " AND resource_name = (SELECT name FROM topic WHERE id = ?)",
            [(ResourceType.TOPIC, topic_id) for topic_id in topic_ids],
        )
        self._connection.execute_many(
            "DELETE FROM topic WHERE id = ?", [(one,) for one in topic_ids]
        )

    def enlarge_topics(self, enlarged: Sequence[TopicRecord]) -> None:
        """Set the numbers of partitions of topics."""
        self._connection.execute_many(
            "UPDATE topic SET partition_count = ? WHERE id = ?",
            [(one.partition_count, one.topic_id) for one in enlarged],
        )

    def replace_configs(self, changes: Mapping[Resource, Mapping[str, str]]) -> None:
        """Replace all settings of some owners."""
        self._connection.execute_many(
            "DELETE FROM config WHERE resource_type = ? AND resource_name = ?",
            [(one.type, one.name) for one in changes],
        )
        self._connection.execute_many(
            "INSERT INTO config (resource_type, resource_name, name, value) VALUES (?, ?, ?, ?)",
            [
                (owner.type, owner.name, name, value)
                for owner, configs in changes.items()
                for name, value in configs.items()
            ],
        )

    def finalize_features(self, levels: Mapping[str, int]) -> None:
        """Set the levels of some features."""
        self._connection.execute_many(
            "INSERT INTO feature (name, level) VALUES (?, ?)"
            " ON CONFLICT (name) DO UPDATE SET level = excluded.level",
            list(levels.items()),
        )

    def change_security(self, kind: SecurityKind, changes: RowChanges) -> None:
        """Write or remove rows of a kind."""
        self._connection.execute_many(
            "DELETE FROM security WHERE kind = ? AND name = ?", [(kind, name) for name in changes]
        )
        self._connection.execute_many(
            "INSERT INTO security (kind, name, value) VALUES (?, ?, ?)",
            [(kind, name, value) for name, value in changes.items() if value is not None],
        )

    def allocate_producer_ids(self, count: int) -> int:
        """Reserve producer ids; return the first."""
        ((next_id,),) = self._connection.execute(
            "UPDATE cluster SET next_producer_id = next_producer_id + ?"
            " RETURNING next_producer_id",
            (count,),
        )
        assert isinstance(next_id, int)
        return next_id - count


def read_topic(row: tuple[Any, ...]) -> TopicRecord:
    """Return the topic of a row that TOPICS has found."""
    name, topic_id, count, replicas, created_ms, is_deleting, made = row
    return TopicRecord(
        name, bytes(topic_id), count, replicas, created_ms, bool(is_deleting), made
    )
