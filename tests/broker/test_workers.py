"""Several brokers of one machine: workers start, stop, die, and hand partitions to each other."""

from __future__ import annotations

import random
import signal
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from odradek.config.workers import CATALOG_NAME
from odradek.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from odradek.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from odradek.storage.checkpoints import CLEANER_OFFSETS, RECOVERY_POINTS, read_offsets
from odradek.storage.directory import CLEAN_MARKER
from odradek.storage.real_files import RealFileSystem
from tests.broker.kafka_peer import Peer
from tests.broker.siege import SETTINGS, Sender, Siege, read_all
from tests.broker.workers import Workers, workers
from tests.cli.commands import Commands
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

IN_ORDER = {"acks": "all", "enable.idempotence": "true"}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Workers]]:
    """Start workers on one folder; the last ones are stopped at the end."""
    made: list[Workers] = []

    def run(count: int = 2, **settings: str) -> Workers:
        one = workers(tmp_path, count, {k.replace("_", "."): v for k, v in settings.items()})
        made.append(one)
        one.start()
        admin = AdminClient({"bootstrap.servers": one.bootstrap})
        wait_until(lambda: len(admin.list_topics(timeout=10).brokers) == count, "all have joined")
        return one

    yield run
    for one in made:
        if one.process is not None:
            one.stop()


def test_a_supervisor_that_stood_still_goes_on(start: Callable[..., Workers]) -> None:
    one = start()
    assert one.process is not None
    one.process.send_signal(signal.SIGSTOP)
    still_until_s = time.monotonic() + 0.5  # beyond its wait for a signal
    wait_until(lambda: time.monotonic() > still_until_s, "it has stood still")
    one.process.send_signal(signal.SIGCONT)
    one.kill()  # it starts another worker


def leaders(broker: Workers, topic: str) -> dict[int, int]:
    """Return the leader of each partition of a topic, once all have one."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})

    def found() -> dict[int, int]:
        partitions = admin.list_topics(topic, timeout=10).topics[topic].partitions
        by_number = {number: one.leader for number, one in partitions.items()}
        return by_number if by_number and min(by_number.values()) >= 0 else {}

    return wait_until(found, f"all partitions of {topic} have leaders")


def create(broker: Workers, topic: str, partitions: int, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    wanted = NewTopic(topic, partitions, 1, config=config)
    for future in admin.create_topics([wanted]).values():
        future.result()


def send(broker: Workers, topic: str, partitions: int, count: int = 100) -> Sender:
    """Send records, and wait until all are acknowledged."""
    sender = Sender("one", broker.bootstrap, topic, partitions, IN_ORDER, number_min=count)
    stop = Event()
    stop.set()
    sender.run(stop)
    assert not sender.failed
    return sender


def is_all_there(broker: Workers, sender: Sender, topic: str, partitions: int) -> bool:
    found = read_all(broker.bootstrap, topic, partitions)
    return {one.number: (one.partition, one.offset) for one in found} == sender.acknowledged


def test_partitions_are_spread_again_over_any_number_of_workers(
    start: Callable[..., Workers], tmp_path: Path
) -> None:
    broker = start(2)
    create(broker, "t", 12)
    assert Counter(leaders(broker, "t").values()) == {1: 6, 2: 6}
    sender = send(broker, "t", 12)
    for count in (3, 1, 2):
        broker.stop()
        assert (tmp_path / "data" / CLEAN_MARKER).exists()
        broker = start(count)
        spread = Counter(leaders(broker, "t").values())
        assert spread == dict.fromkeys(range(1, count + 1), 12 // count)
        assert is_all_there(broker, sender, "t", 12)
    assert "re-reading" not in broker.log_text()


def test_a_start_without_the_option_goes_on_with_one_worker(
    start: Callable[..., Workers], tmp_path: Path
) -> None:
    broker = start(2)
    create(broker, "t", 4)
    sender = send(broker, "t", 4)
    broker.stop()
    broker.options = ()
    broker.start()
    assert set(leaders(broker, "t").values()) == {1}
    assert is_all_there(broker, sender, "t", 4)


def test_a_single_broker_moves_its_metadata_to_its_workers(
    start: Callable[..., Workers], tmp_path: Path
) -> None:
    broker = workers(tmp_path, 1)
    broker.options = ()
    broker.start()
    create(broker, "t", 4)
    sender = send(broker, "t", 4)
    broker.stop()
    assert not (tmp_path / "data" / CATALOG_NAME).exists()
    broker = start(2)
    assert Counter(leaders(broker, "t").values()) == {1: 2, 2: 2}
    assert is_all_there(broker, sender, "t", 4)


def test_offsets_of_cleaner_and_log_start_pass_from_worker_to_worker(
    start: Callable[..., Workers], tmp_path: Path
) -> None:
    settings = {
        "internal_segment_bytes": "20000",
        "log_cleaner_backoff_ms": "20",
        "log_cleaner_min_cleanable_ratio": "0.01",
    }
    broker = start(2, **settings)
    create(broker, "table", 2, **{"cleanup.policy": "compact"})
    create(broker, "cut", 2)
    send(broker, "table", 2, 2_000)
    send(broker, "cut", 2, 200)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    cut = {TopicPartition("cut", number, 50): None for number in range(2)}
    for future in admin.delete_records(list(cut)).values():
        future.result()
    wait_until(
        lambda: len(read_all(broker.bootstrap, "table", 2)) < 1_500, "the table is cleaned"
    )
    fs, data = RealFileSystem(), tmp_path / "data"

    def noted() -> set[tuple[str, int]]:
        """Return the partitions whose cleaning the workers have noted, which comes last."""
        files = [data / f"{CLEANER_OFFSETS}.{worker}" for worker in (1, 2)]
        return {key for one in files for key in read_offsets(fs, one)}

    wait_until(lambda: noted() >= {("table", 0), ("table", 1)}, "both are noted as clean")
    broker.stop()
    cleaned = read_offsets(fs, tmp_path / "data" / CLEANER_OFFSETS)
    assert {("table", 0), ("table", 1)} <= cleaned.keys()
    broker = start(1, **settings)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    asked = {TopicPartition("cut", number): OffsetSpec.earliest() for number in range(2)}
    assert [one.result().offset for one in admin.list_offsets(asked).values()] == [50, 50]
    broker.stop()
    later = read_offsets(fs, tmp_path / "data" / CLEANER_OFFSETS)
    assert all(later[key] >= offset for key, offset in cleaned.items())
    points = read_offsets(fs, tmp_path / "data" / RECOVERY_POINTS)
    assert {("table", 0), ("table", 1), ("cut", 0), ("cut", 1)} <= points.keys()


def test_others_serve_the_partitions_of_a_killed_worker(start: Callable[..., Workers]) -> None:
    broker = start(2)
    create(broker, "t", 4)
    sender = send(broker, "t", 4)
    broker.send(2, signal.SIGKILL)
    wait_until(lambda: set(leaders(broker, "t").values()) == {1}, "the other one leads")
    assert is_all_there(broker, sender, "t", 4)
    wait_until(
        lambda: Counter(leaders(broker, "t").values()) == {1: 2, 2: 2},
        "the worker that was started again has its share",
    )
    assert is_all_there(broker, sender, "t", 4)


def test_a_worker_that_stands_still_is_replaced(start: Callable[..., Workers]) -> None:
    broker = start(
        2, broker_session_timeout_ms="1000", broker_heartbeat_interval_ms="100"
    )
    create(broker, "t", 4)
    sender = send(broker, "t", 4)
    before = broker.pid_of(2)
    broker.send(2, signal.SIGSTOP)
    wait_until(lambda: broker.pid_of(2) != before, "another one is started")
    assert "kill a worker that is silent broker=2" in broker.log_text()
    assert is_all_there(broker, sender, "t", 4)


def test_a_worker_that_is_asked_to_stop_hands_over_first(start: Callable[..., Workers]) -> None:
    broker = start(2)
    create(broker, "t", 4)
    sender = send(broker, "t", 4)
    before = broker.pid_of(2)
    broker.send(2, signal.SIGTERM)
    wait_until(lambda: broker.pid_of(2) != before, "another one is started")
    assert is_all_there(broker, sender, "t", 4)
    assert "handed over partitions=2 of=2" in broker.log_text()
    assert "cut a tail" not in broker.log_text() and "re-reading" not in broker.log_text()


def test_a_partition_moves_to_another_worker_by_request(start: Callable[..., Workers]) -> None:
    broker = start(2)
    create(broker, "t", 2)
    sender = send(broker, "t", 2)
    with Peer(broker.port) as peer:
        wanted = AlterPartitionReassignmentsRequest(
            topics=[
                ReassignableTopic(
                    name="t", partitions=[ReassignablePartition(partition_index=1, replicas=[1])]
                )
            ]
        )
        answer = peer.ask(wanted, 0)
        assert not answer.error_code and not answer.responses[0].partitions[0].error_code
        wait_until(lambda: set(leaders(broker, "t").values()) == {1}, "it has moved")
        wait_until(
            lambda: not peer.ask(ListPartitionReassignmentsRequest(topics=None), 0).topics,
            "the move has ended",
        )
    assert is_all_there(broker, sender, "t", 2)


def test_a_worker_is_drained_and_gets_its_share_back(start: Callable[..., Workers]) -> None:
    broker = start(2)
    create(broker, "t", 6)
    sender = send(broker, "t", 6)
    commands = Commands(broker.bootstrap)
    url = ("--url", broker.http)
    assert "on the way" in commands.shown("cluster", "drain", "2", *url)
    wait_until(lambda: set(leaders(broker, "t").values()) == {1}, "the other one leads")
    assert is_all_there(broker, sender, "t", 6)
    assert "on the way" in commands.shown("cluster", "rebalance", *url)
    wait_until(lambda: Counter(leaders(broker, "t").values()) == {1: 3, 2: 3}, "both lead")
    wait_until(
        lambda: "Nothing has to move" in commands.shown("cluster", "rebalance", *url),
        "all have moved",  # a worker that stalls loses its partitions, and gets them back
    )
    assert is_all_there(broker, sender, "t", 6)


def test_nothing_is_lost_when_all_processes_are_killed(start: Callable[..., Workers]) -> None:
    broker = start(2)
    create(broker, "t", 4)
    sender = send(broker, "t", 4)
    broker.kill_all()
    broker.process = None
    broker.start()
    assert is_all_there(broker, sender, "t", 4)


def test_workers_end_with_their_supervisor(start: Callable[..., Workers]) -> None:
    broker = start(2)
    pids = [broker.pid_of(1), broker.pid_of(2)]
    assert broker.process is not None
    broker.process.kill()
    broker.process.wait()
    broker.process = None
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "they have ended")
    broker.start()


def test_the_service_manager_hears_from_the_supervisor_alone(
    start: Callable[..., Workers], tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(60)
        broker = workers(tmp_path, 2)
        broker.environment = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
        broker.start()
        assert broker.process is not None
        try:
            assert manager.recv(4096) == b"READY=1\nSTATUS=2 workers accept connections"
            broker.process.send_signal(signal.SIGHUP)
            assert manager.recv(4096).startswith(b"RELOADING=1\n")
            assert manager.recv(4096).startswith(b"READY=1\n")
        finally:
            broker.stop()
        assert manager.recv(4096).startswith(b"STOPPING=1\n")
        manager.settimeout(0)
        with pytest.raises(BlockingIOError):
            manager.recv(4096)


@pytest.mark.parametrize("seed", range(2))
def test_acknowledged_records_survive_workers_that_are_killed(
    start: Callable[..., Workers], seed: int
) -> None:
    broker = start(2, **{key.replace(".", "_"): value for key, value in SETTINGS.items()})
    broker.source = random.Random(seed)
    siege = Siege(broker)
    siege.run(4, seed, 40.0)
    assert broker.kill_count >= 3
    siege.check()
