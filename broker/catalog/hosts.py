"""The partitions of a host whose brokers share its log directories.

The process that has started the brokers, and holds the lock of the directories, decides which of
them leads a partition whose last leader has ended. It has no session: the lock proves that the
broker has ended, and so does the end of its process.

    spread      none of the brokers runs: each gets its share of the partitions
    take over   one has ended: the others share its partitions
    rebalance   one has come back: the others are to hand its share over

A log that passes from one to the other comes with a note (LeftLog) in the partition's row.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from odradek.broker.catalog import changes
from odradek.broker.catalog.engines import Engine
from odradek.broker.catalog.sessions import close_session, open_sessions, sessions_of
from odradek.broker.catalog.statements import CatalogStatements
from odradek.broker.ids import Partition
from odradek.broker.metadata.members import ANY_HOST, NO_LEADER, Member
from odradek.broker.metadata.statements import Connection
from odradek.broker.topics.placement import fair_targets, spread_evenly
from odradek.broker.topics.states import Handover
from odradek.dataclass import dataclass
from odradek.storage.checkpoints import LeftLog, TopicPartition

Left = Mapping[TopicPartition, LeftLog]
"""The states in which a process left its logs."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A partition of a host, its leaders by node id, and its log as it was left last."""

    topic_id: bytes
    topic: str
    number: int
    leader: int
    epoch: int
    replica: int
    left: LeftLog

    @property
    def key(self) -> TopicPartition:
        """The topic's name and the partition's number."""
        return self.topic, self.number


class HostStatements(CatalogStatements):
    """The statements about the partitions of one host."""

    def placed(self, host: str) -> list[Placed]:
        """Return the partitions of a host."""
        rows = self._connection.execute(
            "SELECT topic_id, topic.name, number, leader, leader_epoch, replica, recovery_point,"
            " log_start_offset, cleaner_offset, closed_for_epoch"
            " FROM partition JOIN topic ON topic.id = topic_id WHERE host = ?"
            " ORDER BY topic.name, number",
            (host,),
        )
        return [
            Placed(bytes(topic_id), name, number, leader, epoch, replica, _left(epoch, *left))
            for topic_id, name, number, leader, epoch, replica, *left in rows
        ]

    def place(self, partitions: Sequence[Placed]) -> None:
        """Set the leaders of partitions, and the notes on their logs.

        A move to a broker of another host goes on with the new leader; others end.
        """
        self._connection.execute_many(
            "UPDATE partition SET leader = ?, leader_epoch = ?, replica = ?,"
            " target = CASE WHEN target IN (SELECT node_id FROM session"
            "   WHERE session.host <> partition.host) THEN target ELSE ? END,"
            " recovery_point = ?, log_start_offset = ?, cleaner_offset = ?, closed_for_epoch = ?"
            " WHERE topic_id = ? AND number = ?",
            [
                (
                    one.leader,
                    one.epoch,
                    one.replica,
                    NO_LEADER,
                    one.left.recovery_point,
                    one.left.log_start_offset,
                    one.left.cleaner_offset,
                    one.epoch if one.left.is_clean else -1,
                    one.topic_id,
                    one.number,
                )
                for one in partitions
            ],
        )

    def left_logs(self, topic_ids: Iterable[bytes]) -> dict[Partition, LeftLog]:
        """Return the notes on the logs of topics."""
        found: dict[Partition, LeftLog] = {}
        for topic_id in topic_ids:
            rows = self._connection.execute(
                "SELECT number, leader_epoch, recovery_point, log_start_offset, cleaner_offset,"
                " closed_for_epoch FROM partition WHERE topic_id = ?",
                (topic_id,),
            )
            found |= {(topic_id, number): _left(epoch, *left) for number, epoch, *left in rows}
        return found

    def hand_over(
        self, own_id: int, given: Mapping[Partition, tuple[Member, Handover]]
    ) -> list[Partition]:
        """Let other brokers lead partitions that `own_id` leads; return these partitions.

        The others stay: their leader has changed meanwhile, or their copies are not those of the
        present moves.
        """
        changed: list[Partition] = []
        for (topic_id, number), (member, handover) in given.items():
            left, move = handover.left, handover.move
            rows = self._connection.execute(
                "UPDATE partition SET leader = ?, replica = ?,"
                " host = CASE WHEN host = ? THEN host ELSE ? END, target = ?, is_made = 1,"
                " leader_epoch = leader_epoch + 1,"
                " closed_for_epoch = CASE WHEN ? = 1 THEN leader_epoch + 1 ELSE -1 END,"
                " recovery_point = ?, log_start_offset = ?, cleaner_offset = ?"
                " WHERE topic_id = ? AND number = ? AND leader = ? AND (move = ? OR ? < 0)"
                " RETURNING number",
                (
                    member.node_id,
                    member.node_id,
                    ANY_HOST,
                    member.host,
                    NO_LEADER,
                    int(left.is_clean),
                    left.recovery_point,
                    left.log_start_offset,
                    left.cleaner_offset,
                    topic_id,
                    number,
                    own_id,
                    move,
                    move,
                ),
            )
            if rows:
                changed.append((topic_id, number))
        return changed


def hand_over(
    connection: Connection, own_id: int, given: Mapping[Partition, Handover]
) -> list[Partition]:
    """Let other brokers lead partitions whose logs are closed.

    Returns those that have changed hands; the others stay: the new leader has gone, or has
    another copy than the one of the present move.
    """
    present = {one.member.node_id: one.member for one in open_sessions(connection)}
    possible = {
        key: (present[one.node_id], one) for key, one in given.items() if one.node_id in present
    }
    return HostStatements(connection).hand_over(own_id, possible)


def spread(
    connection: Connection,
    engine: Engine,
    host: str,
    node_ids: Sequence[int],
    left: Mapping[int | None, Left],
) -> list[changes.Change]:
    """Give each broker of a host that is about to start its share; return the changes.

    `left` has the states of logs as earlier brokers left them, by node id; at None those of a
    single broker.
    """
    statements = HostStatements(connection)
    earlier = sessions_of(connection, host)
    for session in earlier:
        close_session(connection, engine, session.epoch)
    shared = [
        topic_id
        for session in earlier
        for topic_id in statements.replace_shared_leader(session.member.node_id)
    ]
    present = statements.placed(host)
    chosen = spread_evenly([(one.topic, one.replica) for one in present], node_ids)
    placed = [
        replace(_without_leader(_noted(one, left)), replica=node_id)
        for one, node_id in zip(present, chosen, strict=True)
    ]
    statements.place(placed)
    return [*_changes(placed), *map(changes.topic, shared)]


def take_over(
    connection: Connection, engine: Engine, host: str, node_id: int, left: Left
) -> list[changes.Change]:
    """Let the other brokers of a host lead the partitions of one that has ended.

    Without another one the partitions wait for the broker to come back. Returns the changes.
    """
    statements = HostStatements(connection)
    others = []
    for session in sessions_of(connection, host):
        if session.member.node_id == node_id:
            close_session(connection, engine, session.epoch)
        else:
            others.append(session.member.node_id)
    shared = statements.replace_shared_leader(node_id)
    present = statements.placed(host)
    replicas = [(one.topic, one.replica) for one in present]
    chosen = spread_evenly(replicas, others) if others else [NO_LEADER] * len(present)
    placed = []
    for one, other in zip(present, chosen, strict=True):
        if one.replica == node_id and one.leader in (node_id, NO_LEADER):
            one = _without_leader(_noted(one, {node_id: left}))
            placed.append(replace(one, leader=other, replica=other) if others else one)
    statements.place(placed)
    return [*_changes(placed), *map(changes.topic, shared)]


def rebalance(connection: Connection, host: str) -> list[changes.Change]:
    """Let the brokers of a host that are alive each have their share; return the changes.

    The present leaders see their targets, and hand over.
    """
    statements = CatalogStatements(connection)
    alive = [one.member for one in open_sessions(connection)]
    here = {one.node_id for one in alive if one.host == host}
    fair = fair_targets(statements.topics(), alive)
    targets = {key: node_id for key, node_id in fair.items() if node_id in here}
    statements.set_targets(targets)
    return [changes.topic(topic_id) for topic_id, _ in targets]


def _noted(one: Placed, left: Mapping[int | None, Left]) -> Placed:
    """Return a partition with the note of the process that had its log last."""
    for process in (one.replica, None):
        found = left.get(process, {}).get(one.key)
        if found is not None:
            return replace(one, left=found)
    return replace(one, left=replace(one.left, is_clean=False)) if one.leader >= 0 else one


def _without_leader(one: Placed) -> Placed:
    """Return a partition without a leader; its epoch rises with the end of the leader."""
    if one.leader == NO_LEADER:
        return one
    return replace(one, leader=NO_LEADER, epoch=one.epoch + 1)


def _changes(placed: Sequence[Placed]) -> list[changes.Change]:
    topic_ids = dict.fromkeys(one.topic_id for one in placed)
    return [changes.SESSIONS, *map(changes.topic, topic_ids)]


def _left(
    epoch: int,
    recovery_point: int,
    log_start_offset: int,
    cleaner_offset: int | None,
    closed_for_epoch: int,
) -> LeftLog:
    return LeftLog(
        recovery_point, log_start_offset, cleaner_offset, is_clean=closed_for_epoch == epoch
    )
