"""A broker whose process has ended is replaced before its lease ends; one that is late is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.shared.loads import Load
from bench.shared.stage import running
from odradek.broker.catalog import probes
from odradek.broker.catalog.probes import late
from odradek.broker.catalog.sessions import Session
from odradek.broker.catalog.silences import Lease
from odradek.broker.metadata.members import Member
from tests.broker.live import on_uvloop, until
from tests.broker.test_cluster import create_at, member, silent

# Longer than a test waits.
LONG_LEASE = {"broker.session.timeout.ms": "600000", "broker.heartbeat.interval.ms": "50"}


def lease(epoch: int, host: str, left_ms: int | None) -> Lease:
    return Lease(Session(epoch, Member(epoch, host, None, ())), 1_000, left_ms)


def test_a_lease_is_late_if_it_was_not_extended_and_its_log_directories_are_its_own() -> None:
    leases = [
        lease(1, "a", 2_600),
        lease(2, "b", 1_900),
        lease(3, "c", -100),
        lease(4, "shared", 1_000),
        lease(5, "shared", 3_000),
        lease(6, "d", None),
    ]
    assert [one.session.epoch for one in late(leases, 2_000)] == [2, 3]


@on_uvloop
async def test_a_broker_that_is_late_and_takes_connections_keeps_its_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite://{tmp_path / 'catalog.db'}"
    async with (
        member(tmp_path, url, 1, LONG_LEASE) as one,
        member(tmp_path, url, 2, LONG_LEASE) as two,
    ):
        await create_at(one, [two], "t", 2)
        found: list[bool] = []
        ask = probes.has_ended

        async def has_ended(member: Member) -> bool:
            found.append(await ask(member))
            return found[-1]

        monkeypatch.setattr(probes, "has_ended", has_ended)
        async with silent(two):
            await until(lambda: len(found) > 2)
        assert not any(found)
        assert len(one.brokers) == 2


@pytest.mark.slow
def test_a_killed_broker_is_replaced_before_its_lease_ends() -> None:
    with running(2, is_delayed=False, has_files=True, settings=LONG_LEASE) as stage:
        stage.create("t", 4, "object")
        load = Load(stage.bootstrap, {"linger.ms": 0})
        load.send_at_rate("t", 4, 100, 0.2)
        stage.brokers[1].kill()
        load.send_at_rate("t", 4, 100, 0.2)  # waits for all answers
        assert len(load.times_s) == load.count
        assert "closed the session of broker=2" in stage.brokers[0].log_text()
