"""The tables of a catalog: those of the metadata, and those by which brokers share it.

    schema_version  one row: the number of migrations that were applied
    revision        one row: the number of changes
    partition       the leader of each partition, and the host of its files
    removal         deleted topics, and the hosts that still have files of them
    change          the rows that each change concerned, for the brokers that follow
    session         one row per life of a broker
    wal_entry       the committed entries of the WAL, see wal_rows.py
    segment         the segments of shared partitions in the bucket, see segment_rows.py
    cleaning_lease  the partitions that jobs clean, see cleaning_leases.py
    garbage         objects that perhaps no row names any more, see garbage_rows.py
    origin          the log directories and the image with which the catalog began, if it did
    export          the hosts that have taken the metadata back; nobody uses the catalog then

A released script is never changed; a later one is added.
"""

from __future__ import annotations

from odradek.broker.catalog import cleaning_leases, segment_rows, wal_rows
from odradek.broker.catalog.engines import Engine
from odradek.broker.errors import MetadataError
from odradek.broker.metadata.schema import MIGRATIONS as METADATA
from odradek.broker.metadata.statements import Connection

_SHARING = """
    CREATE TABLE revision (number INTEGER NOT NULL);
    INSERT INTO revision VALUES (0);
    CREATE TABLE partition (
        topic_id     BLOB NOT NULL,
        number       INTEGER NOT NULL,
        leader       INTEGER NOT NULL,
        leader_epoch INTEGER NOT NULL,
        host         TEXT NOT NULL,
        replica      INTEGER NOT NULL,
        is_made      INTEGER NOT NULL,
        PRIMARY KEY (topic_id, number)
    );
    CREATE TABLE removal (
        topic_id        BLOB NOT NULL,
        host            TEXT NOT NULL,
        name            TEXT NOT NULL,
        partition_count INTEGER NOT NULL,
        PRIMARY KEY (topic_id, host)
    );
    CREATE INDEX partition_leader ON partition (leader, host);
    CREATE TABLE change (
        revision INTEGER NOT NULL,
        place    INTEGER NOT NULL,
        id       TEXT NOT NULL,
        kind     INTEGER NOT NULL,
        key      TEXT NOT NULL,
        PRIMARY KEY (revision, place)
    );
    CREATE TABLE session (
        epoch         INTEGER NOT NULL PRIMARY KEY,
        node_id       INTEGER NOT NULL,
        host          TEXT NOT NULL,
        rack          TEXT,
        endpoints     TEXT NOT NULL,
        clock         TEXT NOT NULL,
        expires_at_ms INTEGER NOT NULL,
        closed_at_ms  INTEGER
    );
"""
# A partition's log as its last process left it (storage.checkpoints.LeftLog), closed for the
# leader of `closed_for_epoch`, and the broker that is to lead the partition.
_MOVING = """
    ALTER TABLE partition ADD COLUMN recovery_point INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE partition ADD COLUMN log_start_offset INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE partition ADD COLUMN cleaner_offset INTEGER;
    ALTER TABLE partition ADD COLUMN closed_for_epoch INTEGER NOT NULL DEFAULT -1;
    ALTER TABLE partition ADD COLUMN target INTEGER NOT NULL DEFAULT -1;
"""
MIGRATIONS = (
    # The metadata as single brokers have it in their fourth version, and its sharing.
    "".join((*METADATA[:4], _SHARING)),
    _MOVING,
    """
    CREATE TABLE origin (host TEXT NOT NULL, generation INTEGER NOT NULL);
    CREATE TABLE export (host TEXT NOT NULL PRIMARY KEY, node_id INTEGER NOT NULL);
    ALTER TABLE session ADD COLUMN is_unregistered INTEGER NOT NULL DEFAULT 0;
    """,
    # The number of the moves of a partition: each new target counts.
    "ALTER TABLE partition ADD COLUMN move INTEGER NOT NULL DEFAULT 0;",
    wal_rows.TABLES + segment_rows.TABLES,
    cleaning_leases.TABLES,
)


def migrate(engine: Engine, connection: Connection) -> None:
    """Bring the tables up to date. Raises MetadataError when a newer release wrote them."""
    if not engine.has_table(connection, "schema_version"):
        engine.create_tables(connection, "CREATE TABLE schema_version (number INTEGER NOT NULL)")
        connection.execute("INSERT INTO schema_version VALUES (0)")
    version = read_version(engine, connection)
    for script in MIGRATIONS[version:]:
        engine.create_tables(connection, script)
    if version < len(MIGRATIONS):
        connection.execute("UPDATE schema_version SET number = ?", (len(MIGRATIONS),))


def read_version(engine: Engine, connection: Connection) -> int:
    """Return the version of the tables, 0 for none.

    Raises MetadataError when a newer release wrote them.
    """
    if not engine.has_table(connection, "schema_version"):
        return 0
    ((version,),) = connection.execute("SELECT number FROM schema_version")
    if version > len(MIGRATIONS):
        raise MetadataError(
            f"the catalog {engine.address} has schema version {version}, written by a newer "
            f"release: this one knows versions up to {len(MIGRATIONS)}"
        )
    return int(version)


def require_current(engine: Engine, connection: Connection) -> None:
    """Raise MetadataError unless the tables are those of this release."""
    version = 0
    if engine.has_table(connection, "schema_version"):
        ((version,),) = connection.execute("SELECT number FROM schema_version")
    if version != len(MIGRATIONS):
        raise MetadataError(
            f"the catalog {engine.address} has schema version {version}, not {len(MIGRATIONS)}: "
            "use the release of its brokers"
        )
