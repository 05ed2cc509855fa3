"""The statements of a catalog: those of the metadata, and the leaders of partitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

from odradek.broker.catalog.engines import Engine
from odradek.broker.catalog.key_lists import query_for
from odradek.broker.catalog.registrations import unregister
from odradek.broker.catalog.segment_rows import remove_topics
from odradek.broker.catalog.sessions import open_sessions
from odradek.broker.ids import Partition
from odradek.broker.metadata.members import ANY_HOST, NO_LEADER, Leader
from odradek.broker.metadata.statements import (
    ROWS_MAX,
    TOPICS,
    Statements,
    read_all,
    read_topic,
)
from odradek.broker.metadata.store import TopicRecord
from odradek.broker.topics.placement import choose_leaders

_LEADERS = (
    "SELECT topic_id, number, leader, leader_epoch, host, replica, is_made, target, move"
    " FROM partition"
)


class CatalogStatements(Statements):
    """The statements, run on one connection."""

    def topics(self) -> tuple[TopicRecord, ...]:
        """Return all topics with the leaders of their partitions."""
        leaders = _by_topic(
            read_all(self._connection, _LEADERS, ("topic_id", "number"), (b"", -1))
        )
        return tuple(
            replace(one, leaders=tuple(leaders[one.topic_id])) for one in self._read_topics()
        )

    def topics_of(self, topic_ids: Iterable[bytes]) -> dict[bytes, TopicRecord]:
        """Return the topics that there are of some ids, with their leaders."""
        given = " JOIN (KEYS) AS given ON given.column1 = "
        rows = query_for(
            self._connection, f"{TOPICS}{given}id", {(one,) for one in topic_ids}
        )
        found = {one.topic_id: one for one in map(read_topic, rows)}
        leaders = _by_topic(
            row
            for some in _in_parts(found.values())
            for row in sorted(
                query_for(self._connection, f"{_LEADERS}{given}topic_id", some), key=itemgetter(1)
            )
        )
        return {key: replace(one, leaders=tuple(leaders[key])) for key, one in found.items()}

    def create_topics(self, topics: Iterable[tuple[TopicRecord, Mapping[str, str]]]) -> None:
        """Add topics, each with its settings and leaders."""
        topics = list(topics)
        super().create_topics(topics)
        for record, _ in topics:
            self._add_partitions(record, 0)

    def enlarge_topics(self, enlarged: Sequence[TopicRecord]) -> None:
        """Set the numbers of partitions of topics, and add the leaders of the new ones."""
        super().enlarge_topics(enlarged)
        for record in enlarged:
            ((present,),) = self._connection.execute(
                "SELECT count(*) FROM partition WHERE topic_id = ?", (record.topic_id,)
            )
            self._add_partitions(record, present)

    def delete_topics(self, topic_ids: Sequence[bytes], engine: Engine) -> None:
        """Remove topics with the rows of their segments."""
        remove_topics(self._connection, engine, topic_ids)
        self.finish_deletion(topic_ids)

    def finish_deletion(self, topic_ids: Sequence[bytes]) -> None:
        """Remove topics, their settings and their leaders; note the hosts with their files."""
        self._connection.execute_many(
            "INSERT INTO removal (topic_id, host, name, partition_count)"
            " SELECT DISTINCT topic.id, partition.host, topic.name, topic.partition_count"
            " FROM topic JOIN partition ON partition.topic_id = topic.id"
            " WHERE topic.id = ? AND partition.host <> ?",
            [(one, ANY_HOST) for one in topic_ids],
        )
        super().finish_deletion(topic_ids)
        self._connection.execute_many(
            "DELETE FROM partition WHERE topic_id = ?", [(one,) for one in topic_ids]
        )

    def removals(self, host: str) -> tuple[TopicRecord, ...]:
        """Return the deleted topics of which a host still has files."""
        rows = self._connection.execute(
            "SELECT topic_id, name, partition_count FROM removal WHERE host = ?", (host,)
        )
        return tuple(
            TopicRecord(name, bytes(topic_id), count, 1, 0, is_deleting=True)
            for topic_id, name, count in rows
        )

    def note_removed(self, host: str, topic_ids: Iterable[bytes]) -> None:
        """Note that a host has no files of deleted topics any more."""
        self._connection.execute_many(
            "DELETE FROM removal WHERE topic_id = ? AND host = ?",
            [(one, host) for one in topic_ids],
        )

    def note_partitions_made(self, made: Iterable[Partition]) -> None:
        """Note the partitions that have had their directories."""
        self._connection.execute_many(
            "UPDATE partition SET is_made = 1 WHERE topic_id = ? AND number = ?", list(made)
        )

    def raise_epochs(self, epochs: Mapping[Partition, int]) -> None:
        """Set the leader epochs of partitions that their leader has found to be higher."""
        self._connection.execute_many(
            "UPDATE partition SET leader_epoch = ? WHERE topic_id = ? AND number = ?",
            [(epoch, *key) for key, epoch in epochs.items()],
        )

    def withdraw_leader(self, node_id: int) -> list[bytes]:
        """Leave the partitions of a broker that is gone without a leader; return their topics.

        Shared ones get other leaders. Its session is closed before.
        """
        shared = self.replace_shared_leader(node_id)
        rows = self._connection.execute(
            "UPDATE partition SET leader = ?, leader_epoch = leader_epoch + 1"
            " WHERE leader = ? RETURNING topic_id",
            (NO_LEADER, node_id),
        )
        return list(dict.fromkeys([*shared, *(bytes(topic_id) for (topic_id,) in rows)]))

    def replace_shared_leader(self, node_id: int) -> list[bytes]:
        """Let other brokers lead the shared partitions of one that is gone; return their topics.

        Those that lead the fewest get them. Its session is closed before.
        """
        alive = [one.member for one in open_sessions(self._connection)]
        members = [one for one in alive if one.node_id != node_id]
        orphans = self._connection.execute(
            "SELECT topic_id, number FROM partition WHERE leader = ? AND host = ?",
            (node_id, ANY_HOST),
        )
        if members:
            led = dict(
                self._connection.execute(
                    "SELECT leader, count(*) FROM partition WHERE host = ? GROUP BY leader",
                    (ANY_HOST,),
                )
            )
            leaders = choose_leaders(members, led, len(orphans), is_shared=True)
            chosen = [(one.node_id, one.node_id) for one in leaders]
        else:
            chosen = [(NO_LEADER, node_id)] * len(orphans)
        self._connection.execute_many(
            "UPDATE partition SET leader = ?, replica = ?, leader_epoch = leader_epoch + 1"
            " WHERE topic_id = ? AND number = ?",
            [(*one, *orphan) for one, orphan in zip(chosen, orphans, strict=True)],
        )
        return list(dict.fromkeys(bytes(topic_id) for topic_id, _ in orphans))

    def unregister(self, node_id: int) -> None:
        """Forget a broker that has stopped."""
        unregister(self._connection, node_id)

    def set_targets(self, targets: Mapping[Partition, int]) -> None:
        """Note the brokers that are to lead partitions; NO_LEADER cancels a move."""
        self._connection.execute_many(
            "UPDATE partition SET target = ?, move = move + 1"
            " WHERE topic_id = ? AND number = ? AND target <> ?",
            [(node_id, *key, node_id) for key, node_id in targets.items()],
        )

    def lead_orphans(
        self, host: str, node_id: int, *, shares_host: bool = False
    ) -> list[bytes]:
        """Let a broker lead its host's partitions without a leader; return their topics.

        One of several brokers of a host leads those that it led last. Shared ones without a leader
        are led by any broker. The epoch stays: it rose when the last leader went.
        """
        rows = self._connection.execute(
            "UPDATE partition SET leader = ?, replica = ? WHERE leader = ?"
            " AND (host = ? OR host = ? AND (replica = ? OR ? = 0)) RETURNING topic_id",
            (node_id, node_id, NO_LEADER, ANY_HOST, host, node_id, int(shares_host)),
        )
        return list(dict.fromkeys(bytes(topic_id) for (topic_id,) in rows))

    def _add_partitions(self, record: TopicRecord, first: int) -> None:
        self._connection.execute_many(
            "INSERT INTO partition"
            " (topic_id, number, leader, leader_epoch, host, replica, is_made)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    record.topic_id,
                    number,
                    one.node_id,
                    one.epoch,
                    one.host,
                    one.replica,
                    int(one.is_made),
                )
                for number, one in enumerate(record.leaders)
                if number >= first
            ],
        )


def _in_parts(records: Iterable[TopicRecord]) -> Iterator[list[tuple[bytes]]]:
    """Split topics into lists of keys that have ROWS_MAX partitions each, or are one topic."""
    some: list[tuple[bytes]] = []
    count = 0
    for one in records:
        count += one.partition_count
        if some and count > ROWS_MAX:
            yield some
            some, count = [], one.partition_count
        some.append((one.topic_id,))
    if some:
        yield some


def _by_topic(rows: Iterable[tuple[Any, ...]]) -> defaultdict[bytes, list[Leader]]:
    """Return the leaders of each topic; equal ones are one object, since there may be millions."""
    by_topic: defaultdict[bytes, list[Leader]] = defaultdict(list)
    known: dict[tuple[Any, ...], Leader] = {}
    for topic_id, _, *columns in rows:
        key = tuple(columns)
        leader = known.get(key)
        if leader is None:
            node_id, epoch, host, replica, is_made, target, move = key
            leader = Leader(node_id, epoch, host, replica, bool(is_made), target, move)
            known[key] = leader
        by_topic[bytes(topic_id)].append(leader)
    return by_topic
