"""The load of the object store of late, and its costs since the start."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

import pytest

from odradek.broker.catalog.stored_sizes import StoredSizes
from odradek.broker.counters.object_requests import ObjectRequests
from odradek.broker.errors import MetadataError
from odradek.broker.shared.accounting import Accounting
from odradek.broker.shared.bill import MONTH_S, Prices
from odradek.storage.objects.counting import Request

GIB = 1 << 30
PRICES = Prices(put=1.0, get=0.5, gb_month=0.25, gb_out=2.0)


class Catalog:
    """Stands in for a connection: what it says of the bucket, and how often it was asked."""

    def __init__(self) -> None:
        self.bytes, self.asked, self.is_away = 0, 0, False

    async def read(self, _: object) -> StoredSizes:
        self.asked += 1
        if self.is_away:
            raise MetadataError("no connection")
        # A third of it each.
        third = self.bytes // 3
        return StoredSizes(1, third, 9, 10**15, third, 1, self.bytes - 2 * third)


class World:
    """An accounting in virtual time."""

    def __init__(self) -> None:
        self.now_s, self.is_first = 1000.0, True
        self.requests, self.catalog = ObjectRequests(), Catalog()
        line: Any = self.catalog
        self.books = Accounting(
            self.requests, PRICES, line, lambda: self.is_first, lambda: self.now_s
        )

    def send(self, method: str, key: str, count: int = 1, received: int = 0) -> None:
        for _ in range(count):
            ended = Request(method, key, perf_counter_ns(), received_bytes=received)
            self.requests.count(ended)

    async def pass_time(self, seconds: int) -> None:
        for _ in range(seconds // 5):
            self.now_s += 5
            self.books.note()
            await self.books.measure()


async def test_rates_are_those_of_the_last_minute() -> None:
    world = World()
    assert set(world.books.rates().values()) == {0.0}
    await world.pass_time(600)
    world.send("PUT", "wal/1", 120)
    world.send("GET", "segments/1", 30)
    assert world.books.rates() == {
        "wal": 2.0, "segments": 0.0, "reads": 0.5, "garbage": 0.0, "probe": 0.0,
    }  # fmt: skip
    await world.pass_time(60)
    assert world.books.rates()["wal"] == 2.0
    await world.pass_time(5)
    assert world.books.rates()["wal"] == 0.0


async def test_a_probe_before_it_is_in_the_bill_and_in_no_pace() -> None:
    requests = ObjectRequests()
    requests.count(Request("PUT", "probe/1", 1))
    line: Any = Catalog()
    books = Accounting(requests, PRICES, line, lambda: True, lambda: 0.0)
    assert books.bill()["put"] == 0.001
    assert books.per_month()["put"] == 0.0
    assert books.rates()["probe"] == 0.0


async def test_the_pace_is_that_of_the_last_five_minutes() -> None:
    world = World()
    world.send("PUT", "wal/1", 7)  # an hour ago
    await world.pass_time(3600)
    world.send("PUT", "wal/1", 300)
    await world.pass_time(150)
    world.send("GET", "segments/1", 2, received=GIB)
    await world.pass_time(150)
    found = world.books.per_month()
    assert found["put"] == pytest.approx(MONTH_S / 1000 * PRICES.put)
    assert found["get"] == pytest.approx(MONTH_S / 300 * 2 / 1000 * PRICES.get)
    assert found["out"] == pytest.approx(MONTH_S / 300 * 2 * PRICES.gb_out)
    assert world.books.bill() == {
        "put": pytest.approx(0.307), "get": pytest.approx(0.001), "out": 4.0, "storage": 0.0,
    }  # fmt: skip


async def test_stored_bytes_cost_by_their_time() -> None:
    world = World()
    world.catalog.bytes = 8 * GIB
    await world.books.measure()
    assert world.books.stored is not None
    assert world.books.stored.bucket_bytes == 8 * GIB
    assert world.books.per_month()["storage"] == 2.0
    world.now_s += MONTH_S / 2
    assert world.books.bill()["storage"] == pytest.approx(1.0)
    world.catalog.bytes = 16 * GIB
    await world.books.measure()
    assert world.books.bill()["storage"] == pytest.approx(1.0)
    assert world.books.per_month()["storage"] == 4.0
    world.now_s += MONTH_S / 4
    assert world.books.bill()["storage"] == pytest.approx(2.0)


async def test_the_catalog_is_asked_once_a_minute_and_by_one_broker() -> None:
    world = World()
    await world.pass_time(600)
    assert world.catalog.asked == 10
    world.catalog.bytes, world.is_first = GIB, False
    await world.pass_time(600)
    assert world.catalog.asked == 10
    assert world.books.stored is None
    assert world.books.per_month()["storage"] == 0.0
    world.is_first = True
    await world.pass_time(5)
    assert world.catalog.asked == 11
    assert world.books.stored is not None


async def test_another_broker_pays_for_what_it_measures() -> None:
    world = World()
    world.catalog.bytes = 4 * GIB
    await world.books.measure()
    world.now_s += MONTH_S
    world.is_first = False
    await world.books.measure()
    world.now_s += MONTH_S
    assert world.books.bill()["storage"] == pytest.approx(1.0)


async def test_the_last_sizes_count_while_the_catalog_is_away() -> None:
    world = World()
    world.catalog.bytes = 4 * GIB
    await world.books.measure()
    world.catalog.is_away = True
    world.now_s += MONTH_S
    with pytest.raises(MetadataError):
        await world.books.measure()
    assert world.books.bill()["storage"] == pytest.approx(1.0)
