"""Opens the metadata of a broker, and makes it a member of its cluster where it has a catalog.

    open    the metadata is read, the log directories are locked, the broker joins
    load    logs are loaded, while the lease is extended; epochs of logs that are later than the
            catalog has them are reported
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.broker.loop.tasks import start_task
from odradek.broker.metadata.changes import OutOfDate
from odradek.broker.metadata.identity import new_cluster_id
from odradek.broker.metadata.members import NO_LEADER, Brokers, Endpoint, Leader, Member
from odradek.broker.metadata.resource_configs import KINDS
from odradek.broker.metadata.sqlite import SqliteMetadata
from odradek.broker.metadata.store import Metadata
from odradek.broker.topics.directories import refuse_kafkas
from odradek.broker.topics.partitions import Partitions
from odradek.broker.topics.reconstruction import find_topics, skip_producer_ids
from odradek.config.broker import BrokerConfig
from odradek.config.catalog import CatalogConfig
from odradek.config.effective import resolve_apart
from odradek.config.object_store import ObjectStoreConfig
from odradek.config.share import ShareConfig
from odradek.protocol.wire import encode_uuid
from odradek.storage.meta_properties import read_directory_id

if TYPE_CHECKING:
    from odradek.broker.catalog.changes import News
    from odradek.broker.catalog.membership import Membership
    from odradek.broker.catalog.store import CatalogStore
    from odradek.broker.composition import Broker
    from odradek.broker.reassignment.conversions import Conversions
    from odradek.broker.shared.sharing import Sharing


class Clustering:
    """The metadata of a broker, and its membership; owned by the broker."""

    def __init__(self, broker: Broker, paths: Sequence[Path], static: BrokerConfig) -> None:
        """`static` are the settings without those that clients have stored."""
        self._broker, self._paths, self._static = broker, paths, static
        self._config = resolve_apart(CatalogConfig, [broker.static])
        self._membership: Membership | None = None
        self._sharing: Sharing | None = None
        self._conversions: Conversions | None = None
        self._is_new = False
        self.store: SqliteMetadata | CatalogStore
        self.partitions: Partitions
        self.brokers: Brokers
        self._joined_at = 0.0
        self._sharing_out: asyncio.Task[None] | None = None

    async def open(self) -> Metadata:
        """Open the metadata and the log directories, and join the cluster.

        Raises MetadataError or StorageError.
        """
        broker, fs = self._broker, self._broker.fs
        await self._open_store()
        broker.stopping.push_async_callback(self.store.close)
        metadata = await self.store.load()
        if self._is_new:
            refuse_kafkas(fs, self._paths)
        self.partitions = broker.open_directories(self._paths, metadata.cluster_id)
        # Nothing is written before this broker has locked the directories.
        own = self._own()
        self.brokers = Brokers(own)
        if not isinstance(self.store, SqliteMetadata):
            await self._open_bucket(self.store)
            from odradek.storage.copied_log import take_copies

            self.partitions.take_copies = partial(take_copies, fs)
            metadata = await self._join(self.store, own)
            await self._remove_moved(metadata)
        if self._is_new:
            metadata = await self._reconstruct(own)
        await self.store.settle()
        return metadata

    async def load(self, metadata: Metadata) -> None:
        """Load the logs of the broker, while its session is extended."""
        topics, changes = self._broker.topics, self._broker.changes
        self._start()

        async def load() -> None:
            if self._broker.role is None:
                await topics.delete_remains(metadata)
            await topics.load(metadata)

        # Changes of other brokers wait until the logs are loaded, as changes of clients do: they
        # are later than this metadata.
        await changes.run(load)
        if self._broker.role is None:
            await changes.run(partial(topics.finish_deletions, metadata))
        await self._loaded(metadata.next_producer_id)

    def _start(self) -> None:
        """Begin to extend the lease and to follow the other brokers."""
        broker, store = self._broker, self.store
        if isinstance(store, SqliteMetadata):
            return
        from odradek.broker.catalog.membership import Membership

        shares_host = broker.role is not None
        if shares_host:
            broker.topics.left_logs = store.left_logs
        made = Membership(
            store,
            self.brokers,
            broker.changes,
            broker.topics,
            self._config,
            self._apply,
            shares_host=shares_host,
        )
        self._membership = broker.membership = made
        made.start(self._joined_at)
        if self._sharing is not None:
            broker.stopping.push_async_callback(self._sharing.close)
        broker.stopping.push_async_callback(made.stop)
        if self._sharing is not None:
            broker.sharing, shared = self._sharing, self._sharing.logs
            broker.replicas = self._sharing.replicas
            broker.group_commit.committed = shared.committed
            broker.group_commit.room = shared.room
            broker.partitions.on_log.append(shared.adopt)
            shared.on_committed = broker.purgatory.appended
            shared.on_lost, made.on_joined = made.lose, shared.begin
            self._sharing.uploads.on_failed = broker.disks.take_offline
            self._sharing.start()
            # Before the session is left: nothing is committed after that.
            broker.stopping.push_async_callback(shared.drain)

    async def _remove_moved(self, metadata: Metadata) -> None:
        """Remove the files of partitions that another host has: the last stop came first."""
        from odradek.storage.copied_log import has_moved

        fs, own = self._broker.fs, self.brokers.own
        for record in metadata.topics:
            for number, leader in enumerate(record.leaders):
                if leader.host == own.host:
                    continue
                for home in self.partitions.strays_of(record, number):
                    name = f"{record.name}-{number}"
                    if has_moved(fs, home.path / name, leader.epoch):
                        path = await self.partitions.vacate(home, name)
                        await asyncio.to_thread(home.remove, [path])

    async def _loaded(self, next_producer_id: int) -> None:
        """Report the ids and epochs that the logs know, and the store does not.

        A shared store may be a copy that lacks the latest changes.
        """
        broker, store = self._broker, self.store
        if self._is_new or store.is_shared:
            await skip_producer_ids(store, broker.logs(), next_producer_id)
        if isinstance(store, SqliteMetadata):
            return

        async def report() -> None:
            epochs = broker.topics.higher_epochs()
            if epochs:
                await store.raise_epochs(epochs)
                broker.topics.note_epochs(epochs)

        await broker.changes.run(report)

    def start_moves(self) -> None:
        """Begin to move partitions between brokers, and to merge segments in the bucket."""
        broker, store = self._broker, self.store
        if isinstance(store, SqliteMetadata):
            return
        if self._sharing is not None:
            self._sharing.merging.start(broker.cleaner)
            broker.stopping.push_async_callback(self._sharing.merging.close)
        from odradek.broker.loop.priority import give_way
        from odradek.broker.peers.peers import Peers
        from odradek.broker.reassignment.conversions import Conversions
        from odradek.broker.reassignment.copies import Copies
        from odradek.broker.reassignment.followers import Followers
        from odradek.broker.reassignment.handovers import Handovers

        broker.followers = Followers(broker.cleaner, broker.configs)
        broker.stopping.callback(broker.followers.close)
        made = broker.handovers = Handovers(broker, store, broker.followers)
        broker.followers.on_near = made.look
        broker.stopping.push_async_callback(made.close)
        # Connections of its own: large answers must not delay those about transactions.
        peers = Peers(self.brokers, broker.configs, broker.security.tls)
        broker.stopping.callback(peers.close)
        copies = broker.copies = Copies(broker, peers, give_way)
        broker.stopping.push_async_callback(copies.close)
        broker.topics.finish_copies = copies.finish
        made.on_assigned = copies.look
        copies.start()
        made.look()
        if self._sharing is not None:
            leasing = self._sharing.lease_to_jobs(broker.cleaner, lambda: broker.config)
            broker.stopping.push_async_callback(leasing.close)
            leasing.start()
            self._conversions = Conversions(broker, store, self._sharing)
            broker.stopping.push_async_callback(self._conversions.close)
            self._conversions.start()
        if self._membership is not None:
            # Before all of the above are closed: the changes of others need them.
            broker.stopping.push_async_callback(self._membership.stop_following)
            if self._sharing is not None:
                self._membership.on_serving = self._share_out
                self._share_out()

    def _share_out(self) -> None:
        assert self._broker.handovers is not None
        self._sharing_out = start_task("share out", self._broker.handovers.share_out())

    async def listen(self) -> None:
        """Let connections wait, and make sure of the session before this broker serves."""
        self._broker.server.listen()
        if self._membership is not None:
            await self._membership.confirm()

    def problems(self) -> list[str]:
        """Return the problems that an operator has to look at."""
        copies = self._broker.copies
        own = self._membership.problems() if self._membership is not None else []
        own += self._sharing.problems() if self._sharing is not None else []
        own += self._conversions.problems() if self._conversions is not None else []
        return own if copies is None else [*own, *copies.problems()]

    async def _open_store(self) -> None:
        broker, fs, paths = self._broker, self._broker.fs, self._paths
        given, url = self._static.odradek_cluster_id, self._config.odradek_catalog_url

        def cluster_id() -> str:
            return new_cluster_id(fs, paths[0], given, broker.random)

        if not url:
            self.store = SqliteMetadata(fs, paths, cluster_id)
            self._is_new = self.store.is_new
            return
        from odradek.broker.catalog.moving_in import has_own, move_in
        from odradek.broker.catalog.opening import open_catalog

        if has_own(fs, paths):
            await move_in(fs, paths, url, self._static.node_id)
        self.store, self._is_new = await open_catalog(
            url, cluster_id, lambda: encode_uuid(broker.new_id())
        )

    async def _open_bucket(self, store: CatalogStore) -> None:
        broker = self._broker
        config = resolve_apart(ObjectStoreConfig, [broker.static])
        if not config.odradek_object_store_url:
            return
        from odradek.broker.shared.bucket import open_bucket
        from odradek.broker.shared.sharing import Sharing
        from odradek.storage.cache_directory import cache_path

        node_id = self._static.node_id
        self._sharing = Sharing(
            await open_bucket(config),
            config,
            broker.fs,
            cache_path(self._paths[0], node_id),
            store.open_line,
            broker.clock.now_ms,
            self.brokers,
            broker.purgatory,
            cluster_id=broker.cluster_id,
            node_id=node_id,
        )
        self.partitions.shared = self._sharing.logs

    async def _join(self, store: CatalogStore, own: Member) -> Metadata:
        from odradek.broker.catalog.moving_in import mark_moved

        self._joined_at = asyncio.get_running_loop().time()
        await store.join(
            own,
            self._config.broker_session_timeout_ms,
            shares_host=self._broker.role is not None,
        )
        mark_moved(self._broker.fs, self._paths)
        if self._sharing is not None:
            self._sharing.logs.begin(store.session_epoch)
        return await self._load(store)

    async def _load(self, store: SqliteMetadata | CatalogStore) -> Metadata:
        metadata = await store.load()
        if not isinstance(store, SqliteMetadata):
            self.brokers.follow(await store.members(), await store.absent())
        return metadata

    async def _reconstruct(self, own: Member) -> Metadata:
        """Create topics from the directories of partitions, when there is no metadata."""
        broker = self._broker
        shares = resolve_apart(ShareConfig, [broker.static])
        found = find_topics(
            self.partitions.directories, self._static, shares, broker.clock.now_ms()
        )
        if self.store.is_shared:
            found = [(one.led_by(Leader.of(own)), configs) for one, configs in found]
        while True:
            try:
                if found:
                    await self.store.create_topics(found)
                return await self._load(self.store)
            except OutOfDate:  # another broker has joined meanwhile
                await self.store.load()

    def _own(self) -> Member:
        broker, config = self._broker, self._static
        return Member(
            config.node_id,
            read_directory_id(broker.fs, self.partitions.directories[0].path),
            config.broker_rack,
            tuple(
                Endpoint(one.name, one.advertised_host, one.advertised_port, one.protocol)
                for one in broker.server.listeners
            ),
        )

    async def _apply(self, news: News) -> None:
        """Put other brokers' changes into memory."""
        broker = self._broker
        broker.configs.follow(news.configs)
        await broker.topics.follow(news.topics, news.configs)
        resources = {
            one: values for one, values in news.configs.items() if one.type in KINDS
        }
        if resources:
            broker.configs.resources.follow(resources)
        if news.features is not None:
            broker.features.follow(news.features)
        for kind, rows in news.security.items():
            await broker.security.follow(kind, rows)
        copies = broker.copies
        if broker.handovers is None or copies is None:
            return
        # Each looks at all partitions: not for every change of a large cluster.
        if copies.is_busy or news.sessions is not None or _has_targets(news):
            broker.handovers.look()
            copies.look()


def _has_targets(news: News) -> bool:
    records = (one for one in news.topics.values() if one is not None)
    return any(leader.target != NO_LEADER for one in records for leader in one.leaders)
