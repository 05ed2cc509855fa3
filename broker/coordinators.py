"""The coordinators of a broker: of groups, of transactions, and of share groups with their state.

Each keeps its state in an internal topic. This module creates them, and notifies them of changed
settings and features, and of topics that grow or are deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from odradek.broker.coordination.expressions import Matching
from odradek.broker.coordination.internal_log import InternalLog
from odradek.broker.coordination.seams import Time
from odradek.broker.durability.own_appends import Durability
from odradek.broker.groups.config import GroupConfig
from odradek.broker.groups.coordinator import GroupCoordinator
from odradek.broker.groups.registry import OwnConfigs
from odradek.broker.groups.share.coordinator import ShareGroupCoordinator
from odradek.broker.groups.share.turn import ShareGroupConfig
from odradek.broker.groups.streams.coordinator import StreamsGroupCoordinator
from odradek.broker.groups.streams.creation import InternalTopics
from odradek.broker.groups.streams.settings import StreamsSettings
from odradek.broker.metadata.features import (
    GROUP_VERSION,
    SHARE_VERSION,
    STREAMS_VERSION,
    TRANSACTION,
)
from odradek.broker.metadata.store import ResourceType
from odradek.broker.shares.shares import Shares
from odradek.broker.shares.states import Persister
from odradek.broker.topics import names as topic_names
from odradek.broker.topics.lookup import TopicLookup
from odradek.broker.topics.topic import Topic
from odradek.broker.transactions.config import TransactionConfig
from odradek.broker.transactions.coordinator import TransactionCoordinator
from odradek.broker.transactions.markers import MarkerWriter
from odradek.broker.transactions.offset_admission import admit_offsets
from odradek.protocol.compression import Codec

if TYPE_CHECKING:
    from odradek.broker.composition import Broker
    from odradek.broker.peers.ends import RemoteEnds
    from odradek.broker.peers.peers import Peers
    from odradek.broker.transactions.remote import RemoteTransactions


class Coordinators:
    """Owns the coordinators of a broker whose topics, settings and features are loaded."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._matching = Matching()
        self._time = Time(broker.clock, broker.loop)
        self._durability = Durability(
            broker.group_commit, lambda: broker.config.log_flush_acks_all, broker.disks.note
        )
        self._topics = TopicLookup(broker.topics, broker.store, broker.brokers)
        self.offsets_log = self._log(
            topic_names.CONSUMER_OFFSETS,
            lambda: broker.config.offsets_topic_num_partitions,
            lambda: Codec(broker.config.offsets_topic_compression_codec),
        )
        self._streams_settings = StreamsSettings(broker.configs)
        self.groups = self._make_groups()
        self.peers = _peers(broker)
        self.remote_transactions = self._make_remote_transactions()
        self.markers = MarkerWriter(
            broker.topics,
            self._durability,
            self.groups.end_transaction,
            self.remote_transactions,
        )
        self.transactions = self._make_transactions()
        self.shares = self._make_shares()
        self.share_groups = ShareGroupCoordinator(
            self.groups.runtime,
            self.shares.persister,
            self._topics,
            broker.clock,
            self._serves_shares,
        )
        self.share_groups.remote_ends = self._make_remote_ends()
        self.streams_groups = StreamsGroupCoordinator(
            self.groups.runtime,
            self._topics,
            InternalTopics(broker.topics.create, broker.clock),
            broker.clock,
            self._serves_streams,
            self._streams_settings.of,
        )

        broker.topics.on_leaders_changed.append(self._follow)

    async def load(self) -> None:
        """Replay the stored state of each coordinator, and begin to serve."""
        if self.peers is not None:
            self.peers.start()
        # Groups come first: a prepared transaction may end in their partitions.
        await self.groups.load()
        await self.transactions.load()
        await self.shares.load()

    def problems(self) -> list[str]:
        """Return the problems that an operator has to look at."""
        return [
            *(self.peers.problems() if self.peers is not None else ()),
            *self.groups.runtime.problems(),
            *self.transactions.problems(),
            *self.shares.states.problems(),
        ]

    async def close(self) -> None:
        """Stop serving: answer all parked requests."""
        self.share_groups.close()
        self.streams_groups.close()
        await self.transactions.close()
        self.groups.close()
        self.shares.close()
        self._matching.close()

    def _follow(self, topic: Topic) -> None:
        """Load the partitions of an internal topic that this broker leads now."""
        if topic.name == topic_names.CONSUMER_OFFSETS:
            self.groups.runtime.follow()
        elif topic.name == topic_names.TRANSACTION_STATE:
            self.transactions.follow()
        elif topic.name == topic_names.SHARE_GROUP_STATE:
            self.shares.states.follow()

    def _log(
        self, topic: str, partition_count: Callable[[], int], codec: Callable[[], Codec]
    ) -> InternalLog:
        broker = self._broker
        return InternalLog(
            broker.topics,
            topic,
            self._durability,
            partition_count=partition_count,
            codec=codec,
            now_ms=broker.clock.now_ms,
        )

    def _make_groups(self) -> GroupCoordinator:
        broker = self._broker
        groups = GroupCoordinator(
            self.offsets_log,
            self._topics,
            self._group_config(),
            time=self._time,
            own=OwnConfigs(self._share_group_config, self._streams_settings.of),
            matching=self._matching,
        )
        broker.configs.on_changed.append(lambda _: groups.reconfigure(self._group_config()))
        broker.configs.resources.on_changed.append(
            lambda _: groups.reconfigure(self._group_config())
        )
        broker.features.on_changed.append(lambda: groups.reconfigure(self._group_config()))
        broker.topics.on_grown.append(
            lambda topic, is_new: groups.topic_changed(topic.name, is_new=is_new)
        )
        broker.topics.on_deleted.append(
            lambda topic: groups.topic_changed(topic.name, is_new=False)
        )
        broker.topics.on_deleted.append(
            lambda topic: groups.topic_deleted(topic.name, topic.topic_id)
        )
        groups.admit_to_transaction = partial(admit_offsets, broker)
        return groups

    def _group_config(self) -> GroupConfig:
        broker = self._broker
        return GroupConfig.of(
            broker.config,
            broker.configs.consumers,
            broker.configs.resources.of_type(ResourceType.GROUP),
            serves_consumers=GROUP_VERSION in broker.features.finalized,
        )

    def _make_transactions(self) -> TransactionCoordinator:
        broker = self._broker
        log = self._log(
            topic_names.TRANSACTION_STATE,
            lambda: broker.config.transaction_state_log_num_partitions,
            lambda: Codec.NONE,
        )
        transactions = TransactionCoordinator(
            log,
            self.markers,
            broker.producer_ids,
            TransactionConfig.of(broker.config),
            version=lambda: broker.features.finalized.get(TRANSACTION, 0),
            time=self._time,
            matching=self._matching,
        )
        broker.configs.on_changed.append(
            lambda config: transactions.reconfigure(TransactionConfig.of(config))
        )
        return transactions

    def _make_shares(self) -> Shares:
        broker = self._broker
        log = self._log(
            topic_names.SHARE_GROUP_STATE,
            lambda: broker.configs.shares.share_coordinator_state_topic_num_partitions,
            lambda: Codec(broker.configs.shares.share_coordinator_state_topic_compression_codec),
        )
        shares = Shares(
            log,
            broker.topics,
            self._topics,
            broker.configs,
            broker.purgatory,
            time=self._time,
            is_enabled=self._serves_shares,
            share_states=self._share_states,
        )
        broker.features.on_changed.append(shares.feature_changed)
        return shares

    def _share_states(self, own: Persister) -> Persister:
        if self.peers is None:
            return own
        from odradek.broker.shares.shared_persister import SharedPersister

        return SharedPersister(own, self._broker.topics, self.peers)

    def _make_remote_ends(self) -> RemoteEnds | None:
        if self.peers is None:
            return None
        from odradek.broker.peers.ends import RemoteEnds

        return RemoteEnds(self._broker.topics, self.peers)

    def _make_remote_transactions(self) -> RemoteTransactions | None:
        if self.peers is None:
            return None
        from odradek.broker.transactions.remote import RemoteTransactions

        return RemoteTransactions(self._broker.topics, self.peers)

    def _serves_shares(self) -> bool:
        return SHARE_VERSION in self._broker.features.finalized

    def _serves_streams(self) -> bool:
        protocols = self._broker.configs.consumers.group_coordinator_rebalance_protocols
        return "streams" in protocols and STREAMS_VERSION in self._broker.features.finalized

    def _share_group_config(self, group_id: str) -> ShareGroupConfig:
        options, own = self._broker.configs.shares, self.shares.settings.of(group_id)
        return ShareGroupConfig(
            members_max=options.group_share_max_size,
            session_timeout_ms=own.session_timeout_ms,
            heartbeat_interval_ms=own.heartbeat_interval_ms,
            assignment_interval_ms=own.assignment_interval_ms,
            initialize_retry_ms=max(
                options.group_share_initialize_retry_interval_ms,
                self._broker.config.offsets_commit_timeout_ms,
            ),
        )


def _peers(broker: Broker) -> Peers | None:
    """Return the connections to other brokers; None where there can be none."""
    if not broker.store.is_shared:
        return None
    from odradek.broker.peers.peers import Peers

    peers = Peers(broker.brokers, broker.configs, broker.security.tls)
    broker.stopping.callback(peers.close)
    return peers
