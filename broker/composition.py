"""Puts the broker together: creates its parts once, and starts and stops them in order.

    addresses      are bound, so that a second broker gives up before it touches any file; over
                   HTTP the broker answers that it is starting
    disk           the metadata store, log directories, logs
    clients        are accepted from now on, while committed offsets are read
    the rest       the cleaner, periodic work, HTTP; kernels once a client comes

They stop in the reverse order.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.broker.clock import Clock
from odradek.broker.clustering import Clustering
from odradek.broker.coordinators import Coordinators
from odradek.broker.counters.metrics import Metrics
from odradek.broker.counters.topics import count_append
from odradek.broker.durability.group_commit import GroupCommit
from odradek.broker.fetch.purgatory import Purgatory
from odradek.broker.fetch.sessions import FetchSessions
from odradek.broker.hosts.addresses import own_name
from odradek.broker.hosts.listener import Listener
from odradek.broker.http import Http
from odradek.broker.ids import random_id
from odradek.broker.loop.background import BackgroundThreads
from odradek.broker.loop.priority import give_way, prefer_the_event_loop
from odradek.broker.loop.slices import Slices
from odradek.broker.loop.tasks import start_task
from odradek.broker.metadata.changes import Changes
from odradek.broker.metadata.configs import Configs
from odradek.broker.metadata.features import ELR, Features
from odradek.broker.metadata.identity import with_node_id
from odradek.broker.metadata.producer_ids import ProducerIds
from odradek.broker.metadata.registrations import Registrations
from odradek.broker.network.backpressure import Backpressure
from odradek.broker.network.dispatch import Dispatcher
from odradek.broker.network.exposure import report_open_listeners
from odradek.broker.network.server import Server
from odradek.broker.observability.samples import Samples, count
from odradek.broker.periodic import Periodic
from odradek.broker.process.warm_up import Demand, ensure_log_kernels, load_cleaner_kernels
from odradek.broker.produce.batch_checks import BatchChecks
from odradek.broker.security.composition import Security
from odradek.broker.telemetry.clients import Telemetry
from odradek.broker.topics.directories import LogTable, close_directories, open_directories
from odradek.broker.topics.disks import Disks
from odradek.broker.topics.moves import Moves
from odradek.broker.topics.partitions import Partitions
from odradek.broker.topics.registry import Topics
from odradek.cleaner.runtime.pool import CleanerPool
from odradek.config.broker import BrokerConfig
from odradek.config.connections import ConnectionConfig
from odradek.config.effective import resolve_broker
from odradek.config.otlp import OtlpConfig
from odradek.config.resolution import Layer
from odradek.config.values import INT64_MAX
from odradek.storage.directory import LogDirectory, make_durable_directory
from odradek.storage.files import FileSystem
from odradek.storage.log import Log
from odradek.storage.meta_properties import META
from odradek.storage.reading import load_kernels_by
from odradek.storage.shared_directory import SharedLogDirectory

if TYPE_CHECKING:
    from odradek.broker.catalog.membership import Membership
    from odradek.broker.reassignment.copies import Copies
    from odradek.broker.reassignment.followers import Followers
    from odradek.broker.reassignment.handovers import Handovers
    from odradek.broker.shared.replicas import ReadReplicas
    from odradek.broker.shared.sharing import Sharing
    from odradek.broker.workers.role import Role

logger = logging.getLogger(__name__)

# The time for appended batches to reach a slow disk and be answered.
_DRAIN_S = 5.0
# A search unpacks a whole batch, some 64 MiB at most; fetches read in the same threads.
_SEARCHES_MAX = 2


class Broker:
    """The one broker of a process. The event loop owns it."""

    def __init__(
        self, static: Layer, fs: FileSystem, clock: Clock, role: Role | None = None
    ) -> None:
        """With a role the broker is one of several workers of this machine."""
        self.static, self.role = static, role
        self.fs, self.clock = fs, clock
        self.loop = asyncio.get_running_loop()
        self.random = random.SystemRandom()
        self.metrics = Metrics()
        self.purgatory = Purgatory(self.loop)
        self.slices, self._background = Slices(self.loop), BackgroundThreads(self.loop)
        self.sessions = FetchSessions(
            self.random,
            lambda: self.config.max_incremental_fetch_session_cache_slots,
            lambda: self.config.odradek_fetch_session_partitions_max,
        )
        self.started_ms = clock.now_ms()
        self._kernels = Demand()
        load_kernels_by(ensure_log_kernels)
        # Taken by a request while a thread searches logs for it by time.
        self.searches = asyncio.Semaphore(_SEARCHES_MAX)
        self.http = Http(self)
        self.membership: Membership | None = None
        self.sharing: Sharing | None = None
        self.replicas: ReadReplicas | None = None
        self.handovers: Handovers | None = None
        self.followers: Followers | None = None
        self.copies: Copies | None = None
        self.accepts_clients = False
        # The work of stop(); the last part that started stops first.
        self.stopping = AsyncExitStack()

    @property
    def config(self) -> BrokerConfig:
        """The settings in force; never kept, since clients may change them."""
        return self.configs.broker

    def logs(self) -> Iterator[Log]:
        """Iterate over the logs of all partitions."""
        return iter(LogTable(self.partitions))

    def problems(self) -> list[str]:
        """Return the problems that an operator has to look at; none when all is well."""
        return [
            *self.disks.problems(),
            *self.cleaner.problems(),
            *self.security.problems(),
            *self._cluster.problems(),
            *self._coordinators.problems(),
        ]

    def where_http_is(self) -> str:
        """Return a text for the log that says where HTTP is served."""
        return str(self.http)

    async def start(self) -> None:
        """Bind the addresses, load the data on the disk, then accept connections.

        Raises ConfigError, AddressError, MetadataError or StorageError, with all parts stopped.
        """
        try:
            config = resolve_broker([self.static]).config
            self._meta = Path(config.data_directories[0]) / META
            self.static = with_node_id(self.fs, self._meta, self.static)
            config = resolve_broker([self.static]).config
            self._bind(config)
            await self.http.answer()
            await self._load(config)
            await self._cluster.listen()
            self._accept()
            self._start_background()
            await self.http.listen()
            await self._push_metrics()
        except BaseException:
            await self.stopping.aclose()
            raise

    async def reload(self, static: Layer) -> None:
        """Apply the static settings that were read again, as far as they may change at runtime.

        Raises ConfigError when they are not valid, and changes nothing then.
        """
        if self.static.origins.get("node.id") == str(self._meta):
            static = with_node_id(self.fs, self._meta, static)  # as at the start
        await self.configs.reload(static)

    async def hand_over(self, must_stop: Callable[[], bool]) -> None:
        """Let other brokers lead the partitions, as far as they can, before this one stops.

        `must_stop` returns whether the others of this host stop, too.
        """
        if self.handovers is not None:
            await self.handovers.hand_over_all(must_stop)

    async def stop(self) -> None:
        """Close connections, make all data durable, and leave the mark of a clean stop."""
        self.accepts_clients = False
        await self.stopping.aclose()
        logger.info("stopped")

    def _bind(self, config: BrokerConfig) -> None:
        """Bind the addresses first: when one is in use, the data has not been touched."""
        self.server = Server(
            lambda: self.config, lambda name: self.configs.of_listener(ConnectionConfig, name)
        )
        self.stopping.push_async_callback(self.server.release)
        advertised = {one.name: one for one in config.advertised_endpoints}
        for bound in config.bound_endpoints:
            endpoint = advertised.get(bound.name, bound)
            host = endpoint.host or own_name()
            self.server.bind(
                Listener(bound.name, bound.host, bound.port, host, endpoint.port, bound.protocol)
            )
        self.http.bind(config)

    async def _load(self, config: BrokerConfig) -> None:
        self.node_id = config.node_id
        paths = [Path(name) for name in config.data_directories]
        make_durable_directory(self.fs, paths[0])
        self.fs.make_directory(paths[0], is_private=True)  # refuses a file of this name
        self.readers = self._make_readers(config)
        self.stopping.callback(lambda: self.readers.shutdown())
        self._background.follow(config)
        self._cluster = Clustering(self, paths, config)
        metadata = await self._cluster.open()
        self.store, self.brokers = self._cluster.store, self._cluster.brokers
        self.partitions = self._cluster.partitions
        self.group_commit = GroupCommit(self.loop, self._kernels.add_syncs)
        self.changes = Changes(self.slices)
        self.configs = Configs(self.static, metadata.configs, self.store, self.changes)
        self.security = Security(
            self.configs, metadata, self.store, self.changes, self.metrics, self.clock.now_ms
        )
        self.stopping.callback(self.security.close)
        self.security.start()
        self.producer_ids = ProducerIds(self.store)
        self.registrations = Registrations(self.brokers, self.store, self.changes)
        self.features = Features(metadata.features, self.store, self.changes, self.node_id)
        self.configs.min_isr_is_fixed = lambda: ELR in self.features.finalized
        self.telemetry = self._make_telemetry()
        self.stopping.callback(self.telemetry.reader.close)
        now_ms = self.clock.now_ms
        self.partitions.on_log.append(self._adopt_log)
        self.topics = Topics(
            self.store,
            self.configs,
            self.changes,
            self.partitions,
            self.brokers,
            now_ms=now_ms,
            new_id=self.new_id,
        )
        self.disks = Disks(self.fs, self.topics, self.partitions, self._open_directory, now_ms)
        self.disks.on_offline.append(self.purgatory.deleted)
        self.group_commit.on_failed = self.disks.take_offline
        self.topics.on_deleted.append(lambda topic: self._wake_resigned(topic.logs))
        self.topics.on_deleted.append(lambda topic: self.metrics.forget_topic(topic.name))
        self.topics.on_resigned.append(self._wake_resigned)
        await self._cluster.load(metadata)
        await self.security.create_users()
        # Not before now: a stop half-way must not leave the mark of a clean stop.
        self.stopping.push_async_callback(lambda: close_directories(self.directories))
        self.stopping.push_async_callback(self.group_commit.close)
        self.stopping.push_async_callback(self.changes.close)
        self.moves = Moves(self.fs, self.partitions, self.group_commit, self.changes, now_ms)
        self.moves.on_failed = self.disks.note
        self.stopping.push_async_callback(self.moves.close)
        await self.moves.resume(self.topics)
        made = self._coordinators = Coordinators(self)
        self.peers, self.remote_transactions = made.peers, made.remote_transactions
        self.groups, self.transactions, self.markers = made.groups, made.transactions, made.markers
        self.share_groups, self.shares = made.share_groups, made.shares
        self.streams_groups, self.offsets_log = made.streams_groups, made.offsets_log

    def new_id(self) -> bytes:
        """Return a random id."""
        return random_id(self.random)

    def _open_directory(self, path: Path) -> LogDirectory:
        if self.role is not None:
            return SharedLogDirectory(self.fs, path, self.node_id)
        return LogDirectory(self.fs, path, cluster_id=self.cluster_id, node_id=self.node_id)

    def open_directories(self, paths: Sequence[Path], cluster_id: str) -> Partitions:
        """Open the log directories; one whose disk fails is offline. Raises StorageError."""
        self.cluster_id = cluster_id
        opened, refused = open_directories(self.fs, paths, self._open_directory)
        partitions = Partitions(
            opened, self.clock.now_ms, lambda: self.config.num_recovery_threads_per_data_dir
        )
        partitions.offline_directories |= refused
        return partitions

    def _accept(self) -> None:
        self.backpressure = Backpressure(self.config.queued_max_request_bytes)
        self.configs.on_changed.append(lambda _: self.server.reconfigure())
        self.configs.on_changed.append(self._change_readers)
        self.configs.on_changed.append(self._background.follow)
        self.batch_checks = BatchChecks(self.loop)
        self.stopping.callback(self.batch_checks.close)
        self.stopping.callback(self.slices.close)
        self.stopping.push_async_callback(self._let_clients_go)
        self.server.quotas = self.security.quotas
        self.server.accept(Dispatcher(self), self.security.tls)
        self.accepts_clients = True
        report_open_listeners(self.server, self.configs)

    async def _let_clients_go(self) -> None:
        """Answer requests that are parked or wait for the disk, then close all connections."""
        await self.server.turn_away()
        await self._coordinators.close()
        self.purgatory.wake_all()
        await self.server.close(_DRAIN_S)

    def _start_background(self) -> None:
        self.loading = start_task("load coordinators", self._coordinators.load())
        self.stopping.callback(self.loading.cancel)
        prefer_the_event_loop()
        self.cleaner = CleanerPool(
            LogTable(self.partitions),
            lambda: self.config,
            self.loop,
            self.clock,
            self.fs,
            on_thread=give_way,
            load_kernels=load_cleaner_kernels,
            process=None if self.role is None else self.node_id,
        )
        self.moves.on_moved = lambda log: self.cleaner.abort(log.topic, log.partition)
        self.cleaner.scheduler.on_failed = self.disks.note
        self.cleaner.deleter.on_failed = self.disks.note
        self.cleaner.roller.on_failed = self.disks.note
        self.configs.on_changed.append(lambda _: self.cleaner.reconfigure())
        self.topics.on_config_changed.append(lambda _: self.cleaner.wake())
        self.cleaner.start()
        self.stopping.push_async_callback(self.cleaner.stop)
        self._cluster.start_moves()
        self.samples = Samples(partial(count, self), self.clock.now_ms)
        self.periodic = Periodic(self)
        self.periodic.start()
        self.stopping.callback(self.periodic.stop)

    async def _push_metrics(self) -> None:
        config = self.configs.of(OtlpConfig)
        if not config.odradek_otlp_endpoint:
            return
        module = "odradek.broker.observability.otlp.pusher"
        await self.loop.run_in_executor(None, import_module, module)
        from odradek.broker.observability.otlp.pusher import Pusher

        pusher = Pusher(self, config)
        self.stopping.callback(pusher.stop)
        pusher.start()

    @property
    def directories(self) -> Sequence[LogDirectory]:
        """The log directories in use."""
        return self.partitions.directories

    def _adopt_log(self, log: Log) -> None:
        """Connect a log, loaded or new, to the parts that follow its appends."""
        log.on_append = self.group_commit.names.follow(log, self._appended)
        log.on_stable = self.purgatory.stable
        log.on_roll = self._rolled

    def _appended(self, log: Log, size_bytes: int, record_count: int) -> None:
        self._kernels.add_records(record_count)
        count_append(self.metrics, log.topic, size_bytes, record_count)
        if log.config.flush_ms != INT64_MAX:
            self.group_commit.flush_within(log, log.config.flush_ms)
        if not log.is_shared:
            self.purgatory.appended(log, size_bytes)

    def _rolled(self, log: Log) -> None:
        self.group_commit.flush_in_background(log)
        self.purgatory.rolled(log)

    def _change_readers(self, config: BrokerConfig) -> None:
        if config.num_io_threads != self._reader_count:
            self.readers.shutdown(wait=False)  # running reads end by themselves
            self.readers = self._make_readers(config)

    def _make_telemetry(self) -> Telemetry:
        is_pushed = bool(self.configs.of(OtlpConfig).odradek_otlp_endpoint)
        return Telemetry(
            self.configs.resources,
            self.clock.now_ms,
            lambda: random_id(self.random),
            lambda: self.config.odradek_telemetry_series_max,
            is_shown=is_pushed or bool(self.config.metrics_listener),
        )

    def _make_readers(self, config: BrokerConfig) -> ThreadPoolExecutor:
        self._reader_count = config.num_io_threads
        return ThreadPoolExecutor(self._reader_count, thread_name_prefix="read")

    def _wake_resigned(self, logs: Sequence[Log]) -> None:
        for log in logs:
            self.purgatory.deleted(log)
