"""A clean stop under producers: all that was appended is answered, and nothing is there twice."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import threading
import time
from collections import Counter
from pathlib import Path
from unittest import mock

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.broker.network.dispatch import Dispatcher
from odradek.cleaner.runtime.history import FILE_NAME, HistoryStore
from odradek.cleaner.runtime.runs import Run, decode_run
from odradek.storage.checkpoints import CLEANER_OFFSETS, Checkpoints
from odradek.storage.directory import LogDirectory
from tests.broker.cleaning import cleaning, new_log, numbered, put
from tests.broker.live import PATIENCE_S, batch, client, create, live, on_uvloop, until
from tests.broker.siege import Sender, read_all
from tests.broker.test_tls import settings as tls_settings
from tests.conftest import StartBroker
from tests.support.requests import producing
from tests.support.waiting import wait_until

# A few, and more in long forms.
STOPS = (2, 4)


@on_uvloop
async def test_a_stop_answers_all_that_it_appended_and_resets_no_connection(
    tmp_path: Path,
) -> None:
    """What the client goes on to send is not begun, and takes no answer from it."""
    async with live(tmp_path) as broker, client(broker) as one:
        topic = await create(broker, "orders")
        one.send(*[producing("orders", batch(bytes(100_000)))] * 300, version=8)
        await until(lambda: broker.metrics.request_count(0) > 3)
        stopping = asyncio.ensure_future(broker.stop())
        answered = 0
        with pytest.raises(asyncio.IncompleteReadError) as ended:
            while True:
                await one.receive()
                answered += 1
        assert not ended.value.partial
        assert answered == topic.partitions[0].log_end_offset < 300
        one.close()
        await stopping


@on_uvloop
async def test_requests_that_a_stop_left_unanswered_are_known_when_sent_again(
    tmp_path: Path,
) -> None:
    requests = [
        producing("orders", batch(b"a", producer_id=7, producer_epoch=0, base_sequence=number))
        for number in range(5)
    ]
    async with live(tmp_path) as broker, client(broker) as one:
        await create(broker, "orders")
        disk = threading.Event()
        with (
            mock.patch("odradek.broker.composition._DRAIN_S", 0.0),
            mock.patch(
                "odradek.broker.durability.group_commit._sync",
                lambda _: disk.wait(PATIENCE_S) and {},
            ),
        ):
            one.send(*requests, version=8)
            await until(lambda: broker.metrics.request_count(0) == 5)
            stopping = asyncio.ensure_future(broker.stop())
            assert await one.is_closed()  # without a byte of an answer
            disk.set()
            await stopping
    async with live(tmp_path) as broker, client(broker) as one:
        one.send(*requests, version=8)
        for number in range(5):
            (partition,) = (await one.receive())[1].responses[0].partition_responses
            assert (partition.error_code, partition.base_offset) == (0, number)
        topic = broker.topics.get("orders")
        assert topic is not None
        assert topic.partitions[0].log_end_offset == 5


@on_uvloop
async def test_a_cleaning_whose_checkpoint_is_stored_is_in_the_history_after_a_stop(
    tmp_path: Path,
) -> None:
    """The stop begins between the two.

    The directory had no log before, so that its history is read first; and that takes as long as
    all that the stop does before it ends the thread which writes the history.
    """
    loop = asyncio.get_running_loop()
    stops: list[asyncio.Future[None]] = []
    really_store, really_read = LogDirectory.store, HistoryStore._read

    async with cleaning(tmp_path) as (broker, _):

        def stop() -> None:
            stops.append(asyncio.ensure_future(broker.stop()))

        def store(directory: LogDirectory, taken: Checkpoints) -> None:
            really_store(directory, taken)
            if threading.current_thread().name.startswith("cleaner-") and not stops:
                loop.call_soon_threadsafe(stop)
                assert broker.cleaner._stopping.wait(PATIENCE_S)

        def read(store: HistoryStore, *where: Path) -> list[Run]:
            # It has nothing to do after this.
            wait_until(lambda: not broker.cleaner._writer._work_queue.empty())
            return really_read(store, *where)

        with (
            mock.patch.object(LogDirectory, "store", store),
            mock.patch.object(HistoryStore, "_read", read),
        ):
            log = await new_log(broker, "t")
            put(log, numbered(0, 20))
            await until(lambda: stops)
            await stops[0]
    data = Path(broker.config.data_directories[0])
    assert "\nt 0 " in (data / CLEANER_OFFSETS).read_text()
    runs = [decode_run(line) for line in (data / FILE_NAME).read_bytes().splitlines()]
    assert [(run.topic, run.outcome) for run in runs] == [("t", "CLEANED")]


@pytest.mark.slow
@pytest.mark.parametrize("stops", STOPS)
def test_pipelined_idempotent_producers_live_through_clean_stops(
    start_broker: StartBroker, stops: int
) -> None:
    broker = start_broker({"internal.segment.bytes": "1000000"})
    settings = {"acks": "all", "enable.idempotence": "true", "linger.ms": "0"}
    senders = [Sender(name, broker.bootstrap, "flow", 2, settings) for name in ("a", "b", "c")]
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("flow", 2)])["flow"].result()
    stop = threading.Event()
    threads = [threading.Thread(target=sender.run, args=(stop,)) for sender in senders]
    source = random.Random(3)
    try:
        for thread in threads:
            thread.start()
        for _ in range(stops):
            time.sleep(source.uniform(0.2, 0.8))  # the load runs on: this is its length
            broker.stop()
            broker.start()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    found = Counter((one.sender, one.number) for one in read_all(broker.bootstrap, "flow", 2))
    for sender in senders:
        assert not sender.failed, sender.failed[:3]
        assert sender.number > 100
    sent = {(sender.name, number) for sender in senders for number in range(sender.number)}
    assert found.keys() == sent
    assert set(found.values()) == {1}


@pytest.mark.parametrize("at", [0, 1], ids=["tls", "plaintext"])
@pytest.mark.parametrize("turns", range(5))
@on_uvloop
async def test_a_client_that_connects_as_the_broker_stops_is_let_go(
    tmp_path: Path, turns: int, at: int
) -> None:
    """However far its connection has come: what makes it is cancelled in the middle."""
    async with live(tmp_path, tls_settings(tmp_path)) as broker:
        server = broker.server
        stopped = asyncio.get_running_loop().create_future()

        async def stop() -> None:
            for _ in range(turns):
                await asyncio.sleep(0)
            await server.turn_away()
            await server.close(PATIENCE_S)
            stopped.set_result(None)

        def begin(*_: object) -> None:
            asyncio.get_running_loop().create_task(stop())

        with (
            mock.patch.object(Dispatcher, "guard", begin),
            socket.create_connection(("127.0.0.1", server.listeners[at].port)) as one,
        ):
            await asyncio.to_thread(_see_out, one)
            one.close()
            await asyncio.wait_for(stopped, PATIENCE_S / 2)
        assert not server.connections


@on_uvloop
async def test_a_broker_that_stops_refuses_no_connection_until_the_end(tmp_path: Path) -> None:
    """Other brokers take a process that refuses them for ended, and this one may still write."""
    async with live(tmp_path) as broker:
        address = "127.0.0.1", broker.server.listeners[0].port
        await broker.server.turn_away()
        for _ in range(3):
            with await asyncio.to_thread(socket.create_connection, address) as one:
                await asyncio.to_thread(_see_out, one)
        await broker.server.release()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.to_thread(socket.create_connection, address)


def _see_out(one: socket.socket) -> None:
    """Wait until the broker ends a stream or resets it."""
    one.settimeout(PATIENCE_S)
    with contextlib.suppress(ConnectionResetError):
        assert not one.recv(1)
