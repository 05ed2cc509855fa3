"""Starting and stopping: a start that fails says why in a line, a stop loses nothing."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from unittest import mock

import pytest

from bench.processes import ROOT
from odradek.broker.hosts import addresses
from odradek.broker.main import run
from odradek.broker.metadata.images import DATABASE_NAME
from odradek.broker.serve import StartError
from odradek.protocol.batch_records import decode_records
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from odradek.storage.directory import CLEAN_MARKER, METADATA_DIRECTORY, LogDirectory
from odradek.storage.meta_properties import META
from odradek.storage.real_files import RealFileSystem
from tests.broker.live import Client, append, batch, client, create, live, on_uvloop, until
from tests.broker.test_connection import LONG_MS
from tests.conftest import StartBroker
from tests.support.forking import ForkedOdradek
from tests.support.requests import committing, fetching, producing

# --- a start that fails -----------------------------------------------------------------------


@contextmanager
def port_in_use(_: Path) -> Iterator[dict[str, str]]:
    (taken,) = addresses.bind("127.0.0.1", 0)
    with taken:
        addresses.listen(taken, 1)
        yield {"listeners": f"PLAINTEXT://127.0.0.1:{taken.getsockname()[1]}"}


@contextmanager
def metrics_port_in_use(_: Path) -> Iterator[dict[str, str]]:
    (taken,) = addresses.bind("127.0.0.1", 0)
    with taken:
        addresses.listen(taken, 1)
        yield {"metrics.listener": f"127.0.0.1:{taken.getsockname()[1]}"}


@contextmanager
def data_in_use(data: Path) -> Iterator[dict[str, str]]:
    holder = LogDirectory(RealFileSystem(), data, cluster_id="a-cluster", node_id=1)
    yield {}
    holder.close()


@contextmanager
def damaged_database(data: Path) -> Iterator[dict[str, str]]:
    data.mkdir()
    (data / DATABASE_NAME).write_bytes(b"no database at all" * 1000)
    yield {}


@contextmanager
def data_of_another_node(data: Path) -> Iterator[dict[str, str]]:
    data.mkdir()
    (data / META).write_text("version=1\ncluster.id=a-cluster\nnode.id=7\n")
    yield {"node.id": "1"}


@contextmanager
def data_of_kafka(data: Path) -> Iterator[dict[str, str]]:
    (data / METADATA_DIRECTORY).mkdir(parents=True)
    yield {}


@contextmanager
def data_below_a_file(data: Path) -> Iterator[dict[str, str]]:
    data.write_bytes(b"")
    yield {"log.dirs": str(data / "below")}


@contextmanager
def setting_that_is_none(_: Path) -> Iterator[dict[str, str]]:
    yield {"num.partitions": "many"}


@contextmanager
def store_without_a_catalog(_: Path) -> Iterator[dict[str, str]]:
    yield {"odradek.object.store.url": "s3://topics"}


@contextmanager
def unknown_host(_: Path) -> Iterator[dict[str, str]]:
    yield {"listeners": "PLAINTEXT://host.invalid:0"}


Trouble = Callable[[Path], AbstractContextManager[dict[str, str]]]


@pytest.mark.parametrize(
    ("trouble", "says"),
    [
        (port_in_use, r"cannot listen on 127\.0\.0\.1:\d+: Address already in use; choose other"),
        (metrics_port_in_use, r"cannot listen on 127\.0\.0\.1:\d+: Address already in use"),
        (data_in_use, "is in use by another process .* choose another log.dirs"),
        (damaged_database, f"{DATABASE_NAME} is damaged: .* Restore .* or move them away"),
        (data_of_another_node, "has node.id=7, this broker has 1: choose another log.dirs"),
        (data_of_kafka, "has the data of Apache Kafka: stop Kafka, and run `odradek adopt "),
        (data_below_a_file, "below: Not a directory"),
        (setting_that_is_none, "many for configuration num.partitions"),
        (store_without_a_catalog, "shared topics need a catalog: set odradek.catalog.url"),
        (unknown_host, r"cannot listen on host\.invalid:0: "),
    ],
)
def test_a_start_that_fails_says_why_in_one_line_and_leaves_nothing_running(
    tmp_path: Path, trouble: Trouble, says: str
) -> None:
    data = tmp_path / "data"
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "metrics.listener": "127.0.0.1:0",
        "log.dirs": str(data),
    }
    threads = set(threading.enumerate())
    with trouble(data) as changed:
        pairs = [f"{key}={value}" for key, value in {**settings, **changed}.items()]
        with pytest.raises(StartError) as raised, mock.patch("signal.signal"):
            run(None, {}, pairs, "INFO", "0")
        gc.enable()  # it is off while a process starts, and this one goes on
        message = str(raised.value)
        del raised
    assert re.search(says, message), message
    assert "\n" not in message
    assert set(threading.enumerate()) <= threads


@on_uvloop
async def test_a_second_broker_gives_up_before_it_touches_the_data(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        topic = await create(broker, "orders")
        append(topic.partitions[0], batch(b"a"))
    data = tmp_path / "data"
    before = {path: path.stat().st_mtime_ns for path in sorted(data.rglob("*"))}
    with port_in_use(data) as settings, pytest.raises(addresses.AddressError):
        async with live(tmp_path, settings):
            pass
    assert {path: path.stat().st_mtime_ns for path in sorted(data.rglob("*"))} == before


@on_uvloop
async def test_a_start_that_fails_after_the_data_is_loaded_closes_it_cleanly(
    tmp_path: Path,
) -> None:
    async with live(tmp_path) as broker:
        await create(broker, "orders")
    with (
        mock.patch("odradek.broker.composition.Dispatcher", side_effect=MemoryError),
        pytest.raises(MemoryError),
    ):
        async with live(tmp_path):
            pass
    assert (tmp_path / "data" / CLEAN_MARKER).exists()


@on_uvloop
async def test_a_start_that_fails_while_data_is_loaded_leaves_no_clean_mark(
    tmp_path: Path,
) -> None:
    async with live(tmp_path) as broker:
        await create(broker, "orders", 2)
    with (
        mock.patch("odradek.broker.composition.Topics.load", side_effect=MemoryError),
        pytest.raises(MemoryError),
    ):
        async with live(tmp_path):
            pass
    assert not (tmp_path / "data" / CLEAN_MARKER).exists()


@on_uvloop
async def test_the_cluster_id_of_the_data_is_kept(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / META).write_text("version=1\ncluster.id=4L6g3nShT-eMCtK--X86sw\nnode.id=1\n")
    async with live(tmp_path) as broker:
        assert broker.cluster_id == "4L6g3nShT-eMCtK--X86sw"


# --- a stop -----------------------------------------------------------------------------------


def join() -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="a-group",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=300_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


@pytest.mark.slow
@on_uvloop
async def test_a_stop_answers_what_is_parked_and_closes_the_connections(tmp_path: Path) -> None:
    settings = {"group.initial.rebalance.delay.ms": "60000"}
    async with live(tmp_path, settings) as broker:
        topic = await create(broker, "orders")
        append(topic.partitions[0], batch(b"a"))
        async with client(broker) as reader, client(broker) as member, client(broker) as idle:
            asked = fetching("orders", wait_ms=LONG_MS)
            asked.min_bytes = 1 << 20
            reader.send(asked, version=12)
            await until(lambda: len(broker.purgatory))
            await ready(member)
            member.send(join(), version=0)
            await until(lambda: broker.metrics.request_count(11) > 1)
            stopping = asyncio.ensure_future(broker.stop())
            (found,) = (await reader.receive())[1].responses[0].partitions
            assert decode_records(found.records)[0].value == b"a"
            assert (await member.receive())[1].error_code == ErrorCode.NOT_COORDINATOR
            for one in (reader, member, idle):
                assert await one.is_closed()
            await stopping
    assert (tmp_path / "data" / CLEAN_MARKER).exists()


async def ready(member: Client) -> None:
    """Ask until groups are loaded."""
    while True:
        request = join()
        request.session_timeout_ms = 0  # is refused before there is a group
        response = await member.ask(request, version=0)
        if response.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return


@pytest.mark.slow
@on_uvloop
async def test_a_stop_waits_for_what_is_on_its_way_to_the_disk(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, client(broker) as one:
        await create(broker, "orders")
        count = 50
        one.send(*[producing("orders", batch(b"a")) for _ in range(count)], version=8)
        await until(lambda: broker.metrics.request_count(0) == count)
        await broker.stop()
        for number in range(count):
            assert (await one.receive())[0] == number


@pytest.mark.slow
@on_uvloop
async def test_a_stop_answers_a_commit_once_it_is_on_the_disk(tmp_path: Path) -> None:
    async with live(tmp_path, {"offsets.topic.num.partitions": "1"}) as broker:
        await create(broker, "orders")
        async with client(broker) as one:
            await ready(one)
            one.send(committing("a-group", {"orders": {0: 1}}), version=8)
            assert (await one.receive())[1].topics[0].partitions[0].error_code == 0
            one.send(committing("a-group", {"orders": {0: 2}}), version=8)
            await until(lambda: broker.metrics.request_count(8) == 2)
            await broker.stop()
            assert (await one.receive())[1].topics[0].partitions[0].error_code == 0
    async with live(tmp_path) as broker:
        topic = broker.topics.get("__consumer_offsets")
        assert topic is not None
        assert topic.partitions[0].log_end_offset == 2


@on_uvloop
async def test_a_client_that_never_reads_does_not_hold_up_a_stop(tmp_path: Path) -> None:
    async with live(tmp_path) as broker, client(broker) as one:
        topic = await create(broker, "orders")
        append(topic.partitions[0], *[batch(bytes(900_000))] * 20)
        with mock.patch("odradek.broker.composition._DRAIN_S", 0.1):
            one.send(fetching("orders", size_max=1 << 25), version=4)
            await until(lambda: broker.metrics.all_topics.bytes_out)
            await broker.stop()
        assert not broker.server.connections


# --- as a process -----------------------------------------------------------------------------


@contextmanager
def consuming(bootstrap: str) -> Iterator[None]:
    """Have a member of a group read the topic.

    It is a process of its own: a member of librdkafka's that leaves without its broker may wait
    for ever, and does not let other threads of its Python go on.
    """
    command = ["consume", "load", "--group", "a", "--bootstrap-servers", bootstrap]
    member = subprocess.Popen(
        [sys.executable, "-m", "odradek.cli.main", *command], stdout=subprocess.PIPE, cwd=ROOT
    )
    try:
        assert member.stdout is not None
        assert member.stdout.readline()
        yield
    finally:
        member.kill()
        member.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_under_load_stops_it_soon_and_cleanly(
    start_broker: StartBroker, number: signal.Signals
) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    broker = start_broker({"connections.max.idle.ms": "600000"})
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0, "linger.ms": 1})
    acknowledged: list[int] = []

    def delivered(error: object, message: object) -> None:
        if error is None:
            acknowledged.append(message.offset())  # type: ignore[attr-defined]

    deadline = time.monotonic() + 60
    while len(acknowledged) < 2000:
        assert time.monotonic() < deadline
        for _ in range(100):
            producer.produce("load", b"value", on_delivery=delivered)
        producer.poll(0.01)
    assert broker.process is not None
    with consuming(broker.bootstrap):
        for _ in range(5000):
            producer.produce("load", b"value", on_delivery=delivered)
        broker.process.send_signal(number)
        began = time.monotonic()
        try:
            assert broker.process.wait(15) == 0
        except subprocess.TimeoutExpired:
            pytest.fail(f"it runs {time.monotonic() - began:.0f} s after {number.name}")
    text = broker.log_text()
    assert "Traceback" not in text
    assert " ERROR " not in text
    assert (broker.data / CLEAN_MARKER).exists()
    producer.purge()
    broker.start()
    assert "recover" not in broker.log_text().lower()
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "b", "log_level": 0})
    producer.poll(0)
    _, end = reader.get_watermark_offsets(TopicPartition("load", 0), timeout=60)
    assert max(acknowledged) < end
    reader.close()


@pytest.mark.slow
def test_a_process_that_cannot_start_ends_with_status_1_and_one_line(tmp_path: Path) -> None:
    running = ForkedOdradek(tmp_path / "first")
    running.start()
    try:
        in_use = f"listeners=PLAINTEXT://{running.bootstrap}"
        for pair in (in_use, f"log.dirs={running.data}", "a"):
            settings = [f"log.dirs={tmp_path / 'second'}", "metrics.listener=", pair]
            if pair != in_use:
                settings.append("listeners=PLAINTEXT://127.0.0.1:0")
            arguments = [argument for setting in settings for argument in ("--set", setting)]
            done = subprocess.run(
                [sys.executable, "-m", "odradek.cli.main", "serve", *arguments],
                capture_output=True,
                text=True,
                cwd=ROOT,
                timeout=30,
                env={k: v for k, v in os.environ.items() if not k.startswith("KAFKA_")},
            )
            assert done.returncode == 1
            assert done.stdout == ""
            assert re.fullmatch(r"odradek: [^\n]+\n", done.stderr), done.stderr
    finally:
        running.stop()


SLOW_TO_IMPORT = ("numba", "numpy", "aiohttp", "prometheus_client")
STARTED = """
import asyncio, sys
from unittest import mock
from odradek.broker import composition
from odradek.broker.clock import SystemClock
from odradek.config.resolution import Layer, Source
from odradek.storage.real_files import RealFileSystem
from odradek.storage.meta_properties import META

async def main():
    values = dict(one.split("=", 1) for one in sys.argv[1:])
    made = composition.Broker(Layer(Source.STATIC_BROKER, values), RealFileSystem(), SystemClock())
    made._accept = lambda: print(*sys.modules)
    made._start_background = mock.Mock(side_effect=SystemExit)
    await made.start()

asyncio.run(main())
"""


@pytest.mark.slow
def test_nothing_slow_is_loaded_before_the_broker_accepts_connections(tmp_path: Path) -> None:
    settings = [f"log.dirs={tmp_path}", "listeners=PLAINTEXT://127.0.0.1:0", "metrics.listener="]
    done = subprocess.run(
        [sys.executable, "-c", STARTED, *settings], capture_output=True, text=True, cwd=ROOT
    )
    loaded = done.stdout.split()
    assert "odradek.storage.log" in loaded, done.stderr
    assert not set(SLOW_TO_IMPORT) & set(loaded)
    # There are no others without a catalog.
    assert not [one for one in loaded if one.startswith("odradek.broker.peers")]
