"""What clients may make the broker keep in memory, all connections together."""

from __future__ import annotations

import asyncio
import random
import struct
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.network.backpressure import Backpressure
from tests.broker.live import append, batch, client, create, live, on_uvloop, until
from tests.broker.test_connection import (
    ORDINARY,
    OVERLAPPING,
    Script,
    connect,
    framed,
    receive,
)
from tests.support.requests import fetching, producing

LIMIT = 1_000
# One size that comes whole in the shared buffer, and one that needs a buffer of its own.
SMALL, LARGE = 300, 300_000


def limited() -> Script:
    script = Script(pending_max=100)
    script.backpressure = Backpressure(LIMIT)
    return script


def request(number: int, size: int, *, kind: bytes = OVERLAPPING, is_ready: bool = False) -> bytes:
    head = kind + struct.pack(">i?", number, is_ready)
    return framed(head + bytes(size - len(head)))


@given(
    wanted=st.lists(
        st.tuples(
            st.integers(0, 3),
            st.sampled_from([SMALL, LARGE]),
            st.sampled_from([ORDINARY, OVERLAPPING]),
            st.booleans(),
        ),
        max_size=12,
    ),
    source=st.randoms(use_true_random=False),
)
def test_no_request_is_begun_past_the_bound_and_each_is_served_in_the_end(
    wanted: list[tuple[int, int, bytes, bool]], source: random.Random
) -> None:
    async def main() -> None:
        script = limited()
        pressure = script.backpressure
        pairs = [connect(script) for _ in range(4)]
        left = [b"" for _ in pairs]
        for number, (at, size, kind, is_ready) in enumerate(wanted):
            left[at] += request(number, size, kind=kind, is_ready=is_ready)
        while any(left) or script.unanswered:
            ready = [at for at, data in enumerate(left) if data and not pairs[at][1].is_paused]
            if ready and (not script.unanswered or source.random() < 0.5):
                at = source.choice(ready)
                begun = len(script.begun)
                is_full, before = pressure.request_bytes >= LIMIT, pressure.request_bytes
                left[at] = left[at][receive(pairs[at][0], left[at]) :]
                is_new = pressure.request_bytes > before
                assert not (is_full and is_new), "it was let in though there was no room"
                assert not is_full or len(script.begun) <= begun + 1
            else:
                assert script.unanswered, "nothing will ever make it go on"
                script.answer(source.choice(list(script.unanswered)))
            await asyncio.sleep(0)
        assert sorted(script.begun) == list(range(len(wanted)))
        assert pressure.request_bytes == 0

    asyncio.run(main())


async def test_a_lost_connection_gives_back_what_it_held() -> None:
    script = limited()
    made, _ = connect(script)
    other, wire = connect(script)
    receive(made, request(0, LARGE - 1)[:LIMIT])  # only its beginning
    assert script.backpressure.request_bytes == LARGE - 1
    receive(other, request(1, SMALL, is_ready=True))
    assert wire.is_paused
    made.connection_lost(None)
    await asyncio.sleep(0)
    assert script.backpressure.request_bytes == 0
    assert script.begun == [1]
    assert not wire.is_paused


@on_uvloop
async def test_producers_wait_for_memory_that_others_hold(tmp_path: Path) -> None:
    settings = {"queued.max.request.bytes": "1000", "socket.request.max.bytes": "1000"}
    async with live(tmp_path, settings) as broker, client(broker) as one, client(broker) as other:
        await create(broker, "orders")
        broker.backpressure.take(1000)
        one.send(producing("orders", batch(b"a")), version=8)
        answer: asyncio.Task[Any] = asyncio.ensure_future(one.receive())
        await until(lambda: broker.backpressure._waiting)
        assert not answer.done()
        broker.backpressure.give_back(1000)
        await answer
        await other.ask(producing("orders", batch(b"b")), version=8)
        assert broker.backpressure.request_bytes == 0


@on_uvloop
async def test_clients_that_do_not_read_make_fetches_small_and_nothing_else(
    tmp_path: Path,
) -> None:
    size = 1_000_000
    limit = 10 * size
    settings = {"odradek.unsent.bytes.max": str(limit)}
    async with live(tmp_path, settings) as broker, client(broker) as quick:
        (log,) = (await create(broker, "orders")).logs
        for _ in range(20):
            append(log, batch(bytes(size)))

        async def fetched() -> int:
            response = await quick.ask(fetching("orders", size_max=20 * size), version=4)
            return len(response.responses[0].partitions[0].records)

        assert (await fetched()) > 8 * size
        async with AsyncExitStack() as stack:
            while broker.backpressure.unsent_bytes < limit:
                assert len(broker.server.connections) < 100
                slow = await stack.enter_async_context(client(broker))
                served = broker.metrics.all_topics.bytes_out
                slow.send(*[fetching("orders", size_max=20 * size) for _ in range(9)], version=4)
                await until(lambda: broker.metrics.all_topics.bytes_out > served)  # noqa: B023
            assert size <= (await fetched()) < 2 * size
        await until(lambda: broker.backpressure.unsent_bytes == 0)
        assert (await fetched()) > 8 * size
