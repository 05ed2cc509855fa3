"""The clock of the database's machine jumps: sessions are neither lost nor held too long."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bench.servers.postgresql import Postgresql
from odradek.broker.catalog.sessions import Session
from odradek.broker.catalog.silences import Lease, Silences
from odradek.broker.composition import Broker
from odradek.broker.metadata.members import NO_LEADER, Member
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
from tests.broker.live import on_uvloop, until
from tests.broker.test_cluster import create_at, member, silent

HOUR_S = 3_600
OWN_MS = 9_000
SETTINGS = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "100"}
# The catalog asks for the time by the name of the function, without its schema.
CLOCK = (
    "CREATE TABLE jump (seconds integer NOT NULL)",
    "INSERT INTO jump VALUES (0)",
    "CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql AS"
    " 'SELECT pg_catalog.clock_timestamp() + seconds * interval ''1 second'' FROM jump'",
)


class Clock:
    """A database whose clock can be set."""

    def __init__(self, server: Postgresql, url: str) -> None:
        self._server, self._name = server, url.rpartition("/")[2]
        server.execute(f"ALTER DATABASE {self._name} SET search_path = public, pg_catalog")
        server.execute(*CLOCK, database=self._name)

    async def jump(self, seconds: int) -> None:
        """Let the clock be so many seconds ahead."""
        statement = f"UPDATE jump SET seconds = {seconds}"
        await asyncio.to_thread(self._server.execute, statement, database=self._name)


async def heartbeats(brokers: list[Broker], count: int = 5) -> None:
    """Wait until each broker has extended its lease, and looked at the others', some times."""
    for broker in brokers:
        for _ in range(count):
            assert broker.membership is not None
            before = broker.membership._extended_at
            await until(lambda b=broker, at=before: b.membership._extended_at > at)


def epochs(brokers: list[Broker]) -> list[int]:
    return [broker.store.session_epoch for broker in brokers]  # type: ignore[union-attr]


@on_uvloop
async def test_no_session_is_lost_or_held_when_the_databases_clock_jumps(
    tmp_path: Path, postgresql: Postgresql, new_database: str
) -> None:
    clock = Clock(postgresql, new_database)
    async with (
        member(tmp_path, new_database, 1, SETTINGS) as one,
        member(tmp_path, new_database, 2, SETTINGS) as two,
    ):
        brokers = [one, two]
        await create_at(one, [two], "t", 2)
        before = epochs(brokers)
        for seconds in (HOUR_S, 0, -HOUR_S, HOUR_S):
            await clock.jump(seconds)
            await heartbeats(brokers)
            assert epochs(brokers) == before
            assert not one.problems() and not two.problems()
        # The clock goes back as the other broker falls silent: its lease seems to last an hour.
        async with silent(two):
            await clock.jump(0)
            await until(lambda: one.topics.get("t").record.leaders[1].node_id == NO_LEADER)  # type: ignore[union-attr]
        assert epochs(brokers)[0] == before[0]


def lease(epoch: int, expires_at_ms: int, now_ms: int) -> Lease:
    session = Session(epoch, Member(epoch, "a-host", None, ()))
    return Lease(session, expires_at_ms, expires_at_ms - now_ms)


@pytest.mark.parametrize(
    ("left_ms", "silent_after_s"),
    [(9_000, 9), (2_000, 9), (-HOUR_S * 1_000, 9), (20_000, 20), (HOUR_S * 1_000, 90)],
    ids=["own length", "partly over", "jumped on", "longer", "jumped back"],
)
def test_a_lease_ends_by_the_clock_of_the_broker_that_looks(
    left_ms: int, silent_after_s: int
) -> None:
    silences, seen = Silences(), lease(2, 1_000_000 + left_ms, 1_000_000)
    for second in range(silent_after_s):
        assert not silences.silent([seen], second, OWN_MS)
    assert silences.silent([seen], silent_after_s, OWN_MS) == {seen.key}


def test_a_lease_that_is_extended_never_ends() -> None:
    silences = Silences()
    for second in range(100):
        jump = (-HOUR_S, 0, HOUR_S)[second % 3]
        seen = lease(2, 1_000 * (second + jump) + OWN_MS, 0)
        assert not silences.silent([seen], second, OWN_MS)


def test_no_lease_ends_while_the_catalog_is_away() -> None:
    silences, seen = Silences(), lease(2, OWN_MS, 0)
    for now_s in (0.0, 20.0, 25.0):
        assert not silences.silent([seen], now_s, OWN_MS)
    assert silences.silent([seen], 29.0, OWN_MS)


def test_a_lease_by_a_clock_that_is_gone_has_ended() -> None:
    session = Session(2, Member(2, "a-host", None, ()))
    gone = Lease(session, OWN_MS, None)
    assert Silences().silent([gone], 0.0, OWN_MS) == {gone.key}
