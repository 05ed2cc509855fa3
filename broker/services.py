"""The parts of a broker that handlers use; `broker.composition.Broker` has them all.

A handler takes (services, context, request): the broker's parts, the request's surroundings, and
the decoded request.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

from odradek.broker.clock import Clock
from odradek.broker.coordination.internal_log import InternalLog
from odradek.broker.counters.metrics import Metrics
from odradek.broker.durability.group_commit import GroupCommit
from odradek.broker.fetch.purgatory import Purgatory
from odradek.broker.fetch.reading import Unsent
from odradek.broker.fetch.sessions import FetchSessions
from odradek.broker.groups.coordinator import GroupCoordinator
from odradek.broker.groups.share.coordinator import ShareGroupCoordinator
from odradek.broker.groups.streams.coordinator import StreamsGroupCoordinator
from odradek.broker.metadata.configs import Configs
from odradek.broker.metadata.features import Features
from odradek.broker.metadata.members import Brokers
from odradek.broker.metadata.producer_ids import ProducerIds
from odradek.broker.metadata.registrations import Registrations
from odradek.broker.metadata.store import MetadataStore
from odradek.broker.produce.batch_checks import BatchChecks
from odradek.broker.security.composition import Security
from odradek.broker.shares.shares import Shares
from odradek.broker.telemetry.clients import Telemetry
from odradek.broker.topics.disks import Disks
from odradek.broker.topics.moves import Moves
from odradek.broker.topics.partitions import Partitions
from odradek.broker.topics.registry import Topics
from odradek.broker.transactions.coordinator import TransactionCoordinator
from odradek.broker.transactions.markers import MarkerWriter
from odradek.config.broker import BrokerConfig

if TYPE_CHECKING:
    from odradek.broker.reassignment.copies import Copies
    from odradek.broker.reassignment.followers import Followers
    from odradek.broker.reassignment.handovers import Handovers
    from odradek.broker.shared.replicas import ReadReplicas
    from odradek.broker.transactions.remote import RemoteTransactions


class Services(Protocol):
    """The parts of a broker that handlers use."""

    cluster_id: str
    node_id: int
    loop: asyncio.AbstractEventLoop
    clock: Clock
    metrics: Metrics

    @property
    def backpressure(self) -> Unsent:
        """The responses that clients have not read yet."""

    @property
    def config(self) -> BrokerConfig:
        """The settings in force; never kept, since clients may change them."""

    # The metadata and its changes.
    @property
    def store(self) -> MetadataStore:
        """The topics, settings and rights, as stored."""

    brokers: Brokers
    registrations: Registrations
    configs: Configs
    features: Features
    producer_ids: ProducerIds
    security: Security
    telemetry: Telemetry

    # Topics and their logs.
    topics: Topics
    partitions: Partitions
    moves: Moves
    # None where no other broker can take over a log of this one.
    handovers: Handovers | None
    followers: Followers | None
    copies: Copies | None
    # None where no topic is in a bucket.
    replicas: ReadReplicas | None
    disks: Disks

    # Writing and reading.
    batch_checks: BatchChecks
    group_commit: GroupCommit
    sessions: FetchSessions
    purgatory: Purgatory
    readers: ThreadPoolExecutor
    searches: asyncio.Semaphore

    # Coordinators.
    groups: GroupCoordinator
    offsets_log: InternalLog
    transactions: TransactionCoordinator
    remote_transactions: RemoteTransactions | None
    markers: MarkerWriter
    share_groups: ShareGroupCoordinator
    streams_groups: StreamsGroupCoordinator
    shares: Shares
