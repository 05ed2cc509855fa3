"""Puts the broker together: what there is one of, in the order in which it starts and stops.

    disk first     metadata store, log directories, logs, committed offsets
    then clients   listeners, then HTTP
    then the rest  kernels in a thread, the cleaner, periodic work

and the other way round at the end.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from broker import topic_names
from broker.changes import Changes
from broker.clock import Clock
from broker.configs import Configs
from broker.dispatch import Dispatcher
from broker.group_commit import GroupCommit
from broker.groups.config import GroupConfig
from broker.groups.coordinator import GroupCoordinator
from broker.ids import encode_id, random_id
from broker.internal_log import InternalLog
from broker.metadata import SqliteMetadata
from broker.metrics import Metrics
from broker.partitions import Partitions
from broker.periodic import Periodic
from broker.producer_ids import ProducerIds
from broker.server import Listener, Server
from broker.topics import Topics
from broker.waiting import Purgatory
from broker.warm_up import warm_up
from cleaner.pool import CleanerPool
from config.broker import BrokerConfig
from config.effective import resolve_broker
from config.option import Layer
from storage.directory import LogDirectory
from storage.files import FileSystem
from storage.log import Log

if TYPE_CHECKING:
    from broker.http import HttpServer

logger = logging.getLogger(__name__)

METADATA_FILE = "odradek.db"
_DRAIN_S = 2.0
_READERS = 4


class Broker:
    """The one broker of a process. The event loop owns it."""

    def __init__(self, static: Layer, fs: FileSystem, clock: Clock) -> None:
        self._static = static
        self._fs = fs
        self.clock = clock
        self.loop = asyncio.get_running_loop()
        self._random = random.SystemRandom()
        self.metrics = Metrics()
        self.purgatory = Purgatory(self.loop)
        self.group_commit = GroupCommit(self.loop)
        self.readers = ThreadPoolExecutor(_READERS, thread_name_prefix="read")
        self.directories: list[LogDirectory] = []
        self._http: HttpServer | None = None
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def config(self) -> BrokerConfig:
        """The settings in force; never kept, since clients may change them."""
        return self.configs.broker

    def logs(self) -> Iterator[Log]:
        """Iterate over the logs of all partitions."""
        return iter(LogTable(self.directories))

    def problems(self) -> list[str]:
        """Return what an operator has to look at; nothing when all is well."""
        return self.cleaner.problems()

    async def start(self) -> None:
        """Load what is on the disk, then listen.

        Raises ConfigError, MetadataError, StorageError, or OSError for an address.
        """
        await self._load()
        await self._listen()
        await self._start_background()

    async def stop(self) -> None:
        """Let clients go, then make everything durable and leave the mark of a clean stop."""
        for task in self._tasks:
            task.cancel()
        if self._http is not None:
            await self._http.close()
        await self.server.close(_DRAIN_S)
        await self.cleaner.stop()
        self.periodic.stop()
        await self.changes.close()
        self.groups.close()
        self.group_commit.close()
        for directory in self.directories:
            directory.close()
        await self.store.close()
        self.readers.shutdown()
        logger.info("stopped")

    async def _load(self) -> None:
        config = resolve_broker([self._static]).config
        self.node_id = config.node_id
        paths = [Path(name) for name in config.data_directories]
        for path in paths:
            self._fs.make_directory(path)
        self.store = SqliteMetadata(paths[0] / METADATA_FILE, lambda: self._new_cluster_id(config))
        metadata = await self.store.load()
        self.cluster_id = metadata.cluster_id
        for path in paths:
            self.directories.append(
                LogDirectory(self._fs, path, cluster_id=self.cluster_id, node_id=self.node_id)
            )
        self.changes = Changes()
        self.configs = Configs(self._static, metadata.configs, self.store, self.changes)
        self.producer_ids = ProducerIds(self.store)
        now_ms = self.clock.now_ms
        partitions = Partitions(self.directories, now_ms)
        partitions.on_log.append(self._adopt_log)
        self.topics = Topics(
            self.store,
            self.configs,
            self.changes,
            partitions,
            now_ms=now_ms,
            new_id=lambda: random_id(self._random),
        )
        await self.topics.load(metadata)
        self._load_groups()

    def _load_groups(self) -> None:
        self.offsets_log = InternalLog(
            self.topics,
            topic_names.CONSUMER_OFFSETS,
            self.group_commit,
            partition_count=lambda: self.config.offsets_topic_num_partitions,
            waits_for_disk=lambda: self.config.log_flush_acks_all,
            now_ms=self.clock.now_ms,
        )
        self.groups = GroupCoordinator(
            self.offsets_log,
            TopicLookup(self.topics),
            GroupConfig.of(self.config),
            clock=self.clock,
            loop=self.loop,
        )
        self.configs.on_changed.append(
            lambda config: self.groups.reconfigure(GroupConfig.of(config))
        )
        self.topics.on_deleted.append(
            lambda topic: self.groups.topic_deleted(topic.name, topic.topic_id)
        )

    async def _listen(self) -> None:
        config = self.config
        self.server = Server(
            Dispatcher(self),
            backlog=config.socket_listen_backlog_size,
            connections_max=config.max_connections,
        )
        advertised = {one.name: one for one in config.advertised_endpoints}
        for bound in config.bound_endpoints:
            told = advertised[bound.name]
            await self.server.listen(
                Listener(bound.name, bound.host, bound.port, told.host or "localhost", told.port)
            )

    async def _start_background(self) -> None:
        self._tasks.append(self.loop.create_task(self.groups.load()))
        self._tasks.append(self.loop.create_task(self._warm_up()))
        self.cleaner = CleanerPool(
            LogTable(self.directories), lambda: self.config, self.loop, self.clock, self._fs
        )
        self.configs.on_changed.append(lambda _: self.cleaner.reconfigure())
        self.topics.on_config_changed.append(lambda _: self.cleaner.wake())
        self.cleaner.start()
        self.periodic = Periodic(self)
        self.periodic.start()
        address = self.config.metrics_address
        if address is not None:
            from broker.http import HttpServer

            self._http = HttpServer(self)
            await self._http.listen(*address)

    async def _warm_up(self) -> None:
        await self.loop.run_in_executor(None, warm_up)

    def _adopt_log(self, log: Log) -> None:
        """Connect a log, loaded or new, with those who want to hear of it."""
        log.on_append = self._appended
        log.on_roll = self.group_commit.flush_in_background

    def _appended(self, log: Log, size_bytes: int) -> None:
        self.metrics.produced_bytes += size_bytes
        self.purgatory.appended(log, size_bytes)

    def _new_cluster_id(self, config: BrokerConfig) -> str:
        return config.odradek_cluster_id or encode_id(random_id(self._random))


class LogTable:
    """All logs, as the cleaner asks for them."""

    def __init__(self, directories: Sequence[LogDirectory]) -> None:
        self._directories = directories

    def __iter__(self) -> Iterator[Log]:
        """Iterate over the logs of all partitions."""
        for directory in self._directories:
            yield from directory.logs.values()

    def directory_of(self, log: Log) -> LogDirectory:
        """Return the log directory that a log lives in."""
        return next(one for one in self._directories if one.path == log.directory.parent)


class TopicLookup:
    """The topics as the coordinator of groups asks for them."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic, None when there is none of this id."""
        topic = self._topics.by_id(topic_id)
        return topic.name if topic else None

    def id_of(self, name: str) -> bytes | None:
        """Return the id of a topic, None when there is none of this name."""
        topic = self._topics.get(name)
        return topic.topic_id if topic else None

    def partition_count(self, name: str) -> int:
        """Return how many partitions a topic has, 0 when there is none of this name."""
        topic = self._topics.get(name)
        return len(topic.partitions) if topic else 0
