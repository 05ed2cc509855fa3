"""Follows the changes of the brokers that share the store, and gives partitions up.

A topic appears, grows, is deleted, or gets another leader. A broker whose session has ended, or
that hands partitions to another one, leads them no longer at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from odradek.broker.errors import MetadataError
from odradek.broker.metadata.members import Leader
from odradek.broker.metadata.store import Resource, ResourceType, TopicRecord
from odradek.broker.topics.live import LiveTopics
from odradek.broker.topics.names import INTERNAL
from odradek.broker.topics.states import Partition, RemotePartition, Wanted, leaderless
from odradek.broker.topics.topic import Topic
from odradek.config.errors import ConfigError
from odradek.config.object_store import LOCAL, STORAGE
from odradek.config.topic import TopicConfig
from odradek.protocol.pacing import paced
from odradek.storage.checkpoints import LeftLog
from odradek.storage.errors import StorageError
from odradek.storage.log import Log

logger = logging.getLogger(__name__)

_TOPICS_A_TURN = 16
# Thousands of shared logs take seconds to open: some are served while others are opened. Each
# portion reads the WAL, so there are few.
_OPENED_AT_ONCE, _PORTIONS_MAX = 1_000, 8
# The pause between two tries to ask a catalog that is away.
_RETRY_S = 0.5


class FollowingTopics(LiveTopics):
    """The topics as all brokers change them. The event loop owns it."""

    # --- leadership -----------------------------------------------------------------------------

    def resign(self) -> None:
        """Stop leading all partitions at once: the session of this broker has ended, or may have.

        Their logs stay, for `restore`.
        """
        self._has_resigned = True
        for topic in self:
            if topic.record.leaders:
                self._give_up(topic, topic.partitions)

    @property
    def has_resigned(self) -> bool:
        """Whether all partitions are given up, until `restore`."""
        return self._has_resigned

    def is_here(self, topic_id: bytes, number: int) -> bool:
        """Return whether this host has the files of a partition, also while no broker leads it."""
        leader = self.leader_of(topic_id, number)
        return leader is not None and leader.host == self._brokers.own.host

    def leader_of(self, topic_id: bytes, number: int) -> Leader | None:
        """Return the leader of a partition as it was stored last, None if there is no such one."""
        topic = self._by_id.get(topic_id)
        return None if topic is None else topic.record.leaders[number]

    def give_up(self, logs: Sequence[Log]) -> None:
        """Stop leading some partitions at once; their logs stay, for `restore`."""
        by_topic: dict[bytes, list[Log]] = {}
        for log in logs:
            by_topic.setdefault(log.topic_id, []).append(log)
        for topic_id, given in by_topic.items():
            self._give_up(self._by_id[topic_id], given)

    def _give_up(self, topic: Topic, given: Sequence[Partition]) -> None:
        own = [one for one in given if not isinstance(one, RemotePartition)]
        if not own:
            return
        remote = [leaderless(topic.record, one.partition) for one in own]
        topic = replace(topic, partitions=_merged(topic.partitions, remote))
        self._publish(topic)
        for resigned in self.on_resigned:
            resigned([one for one in own if isinstance(one, Log)])
        self._leaders_changed(topic)

    async def restore(self) -> None:
        """Lead again the partitions that this broker has given up, and that it still leads.

        It waits for a catalog that is away: nothing else would open them. `resign` ends the wait.
        """
        self._has_resigned = False
        topics = sorted(self, key=lambda one: one.name not in INTERNAL)
        for some in _portions([one.record for one in topics], self._led_count):
            await self._open_shared({one: self._by_id[one.topic_id].config for one in some})
            while not self._has_resigned:
                try:
                    await self._restore(some)
                    break
                except MetadataError as error:
                    logger.warning("wait for the catalog: %s", error)
                    await asyncio.sleep(_RETRY_S)

    async def _restore(self, records: Sequence[TopicRecord]) -> None:
        for record in records:
            topic = self._by_id[record.topic_id]
            wanted = [
                Wanted(record, one.partition, topic.config, is_made=record.is_made(one.partition))
                for one in topic.partitions
                if isinstance(one, RemotePartition) and self._leads(record, one.partition)
            ]
            if wanted:
                opened = await self._open_partitions(wanted)
                if self._has_resigned:
                    return
                present = self._by_id[topic.topic_id]
                restored = replace(present, partitions=_merged(present.partitions, opened))
                self._publish(restored)
                self._note_made(restored)
                self._leaders_changed(restored)

    def note_left(self, left: Mapping[tuple[bytes, int], LeftLog]) -> None:
        """Note how logs were closed, until others lead their partitions."""
        self._left_here.update(left)

    def higher_epochs(self) -> dict[tuple[bytes, int], int]:
        """Return the epochs of logs that are later than the store has them.

        They began at an unclean start, or before the store was shared.
        """
        return {
            (topic.topic_id, log.partition): log.leader_epoch
            for topic in self
            if topic.record.leaders
            for log in topic.logs
            if log.leader_epoch > topic.record.leaders[log.partition].epoch
        }

    def note_epochs(self, epochs: Mapping[tuple[bytes, int], int]) -> None:
        """Note that the store has these epochs now."""
        self._note({key: replace(self._leader(key), epoch=one) for key, one in epochs.items()})

    def note_targets(self, targets: Mapping[tuple[bytes, int], int]) -> None:
        """Note that the store has these targets now, for the topics that are still there."""
        self._note({
            key: self._leader(key).with_target(one)
            for key, one in targets.items()
            if key[0] in self._by_id
        })

    def _leader(self, key: tuple[bytes, int]) -> Leader:
        topic_id, number = key
        return self._by_id[topic_id].record.leaders[number]

    def _note(self, changed: Mapping[tuple[bytes, int], Leader]) -> None:
        for topic_id in dict.fromkeys(topic_id for topic_id, _ in changed):
            topic = self._by_id[topic_id]
            leaders = tuple(
                changed.get((topic_id, number), one)
                for number, one in enumerate(topic.record.leaders)
            )
            self._publish(replace(topic, record=replace(topic.record, leaders=leaders)))

    # --- other brokers' changes -----------------------------------------------------------------

    async def follow(
        self,
        records: Mapping[bytes, TopicRecord | None],
        configs: Mapping[Resource, Mapping[str, str]],
    ) -> None:
        """Take over topics as other brokers have stored them, within a change.

        A disk that refuses a partition takes it offline, as at the start.
        """
        present = [one for one in records.values() if one is not None and not one.is_deleting]
        # Coordinators come first: clients of all topics wait for them.
        present.sort(key=lambda one: one.name not in INTERNAL)
        # First, since a new topic may have the name of one that is gone.
        for topic_id in records.keys() - {one.topic_id for one in present}:
            known = self._by_id.get(topic_id)
            if known is not None:
                await self._lose(known)
            else:  # it was made and deleted between two looks
                self._store.note_removed([topic_id])
        for some in _portions(present, self._led_count):
            await self._take_over(some, configs)
        for owner, overrides in paced(configs.items()):
            topic = self.get(owner.name) if owner.type is ResourceType.TOPIC else None
            if topic is not None and dict(topic.overrides) != dict(overrides):
                self._reconfigure(topic, overrides, self._resolve(topic.name, overrides))

    async def _take_over(
        self, records: Sequence[TopicRecord], configs: Mapping[Resource, Mapping[str, str]]
    ) -> None:
        await self._open_shared(
            {
                one: self._by_id[one.topic_id].config
                if one.topic_id in self._by_id
                else self._resolve(one.name, configs.get(_owner(one), {}))
                for one in records
            }
        )
        for at, record in enumerate(records):
            if at % _TOPICS_A_TURN == 0:
                await asyncio.sleep(0)  # there may be thousands: others take turns
            known = self._by_id.get(record.topic_id)
            if known is None:
                await self._gain(record, configs.get(_owner(record), {}))
            else:
                await self._update(known, record)

    def _led_count(self, record: TopicRecord) -> int:
        return len(self._shared_led(record))

    def _shared_led(self, record: TopicRecord) -> list[int]:
        """Return the shared partitions of a topic that this broker leads."""
        return [
            number
            for number, leader in enumerate(record.leaders)
            if leader.is_shared and self._leads(record, number)
        ]

    async def _open_shared(self, records: Mapping[TopicRecord, TopicConfig]) -> None:
        """Open the shared partitions of this broker together: each look at the WAL reads it all.

        Those of coordinators come first.
        """
        if self._has_resigned:
            return
        for is_internal in (True, False):
            wanted = [
                Wanted(record, number, config)
                for record, config in records.items()
                if (record.name in INTERNAL) == is_internal
                for number in self._shared_led(record)
            ]
            if wanted:
                await self._partitions.open(wanted)

    async def _gain(self, record: TopicRecord, overrides: Mapping[str, str]) -> None:
        config = self._resolve(record.name, overrides)
        wanted = [Wanted(record, number, config) for number in range(record.partition_count)]
        topic = Topic(record, tuple(await self._open_partitions(wanted)), overrides, config)
        self._grow(topic, is_new=True)
        self._note_made(topic)
        self._leaders_changed(topic)
        logger.info("followed new topic=%s partitions=%d", record.name, record.partition_count)

    async def _update(self, known: Topic, record: TopicRecord) -> None:
        """Open the partitions that are new, or that this broker leads now; drop those it lost."""
        changed = [
            number
            for number in range(record.partition_count)
            if number >= len(known.partitions)
            or known.record.leaders[number] != record.leaders[number]
        ]
        self._forget_left(known, record, changed)
        if self.finish_copies is not None:
            led = [(record.topic_id, one) for one in changed if self._leads(record, one)]
            self._left_here |= await self.finish_copies(led)
        opened = await self._open_partitions(
            [Wanted(record, one, known.config, is_made=record.is_made(one)) for one in changed]
        )
        known = self._by_id[record.topic_id]  # a disk may have failed meanwhile
        topic = replace(known, record=record, partitions=_merged(known.partitions, opened))
        if len(topic.partitions) > len(known.partitions):
            self._grow(topic, is_new=False)
        else:
            self._publish(topic)
        self._note_made(topic)
        lost = [one for one in known.logs if one not in topic.logs]
        if lost:
            for resigned in self.on_resigned:
                resigned(lost)
        self._leaders_changed(topic)

    def _forget_left(
        self, known: Topic, record: TopicRecord, changed: Sequence[int]
    ) -> None:
        """Forget how this broker has left logs that others may have had meanwhile."""
        for number in changed:
            key = record.topic_id, number
            if key not in self._left_here:
                continue
            old, new = known.record.leaders[number], record.leaders[number]
            is_led_alike = (old.node_id, old.epoch) == (new.node_id, new.epoch)
            is_here = new.host == self._brokers.own.host
            if not is_here or (self.left_logs is not None and not is_led_alike):
                del self._left_here[key]

    async def _lose(self, topic: Topic) -> None:
        self._withdraw(topic)
        try:
            await self._partitions.delete(self._with_resigned(topic))
            self._store.note_removed([topic.topic_id])
        except StorageError as error:  # the next start tries again
            logger.error("could not delete logs topic=%s: %s", topic.name, error)
        logger.info("followed deletion topic=%s", topic.name)
        for deleted in self.on_deleted:
            deleted(topic)

    def _resolve(self, name: str, overrides: Mapping[str, str]) -> TopicConfig:
        """Return the settings of a topic; those of the broker if they do not fit here.

        The storage is the topic's in any case: a shared topic must not be taken for a local one.
        """
        try:
            return self._configs.of_topic(overrides).config
        except ConfigError as error:
            logger.error("settings stored by another broker do not fit topic=%s: %s", name, error)
            storage = overrides.get(STORAGE, LOCAL)
            return replace(self._configs.of_topic({}).config, odradek_storage=storage)


def _portions(
    records: Sequence[TopicRecord], opened: Callable[[TopicRecord], int]
) -> Iterator[Sequence[TopicRecord]]:
    """Yield topics in portions of which so many logs are opened together, or somewhat more."""
    counts = [opened(one) for one in records]
    wanted = max(_OPENED_AT_ONCE, sum(counts) // _PORTIONS_MAX)
    begin = total = 0
    for at, count in enumerate(counts):
        total += count
        if total >= wanted:
            yield records[begin : at + 1]
            begin, total = at + 1, 0
    if begin < len(records):
        yield records[begin:]


def _owner(record: TopicRecord) -> Resource:
    return Resource(ResourceType.TOPIC, record.name)


def _merged(present: Sequence[Partition], changed: Sequence[Partition]) -> tuple[Partition, ...]:
    """Return partitions of a topic by number; the changed ones take the place of the present."""
    by_number = {one.partition: one for one in (*present, *changed)}
    return tuple(by_number[number] for number in sorted(by_number))
