"""The scale of large clusters on paper: the model's own laws, and the model beside the product."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.processes import ROOT
from bench.scale import brokers, catalog
from bench.scale.model import Operation, broker_of, demand
from bench.scale.paper import DEFAULTS, GOAL, goal_table, load_prices, price_table
from bench.scale.storing import play
from bench.servers.postgresql import folder_of_programs, running
from odradek.broker.shared.tails import StoringLimits

_MIB = 1 << 20
# The model is for decisions of an order of magnitude.
_NEAR = 0.3


@given(
    partitions=st.integers(1, 20_000),
    in_bytes_s=st.floats(1e4, 2e8),
    wal_bytes=st.integers(8 * _MIB, 16 << 30),
    others=st.integers(0, 200),
)
def test_all_bytes_are_stored_in_time(
    partitions: int, in_bytes_s: float, wal_bytes: int, others: int
) -> None:
    limits = StoringLimits(wal_bytes)
    found = play(partitions, in_bytes_s, limits, others)
    assert found.uploaded_bytes > 0.9 * in_bytes_s
    # A look comes each second, and long periods are played in thirtieths of one.
    step_s = max(1.0, found.period_s / 30)
    most_bytes = max(wal_bytes, min(limits.wal_bytes_max(others), partitions * _MIB))
    assert found.unstored_bytes <= most_bytes + 2 * in_bytes_s * step_s
    assert found.period_s <= limits.wal_age_s + 2 * step_s
    assert found.rows >= partitions / found.period_s * 0.9


@pytest.mark.parametrize("part_mib", [1.5, 3, 6, 12])
def test_large_parts_are_uploaded_about_twice(part_mib: float) -> None:
    """Once from the log, and once when they are merged."""
    limits = StoringLimits(int(100 * part_mib * _MIB / 1.5))
    found = play(100, 1e7, limits)
    assert found.uploaded_bytes < 2.5 * 1e7


def test_the_page_has_the_computed_tables() -> None:
    page, prices = (ROOT / "docs/scale.md").read_text(), load_prices()
    assert price_table(prices) in page, "put the output of `python -m bench.scale` there"
    assert goal_table(prices) in page


@pytest.mark.skipif(folder_of_programs() is None, reason="PostgreSQL is not installed")
def test_a_catalog_asks_for_the_computed_time() -> None:
    one = broker_of(GOAL, DEFAULTS.wal, DEFAULTS.storing)
    with running(is_durable=True) as server:
        prices = catalog.measure(server)
        rates, came = catalog.mix(server, one, 2, 10.0)
    assert set(rates) == set(Operation)
    computed = demand(rates, prices)
    assert computed.cpu_s == pytest.approx(came.cpu_s, rel=_NEAR)
    assert computed.log_bytes == pytest.approx(came.log_bytes, rel=_NEAR)


@pytest.mark.parametrize("partitions", [100, 400])
def test_a_broker_stores_as_computed(partitions: int) -> None:
    found, computed = brokers.compare(partitions, 3_000, 8 * _MIB)
    assert found.uploaded_bytes == pytest.approx(computed.uploaded_bytes, rel=_NEAR)
    assert found.objects == pytest.approx(computed.objects, rel=_NEAR)
