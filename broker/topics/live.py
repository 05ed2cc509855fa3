"""The topics in memory with their logs: loaded at the start, taken offline and brought back.

Where brokers share the store, this one opens the logs of the partitions that it leads. It follows
the changes of the others: a topic appears, grows, is deleted, or gets another leader.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice

from odradek.broker.metadata.changes import Changes
from odradek.broker.metadata.configs import Configs, Layers
from odradek.broker.metadata.members import NO_LEADER, Brokers
from odradek.broker.metadata.store import (
    Metadata,
    MetadataStore,
    Resource,
    ResourceType,
    TopicRecord,
)
from odradek.broker.topics.partitions import (
    OfflinePartition,
    Partition,
    Partitions,
    RemotePartition,
    Wanted,
)
from odradek.broker.topics.plans import TopicPlan
from odradek.broker.topics.table import TopicTable
from odradek.broker.topics.topic import Topic
from odradek.config.broker import BrokerConfig
from odradek.config.errors import ConfigError
from odradek.config.topic import TopicConfig
from odradek.protocol.pacing import paced
from odradek.storage.errors import StorageError
from odradek.storage.log import Log

logger = logging.getLogger(__name__)


class LiveTopics(TopicTable):
    """The topics and their logs. The event loop owns it."""

    def __init__(
        self,
        store: MetadataStore,
        configs: Configs,
        changes: Changes,
        partitions: Partitions,
        brokers: Brokers,
    ) -> None:
        super().__init__()
        self._store, self._configs, self._changes = store, configs, changes
        self._partitions, self._brokers = partitions, brokers
        # Whether `resign` was called after `restore`: no partition is led meanwhile.
        self._has_resigned = False
        # Called with a topic that is gone, its logs deleted.
        self.on_deleted: list[Callable[[Topic], None]] = []
        # Called with a topic that has more partitions, and whether all of them are new.
        self.on_grown: list[Callable[[Topic, bool], None]] = []
        # Called with a topic whose settings have changed, by itself or with the broker's.
        self.on_config_changed: list[Callable[[Topic], None]] = []
        # Called with a topic of which this broker leads other partitions than before.
        self.on_leaders_changed: list[Callable[[Topic], None]] = []
        # Called with logs whose partitions this broker leads no longer.
        self.on_resigned: list[Callable[[Sequence[Log]], None]] = []
        configs.checks.append(self._check_layers)
        configs.on_changed.append(self._follow_broker)

    @property
    def is_shared(self) -> bool:
        """Whether other brokers may lead partitions."""
        return self._store.is_shared

    async def load(self, metadata: Metadata) -> None:
        """Load the logs, and finish interrupted changes; called once, before requests come.

        A log that cannot be loaded is offline. Raises StorageError, and ConfigError for a topic
        whose settings no longer fit the broker's.
        """
        for record in metadata.removals:
            await self._partitions.delete_remains(record, self._configs.of_topic({}).config)
            self._store.note_removed([record.topic_id])
            logger.info("deleted files of a topic that others have deleted topic=%s", record.name)
        plans = []
        makes_missing = self._configs.broker.odradek_create_missing_partitions
        for record in metadata.topics:
            overrides = metadata.configs.get(Resource(ResourceType.TOPIC, record.name), {})
            if record.is_deleting:
                await self._partitions.delete_remains(record, self._configs.of_topic({}).config)
                await self._store.finish_deletion([record.topic_id])
                logger.info("finished deletion topic=%s", record.name)
                continue
            with _naming(record.name):
                plans.append(TopicPlan(record, overrides, self._configs.of_topic(overrides)))
        wanted = [
            replace(one, is_made=one.record.is_made(one.number) and not makes_missing)
            for plan in plans
            for one in plan.partitions
        ]
        opened = iter(await self._open_partitions(wanted))
        for plan in plans:
            partitions = tuple(islice(opened, plan.record.partition_count))
            topic = Topic(plan.record, partitions, plan.overrides, plan.resolved.config)
            self._publish(topic)
            self._note_made(topic)
        offline = self.offline()
        for one in offline:
            logger.error("failed to load partition=%s-%d: %s", one.topic, one.partition, one.cause)
        loaded = sum(len(topic.logs) for topic in self)
        logger.info("loaded logs=%d offline=%d", loaded, len(offline))
        offline_names = {f"{one.topic}-{one.partition}" for one in offline}
        for path in self._partitions.strays:
            if path.name in offline_names:
                continue
            logger.warning("left alone a directory that belongs to no topic path=%s", path)

    def take_offline(self, log: Log, cause: StorageError) -> None:
        """Make a partition answer with an error from now on."""
        self._replace(log.topic_id, OfflinePartition(log.topic, log.partition, cause, log))

    async def reopen(self) -> None:
        """Try to bring the offline partitions back, in turn with all other changes."""
        await self._changes.run(self._reopen)

    async def _reopen(self) -> None:
        offline = self.offline()
        topics = [self._by_name[one.topic] for one in offline]
        wanted = [
            Wanted(topic.record, one.partition, topic.config, one.log, one.is_made)
            for topic, one in zip(topics, offline, strict=True)
        ]
        opened = await self._partitions.open(wanted)
        for topic, one in zip(topics, opened, strict=True):
            self._replace(topic.topic_id, one)
            if isinstance(one, Log):
                logger.info("brought back log=%s end=%d", one.name, one.log_end_offset)

    # --- leadership -----------------------------------------------------------------------------

    def resign(self) -> None:
        """Stop leading all partitions at once: the session of this broker has ended, or may have.

        Their logs stay, for `restore`.
        """
        self._has_resigned = True
        for topic in self:
            logs = topic.logs
            if logs and topic.record.leaders:
                partitions = tuple(self._as_led(one, topic.record) for one in topic.partitions)
                self._publish(replace(topic, partitions=partitions))
                for resigned in self.on_resigned:
                    resigned(logs)
                self._leaders_changed(topic)

    async def restore(self) -> None:
        """Lead again the partitions that `resign` has given up, where this broker leads them."""
        self._has_resigned = False
        for topic in self:
            record = topic.record
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
                self._leaders_changed(restored)

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
        for topic_id in dict.fromkeys(topic_id for topic_id, _ in epochs):
            topic = self._by_id[topic_id]
            leaders = tuple(
                replace(one, epoch=epochs.get((topic_id, number), one.epoch))
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
        # First, since a new topic may have the name of one that is gone.
        for topic_id in records.keys() - {one.topic_id for one in present}:
            known = self._by_id.get(topic_id)
            if known is not None:
                await self._lose(known)
        for record in present:
            known = self._by_id.get(record.topic_id)
            if known is None:
                owner = Resource(ResourceType.TOPIC, record.name)
                await self._gain(record, configs.get(owner, {}))
            else:
                await self._update(known, record)
        for owner, overrides in paced(configs.items()):
            topic = self.get(owner.name) if owner.type is ResourceType.TOPIC else None
            if topic is not None and dict(topic.overrides) != dict(overrides):
                self._reconfigure(topic, overrides, self._resolve(topic.name, overrides))

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
        """Return the settings of a topic; those of the broker if they do not fit here."""
        try:
            return self._configs.of_topic(overrides).config
        except ConfigError as error:
            logger.error("settings stored by another broker do not fit topic=%s: %s", name, error)
            return self._configs.of_topic({}).config

    # --- the broker's settings ------------------------------------------------------------------

    def _check_layers(self, layers: Layers) -> None:
        distinct = {frozenset(topic.overrides.items()): topic for topic in self}
        for topic in distinct.values():
            with _naming(topic.name):
                self._configs.of_topic(topic.overrides, layers)

    def _follow_broker(self, _: BrokerConfig) -> None:
        for topic in self:
            config = self._configs.of_topic(topic.overrides).config
            if config != topic.config:
                self._reconfigure(topic, topic.overrides, config)

    # --- parts of changes -----------------------------------------------------------------------

    async def _open_partitions(self, wanted: Sequence[Wanted]) -> list[Partition]:
        """Open the partitions that this broker leads; the others are remote."""
        own = [one for one in wanted if self._leads(one.record, one.number)]
        opened = await self._partitions.open(own)
        later = [
            (log, one.record.leaders[one.number].epoch)
            for one, log in zip(own, opened, strict=True)
            if isinstance(log, Log)
            and one.record.leaders
            and one.record.leaders[one.number].epoch > log.leader_epoch
        ]
        if later:  # the log was open already, or is new
            await asyncio.get_running_loop().run_in_executor(None, _raise_epochs, later)
        found = iter(opened)
        return [
            self._as_led(next(found), one.record)
            if self._leads(one.record, one.number)
            else RemotePartition(one.record.name, one.number, one.record.leaders[one.number])
            for one in wanted
        ]

    def _as_led(self, one: Partition, record: TopicRecord) -> Partition:
        """Return a partition of this broker as requests find it: without a leader after `resign`.
        """
        if not self._has_resigned or isinstance(one, RemotePartition) or not record.leaders:
            return one
        leader = replace(record.leaders[one.partition], node_id=NO_LEADER)
        return RemotePartition(one.topic, one.partition, leader)

    def _leads(self, record: TopicRecord, number: int) -> bool:
        leaders = record.leaders
        return not leaders or leaders[number].node_id == self._configs.node_id

    def _with_resigned(self, topic: Topic) -> list[Partition]:
        """Return the partitions of a topic, with the logs that `resign` has kept."""
        return [
            self._partitions.log_of(topic.record, one.partition) or one
            if isinstance(one, RemotePartition)
            else one
            for one in topic.partitions
        ]

    def _note_made(self, topic: Topic) -> None:
        """Note that the partitions of this broker have files, once all of them have."""
        own = [
            one for one in self._with_resigned(topic) if not isinstance(one, RemotePartition)
        ]
        made = [one.partition for one in own if isinstance(one, Log)]
        if made and len(made) == len(own):
            self._store.note_made(topic.topic_id, made)

    def _led(self) -> Counter[int] | None:
        """Count the partitions that each broker leads; None where the one broker leads all."""
        if not self.is_shared:
            return None
        return Counter(one.node_id for topic in self for one in topic.record.leaders)

    def _grow(self, topic: Topic, *, is_new: bool) -> None:
        self._publish(topic)
        for grown in self.on_grown:
            grown(topic, is_new)

    def _leaders_changed(self, topic: Topic) -> None:
        for changed in self.on_leaders_changed:
            changed(topic)

    def _reconfigure(
        self, topic: Topic, overrides: Mapping[str, str], config: TopicConfig
    ) -> None:
        changed = replace(topic, overrides=overrides, config=config)
        for log in changed.logs:
            log.config = config
        self._publish(changed)
        for listener in self.on_config_changed:
            listener(changed)


def _merged(present: Sequence[Partition], changed: Sequence[Partition]) -> tuple[Partition, ...]:
    """Return partitions of a topic by number; the changed ones take the place of the present."""
    by_number = {one.partition: one for one in (*present, *changed)}
    return tuple(by_number[number] for number in sorted(by_number))


def _raise_epochs(later: Sequence[tuple[Log, int]]) -> None:
    for log, epoch in later:
        log.raise_epoch(epoch)


@contextmanager
def _naming(topic: str) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        raise ConfigError(*(f"topic {topic}: {problem}" for problem in error.problems)) from error
