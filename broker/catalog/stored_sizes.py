"""The sizes of shared topics in the bucket and in the WAL, and of the garbage."""

from __future__ import annotations

from odradek.broker.metadata.statements import Connection
from odradek.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class StoredSizes:
    """All brokers' shared topics. Bytes of segments are those of batches, without indexes."""

    segments: int
    segment_bytes: int
    wal_entries: int
    wal_bytes: int
    wal_object_bytes: int  # of the entries whose bodies are in the bucket
    garbage_objects: int
    garbage_bytes: int

    @property
    def bucket_bytes(self) -> int:
        """The bytes that the bucket has."""
        return self.segment_bytes + self.wal_object_bytes + self.garbage_bytes


def stored_sizes(connection: Connection) -> StoredSizes:
    """Add up all rows, without reading their larger columns."""
    numbers: list[int] = []
    for query in (
        "SELECT count(*), COALESCE(sum(size_bytes), 0) FROM segment",
        "SELECT count(*), COALESCE(sum(size_bytes), 0),"
        " COALESCE(sum(CASE WHEN body IS NULL THEN size_bytes ELSE 0 END), 0) FROM wal_entry",
        "SELECT count(*), COALESCE(sum(size_bytes), 0) FROM garbage",
    ):
        numbers += map(int, connection.execute(query)[0])
    return StoredSizes(*numbers)
