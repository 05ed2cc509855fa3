"""Brokers whose database crashes, or is a copy of an earlier day."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

from bench.servers.postgresql import Postgresql
from odradek.broker.composition import Broker
from odradek.broker.metadata.store import Resource, ResourceType, TopicRecord
from odradek.protocol.errors import ErrorCode
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
from tests.broker.live import Client, batch, client, create, on_uvloop, until
from tests.broker.test_catalog_faults import (
    BRIEF,
    SETTING,
    create_by,
    is_suspended,
    load,
    pair,
    produce,
)
from tests.broker.test_cluster import SLOW, create_at, known_everywhere, member
from tests.support.requests import altering, producing
from tests.support.servers import running_postgresql
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow


async def alter(one: Client, topic: str, value: int) -> int:
    """Set a topic's setting; return the error code."""
    asked = altering(topic, {SETTING: str(value)})
    (found,) = (await one.ask(asked, version=1)).responses
    return int(found.error_code)


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


async def is_refused(
    at: Client,
    topic: str,
    why: str,
    code: int = ErrorCode.KAFKA_STORAGE_ERROR,
    partitions: int = 1,
) -> bool:
    """Return whether a new topic is refused for a reason; on a busy disk there may be others."""
    found, message = await create_by(at, topic, partitions)
    assert found in (code, ErrorCode.KAFKA_STORAGE_ERROR), message
    return found == code and why in message


async def has_produced(at: Client, topic: str, partition: int) -> bool:
    code = await produce(at, topic, partition)
    assert code in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return code == ErrorCode.NONE


@pytest.fixture
def own_server() -> Iterator[Postgresql]:
    """A server of this test's own, which goes back in time."""
    with running_postgresql() as server:
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
            await until(lambda: is_refused(here, "v", "bring the current one back"))
            for broker, at, partition in ((one, here, 0), (two, there, 1)):
                await until(lambda b=broker: is_suspended(b))
                code = await produce(at, "t", partition)
                assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert revision_of(own_server, "catalog") == of_copy, "nobody writes into the copy"
            assert not any("can be used again" in line for line in caplog.messages)
            assert any("stopped serving" in one and "stale" in one for one in caplog.messages)

            await asyncio.to_thread(own_server.fail_over, "data")
            await until(lambda: not any(b.problems() for b in brokers))
            for at, partition in ((here, 0), (there, 1)):
                # On a busy disk a lease may end again: its broker joins once more.
                await until(lambda at=at, n=partition: has_produced(at, "u", n))
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
        # The copy may keep a busy disk for longer than a lease: they join again.
        await until(lambda: not any(broker.problems() for broker in brokers))
        await known_everywhere(brokers, "t")
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

        def ends() -> list[int]:
            logs = [log for broker in brokers for log in broker.logs() if log.topic == "t"]
            return [log.log_end_offset for log in logs]

        await until(lambda: ends() == [1, 1])
        async with client(brokers[1]) as there:
            # The records of the topic that is lost are left alone.
            wanted = ErrorCode.TOPIC_ALREADY_EXISTS
            await until(lambda: is_refused(there, "u", "move it away", wanted, partitions=2))
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
