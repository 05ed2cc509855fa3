"""The part of a broker that the admin APIs act upon, put together from real parts.

    async with admin(tmp_path) as broker:
        response = await broker.call(create_topics.handle, CreateTopicsRequest(...), version=7)

A call takes the request and the response through the codec at its version, so that a response
which a client could not read fails the test. Leaving the block stops the broker cleanly, but
not when an exception leaves it; entering another with the same path is a restart.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from odradek.broker.api_table import API_VERSIONS
from odradek.broker.apis import create_topics
from odradek.broker.clock import Clock
from odradek.broker.context import ConnectedClient, RequestContext
from odradek.broker.counters.metrics import Metrics
from odradek.broker.hosts.listener import Listener
from odradek.broker.ids import random_id
from odradek.broker.metadata.changes import Changes
from odradek.broker.metadata.configs import Configs
from odradek.broker.metadata.features import Features
from odradek.broker.metadata.members import Brokers, Member
from odradek.broker.metadata.producer_ids import ProducerIds
from odradek.broker.metadata.registrations import Registrations
from odradek.broker.metadata.sqlite import SqliteMetadata
from odradek.broker.metadata.store import MetadataStore
from odradek.broker.security.composition import Security
from odradek.broker.telemetry.clients import Telemetry
from odradek.broker.topics.partitions import Partitions
from odradek.broker.topics.registry import Topics
from odradek.config.broker import BrokerConfig
from odradek.config.resolution import Layer, Source
from odradek.protocol.batches import Record, encode_batch
from odradek.protocol.compiler import decode, encode
from odradek.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsResponse,
)
from odradek.protocol.schema import info_of
from odradek.storage.directory import LogDirectory
from odradek.storage.files import FileSystem
from odradek.storage.log import Log
from odradek.storage.real_files import RealFileSystem
from tests.support.requests import creating

NOW_MS = 1_700_000_000_000
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
NODE_ID = 1

Wrap = Callable[[SqliteMetadata], MetadataStore]


class StoppedClock:
    """A clock at which it is always the same time."""

    def now_ms(self) -> int:
        return NOW_MS


@dataclass(frozen=True, slots=True)
class Admin:
    """What a handler finds behind its context, and a way to call it."""

    cluster_id: str
    configs: Configs
    topics: Topics
    producer_ids: ProducerIds
    registrations: Registrations
    features: Features
    telemetry: Telemetry
    store: MetadataStore
    clock: Clock
    partitions: Partitions
    directories: Sequence[LogDirectory]
    security: Security
    brokers: Brokers
    replicas: None = None  # no topic is in a bucket

    @property
    def node_id(self) -> int:
        """The number of this broker."""
        return self.brokers.own.node_id

    @property
    def config(self) -> BrokerConfig:
        """The settings in force."""
        return self.configs.broker

    async def call(
        self,
        handle: Callable[[Any, RequestContext, Any], Any],
        request: Any,
        version: int,
        client: ConnectedClient | None = None,
        protocol: str = "PLAINTEXT",
        client_id: str = "a-client",
    ) -> Any:
        """Send a request as a client of a version would, and read the response as it would."""
        context = RequestContext(
            authorizer=self.security.authorizer,
            listener=Listener(protocol, "127.0.0.1", 9092, "broker.example", 19092, protocol),
            client_host="/127.0.0.1",
            api_version=version,
            correlation_id=1,
            client_id=client_id,
            api_key=info_of(type(request)).key,
            client=client or ConnectedClient(),
        )
        received = decode(type(request), version, encode(request, version))
        response = handle(self, context, received)
        if inspect.isawaitable(response):
            response = await response
        return decode(type(response), version, encode(response, version))


@asynccontextmanager
async def admin(
    path: Path,
    settings: Mapping[str, str] | None = None,
    *,
    fs: FileSystem | None = None,
    directories: int = 1,
    wrap: Wrap = lambda store: store,
) -> AsyncIterator[Admin]:
    """Start on a directory with settings of server.properties; stop at the end.

    Nothing is forced to the disk: no test here pulls the plug, and each would wait for it.
    """
    with mock.patch("os.fsync"), mock.patch("os.fdatasync"):
        async with _admin(path, settings or {}, fs or RealFileSystem(), directories, wrap) as made:
            yield made


@asynccontextmanager
async def _admin(
    path: Path, settings: Mapping[str, str], fs: FileSystem, directories: int, wrap: Wrap
) -> AsyncIterator[Admin]:
    homes = [path / f"data-{number}" for number in range(directories)]
    for home in homes:
        fs.make_directory(home)
    sqlite = SqliteMetadata(RealFileSystem(), homes, lambda: CLUSTER_ID)
    metadata = await sqlite.load()
    store = wrap(sqlite)
    opened = [
        LogDirectory(fs, home, cluster_id=metadata.cluster_id, node_id=NODE_ID) for home in homes
    ]
    await sqlite.settle()
    changes = Changes()
    static = Layer(Source.STATIC_BROKER, settings)
    configs = Configs(static, metadata.configs, store, changes)
    partitions = Partitions(opened, lambda: NOW_MS)
    source = random.Random()
    brokers = Brokers(Member(NODE_ID, "", configs.broker.broker_rack, ()))
    topics = Topics(
        store,
        configs,
        changes,
        partitions,
        brokers,
        now_ms=lambda: NOW_MS,
        new_id=lambda: random_id(source),
    )
    try:
        await topics.delete_remains(metadata)
        await topics.load(metadata)
        await topics.finish_deletions(metadata)
        yield Admin(
            metadata.cluster_id,
            configs,
            topics,
            ProducerIds(store),
            Registrations(brokers, store, changes),
            Features(metadata.features, store, changes, NODE_ID),
            Telemetry(
                configs.resources,
                lambda: NOW_MS,
                lambda: random_id(source),
                lambda: configs.broker.odradek_telemetry_series_max,
            ),
            store,
            StoppedClock(),
            partitions,
            opened,
            Security(configs, metadata, store, changes, Metrics(), lambda: NOW_MS),
            brokers,
        )
        await changes.close()
        for directory in opened:
            directory.close()
    finally:
        # All that is left of a process that was killed: its locks are given up.
        for directory in opened:
            directory._lock = None
        await sqlite.close()


def append(log: Log, *keys: str) -> None:
    """Append records, each as a batch of its own."""
    for key in keys:
        batch = encode_batch([Record(0, NOW_MS, key.encode(), b"value")])
        log.append(bytearray(batch), now_ms=NOW_MS)


async def create(
    broker: Admin, *topics: CreatableTopic, version: int = 7, validate_only: bool = False
) -> CreateTopicsResponse:
    """Send CreateTopics."""
    request = creating(*topics, validate_only=validate_only)
    response: CreateTopicsResponse = await broker.call(create_topics.handle, request, version)
    return response


def versions(key: int, first: int = 0) -> pytest.MarkDecorator:
    """Run a test at each version of an API that is served, from `first` on."""
    lowest, highest = API_VERSIONS[key]
    return pytest.mark.parametrize("version", range(max(lowest, first), highest + 1))


def codes(results: Iterable[Any]) -> dict[str, int]:
    """Return the error code of each named result."""
    return {result.name: result.error_code for result in results}
