"""A catalog of many rows is read in statements of few."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from odradek.broker.catalog import key_lists
from odradek.broker.catalog import statements as catalog_statements
from odradek.broker.catalog.silences import close_silent, open_leases
from odradek.broker.metadata import statements as metadata_statements
from odradek.broker.metadata.members import Leader
from odradek.broker.metadata.statements import Connection, Value
from odradek.broker.metadata.store import Resource, ResourceType, TopicRecord
from tests.broker.catalogs import catalog_url as catalog_url
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
from tests.broker.test_catalog import LEASE_MS, Catalog, member, run, topic

_TOPICS, _BROKERS = 40, 20


@pytest.fixture
def catalog(catalog_url: str) -> Catalog:
    return Catalog(catalog_url, itertools.count())


@pytest.fixture
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (metadata_statements, catalog_statements):
        monkeypatch.setattr(module, "ROWS_MAX", 3)
    monkeypatch.setattr(key_lists, "_KEYS_MAX", 2)


def topics(rng: random.Random) -> list[tuple[TopicRecord, dict[str, str]]]:
    """Return topics of one to seven partitions, some of them with settings."""
    made = []
    for number in range(_TOPICS):
        name = "".join(rng.choices("aB-_.9", k=3)) + str(number)
        record = topic(name, number + 1, rng.randint(1, 7))
        made.append((record, {f"key.{one}": str(number) for one in range(rng.randint(0, 5))}))
    return made


@pytest.mark.usefixtures("few_rows")
def test_all_is_read_however_few_rows_come_at_once(catalog: Catalog) -> None:
    rng = random.Random(1)
    made = topics(rng)

    async def use() -> None:
        async with catalog.joined() as one, catalog.joined(member(2)) as two:
            await one.load()  # the other broker has joined
            await one.create_topics(made)
            loaded = await one.load()
            assert loaded.topics == tuple(sorted((one for one, _ in made), key=_name))
            assert loaded.configs == {
                Resource(ResourceType.TOPIC, record.name): configs
                for record, configs in made
                if configs
            }
            # The other broker follows by the same rows.
            await two.load()
            changed = rng.sample([record for record, _ in made], 11)
            enlarged = [
                replace(record, partition_count=9, leaders=record.leaders[:1] * 9)
                for record in changed[:5]
            ]
            await one.enlarge_topics(enlarged)
            await one.begin_deletion([record.topic_id for record in changed[5:]])
            found = await two.news()
            assert found is not None
            known = {record.topic_id: record for record in (await one.load()).topics}
            assert found[2].topics == {
                record.topic_id: known.get(record.topic_id) for record in changed
            }

    run(use)


class CountedRows:
    """A connection that counts the rows it returns."""

    def __init__(self, connection: Connection) -> None:
        self.connection, self.count = connection, 0

    def execute(self, statement: str, values: Sequence[Value] = ()) -> list[tuple[Any, ...]]:
        rows = self.connection.execute(statement, values)
        self.count += len(rows)
        return rows

    def execute_many(self, statement: str, rows: Sequence[Sequence[Value]]) -> None:
        self.connection.execute_many(statement, rows)


def test_a_takeover_reads_the_rows_of_the_broker_that_is_gone(catalog: Catalog) -> None:
    members = [member(node_id) for node_id in range(1, _BROKERS + 1)]
    leaders = tuple(Leader.of(one, is_shared=True) for one in members)
    record = replace(topic(partitions=50 * _BROKERS), leaders=50 * leaders)

    async def use() -> None:
        async with catalog.joined() as one:
            await one.create_topics([(record, {})])
        stores = [catalog.store() for _ in members]
        for store, who in zip(stores, members, strict=True):
            await store.prepare(lambda: pytest.fail("it is there"))
            await store.join(who, LEASE_MS)
            await store.close()
        engine = catalog.engine()

        def take_over(connection: Connection) -> int:
            (gone,) = [
                lease
                for lease in open_leases(connection, engine)
                if lease.session.member.node_id == 2
            ]
            counted = CountedRows(connection)
            close_silent(counted, engine, {gone.key})
            return counted.count

        try:
            # Its own partitions, the sessions a few times, and a sum for each broker.
            assert engine.transact(take_over) < 50 + 10 * _BROKERS
        finally:
            engine.close()

    run(use)


def _name(record: TopicRecord) -> str:
    return record.name
