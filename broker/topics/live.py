"""The topics in memory with their logs: loaded at the start, taken offline and brought back.

Where brokers share the store, this one opens the logs of the partitions that it leads.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice

from odradek.broker.errors import MetadataError
from odradek.broker.metadata.changes import Changes
from odradek.broker.metadata.configs import Configs, Layers
from odradek.broker.metadata.members import Brokers
from odradek.broker.metadata.store import (
    Metadata,
    MetadataStore,
    Resource,
    ResourceType,
    TopicRecord,
)
from odradek.broker.topics.partitions import Partitions
from odradek.broker.topics.plans import TopicPlan
from odradek.broker.topics.states import (
    OfflinePartition,
    Partition,
    RemotePartition,
    Wanted,
    leaderless,
    remote,
)
from odradek.broker.topics.table import TopicTable
from odradek.broker.topics.topic import Topic
from odradek.config.broker import BrokerConfig
from odradek.config.errors import ConfigError
from odradek.config.topic import TopicConfig
from odradek.storage.checkpoints import LeftLog
from odradek.storage.errors import StorageError
from odradek.storage.log import Log

logger = logging.getLogger(__name__)


LeftLogs = Callable[[Iterable[bytes]], Awaitable[Mapping[tuple[bytes, int], LeftLog]]]
FinishCopies = Callable[
    [Iterable[tuple[bytes, int]]], Awaitable[Mapping[tuple[bytes, int], LeftLog]]
]


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
        # Returns how other brokers of this host have left the logs of topics, by id and number;
        # None where this broker has the host for itself.
        self.left_logs: LeftLogs | None = None
        # Ends the copies of partitions that this broker leads now, and returns how it left them;
        # None without other hosts.
        self.finish_copies: FinishCopies | None = None
        # How this broker has left logs that nobody else leads yet.
        self._left_here: dict[tuple[bytes, int], LeftLog] = {}
        configs.checks.append(self._check_layers)
        configs.on_changed.append(self._follow_broker)

    @property
    def is_shared(self) -> bool:
        """Whether other brokers may lead partitions."""
        return self._store.is_shared

    def leads(self, topic_id: bytes, number: int) -> bool:
        """Return whether this broker is to lead a partition, by the metadata in memory."""
        topic = self._by_id.get(topic_id)
        return topic is not None and self._leads(topic.record, number)

    async def load(self, metadata: Metadata) -> None:
        """Load the logs, within a change; called once, before requests come.

        A log that cannot be loaded is offline. Raises StorageError, and ConfigError for a topic
        whose settings no longer fit the broker's.
        """
        plans = []
        makes_missing = self._configs.broker.odradek_create_missing_partitions
        for record in metadata.topics:
            if record.is_deleting:
                continue
            overrides = metadata.configs.get(Resource(ResourceType.TOPIC, record.name), {})
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

    async def delete_remains(self, metadata: Metadata) -> None:
        """Delete the remains of topics whose deletion was interrupted, before `load`."""
        config = self._configs.of_topic({}).config
        for record in metadata.removals:
            await self._partitions.delete_remains(record, config)
            self._store.note_removed([record.topic_id])
            logger.info("deleted files of a topic that others have deleted topic=%s", record.name)
        for record in metadata.topics:
            if record.is_deleting:
                await self._partitions.delete_remains(record, config)

    async def finish_deletions(self, metadata: Metadata) -> None:
        """Forget the topics that have no files any more, within a change."""
        doomed = [one for one in metadata.topics if one.is_deleting]
        if doomed:
            await self._store.finish_deletion([one.topic_id for one in doomed])
            logger.info("finished deletion topics=%s", ",".join(one.name for one in doomed))

    def take_offline(self, log: Log, cause: StorageError) -> None:
        """Make a partition answer with an error from now on, unless others lead it by now."""
        if self.leads(log.topic_id, log.partition):
            self._replace(log.topic_id, OfflinePartition(log.topic, log.partition, cause, log))

    async def reopen(self) -> None:
        """Try to bring the offline partitions back, in turn with all other changes."""
        await self._changes.run(self._reopen)

    async def _reopen(self) -> None:
        offline = self.offline()
        topics = [self._by_name[one.topic] for one in offline]
        wanted: Sequence[Wanted] = [
            Wanted(topic.record, one.partition, topic.config, one.log, one.is_made)
            for topic, one in zip(topics, offline, strict=True)
        ]
        if self.left_logs is not None or self._left_here:
            try:
                wanted = await self._with_left(wanted)
            except MetadataError as error:  # they wait for the catalog, too
                logger.warning("could not bring partitions back: %s", error)
                return
        opened = await self._partitions.open(wanted)
        for topic, one in zip(topics, opened, strict=True):
            self._replace(topic.topic_id, self._as_led(one, topic.record, one.partition))
            if isinstance(one, Log):
                logger.info("brought back log=%s end=%d", one.name, one.log_end_offset)
                self._leaders_changed(topic)

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
        """Open the partitions that this broker leads; the others are remote.

        After `resign` none is opened before `restore`: the outcome of a handover may not be known.
        """
        own: Sequence[Wanted] = [
            one
            for one in wanted
            if self._leads(one.record, one.number) and not self._waits(one.record)
        ]
        if self.left_logs is not None or self._left_here:
            own = await self._with_left(own)
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
        led = {one.key: log for one, log in zip(own, opened, strict=True)}
        return [
            self._as_led(led.get(one.key), one.record, one.number) for one in wanted
        ]

    async def _with_left(self, wanted: Sequence[Wanted]) -> Sequence[Wanted]:
        """Add to logs that are not open the states in which brokers of this host left them."""
        closed = {
            one.key
            for one in wanted
            if one.failed is None and not self._partitions.is_open(one)
        }
        elsewhere = {topic_id for topic_id, _ in closed - self._left_here.keys()}
        found: dict[tuple[bytes, int], LeftLog] = {}
        if elsewhere and self.left_logs is not None:
            found |= await self.left_logs(elsewhere)
        found |= {key: self._left_here.pop(key) for key in closed & self._left_here.keys()}
        return [
            replace(one, left=found.get(one.key)) if one.key in closed else one
            for one in wanted
        ]

    def _as_led(self, opened: Partition | None, record: TopicRecord, number: int) -> Partition:
        """Return a partition as requests find it: one of this broker is leaderless after `resign`.

        Also one that was opened meanwhile.
        """
        if not self._leads(record, number):
            return remote(record, number)
        if self._waits(record):
            return leaderless(record, number)
        assert opened is not None, "this broker leads it"
        return opened

    def _waits(self, record: TopicRecord) -> bool:
        """Return whether `restore` is to open the partitions of a topic."""
        return self._has_resigned and bool(record.leaders)

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


def _raise_epochs(later: Sequence[tuple[Log, int]]) -> None:
    for log, epoch in later:
        log.raise_epoch(epoch)


@contextmanager
def _naming(topic: str) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        raise ConfigError(*(f"topic {topic}: {problem}" for problem in error.problems)) from error
