"""Kafka Connect moves lines from file to file through a topic, whatever happens to its workers.

All that it knows is in three compacted topics, which it reads whole when it starts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from tests.interop.conftest import StartBroker
from tests.interop.jvm import skip_without_java
from tests.interop.workers import CONFIGS_TOPIC, Worker, ended

TOPIC = "lines"
SOURCE, SINK = "from-file", "to-file"
COUNT = 200  # lines written at a time
# The broker compacts whatever is not in an active segment, at once.
EAGER = {"log.cleaner.backoff.ms": "200", "log.cleaner.min.cleanable.ratio": "0.001"}
READ_TIMEOUT_S = 30.0

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]


@dataclass(frozen=True, slots=True)
class Files:
    """The file that is read, and the one that is written."""

    source: Path
    sink: Path

    def write(self) -> None:
        """Append lines that are like no others."""
        first = len(self.written())
        with self.source.open("a") as file:
            file.writelines(f"line {n}\n" for n in range(first, first + COUNT))

    def written(self) -> list[str]:
        """Return all lines that were written so far."""
        return self.source.read_text().splitlines() if self.source.exists() else []

    def arrived(self) -> list[str]:
        """Return the lines that have come through."""
        return self.sink.read_text().splitlines() if self.sink.exists() else []

    def all_arrived(self) -> bool:
        """Return whether each line has come through, in order, when repetitions are left out."""
        return list(dict.fromkeys(self.arrived())) == self.written()


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Two files that are not there yet."""
    skip_without_java()
    return Files(tmp_path / "source.txt", tmp_path / "sink.txt")


def test_connectors_move_off_a_killed_worker_and_every_line_arrives(
    start_broker: StartBroker, files: Files, tmp_path: Path
) -> None:
    broker = start_broker()
    workers = [Worker(tmp_path / name, broker.bootstrap) for name in ("one", "two")]
    with ended(*workers):
        # Both at once: each finds that the topics are not there, and creates them.
        for worker in workers:
            worker.start()
        _connect(workers[0], files)
        files.write()
        workers[0].wait_until(files.all_arrived)
        workers[0].wait_until(lambda: _all_run_on(workers, workers[0]))
        place = workers[0].places(SOURCE)[1]
        killed, left = sorted(workers, key=lambda worker: worker.name != place)
        files.write()
        killed.kill()
        left.wait_until(lambda: _all_run_on([left], left))
        files.write()
        left.wait_until(files.all_arrived)
        broker.stop()
        broker.start()
        files.write()
        left.wait_until(files.all_arrived)
        killed.start()
        left.wait_until(lambda: _all_run_on(workers, left))
        files.write()
        left.wait_until(files.all_arrived)


def test_a_new_worker_goes_on_where_the_last_one_stopped(
    start_broker: StartBroker, files: Files, tmp_path: Path
) -> None:
    broker = start_broker(EAGER)
    first, second = (Worker(tmp_path / name, broker.bootstrap) for name in ("one", "two"))
    with ended(first, second):
        first.start()
        _connect(first, files)
        files.write()
        first.wait_until(files.all_arrived)
        settings = _compact_configs(first, broker.bootstrap)
        first.stop()
        broker.stop()
        broker.start()
        files.write()
        second.start()
        second.wait_until(lambda: _all_run_on([second], second))
        second.wait_until(files.all_arrived)
        # It stopped well, so nothing came twice.
        assert files.arrived() == files.written()
        assert second.ask("GET", f"/connectors/{SINK}/config") == settings
        _rewind(second, files)
        second.insist("DELETE", f"/connectors/{SOURCE}")
        second.insist("DELETE", f"/connectors/{SINK}")
        second.wait_until(lambda: second.ask("GET", "/connectors") == [])


def _connect(worker: Worker, files: Files) -> None:
    """Have lines copied from the one file to the other through a topic."""
    file = "org.apache.kafka.connect.file"
    source = {"connector.class": f"{file}.FileStreamSourceConnector", "topic": TOPIC}
    worker.put(SOURCE, {**source, "file": str(files.source)})
    worker.put(SINK, _sink_settings(files))


def _sink_settings(files: Files) -> dict[str, str]:
    sink = "org.apache.kafka.connect.file.FileStreamSinkConnector"
    return {"connector.class": sink, "topics": TOPIC, "file": str(files.sink)}


def _all_run_on(workers: Sequence[Worker], asked: Worker) -> bool:
    """Return whether both connectors and their tasks run, and each worker has some of them."""
    places = [asked.places(SOURCE), asked.places(SINK)]
    everywhere = {place for connector in places for place in connector}
    return all(len(connector) == 2 for connector in places) and everywhere == {
        worker.name for worker in workers
    }


def _compact_configs(worker: Worker, bootstrap: str) -> dict[str, str]:
    """Change a connector until the cleaner has removed changes; return the last settings."""
    settings: dict[str, str] = worker.ask("GET", f"/connectors/{SINK}/config")
    puts = 1

    def some_are_gone() -> bool:
        nonlocal puts, settings
        puts += 1
        settings = {**settings, "consumer.override.max.poll.records": str(puts)}
        worker.put(SINK, settings)
        return _keys(bootstrap, CONFIGS_TOPIC)[f"connector-{SINK}"] < puts / 2

    worker.wait_until(some_are_gone)
    return settings


def _rewind(worker: Worker, files: Files) -> None:
    """Give the sink other offsets, then none: it gets what it has had once more."""
    count = len(files.written())
    sink = f"/connectors/{SINK}"
    worker.wait_until(lambda: _sink_offset(worker) == count)
    worker.insist("PUT", f"{sink}/stop")
    place = {"kafka_topic": TOPIC, "kafka_partition": 0}
    moved = {"offsets": [{"partition": place, "offset": {"kafka_offset": count - 3}}]}
    worker.insist("PATCH", f"{sink}/offsets", moved)
    assert _sink_offset(worker) == count - 3
    worker.insist("PUT", f"{sink}/resume")
    again = files.written() + files.written()[-3:]
    worker.wait_until(lambda: files.arrived() == again)
    worker.insist("PUT", f"{sink}/stop")
    worker.insist("DELETE", f"{sink}/offsets")
    worker.insist("PUT", f"{sink}/resume")
    worker.wait_until(lambda: files.arrived() == again + files.written())


def _sink_offset(worker: Worker) -> int:
    """Return how far the sink has committed, in a topic of one partition."""
    (offset,) = worker.ask("GET", f"/connectors/{SINK}/offsets")["offsets"]
    found: int = offset["offset"]["kafka_offset"]
    return found


def _keys(bootstrap: str, topic: str) -> Counter[str]:
    """Return how many records of each key are in a topic's first partition."""
    reader = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.partition.eof": True}
    )
    reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: Counter[str] = Counter()
    while (record := reader.poll(READ_TIMEOUT_S)) is not None:
        error = record.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            reader.close()
            return found
        found[record.key().decode()] += 1
    raise AssertionError("the end of the topic did not come")
