"""The parts of a broker that handlers use; `broker.composition.Broker` has them all.

A handler takes (services, context, request): the broker's parts, the request's surroundings, and
the decoded request.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from broker.clock import Clock
from broker.coordination.internal_log import InternalLog
from broker.counters.metrics import Metrics
from broker.durability.group_commit import GroupCommit
from broker.fetch.purgatory import Purgatory
from broker.fetch.sessions import FetchSessions
from broker.groups.coordinator import GroupCoordinator
from broker.groups.share.coordinator import ShareGroupCoordinator
from broker.metadata.configs import Configs
from broker.metadata.features import Features
from broker.metadata.producer_ids import ProducerIds
from broker.metadata.store import MetadataStore
from broker.produce.batch_checks import BatchChecks
from broker.security.composition import Security
from broker.shares.shares import Shares
from broker.telemetry.clients import Telemetry
from broker.topics.disks import Disks
from broker.topics.moves import Moves
from broker.topics.partitions import Partitions
from broker.topics.registry import Topics
from broker.transactions.coordinator import TransactionCoordinator
from broker.transactions.markers import MarkerWriter
from config.broker import BrokerConfig


class Unsent(Protocol):
    """The responses that clients have not read yet."""

    unsent_bytes: int


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

    # Metadata, and what may be changed of it.
    @property
    def store(self) -> MetadataStore:
        """The topics, settings and rights, as stored."""

    configs: Configs
    features: Features
    producer_ids: ProducerIds
    security: Security
    telemetry: Telemetry

    # Topics and their logs.
    topics: Topics
    partitions: Partitions
    moves: Moves
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
    markers: MarkerWriter
    share_groups: ShareGroupCoordinator
    shares: Shares
