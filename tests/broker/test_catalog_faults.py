"""Brokers whose database becomes read only, or is full."""

from __future__ import annotations

import errno
import logging
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.servers.postgresql import Postgresql
from odradek.broker.catalog.engines import open_engine
from odradek.broker.catalog.store import CatalogStore
from odradek.broker.composition import Broker
from odradek.broker.metadata.store import Metadata, ResourceType
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from odradek.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from odradek.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from odradek.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from odradek.protocol.messages.find_coordinator import FindCoordinatorRequest
from odradek.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from odradek.protocol.messages.init_producer_id import InitProducerIdRequest
from odradek.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
from tests.broker.live import Client, batch, client, create, on_uvloop, until
from tests.broker.test_cluster import SLOW, create_at, known_everywhere, member
from tests.broker.web import get, request
from tests.support.requests import creatable, creating, describing, fetching, producing

pytestmark = pytest.mark.slow

HTTP = {"metrics.listener": "127.0.0.1:0"}
BRIEF = {"broker.session.timeout.ms": "5000", "broker.heartbeat.interval.ms": "100"}
SETTING = "retention.ms"


async def produce(one: Client, topic: str, partition: int = 0) -> int:
    """Append a record; return the error code."""
    answer = await one.ask(producing(topic, batch(b"a"), partition=partition), version=9)
    return int(answer.responses[0].partition_responses[0].error_code)


async def create_by(one: Client, name: str, partitions: int = 1) -> tuple[int, str]:
    """Create a topic; return the error code and the message."""
    (found,) = (await one.ask(creating(creatable(name, partitions)), version=7)).topics
    return found.error_code, found.error_message or ""


async def is_suspended(broker: Broker) -> bool:
    return bool((await get(broker, "/api/cluster"))["session"]["is_suspended"])


async def load(url: str) -> Metadata:
    """Return the metadata that a catalog has."""
    store = CatalogStore(lambda: open_engine(url), str)
    try:
        return await store.load()
    finally:
        await store.close()


@asynccontextmanager
async def pair(path: Path, url: str, settings: dict[str, str]) -> AsyncIterator[list[Broker]]:
    """Run two brokers, which know each other."""
    async with AsyncExitStack() as stack:
        brokers = [
            await stack.enter_async_context(member(path, url, one, {**settings, **HTTP}))
            for one in (1, 2)
        ]
        await until(lambda: all(len(one.brokers) == 2 for one in brokers))
        yield brokers


# --- read only ----------------------------------------------------------------------------------


@contextmanager
def set_by_reload(server: Postgresql, database: str) -> Iterator[None]:
    """All transactions of the server are read only from now on."""
    reload = "SELECT pg_reload_conf()"
    server.execute("ALTER SYSTEM SET default_transaction_read_only = on", reload)
    try:
        yield
    finally:
        server.execute("ALTER SYSTEM RESET default_transaction_read_only", reload)


@contextmanager
def set_for_database(server: Postgresql, database: str) -> Iterator[None]:
    """New sessions of a database are read only; those there are are terminated."""
    setting = "default_transaction_read_only"
    server.execute(
        f"ALTER DATABASE {database} SET {setting} = on",
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'",
    )
    try:
        yield
    finally:
        server.execute(f"ALTER DATABASE {database} RESET {setting}")


@pytest.mark.parametrize("read_only", [set_by_reload, set_for_database])
@on_uvloop
async def test_brokers_serve_until_their_sessions_end_when_the_database_is_read_only(
    tmp_path: Path,
    postgresql: Postgresql,
    new_database: str,
    caplog: pytest.LogCaptureFixture,
    read_only: Callable[[Postgresql, str], Any],
) -> None:
    caplog.set_level(logging.INFO, "odradek")
    name = new_database.rpartition("/")[2]
    async with pair(tmp_path, new_database, BRIEF) as brokers:
        one, two = brokers
        await create_at(one, [two], "t", 2)
        async with client(one) as there:
            with read_only(postgresql, name):
                await until(lambda: all(b.problems() for b in brokers))
                assert not await produce(there, "t")
                read = await there.ask(fetching("t"), version=12)
                assert read.responses[0].partitions[0].records
                code, message = await create_by(there, "u")
                assert code == ErrorCode.KAFKA_STORAGE_ERROR
                assert "read-only" in message
                await until(lambda: is_suspended(one))
                assert await produce(there, "t") == ErrorCode.NOT_LEADER_OR_FOLLOWER
                code, message = await create_by(there, "u")
                assert code == ErrorCode.KAFKA_STORAGE_ERROR and "read-only" in message
                status, health = await request(one, "GET", "/health")
                assert status == 503
                assert b"nothing is served" in health and b"read-only" in health
                _, metrics = await request(one, "GET", "/metrics")
                assert b"\nodradek_session_suspended 1" in metrics
                assert any(
                    "stopped serving" in line and "read-only" in line for line in caplog.messages
                )
            await until(lambda: not any(b.problems() for b in brokers))
            assert not await produce(there, "t")
            assert (await create_by(there, "u"))[0] == ErrorCode.NONE
        await known_everywhere(brokers, "u")


STORAGE_ERROR = ErrorCode.KAFKA_STORAGE_ERROR
# Their answers have no message, or clients do not show it. Clients try again after these, too.
WITHOUT_CAUSE = {
    "InitProducerId": ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    "Metadata": STORAGE_ERROR,
    "FindCoordinator": ErrorCode.COORDINATOR_NOT_AVAILABLE,
}


def _changes() -> Mapping[str, tuple[Any, int]]:
    """Return a request of each kind that changes the metadata, and its version."""
    topic = AlterConfigsResource(
        resource_type=ResourceType.TOPIC,
        resource_name="t",
        configs=[AlterableConfig(name=SETTING, config_operation=0, value="5")],
    )
    own = AlterConfigsResource(
        resource_type=ResourceType.BROKER,
        resource_name="",
        configs=[AlterableConfig(name="log.cleaner.threads", config_operation=0, value="2")],
    )
    group = AlterConfigsResource(
        resource_type=ResourceType.GROUP,
        resource_name="g",
        configs=[
            AlterableConfig(
                name="consumer.session.timeout.ms", config_operation=0, value="50000"
            )
        ],
    )
    acl = AclCreation(
        resource_type=2, resource_name="t", resource_pattern_type=3, principal="User:a",
        host="*", operation=3, permission_type=3,
    )  # fmt: skip
    quota = EntryData(
        entity=[EntityData(entity_type="user", entity_name="a")],
        ops=[OpData(key="consumer_byte_rate", value=1e6, remove=False)],
    )
    user = ScramCredentialUpsertion(
        name="a", mechanism=1, iterations=4_096, salt=b"salt", salted_password=b"p" * 32
    )
    feature = FeatureUpdateKey(feature="share.version", max_version_level=0, upgrade_type=3)
    doomed = DeleteTopicState(name="t")
    larger = CreatePartitionsTopic(name="t", count=7, assignments=None)
    return {
        "CreateTopics": (creating("u"), 7),
        "CreatePartitions": (
            CreatePartitionsRequest(topics=[larger], timeout_ms=60_000, validate_only=False),
            3,
        ),
        **{
            f"IncrementalAlterConfigs of a {name}": (
                IncrementalAlterConfigsRequest(resources=[one], validate_only=False),
                1,
            )
            for name, one in (("topic", topic), ("broker", own), ("group", group))
        },
        "CreateAcls": (CreateAclsRequest(creations=[acl]), 3),
        "AlterClientQuotas": (AlterClientQuotasRequest(entries=[quota], validate_only=False), 1),
        "AlterUserScramCredentials": (
            AlterUserScramCredentialsRequest(deletions=[], upsertions=[user]),
            0,
        ),
        "UpdateFeatures": (UpdateFeaturesRequest(feature_updates=[feature]), 1),
        "InitProducerId": (
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4,
        ),
        "Metadata": (describing("created", creates=True), 12),
        "FindCoordinator": (FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4),
        "DeleteTopics": (DeleteTopicsRequest(topics=[doomed], timeout_ms=60_000), 6),
    }


def _refusals(value: Any) -> Iterator[Any]:
    """Find the parts of an answer that have an error code other than 0."""
    for field in fields(value):
        part = getattr(value, field.name)
        if field.name == "error_code" and part:
            yield value
        elif isinstance(part, list):
            for one in filter(is_dataclass, part):
                yield from _refusals(one)


@on_uvloop
async def test_each_kind_of_change_is_refused_with_the_cause_and_made_later(
    tmp_path: Path, postgresql: Postgresql, new_database: str
) -> None:
    rights = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    name = new_database.rpartition("/")[2]
    async with member(tmp_path, new_database, 1, {**SLOW, **rights}) as one:
        await create(one, "t")
        revision = one.store.revision
        async with client(one) as there:
            with set_for_database(postgresql, name):
                for kind, (asked, version) in _changes().items():
                    (refused,) = _refusals(await there.ask(asked, version=version))
                    assert refused.error_code == WITHOUT_CAUSE.get(kind, STORAGE_ERROR), kind
                    if kind not in WITHOUT_CAUSE:
                        assert "read-only" in refused.error_message, kind
            assert one.store.revision == revision
            for asked, version in _changes().values():
                assert not list(_refusals(await there.ask(asked, version=version)))


# --- full ---------------------------------------------------------------------------------------


@contextmanager
def small_disk(path: Path) -> Iterator[None]:
    """Mount a small file system; skip the test where that is not allowed."""
    path.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=48m,mode=0777", "tmpfs", str(path)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("mounting a file system needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(path: Path) -> None:
    """Leave no room on a disk."""
    with (path / "filler").open("wb", buffering=0) as file, pytest.raises(OSError) as refused:
        while True:
            file.write(bytes(4096))
    assert refused.value.errno == errno.ENOSPC


@pytest.fixture
def disk(postgresql: Postgresql) -> Iterator[Path]:
    """A small disk that PostgreSQL's user can reach."""
    path = postgresql.folder / "small"
    with small_disk(path):
        yield path
    path.rmdir()


@pytest.fixture(params=["sqlite", "postgresql"])
def url_on_disk(
    request: pytest.FixtureRequest, postgresql: Postgresql, disk: Path
) -> Iterator[str]:
    """A catalog of each engine on the small disk."""
    if request.param == "sqlite":
        yield f"sqlite://{disk / 'catalog.db'}"
        return
    place = disk / "tables"
    place.mkdir()
    if postgresql.user:
        shutil.chown(place, postgresql.user)
    postgresql.execute(
        f"CREATE TABLESPACE small LOCATION '{place}'", "CREATE DATABASE small TABLESPACE small"
    )
    yield postgresql.url_of("small")
    postgresql.execute("DROP DATABASE small WITH (FORCE)", "DROP TABLESPACE small")


@on_uvloop
async def test_a_change_is_refused_wholly_while_the_disk_of_the_database_is_full(
    tmp_path: Path, disk: Path, url_on_disk: str
) -> None:
    async with pair(tmp_path, url_on_disk, SLOW) as brokers:
        one, two = brokers
        await create_at(one, [two], "t", 2)
        async with client(one) as here, client(two) as there:
            fill(disk)
            for at in (here, there):
                code, message = await create_by(at, "large", 2_000)
                assert code == ErrorCode.KAFKA_STORAGE_ERROR
                assert "No space left" in message or "disk is full" in message
            assert not await produce(here, "t")
            (disk / "filler").unlink()
            loaded = await load(url_on_disk)
            assert [topic.name for topic in loaded.topics] == ["t"]
            assert await create_by(here, "later", 2) == (ErrorCode.NONE, "")
            await known_everywhere(brokers, "later")
            assert all(one.topics.get("large") is None for one in brokers)
