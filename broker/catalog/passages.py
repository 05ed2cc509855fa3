"""The ways by which metadata came into a catalog and went out of it, as the catalog notes them.

A note is part of the transaction that it is about: the catalog began with the metadata of a single
broker, or a broker has taken it back. So each step can be repeated after a crash, and nobody goes
on with metadata that has gone elsewhere.
"""

from __future__ import annotations

from odradek.broker.errors import MetadataError
from odradek.broker.metadata.statements import Connection
from odradek.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """The files with which a catalog began: their host, and the generation of their image."""

    host: str
    generation: int


def note_origin(connection: Connection, origin: Origin) -> None:
    """Note the files with which the catalog begins."""
    connection.execute(
        "INSERT INTO origin (host, generation) VALUES (?, ?)", (origin.host, origin.generation)
    )


def read_origin(connection: Connection) -> Origin | None:
    """Return the files with which the catalog began, None for one that began empty."""
    rows = connection.execute("SELECT host, generation FROM origin")
    return Origin(*rows[0]) if rows else None


def note_export(connection: Connection, host: str, node_id: int) -> None:
    """Note that a broker has taken the metadata back."""
    connection.execute("INSERT INTO export (host, node_id) VALUES (?, ?)", (host, node_id))


def is_exported_to(connection: Connection, host: str) -> bool:
    """Return whether a broker has taken the metadata back."""
    return bool(connection.execute("SELECT 1 FROM export WHERE host = ?", (host,)))


def refuse_exported(connection: Connection, address: str) -> None:
    """Raise MetadataError for a catalog whose metadata a broker has taken back."""
    rows = connection.execute("SELECT node_id FROM export ORDER BY node_id")
    if rows:
        brokers = ", ".join(str(node_id) for (node_id,) in rows)
        raise MetadataError(
            f"the metadata of the catalog {address} was exported to the log directories of "
            f"broker {brokers}: start that broker without odradek.catalog.url, or begin with an "
            "empty database"
        )
