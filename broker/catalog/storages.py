"""Changes the storage of a partition: its rows of segments, or the host that has its files.

Each is a change of the metadata, beside which no other change of the partition runs. The log was
closed by its leader, in whose session this is.
"""

from __future__ import annotations

from collections.abc import Iterable

from odradek.broker.catalog.engines import Engine
from odradek.broker.catalog.segment_rows import SegmentRow, insert_segments, remove_segments
from odradek.broker.ids import Partition
from odradek.broker.metadata.members import ANY_HOST, NO_LEADER
from odradek.broker.metadata.statements import Connection
from odradek.storage.checkpoints import LeftLog


def share_partition(
    connection: Connection,
    own_id: int,
    partition: Partition,
    left: LeftLog,
    end_offset: int,
    rows: Iterable[SegmentRow],
) -> list[Partition]:
    """Let the bucket have a local partition, whose log ends at an offset.

    Returns the partition, or none if its leader has changed, or if it is shared.
    """
    found = connection.execute(
        "UPDATE partition SET host = ?, leader_epoch = leader_epoch + 1, target = ?, is_made = 1,"
        " closed_for_epoch = -1, stored_offset = ?, log_start_offset = ?, cleaner_offset = ?"
        " WHERE topic_id = ? AND number = ? AND leader = ? AND host <> ? RETURNING number",
        (ANY_HOST, NO_LEADER, end_offset, left.log_start_offset, left.cleaner_offset,
         *partition, own_id, ANY_HOST),
    )  # fmt: skip
    if not found:
        return []
    insert_segments(connection, rows)
    return [partition]


def unshare_partition(
    connection: Connection,
    engine: Engine,
    own_id: int,
    partition: Partition,
    host: str,
    left: LeftLog,
    end_offset: int,
) -> list[Partition]:
    """Let a host have a shared partition, whose log ends at an offset.

    Returns the partition, or none if its leader has changed, or if it is local. The stored offset
    is the log's end: nobody needs the WAL before it.
    """
    found = connection.execute(
        "UPDATE partition SET host = ?, leader_epoch = leader_epoch + 1, target = ?, is_made = 1,"
        " closed_for_epoch = leader_epoch + 1, recovery_point = ?, stored_offset = ?,"
        " log_start_offset = ?, cleaner_offset = ?"
        " WHERE topic_id = ? AND number = ? AND leader = ? AND host = ? RETURNING number",
        (host, NO_LEADER, left.recovery_point, end_offset, left.log_start_offset,
         left.cleaner_offset, *partition, own_id, ANY_HOST),
    )  # fmt: skip
    if not found:
        return []
    remove_segments(connection, engine, partition)
    return [partition]
