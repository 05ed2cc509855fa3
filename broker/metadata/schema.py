"""The tables of the metadata, as every store of it has them.

    cluster    one row: the cluster's id, and the next producer id
    topic      the topics, those being deleted included
    config     settings by owner: a topic, a broker, a group, a client metrics subscription
    feature    the levels that clients have finalized
    security   rows by kind; their texts are for the modules that own them
"""

from __future__ import annotations

# One script for each schema version, applied in order; a released script is never changed.
MIGRATIONS = (
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
