"""The topics of the broker, and their changes; `table.py` has the look-ups.

A change is written first to the metadata store and then to the log directories, so that the next
start can finish a change that a crash interrupts:

    created    a known topic lacks partition directories        they are created
    enlarged   the same
    deleted    a topic is marked, its directories remain        they go, then the topic
    unknown    a directory belongs to no topic                  it is left alone and reported
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from odradek.broker.errors import Explained, MetadataError, Refusal, as_value
from odradek.broker.metadata.changes import Changes
from odradek.broker.metadata.configs import Alteration, Configs
from odradek.broker.metadata.members import Brokers
from odradek.broker.metadata.store import MetadataStore, Resource, ResourceType, TopicRecord
from odradek.broker.topics.following import FollowingTopics
from odradek.broker.topics.partitions import Partitions, online
from odradek.broker.topics.plans import (
    Enlargement,
    NewTopic,
    Surroundings,
    TopicPlan,
    check_enlargement,
    check_total,
    internal_topic,
    plan_topics,
    with_new_leaders,
)
from odradek.broker.topics.states import Wanted
from odradek.broker.topics.topic import Topic
from odradek.config.errors import ConfigError
from odradek.config.object_store import LOCAL, OBJECT, STORAGE
from odradek.config.topic import TopicConfig
from odradek.protocol.errors import ErrorCode
from odradek.protocol.pacing import paced
from odradek.storage.errors import StorageError

logger = logging.getLogger(__name__)

Spend = Callable[[int], None]
"""Counts partitions that are created or deleted; raises Refusal when they are too many."""


class Topics(FollowingTopics):
    """The registry of topics. The event loop owns it; changes wait for the store and the disk.

    The error of one topic is data in the result; the changes of the others are carried out.
    """

    def __init__(
        self,
        store: MetadataStore,
        configs: Configs,
        changes: Changes,
        partitions: Partitions,
        brokers: Brokers,
        *,
        now_ms: Callable[[], int],
        new_id: Callable[[], bytes],
    ) -> None:
        super().__init__(store, configs, changes, partitions, brokers)
        self._now_ms, self._new_id = now_ms, new_id

    async def create(
        self,
        wanted: Sequence[NewTopic],
        *,
        validate_only: bool = False,
        spend: Spend = lambda _: None,
    ) -> list[TopicPlan | Explained]:
        """Create topics, each with its settings or not at all; or only return the plans."""
        return await self._changes.run(lambda: self._create(wanted, validate_only, spend))

    async def delete(
        self, topic_ids: Sequence[bytes], *, spend: Spend = lambda _: None
    ) -> list[Explained | None]:
        """Delete topics by their ids; None stands for a success."""
        return await self._changes.run(lambda: self._delete(topic_ids, spend))

    async def enlarge(
        self,
        wanted: Sequence[Enlargement],
        *,
        validate_only: bool = False,
        spend: Spend = lambda _: None,
    ) -> list[Explained | None]:
        """Add partitions to topics; None stands for a success."""
        return await self._changes.run(lambda: self._enlarge(wanted, validate_only, spend))

    async def alter_configs(
        self, wanted: Mapping[str, Alteration], *, validate_only: bool = False
    ) -> dict[str, Explained | None]:
        """Change settings of topics, by name; None stands for a success."""
        return await self._changes.run(lambda: self._alter_configs(wanted, validate_only))

    async def internal(self, name: str) -> Topic:
        """Return a topic of the broker's own, which is created on first use.

        Raises Refusal, StorageError or MetadataError when that fails.
        """
        found = self.get(name)
        if found is None:
            wanted = internal_topic(name, self._configs.broker, self._configs.shares)
            (outcome,) = await self.create([wanted])
            found = self.get(name)  # another request may have been first
            if found is None:
                assert not isinstance(outcome, TopicPlan), "a created topic is published"
                raise outcome
        return found

    # --- changes, one at a time ---------------------------------------------------------------

    async def _create(
        self, wanted: Sequence[NewTopic], validate_only: bool, spend: Spend
    ) -> list[TopicPlan | Explained]:
        def accept(plan: TopicPlan) -> None:
            self._partitions.refuse_strays(plan.record)
            spend(plan.record.partition_count)

        configs = self._configs
        around = Surroundings(
            configs.broker,
            configs.of_topic,
            self._by_name,
            self._names_by_collision_key,
            self._brokers,
            self._led(),
        )
        outcomes = plan_topics(wanted, around, accept, new_id=self._new_id, now_ms=self._now_ms)
        plans = [outcome for outcome in outcomes if isinstance(outcome, TopicPlan)]
        if validate_only or not plans:
            return outcomes
        try:
            await self._store.create_topics([(plan.record, plan.overrides) for plan in plans])
        except MetadataError as error:
            return [error if isinstance(outcome, TopicPlan) else outcome for outcome in outcomes]
        failed: dict[str, StorageError] = {}
        for plan in plans:
            name, count = plan.record.name, plan.record.partition_count
            try:
                self._grow(await self._open(plan), is_new=True)
            except StorageError as error:
                failed[name] = as_value(error)
                await self._undo_creation(plan, error)
                continue
            self._note_made(self._by_id[plan.record.topic_id])
            self._leaders_changed(self._by_id[plan.record.topic_id])
            overrides = dict(plan.overrides)
            logger.info("created topic topic=%s partitions=%d configs=%s", name, count, overrides)
        return [
            failed.get(outcome.record.name, outcome) if isinstance(outcome, TopicPlan) else outcome
            for outcome in outcomes
        ]

    async def _undo_creation(self, plan: TopicPlan, error: StorageError) -> None:
        name, topic_id = plan.record.name, plan.record.topic_id
        logger.error("could not create topic=%s: %s", name, error)
        try:
            await self._store.begin_deletion([topic_id])
            await self._partitions.delete_remains(plan.record, plan.resolved.config)
            await self._store.finish_deletion([topic_id])
        except (StorageError, MetadataError) as later:
            logger.error("left topic=%s half created until the next start: %s", name, later)

    async def _delete(
        self, topic_ids: Sequence[bytes], spend: Spend
    ) -> list[Explained | None]:
        outcomes: dict[bytes, Explained | None] = {}
        for topic_id in paced(topic_ids):
            known = self._by_id.get(topic_id)
            outcomes[topic_id] = None
            try:
                if known is None:
                    raise Refusal(ErrorCode.UNKNOWN_TOPIC_ID)
                spend(len(known.partitions))
            except Refusal as error:
                outcomes[topic_id] = as_value(error)
        doomed = [topic_id for topic_id, refused in outcomes.items() if refused is None]
        try:
            await self._store.begin_deletion(doomed)
        except MetadataError as error:
            return [outcomes[topic_id] or error for topic_id in topic_ids]
        gone = []
        for topic_id in doomed:
            topic = self._by_id[topic_id]
            self._withdraw(topic)
            try:
                await self._partitions.delete(self._with_resigned(topic))
                gone.append(topic_id)
            except StorageError as error:
                logger.error("could not delete logs topic=%s: %s", topic.name, error)
                outcomes[topic_id] = as_value(error)
            logger.info("deleted topic topic=%s", topic.name)
            for deleted in self.on_deleted:
                deleted(topic)
        try:
            await self._store.finish_deletion(gone)
            self._store.note_removed(gone)
        except MetadataError as error:
            # The topics are marked and have no logs: the next start removes them.
            logger.error("could not forget deleted topics: %s", error)
        return [outcomes[topic_id] for topic_id in topic_ids]

    async def _enlarge(
        self, wanted: Sequence[Enlargement], validate_only: bool, spend: Spend
    ) -> list[Explained | None]:
        outcomes: list[Explained | None] = []
        enlarged: dict[bytes, TopicRecord] = {}
        led = self._led()
        total = 0
        for one in paced(wanted):
            topic = self.get(one.name)
            try:
                if topic is None:
                    raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                check_enlargement(one, len(topic.partitions), self._brokers)
                total += one.partition_count - len(topic.partitions)
                # The code is Kafka's; but Kafka creates partitions up to the bound all the same.
                check_total(total, ErrorCode.UNKNOWN_SERVER_ERROR)
                record = replace(topic.record, partition_count=one.partition_count)
                self._partitions.refuse_strays(record)
                spend(one.partition_count - len(topic.partitions))
            except Refusal as error:
                outcomes.append(as_value(error))
                continue
            if led is not None:
                record = with_new_leaders(record, one, self._brokers, led)
            enlarged[topic.topic_id] = record
            outcomes.append(None)
        if validate_only or not enlarged:
            return outcomes
        try:
            await self._store.enlarge_topics(list(enlarged.values()))
        except MetadataError as error:
            return [refused or error for refused in outcomes]
        failed: dict[str, StorageError] = {}
        for topic_id, record in enlarged.items():
            topic = self._by_id[topic_id]
            try:
                await self._add_partitions(topic, record)
            except StorageError as error:
                logger.error("could not add partitions topic=%s: %s", topic.name, error)
                failed[topic.name] = as_value(error)
        return [
            refused or failed.get(one.name)
            for one, refused in paced(zip(wanted, outcomes, strict=True))
        ]

    async def _add_partitions(self, topic: Topic, record: TopicRecord) -> None:
        added = range(len(topic.partitions), record.partition_count)
        wanted = [Wanted(record, one, topic.config, is_new=True) for one in added]
        new = await self._open_partitions(wanted)
        # The topic may have lost partitions to a failing disk meanwhile.
        topic = self._by_id[topic.topic_id]
        partitions = (*topic.partitions, *online(new))
        topic = replace(topic, record=record, partitions=partitions)
        self._grow(topic, is_new=False)
        self._note_made(topic)
        self._leaders_changed(topic)
        logger.info("added partitions topic=%s partitions=%d", topic.name, record.partition_count)

    async def _alter_configs(
        self, wanted: Mapping[str, Alteration], validate_only: bool
    ) -> dict[str, Explained | None]:
        outcomes: dict[str, Explained | None] = {}
        altered: dict[str, tuple[Mapping[str, str], TopicConfig]] = {}
        for name, alteration in paced(wanted.items()):
            topic = self.get(name)
            outcomes[name] = None
            try:
                overrides = alteration(topic.overrides if topic else {})
                config = self._configs.of_topic(overrides).config
                if topic is None:
                    message = f"The topic '{name}' does not exist."
                    raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, message)
                if topic.config.odradek_storage == OBJECT and STORAGE not in overrides:
                    # A tool that replaces all settings must not move the log by that.
                    message = f"topic {name} has {STORAGE}={OBJECT}: keep it, or set {LOCAL}"
                    raise Refusal(ErrorCode.INVALID_CONFIG, message)
                altered[name] = overrides, config
            except (Refusal, ConfigError) as error:
                outcomes[name] = as_value(error)
        if validate_only or not altered:
            return outcomes
        try:
            of_topic = partial(Resource, ResourceType.TOPIC)
            changes = {of_topic(name): overrides for name, (overrides, _) in altered.items()}
            await self._store.replace_configs(changes)
        except MetadataError as error:
            return {name: refused or error for name, refused in outcomes.items()}
        for name, (overrides, config) in paced(altered.items()):
            self._reconfigure(self._by_name[name], overrides, config)
            logger.info("changed settings topic=%s configs=%s", name, dict(overrides))
        return outcomes

    async def _open(self, plan: TopicPlan) -> Topic:
        opened = await self._open_partitions(
            [replace(one, is_new=True) for one in plan.partitions]
        )
        return Topic(plan.record, online(opened), plan.overrides, plan.resolved.config)
