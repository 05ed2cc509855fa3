"""Share groups in a whole broker: fetches that wait, members that vanish, and restarts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from odradek.broker.composition import Broker
from odradek.broker.topics.names import SHARE_GROUP_STATE
from odradek.protocol.errors import ErrorCode
from tests.broker.live import live, on_uvloop, until
from tests.broker.share_peers import ShareBroker

SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "share.coordinator.snapshot.update.records.per.snapshot": "2",
    "share.coordinator.state.topic.num.partitions": "1",
}
LONG_MS = 15_000
ACCEPT, RELEASE, REJECT = 1, 2, 3
ORDERS = ("orders", 0)


async def script(broker: Broker, play: Callable[[ShareBroker], Any]) -> Any:
    """Play a script of blocking clients beside the broker's loop."""

    def run() -> Any:
        one = ShareBroker(broker.server.listeners[0].port)
        try:
            return play(one)
        finally:
            one.close()

    return await asyncio.to_thread(run)


def begin(one: ShareBroker) -> None:
    one.create("orders", 1)
    one.initialize("g", "orders", 0, 0)


def await_parked(broker: Broker) -> None:
    """Wait in a script until a fetch waits."""
    parked = until(lambda: len(broker.purgatory), "the fetch waits")
    asyncio.run_coroutine_threadsafe(parked, broker.loop).result()


def acquired(answer: dict[str, Any]) -> Any:
    return answer["partitions"].get(ORDERS, {}).get("acquired", [])


@on_uvloop
async def test_a_fetch_waits_for_records(tmp_path: Path) -> None:
    def play(one: ShareBroker) -> None:
        begin(one)
        a = one.member("g", "a")
        a.fetch(ORDERS)
        waiting = one.later(lambda: a.fetch(max_wait_ms=LONG_MS, min_bytes=1))
        await_parked(broker)
        assert not waiting.done()
        one.produce("orders", 3)
        assert acquired(waiting.result()) == [(0, 2, 1)]

    async with live(tmp_path, SETTINGS) as broker:
        await script(broker, play)


@on_uvloop
async def test_a_fetch_waits_for_what_a_lost_member_had(tmp_path: Path) -> None:
    def play(one: ShareBroker) -> None:
        begin(one)
        one.produce("orders", 3)
        a, b = one.member("g", "a"), one.member("g", "b")
        assert acquired(a.fetch(ORDERS, max_wait_ms=LONG_MS, min_bytes=1)) == [(0, 2, 1)]
        b.fetch(ORDERS)
        waiting = one.later(lambda: b.fetch(max_wait_ms=LONG_MS, min_bytes=1))
        await_parked(broker)
        assert not waiting.done()
        a.peer.__exit__(None, None, None)
        assert acquired(waiting.result()) == [(0, 2, 2)]

    async with live(tmp_path, SETTINGS) as broker:
        await script(broker, play)


@on_uvloop
async def test_a_fetch_waits_for_a_lock_to_run_out(tmp_path: Path) -> None:
    def play(one: ShareBroker) -> None:
        begin(one)
        one.set_group("g", share__record__lock__duration__ms="1000")
        a, b = one.member("g", "a"), one.member("g", "b")
        assert not acquired(b.fetch(ORDERS))
        one.produce("orders", 3)
        assert acquired(a.fetch(ORDERS, max_wait_ms=LONG_MS, min_bytes=1)) == [(0, 2, 1)]
        assert acquired(b.fetch(max_wait_ms=LONG_MS, min_bytes=1)) == [(0, 2, 2)]
        late = a.acknowledge({ORDERS: [(0, 2, [ACCEPT])]})
        assert late["partitions"][ORDERS][0] != 0

    async with live(tmp_path, SETTINGS) as broker:
        await script(broker, play)


@on_uvloop
async def test_acknowledgements_outlive_a_restart_and_old_states_go(tmp_path: Path) -> None:
    def work(one: ShareBroker) -> None:
        begin(one)
        one.produce("orders", 12)
        a = one.member("g", "a")
        assert acquired(a.fetch(ORDERS, max_wait_ms=LONG_MS, min_bytes=1)) == [(0, 11, 1)]
        for offset in range(10):
            kind = REJECT if offset == 5 else ACCEPT
            told = a.acknowledge({ORDERS: [(offset, offset, [kind])]})
            assert told["partitions"][ORDERS] == (0, None)

    def go_on(one: ShareBroker) -> None:
        one.topic_ids.update(ids)
        a = one.member("g", "a")
        assert acquired(a.fetch(ORDERS, max_wait_ms=LONG_MS, min_bytes=1)) == [(10, 11, 2)]

    ids: dict[str, bytes] = {}
    async with live(tmp_path, SETTINGS) as broker:
        await script(broker, work)
        topic = broker.topics.get("orders")
        assert topic is not None
        ids["orders"] = topic.topic_id
        await broker.shares.pruner.prune()
        states = broker.topics.get(SHARE_GROUP_STATE)
        assert states is not None
        log = states.log(0)
        assert log is not None
        # A snapshot, and at most so many updates after it.
        assert 0 < log.log_end_offset - log.log_start_offset <= 1 + 2
        start = log.log_start_offset
        await broker.shares.pruner.prune()
        assert log.log_start_offset == start
    async with live(tmp_path, SETTINGS) as broker:
        await script(broker, go_on)


@on_uvloop
async def test_without_the_feature_nothing_is_served(tmp_path: Path) -> None:
    def play(one: ShareBroker) -> None:
        begin(one)
        a = one.member("g", "a")
        assert a.fetch(ORDERS, max_wait_ms=LONG_MS, min_bytes=0)["error"] == ErrorCode.NONE
        one.set_feature("share.version", 0, is_upgrade=False)
        assert a.fetch(epoch=1)["error"] == ErrorCode.UNSUPPORTED_VERSION
        one.set_feature("share.version", 1, is_upgrade=True)
        assert a.fetch(epoch=1)["error"] == ErrorCode.SHARE_SESSION_NOT_FOUND

    async with live(tmp_path, SETTINGS) as broker:
        await script(broker, play)
