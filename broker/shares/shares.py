"""Assembles the parts that serve share groups' records: states, share-partitions, sessions."""

from __future__ import annotations

from collections.abc import Callable

from odradek.broker.coordination.seams import InternalTopic, Time
from odradek.broker.coordination.seams import Topics as TopicNames
from odradek.broker.fetch.purgatory import Purgatory
from odradek.broker.metadata.configs import Configs
from odradek.broker.shares.key import SharePartitionKey
from odradek.broker.shares.pruning import StatePruner
from odradek.broker.shares.serving import SharePartitions, Surroundings
from odradek.broker.shares.sessions import MemberKey, ShareSession, ShareSessions
from odradek.broker.shares.settings import ShareSettings
from odradek.broker.shares.state_coordinator import ShareStateCoordinator
from odradek.broker.shares.state_shard import StateConfig
from odradek.broker.shares.states import Persister
from odradek.broker.topics.registry import Topics
from odradek.broker.topics.topic import Topic
from odradek.config.share import ShareConfig


class Shares:
    """The broker's single set of parts for share groups' records. The event loop owns it."""

    def __init__(
        self,
        log: InternalTopic,
        topics: Topics,
        names: TopicNames,
        configs: Configs,
        purgatory: Purgatory,
        *,
        time: Time,
        is_enabled: Callable[[], bool],
        share_states: Callable[[Persister], Persister] = lambda own: own,
    ) -> None:
        """`is_enabled` returns whether the feature share.version is in force.

        `share_states` returns the states of all brokers, from those of this one.
        """
        self._is_enabled = is_enabled
        self.settings = ShareSettings(configs)
        config = _state_config(configs.shares)
        self.pruner = StatePruner(topics)
        self.states = ShareStateCoordinator(log, names, config, time=time)
        self.persister = share_states(self.states)
        self.partitions = SharePartitions(
            Surroundings(
                topics,
                self.states,
                self.persister,
                self.settings,
                purgatory,
                time.loop,
                time.clock.now_ms,
            )
        )
        self.sessions = ShareSessions(
            lambda: configs.shares.group_share_max_share_sessions,
            self._release,
            self.partitions.drop_group,
            lambda: sum(len(topic.partitions) for topic in topics),
        )
        topics.on_deleted.append(self._topic_deleted)
        topics.on_resigned.append(self.partitions.drop_logs)

    @property
    def are_enabled(self) -> bool:
        """Whether share groups are served."""
        return self._is_enabled()

    async def load(self) -> None:
        """Read the states of all share-partitions."""
        await self.states.load()

    def close(self) -> None:
        """End serving."""
        self.partitions.close()
        self.states.close()

    def feature_changed(self) -> None:
        """Drop sessions and share-partitions when share groups are no longer served."""
        if not self.are_enabled:
            self.sessions.end_all()
            self.partitions.close()

    def end_session(self, member: MemberKey) -> None:
        """End a member's session, and make its records available to others."""
        session = self.sessions.end(member)
        if session is not None:
            self._release(member, session)

    def _release(self, member: MemberKey, session: ShareSession) -> None:
        for partition in session.partitions:
            key = SharePartitionKey(member.group_id, *partition)
            self.partitions.release(key, member.member_id)

    def _topic_deleted(self, topic: Topic) -> None:
        self.partitions.drop_topic(topic.topic_id)
        self.states.topic_deleted(topic.topic_id)


def _state_config(config: ShareConfig) -> StateConfig:
    cold_ms = config.share_coordinator_cold_partition_snapshot_interval_ms
    return StateConfig(
        updates_per_snapshot=config.share_coordinator_snapshot_update_records_per_snapshot,
        cold_snapshot_interval_ms=cold_ms,
    )
