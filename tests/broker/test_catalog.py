"""The catalog in its databases: changes are there for all, in one order, once."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.processes import ROOT
from bench.servers.postgresql import PASSWORD, Postgresql
from odradek.broker.catalog.changes import WentBack
from odradek.broker.catalog.engines import CatalogAway, Engine, open_engine
from odradek.broker.catalog.sessions import SessionClosed
from odradek.broker.catalog.store import CatalogStore
from odradek.broker.errors import MetadataError
from odradek.broker.metadata.changes import OutOfDate
from odradek.broker.metadata.members import Endpoint, Leader, Member
from odradek.broker.metadata.statements import Connection
from odradek.broker.metadata.store import (
    Metadata,
    Resource,
    ResourceType,
    SecurityKind,
    TopicRecord,
)
from tests.broker.catalogs import catalog_url as catalog_url
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql

T = TypeVar("T")
LEASE_MS = 60_000
NEW = Metadata("a-cluster", (), {})
TOPIC = Resource(ResourceType.TOPIC, "orders")


def topic(name: str = "orders", number: int = 1, partitions: int = 1) -> TopicRecord:
    record = TopicRecord(name, bytes([number]) * 16, partitions, 1, 1_700_000_000_000)
    return record.led_by(Leader.of(member()))


def unmade(record: TopicRecord) -> TopicRecord:
    return replace(record, leaders=tuple(replace(one, is_made=False) for one in record.leaders))


def member(node_id: int = 1, host: str | None = None) -> Member:
    endpoints = (Endpoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),)
    return Member(node_id, host or f"host-{node_id}", None, endpoints)


@dataclass
class Catalog:
    """A database, and the stores of brokers that share it."""

    url: str
    ids: Iterator[int]

    def engine(self) -> Engine:
        return open_engine(self.url)

    def store(self) -> CatalogStore:
        return CatalogStore(self.engine, lambda: f"change-{next(self.ids)}")

    @asynccontextmanager
    async def joined(self, who: Member | None = None) -> AsyncIterator[CatalogStore]:
        """Return the store of a broker that has joined and loaded."""
        store = self.store()
        try:
            await store.prepare(lambda: NEW)
            await store.join(who or member(), LEASE_MS)
            await store.load()
            yield store
        finally:
            await store.close()


@pytest.fixture
def catalog(catalog_url: str) -> Catalog:
    return Catalog(catalog_url, itertools.count())


def run(use: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(use(), 60))  # type: ignore[arg-type]


_OTHER_BROKER = """
import asyncio, sys
from tests.broker.test_catalog import Catalog, member

async def use():
    async with Catalog(sys.argv[1], iter(range(100, 200))).joined(member(2)) as two:
        print(*(one.name for one in (await two.load()).topics))

asyncio.run(use())
"""


def test_a_change_is_kept_when_another_process_has_closed_the_catalog(catalog: Catalog) -> None:
    """The last process to close SQLite's file removes its log: locks show it the others."""

    async def names_elsewhere() -> list[str]:
        command = [sys.executable, "-c", _OTHER_BROKER, catalog.url]
        done = await asyncio.to_thread(
            subprocess.run, command, check=True, cwd=ROOT, capture_output=True, text=True
        )
        return str(done.stdout).split()

    async def use() -> None:
        async with catalog.joined() as one:
            await one.has_news()  # on its other connection
            assert await names_elsewhere() == []
            await one.load()
            await one.create_topics([(topic(), {})])
            assert await names_elsewhere() == ["orders"]

    run(use)


def test_changes_are_there_for_a_broker_that_joins_later(catalog: Catalog) -> None:
    async def use() -> None:
        async with catalog.joined() as one:
            await one.create_topics([(topic(), {"retention.ms": "5"}), (topic("b", 2, 3), {})])
            await one.enlarge_topics([topic(partitions=7)])
            one.note_made(topic().topic_id, (0, 2))
            await one.finalize_features({"a": 1, "b": 2})
            await one.finalize_features({"a": 3})
            await one.change_security(SecurityKind.ACL, {"one": "1", "two": "2"})
            await one.change_security(SecurityKind.ACL, {"one": None, "two": "3"})
            assert await one.allocate_producer_ids(1000) == 0
            assert await one.allocate_producer_ids(1000) == 1000
        async with catalog.joined(member(2)) as two:
            loaded = await two.load()
            made = [one.is_made for one in loaded.topics[1].leaders]
            assert made == [True, False, True, False, False, False, False]
            loaded = replace(loaded, topics=tuple(map(unmade, loaded.topics)))
            assert loaded == Metadata(
                "a-cluster",
                (topic("b", 2, 3), topic(partitions=7)),
                {TOPIC: {"retention.ms": "5"}},
                {"a": 3, "b": 2},
                {SecurityKind.ACL: {"two": "3"}},
                2000,
            )

    run(use)


def test_a_change_is_made_wholly_or_not_at_all(catalog: Catalog) -> None:
    async def use() -> None:
        async with catalog.joined() as one:
            await one.create_topics([(topic(), {})])
            revision = one.revision
            with pytest.raises(MetadataError):
                await one.create_topics([(topic("new", 2), {"a": "b"}), (topic(number=3), {})])
            assert one.revision == revision
            await one.create_topics([(topic("later", 4), {})])
            loaded = await one.load()
            assert [record.name for record in loaded.topics] == ["later", "orders"]
            assert loaded.configs == {}

    run(use)


def test_the_deletion_of_a_topic_that_came_along_half_deleted_is_finished(
    catalog: Catalog,
) -> None:
    async def use() -> None:
        store = catalog.store()
        doomed = replace(topic(), is_deleting=True)
        await store.prepare(lambda: Metadata("a-cluster", (doomed,), {}))
        await store.join(member(), LEASE_MS)
        assert [one.is_deleting for one in (await store.load()).topics] == [True]
        await store.finish_deletion([doomed.topic_id])
        assert (await store.load()).topics == ()
        await store.create_topics([(topic(number=2), {})])  # the name is free
        await store.close()

    run(use)


def test_no_broker_decides_by_metadata_that_has_changed(catalog: Catalog) -> None:
    async def use() -> None:
        async with catalog.joined() as one, catalog.joined(member(2)) as two:
            await two.create_topics([(topic(), {"a": "b"})])
            with pytest.raises(OutOfDate):
                await one.replace_configs({TOPIC: {"c": "d"}})
            found = await one.news()
            assert found is not None
            revision, change_id, news = found
            assert news.topics == {topic().topic_id: topic()}
            assert news.configs == {TOPIC: {"a": "b"}}
            one.advance(revision, change_id)
            assert one.revision == two.revision
            assert await one.news() is None
            await one.replace_configs({TOPIC: {"c": "d"}})

    run(use)


names = st.sampled_from(["a", "b", "/", "é"])
configs = st.dictionaries(names, names, max_size=3)
owners = st.builds(Resource, st.sampled_from(ResourceType), st.sampled_from(["", "0", "a/b"]))
rows = st.dictionaries(names, st.none() | names, min_size=1, max_size=3)


@settings(max_examples=20, deadline=None)
@given(
    changes=st.lists(
        st.tuples(st.just("configs"), st.dictionaries(owners, configs, min_size=1, max_size=2))
        | st.tuples(st.just("features"), st.dictionaries(names, st.integers(0, 9), min_size=1))
        | st.tuples(st.sampled_from(SecurityKind), rows),
        min_size=1,
        max_size=8,
    ),
    followed=st.sets(st.integers(0, 7)),
)
def test_a_broker_that_follows_has_what_one_that_loads_has(
    tmp_path_factory: pytest.TempPathFactory,
    changes: list[tuple[object, dict]],
    followed: set[int],
) -> None:
    """Whenever it follows, and however many changes it takes over at once."""
    path = tmp_path_factory.mktemp("following") / "catalog.db"

    async def use() -> None:
        shared = Catalog(f"sqlite://{path}", itertools.count())
        async with shared.joined() as one, shared.joined(member(2)) as two:
            await one.load()
            held = await two.load()
            configs = dict(held.configs)
            features = dict(held.features)
            security = {kind: dict(rows) for kind, rows in held.security.items()}
            for at, (kind, change) in enumerate([*changes, ("configs", {TOPIC: {}})]):
                if isinstance(kind, SecurityKind):
                    await one.change_security(kind, change)
                elif kind == "configs":
                    await one.replace_configs(change)
                else:
                    await one.finalize_features(change)
                if at not in followed and at < len(changes):
                    continue
                found = await two.news()
                assert found is not None
                revision, change_id, news = found
                two.advance(revision, change_id)
                configs |= news.configs
                features = dict(features if news.features is None else news.features)
                for of, rows in news.security.items():
                    for name, value in rows.items():
                        if value is None:
                            security.setdefault(of, {}).pop(name, None)
                        else:
                            security.setdefault(of, {})[name] = value
            loaded = await two.load()
            assert {owner: found for owner, found in configs.items() if found} == loaded.configs
            assert features == loaded.features
            assert {of: found for of, found in security.items() if found} == loaded.security

    run(use)


def test_one_of_many_changes_at_once_is_made(catalog: Catalog) -> None:
    """The others are refused: each was decided by a revision that has passed."""

    async def use() -> None:
        async with AsyncExitStack() as stack:
            stores = [await stack.enter_async_context(catalog.joined(member(n))) for n in range(4)]
            for turn in range(10):
                for store in stores:
                    await store.load()
                outcomes = await asyncio.gather(
                    *(
                        store.replace_configs({TOPIC: {"a": f"{turn}-{number}"}})
                        for number, store in enumerate(stores)
                    ),
                    return_exceptions=True,
                )
                refused = [one for one in outcomes if isinstance(one, OutOfDate)]
                assert len(refused) == 3, outcomes
                ((made, store),) = (
                    (number, store)
                    for number, (one, store) in enumerate(zip(outcomes, stores, strict=True))
                    if one is None
                )
                assert (await store.load()).configs == {TOPIC: {"a": f"{turn}-{made}"}}

    run(use)


def test_producer_ids_are_never_handed_out_twice(catalog: Catalog) -> None:
    async def use() -> None:
        async with catalog.joined() as one, catalog.joined(member(2)) as two:
            firsts = await asyncio.gather(
                *(store.allocate_producer_ids(1000) for _ in range(5) for store in (one, two))
            )
            assert sorted(firsts) == list(range(0, 10_000, 1000))

    run(use)


def test_a_broker_whose_session_is_closed_changes_nothing(catalog: Catalog) -> None:
    async def use() -> None:
        # The second is a later life with the same log directories.
        async with catalog.joined() as one, catalog.joined() as again:
            for store in (one, again):
                await store.load()
            with pytest.raises(SessionClosed):
                await one.create_topics([(topic(), {})])
            with pytest.raises(SessionClosed):
                await one.allocate_producer_ids(1)
            await again.create_topics([(topic(), {})])
            assert (await again.load()).topics == (topic(),)

    run(use)


def test_a_node_id_belongs_to_one_broker(catalog: Catalog) -> None:
    async def use() -> None:
        async with catalog.joined() as one:
            with pytest.raises(MetadataError, match=r"node.id=1 is in use.*9092.*another node.id"):
                async with catalog.joined(member(1, "other-host")):
                    raise AssertionError("it joined")
            await one.leave(1)
            async with catalog.joined(member(1, "other-host")):
                pass

    run(use)


def test_a_newer_catalog_is_refused(catalog: Catalog) -> None:
    async def use() -> None:
        async with catalog.joined():
            pass
        engine = catalog.engine()
        engine.transact(lambda to: to.execute("UPDATE schema_version SET number = 99"))
        engine.close()
        with pytest.raises(MetadataError, match="newer release"):
            async with catalog.joined():
                raise AssertionError("it joined")

    run(use)


def test_brokers_that_start_at_once_make_one_catalog(catalog: Catalog) -> None:
    async def use() -> None:
        stores = [catalog.store() for _ in range(4)]
        made = await asyncio.gather(*(one.prepare(lambda: NEW) for one in stores))
        assert sorted(made) == [False, False, False, True]
        for store in stores:
            assert (await store.load()).cluster_id == "a-cluster"
            await store.close()

    run(use)


class Late:
    """A connection that looks at the catalog, then waits before it does its work."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.has_looked, self.may_go_on = threading.Event(), threading.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def read(self, work: Callable[[Connection], T]) -> T:
        def look_and_wait(connection: Connection) -> T:
            connection.execute("SELECT number FROM revision")
            self.has_looked.set()
            assert self.may_go_on.wait(60)
            return work(connection)

        return self._engine.read(look_and_wait)


def test_a_change_of_its_own_is_no_news_to_a_broker_that_looks_meanwhile(
    catalog: Catalog,
) -> None:
    """The broker's thread sees the catalog before the change, and memory has it by then."""

    async def use() -> None:
        async with catalog.joined() as store:
            await store.create_topics([(topic(), {})])
            late = Late(catalog.engine())
            store._side.engine = late  # type: ignore[assignment]
            looking = asyncio.create_task(store.has_news())
            await asyncio.to_thread(late.has_looked.wait, 60)
            await store.replace_configs({TOPIC: {"retention.ms": "1"}})
            late.may_go_on.set()
            assert not await looking

    run(use)


def test_a_stale_copy_is_refused(tmp_path: Path) -> None:
    async def use() -> None:
        path = tmp_path / "catalog.db"
        shared = Catalog(f"sqlite://{path}", itertools.count())
        async with shared.joined() as one:
            with sqlite3.connect(path) as source, sqlite3.connect(tmp_path / "copy") as copy:
                source.backup(copy)
            source.close()
            copy.close()
            await one.create_topics([(topic(), {})])
            stale = Catalog(f"sqlite://{tmp_path / 'copy'}", shared.ids)
            one._main.engine = one._side.engine = stale.engine()
            with pytest.raises(WentBack, match="lacks change"):
                await one.news()
            with pytest.raises(WentBack):
                await one.create_topics([(topic("b", 2), {})])
            async with stale.joined() as other:  # others go on with the copy
                await other.create_topics([(topic("c", 3), {})])
                await other.create_topics([(topic("d", 4), {})])
            with pytest.raises(WentBack):
                await one.news()

    run(use)


def test_a_database_that_is_away_is_reported_until_it_is_back(
    postgresql: Postgresql, new_database: str
) -> None:
    async def use() -> None:
        async with Catalog(new_database, itertools.count()).joined() as one:
            postgresql.stop()
            try:
                with pytest.raises(CatalogAway) as caught:
                    await one.create_topics([(topic(), {})])
            finally:
                postgresql.start()
            assert PASSWORD not in str(caught.value)
            assert "\n" not in str(caught.value)
            await one.create_topics([(topic(), {})])
            assert (await one.load()).topics == (topic(),)

    run(use)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ((PASSWORD, "wrong"), "password authentication failed"),
        (("127.0.0.1:", "127.0.0.1:1"), "127.0.0.1"),
        (("postgres", "mysql"), "no valid address"),
    ],
    ids=["password", "port", "scheme"],
)
def test_a_wrong_address_is_explained_in_one_line(
    postgresql: Postgresql, change: tuple[str, str], message: str
) -> None:
    url = postgresql.url.replace(*change, 1)

    async def use() -> None:
        with pytest.raises(MetadataError, match=message) as caught:
            await CatalogStore(lambda: open_engine(url), str).prepare(lambda: NEW)
        assert PASSWORD not in str(caught.value)
        assert "\n" not in str(caught.value)

    run(use)
