"""What the object store costs, by the prices of the settings."""

from __future__ import annotations

import pytest

from odradek.broker.counters.object_requests import Tally
from odradek.broker.shared.bill import HOUR_S, MONTH_S, Prices, bill, per_month, prices_of
from odradek.config.effective import resolve_apart
from odradek.config.errors import ConfigError
from odradek.config.object_store import ObjectStoreConfig
from odradek.config.resolution import Layer, Source

GIB = 1 << 30
AWS = Prices(put=0.005, get=0.0004, gb_month=0.023, gb_out=0.0)
NOTHING = Tally({}, {})


def approximately(**dollars: float) -> object:
    return pytest.approx(dollars, rel=1e-9)


def test_the_default_prices_are_those_of_aws() -> None:
    assert prices_of(ObjectStoreConfig()) == AWS


def test_prices_are_settings() -> None:
    names = ("put", "get", "gb.month", "gb.out")
    given = {f"odradek.object.store.price.{name}": str(at) for at, name in enumerate(names)}
    config = resolve_apart(ObjectStoreConfig, [Layer(Source.STATIC_BROKER, given)])
    assert prices_of(config) == Prices(0.0, 1.0, 2.0, 3.0)
    negative = {"odradek.object.store.price.get": "-0.1"}
    with pytest.raises(ConfigError, match=r"price\.get"):
        resolve_apart(ObjectStoreConfig, [Layer(Source.STATIC_BROKER, negative)])


def test_requests_cost_by_the_thousand() -> None:
    tally = Tally(
        {
            ("wal", "PUT"): 3000,
            ("segments", "PUT"): 1000,
            ("probe", "LIST"): 1000,
            ("reads", "GET"): 9000,
            ("reads", "HEAD"): 1000,
            ("garbage", "DELETE"): 1_000_000,  # costs nothing
        },
        {},
    )
    assert bill(AWS, tally, 0) == approximately(put=0.025, get=0.004, out=0, storage=0)


def test_bytes_cost_by_the_gigabyte() -> None:
    prices = Prices(put=0, get=0, gb_month=0.1, gb_out=0.09)
    tally = Tally({}, {"reads": 3 * GIB, "probe": GIB})
    # For half a month, 4 GB.
    assert bill(prices, tally, 4 * GIB * MONTH_S / 2) == approximately(
        put=0, get=0, out=0.36, storage=0.2
    )


def test_the_pace_is_that_of_the_time_between() -> None:
    before = Tally({("wal", "PUT"): 500, ("reads", "GET"): 7}, {"reads": 5 * GIB})
    after = Tally(
        {("wal", "PUT"): 600, ("reads", "GET"): 57, ("segments", "PUT"): 10}, {"reads": 6 * GIB}
    )
    prices = Prices(put=0.005, get=0.0004, gb_month=0.023, gb_out=0.09)
    found = per_month(prices, before, after, HOUR_S, stored_bytes=10 * GIB)
    assert found == approximately(
        put=730 * 110 / 1000 * 0.005,
        get=730 * 50 / 1000 * 0.0004,
        out=730 * 0.09,
        storage=0.23,
    )


def test_a_first_request_is_not_taken_for_one_a_second() -> None:
    prices = Prices(put=1, get=1, gb_month=1, gb_out=1)
    first = Tally({("wal", "PUT"): 1}, {})
    assert per_month(prices, NOTHING, first, 1, 0) == approximately(
        put=MONTH_S / 60 / 1000, get=0, out=0, storage=0
    )
