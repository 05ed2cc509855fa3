"""Brokers whose database becomes read only, is full, crashes, or is a copy of an earlier day."""

from __future__ import annotations

import asyncio
import errno
import logging
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from odradek.broker.catalog.engines import open_engine
from odradek.broker.catalog.store import CatalogStore
from odradek.broker.composition import Broker
from odradek.broker.metadata.store import Metadata, Resource, ResourceType, TopicRecord
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
from tests.support.postgresql import Postgresql, running
from tests.support.requests import creatable, creating, describing, fetching, producing
from tests.support.waiting import wait_until

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


async def alter(one: Client, topic: str, value: int) -> int:
    """Set a topic's setting; return the error code."""
    change = AlterConfigsResource(
        resource_type=int(ResourceType.TOPIC),
        resource_name=topic,
        configs=[AlterableConfig(name=SETTING, config_operation=0, value=str(value))],
    )
    asked = IncrementalAlterConfigsRequest(resources=[change], validate_only=False)
    (found,) = (await one.ask(asked, version=1)).responses
    return int(found.error_code)


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


# --- crashed ------------------------------------------------------------------------------------


class Changer:
    """Makes changes at one broker; notes which were made, refused, or are in doubt."""

    IN_DOUBT = ErrorCode.KAFKA_STORAGE_ERROR

    def __init__(self, broker: Broker, partitions: int) -> None:
        self.broker, self.partitions = broker, partitions
        self.created: dict[str, int] = {}
        # The values that the setting may have.
        self.possible = [-1]
        self.answers = 0

    @property
    def topic(self) -> str:
        return f"own-{self.broker.node_id}"

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Create topics whose names the other one wants, too, and change a setting in turn."""
        async with client(self.broker) as one:
            while not is_over():
                name = f"topic-{len(self.created)}"
                self.created[name], _ = await create_by(one, name, self.partitions)
                value = max(self.possible) + 1
                code = await alter(one, self.topic, value)
                assert code in (ErrorCode.NONE, self.IN_DOUBT)
                self.possible = [*(self.possible if code else ()), value]
                self.answers += 1


def revision_of(server: Postgresql, database: str) -> int:
    with psycopg.connect(server.url_of(database)) as connection:
        ((found,),) = connection.execute("SELECT number FROM revision").fetchall()
    return int(found)


def summary(record: TopicRecord) -> object:
    """Return the parts of a topic that all brokers know at once."""
    leaders = [(one.node_id, one.epoch) for one in record.leaders]
    return record.topic_id, record.partition_count, leaders


def crash(server: Postgresql) -> None:
    """Restart the server at once."""
    server.stop()
    server.start()


def crash_after_commit(server: Postgresql) -> None:
    """Restart the server once a change is durable, and its answer is not sent yet.

    The server waits for a copy that is not there.
    """
    setting = "synchronous_standby_names"
    server.execute(f"ALTER SYSTEM SET {setting} = 'nobody'", "SELECT pg_reload_conf()")
    waiting = (
        "SELECT 1 FROM pg_stat_activity JOIN pg_locks USING (pid)"
        " WHERE wait_event = 'SyncRep' AND locktype = 'advisory' AND granted"
    )
    with psycopg.connect(server.url, autocommit=True) as connection:
        wait_until(lambda: connection.execute(waiting).fetchall(), "a change waits for the copy")
        connection.execute(f"ALTER SYSTEM RESET {setting}")
    crash(server)


@on_uvloop
async def test_changes_are_there_as_answered_when_the_database_crashes_at_commits(
    tmp_path: Path, postgresql: Postgresql, new_database: str
) -> None:
    async with pair(tmp_path, new_database, SLOW) as brokers:
        changers = [Changer(broker, count) for count, broker in enumerate(brokers, 1)]
        for changer in changers:
            await create(changer.broker, changer.topic)
            await known_everywhere(brokers, changer.topic)
        over = asyncio.Event()
        tasks = [asyncio.create_task(one.run(over.is_set)) for one in changers]
        for restart in (crash, crash_after_commit, crash, crash_after_commit):
            before = [one.answers for one in changers]
            await until(
                lambda seen=before: all(
                    one.answers > at + 2 for one, at in zip(changers, seen, strict=True)
                )
            )
            await asyncio.to_thread(restart, postgresql)
        over.set()
        await asyncio.gather(*tasks)
        await until(lambda: not any(one.problems() for one in brokers))
        loaded = await load(new_database)
        name = new_database.rpartition("/")[2]
        revision = revision_of(postgresql, name)
        await until(lambda: all(one.store.revision == revision for one in brokers))
        topics = {one.name: one for one in loaded.topics}
        for broker in brokers:
            known = [one.record for one in broker.topics]
            assert {one.name: summary(one) for one in known} == {
                name: summary(one) for name, one in topics.items()
            }
        assert Changer.IN_DOUBT in {code for one in changers for code in one.created.values()}
        for name in sorted({name for one in changers for name in one.created}):
            codes = {one.partitions: one.created.get(name) for one in changers}
            made = topics[name].partition_count if name in topics else None
            for count, code in codes.items():
                if code == ErrorCode.NONE:
                    assert made == count, (name, codes)
                elif code == ErrorCode.TOPIC_ALREADY_EXISTS:
                    assert made is not None, (name, codes)
                else:
                    assert code in (None, Changer.IN_DOUBT), (name, codes)
        for one in changers:
            value = int(
                loaded.configs[Resource(ResourceType.TOPIC, one.topic)].get(SETTING, -1)
            )
            assert value in one.possible
            for broker in brokers:
                assert broker.topics.get(one.topic).config.retention_ms == value  # type: ignore[union-attr]


@on_uvloop
async def test_a_change_is_durable_in_a_database_that_answers_before_it_writes(
    tmp_path: Path, postgresql: Postgresql, new_database: str
) -> None:
    """Its administrator has chosen so for all that is in it."""
    name = new_database.rpartition("/")[2]
    postgresql.execute(
        f"ALTER DATABASE {name} SET synchronous_commit = off",
        "ALTER SYSTEM SET wal_writer_delay = '10s'",
        "SELECT pg_reload_conf()",
    )
    try:
        async with member(tmp_path, new_database, 1, SLOW) as one:
            async with client(one) as there:
                assert (await create_by(there, "t"))[0] == ErrorCode.NONE
                postgresql.stop()
                await asyncio.to_thread(postgresql.start)
                assert (await create_by(there, "u"))[0] == ErrorCode.NONE
            await until(lambda: not one.problems())
        assert {topic.name for topic in (await load(new_database)).topics} == {"t", "u"}
    finally:
        postgresql.execute("ALTER SYSTEM RESET wal_writer_delay", "SELECT pg_reload_conf()")


# --- a stale copy -------------------------------------------------------------------------------


@pytest.fixture
def own_server() -> Iterator[Postgresql]:
    """A server of this test's own, which goes back in time."""
    with running() as server:
        yield server


@on_uvloop
async def test_brokers_do_not_go_back_in_time_with_a_stale_copy(
    tmp_path: Path, own_server: Postgresql, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "odradek")
    url = own_server.create_database("catalog")
    async with pair(tmp_path, url, BRIEF) as brokers:
        one, two = brokers
        await create_at(one, [two], "t", 2)
        await asyncio.to_thread(own_server.copy, "stale")
        of_copy = revision_of(own_server, "catalog")
        await create_at(one, [two], "u", 2)
        caplog.clear()
        await asyncio.to_thread(own_server.fail_over, "stale")
        await until(lambda: all("stale copy" in " ".join(b.problems()) for b in brokers))
        async with client(one) as here, client(two) as there:
            code, message = await create_by(here, "v")
            assert code == ErrorCode.KAFKA_STORAGE_ERROR
            assert "bring the current one back" in message
            for broker, at, partition in ((one, here, 0), (two, there, 1)):
                await until(lambda b=broker: is_suspended(b))
                code = await produce(at, "t", partition)
                assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert revision_of(own_server, "catalog") == of_copy, "nobody writes into the copy"
            assert not any("can be used again" in line for line in caplog.messages)
            assert any("stopped serving" in one and "stale" in one for one in caplog.messages)

            await asyncio.to_thread(own_server.fail_over, "data")
            await until(lambda: not any(b.problems() for b in brokers))
            assert not await produce(here, "u", 0)
            assert not await produce(there, "u", 1)
            assert (await create_by(here, "v"))[0] == ErrorCode.NONE


@on_uvloop
async def test_brokers_that_are_started_again_go_on_from_a_stale_copy(
    tmp_path: Path, own_server: Postgresql
) -> None:
    url = own_server.create_database("catalog")
    taken: list[int] = []
    async with pair(tmp_path, url, BRIEF) as brokers:
        one, two = brokers
        await create_at(one, [two], "t", 2)
        await asyncio.to_thread(own_server.copy, "stale")
        taken = [await broker.producer_ids.take() for broker in brokers]
        await create_at(one, [two], "u", 2)
        for producer_id, broker in zip(taken, brokers, strict=True):
            (log,) = (found for found in broker.logs() if found.topic == "t")
            async with client(broker) as there:
                records = batch(b"a", producer_id=producer_id, producer_epoch=0, base_sequence=0)
                asked = producing("t", records, partition=log.partition)
                answer = await there.ask(asked, version=9)
                assert not answer.responses[0].partition_responses[0].error_code
        await asyncio.to_thread(own_server.fail_over, "stale")
        await until(lambda: all("stale copy" in " ".join(b.problems()) for b in brokers))
    async with pair(tmp_path, url, BRIEF) as brokers:
        assert all(broker.topics.get("u") is None for broker in brokers)
        later = [await broker.producer_ids.take() for broker in brokers]
        assert not {one // 1000 for one in later} & {one // 1000 for one in taken}
        logs = [log for broker in brokers for log in broker.logs() if log.topic == "t"]
        assert [log.log_end_offset for log in logs] == [1, 1]
        async with client(brokers[1]) as there:
            # The records of the topic that is lost are left alone.
            code, message = await create_by(there, "u", 2)
            assert code == ErrorCode.TOPIC_ALREADY_EXISTS and "move it away" in message
            assert (await create_by(there, "w", 2))[0] == ErrorCode.NONE
        await known_everywhere(brokers, "w")


@on_uvloop
async def test_a_copy_that_lacks_reserved_producer_ids_is_stale(
    tmp_path: Path, own_server: Postgresql
) -> None:
    url = own_server.create_database("catalog")
    async with member(tmp_path, url, 1, BRIEF) as one:
        await asyncio.to_thread(own_server.copy, "stale")
        before = one.store.revision
        await one.producer_ids.take()
        await until(lambda: one.store.revision > before)
        await asyncio.to_thread(own_server.fail_over, "stale")
        await until(lambda: any("stale copy" in problem for problem in one.problems()))
