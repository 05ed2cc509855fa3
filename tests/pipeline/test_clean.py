"""Spark cleans shared topics beside their brokers."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs the pipeline extra")

from click.testing import CliRunner

from odradek.broker.ids import Partition
from odradek.broker.shared.leased import LeasedLog, Leases
from odradek.broker.shared.leased_terms import Proposal
from odradek.broker.shared.snapshot import SharedLogs, shared_logs
from odradek.pipeline.clean import Outcomes, clean_command, clean_topics, find_partitions
from odradek.pipeline.source import RECORD_COLUMNS
from tests.broker.clusters import ThreeSharingBrokers
from tests.pipeline.test_segments import Topic, as_served, create
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

# No cleaner of a broker begins by itself.
IDLE = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "1",
    "segment.bytes": str(1 << 20),
}


@pytest.fixture
def brokers(sharing_brokers: ThreeSharingBrokers) -> ThreeSharingBrokers:
    """Three brokers with a bucket."""
    return sharing_brokers


@pytest.fixture
def deleting_brokers(tmp_path: Path) -> Iterator[ThreeSharingBrokers]:
    """Brokers that delete objects as soon as they are not needed."""
    settings = {
        "odradek.wal.checkpoint.bytes": str(1 << 20),
        "odradek.object.delete.delay.ms": "0",
    }
    made = ThreeSharingBrokers(tmp_path, settings)
    made.start()
    yield made
    made.stop()
    made.close()


@pytest.fixture
def place(brokers: ThreeSharingBrokers) -> SharedLogs:
    """The catalog and the bucket of the brokers."""
    return shared_logs({}, brokers.settings)


def partitions(place: SharedLogs, topic: str) -> dict[Partition, str]:
    return find_partitions(place, lambda name, _: name == topic)


def clean(spark: SparkSession, place: SharedLogs, topic: str) -> Outcomes:
    return clean_topics(spark, place, partitions(place, topic), print)


def fill(bootstrap: str, topic: str, seed: int, count: int = 4000) -> None:
    """Write records of a few hundred keys, tombstones among them, some in transactions."""
    from kafka import KafkaProducer

    rng = random.Random(seed)
    for codec in (None, "zstd"):
        producer = KafkaProducer(
            bootstrap_servers=bootstrap, acks="all", linger_ms=5, compression_type=codec
        )
        send(producer, topic, rng, count // 4)
        producer.close(timeout=30)
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, transactional_id=f"{topic}-{seed}", linger_ms=5
    )
    producer.init_transactions()
    for commits in (True, False, True, False):
        producer.begin_transaction()
        send(producer, topic, rng, count // 8)
        producer.commit_transaction() if commits else producer.abort_transaction()
    producer.close(timeout=30)


def send(producer: Any, topic: str, rng: random.Random, count: int) -> None:
    for _ in range(count):
        key = b"key-%d" % min(int(rng.expovariate(0.01)), 999)
        value = None if rng.random() < 0.1 else rng.randbytes(rng.randrange(2000))
        producer.send(topic, value, key=key, partition=rng.randrange(3))
    producer.flush(timeout=60)


def served(spark: SparkSession, brokers: ThreeSharingBrokers, topic: str) -> list[Any]:
    return as_served(spark, Topic(brokers.bootstrap, Path(), topic), "read_committed")


def latest(rows: list[Any]) -> list[Any]:
    """Return the rows that a log has once each key of a partition is there once."""
    key, partition, offset = map(RECORD_COLUMNS.index, ("key", "partition", "offset"))
    last = {(row[partition], row[key]): row for row in rows}
    return sorted(last.values(), key=lambda row: (row[partition], row[offset]))


def test_the_latest_record_of_each_key_remains(
    spark: SparkSession, brokers: ThreeSharingBrokers, place: SharedLogs
) -> None:
    topic = create(brokers.bootstrap, 3, IDLE)
    for seed in (1, 2):
        fill(brokers.bootstrap, topic, seed)
        before = served(spark, brokers, topic)
        outcomes = clean(spark, place, topic)
        assert (len(outcomes.cleaned), outcomes.failed) == (3, {})
        after = served(spark, brokers, topic)
        assert after == latest(before)
        assert len(after) < len(before)


def test_a_job_waits_for_the_leases_of_another_one(
    spark: SparkSession, brokers: ThreeSharingBrokers, place: SharedLogs
) -> None:
    topic = create(brokers.bootstrap, 3, IDLE)
    fill(brokers.bootstrap, topic, 1, count=100)
    wanted, said = partitions(place, topic), []
    with Leases(place) as others:
        assert not others.take(wanted)

        def say(line: str) -> None:
            said.append(line)
            if line.startswith("waits"):
                others.give_back(wanted)

        outcomes = clean_topics(spark, place, wanted, say)
    names = ", ".join(f"{topic}-{number}" for number in range(3))
    assert said[0] == f"waits for the leases of another job: {names}"
    assert (len(outcomes.cleaned), outcomes.failed) == (3, {})


def test_a_transaction_that_ends_while_a_job_runs(
    spark: SparkSession, brokers: ThreeSharingBrokers, place: SharedLogs
) -> None:
    from kafka import KafkaProducer

    topic = create(brokers.bootstrap, 1, IDLE)
    producer = KafkaProducer(bootstrap_servers=brokers.bootstrap, transactional_id=topic)
    producer.init_transactions()
    plain = KafkaProducer(bootstrap_servers=brokers.bootstrap, acks="all")

    def write(by: Any, count: int) -> None:
        for number in range(count):
            by.send(topic, b"%d" % number * 1000, key=b"key-%d" % (number % 7))
        by.flush(timeout=60)

    def go_on(line: str) -> None:
        """End the transaction, and write some more, once the leases are granted."""
        if line.startswith("reads"):
            write(plain, 300)
            producer.commit_transaction()

    try:
        write(plain, 2000)
        producer.begin_transaction()
        write(producer, 600)
        write(plain, 2000)
        outcomes = clean_topics(spark, place, partitions(place, topic), go_on)
        assert (len(outcomes.cleaned), outcomes.failed) == (1, {})
        after = served(spark, brokers, topic)
        offset = RECORD_COLUMNS.index("offset")
        # Only what was stable when the job began is compacted.
        (proposal,) = outcomes.cleaned.values()
        assert 2000 > proposal.counters.start_records > proposal.counters.end_records
        assert 2900 < len(after) < 4900
        assert after[-1][offset] >= 4899
    finally:
        producer.close(timeout=10)
        plain.close(timeout=10)
    before = served(spark, brokers, topic)
    outcomes = clean(spark, place, topic)
    assert served(spark, brokers, topic) == latest(before)


def test_a_job_that_fails_leaves_garbage_and_nothing_else(
    spark: SparkSession,
    deleting_brokers: ThreeSharingBrokers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers, place = deleting_brokers, shared_logs({}, deleting_brokers.settings)
    topic = create(brokers.bootstrap, 3, IDLE)
    fill(brokers.bootstrap, topic, 3)
    before = served(spark, brokers, topic)
    propose, proposed = Leases.propose, []

    def fail_at_the_second(self: Leases, log: LeasedLog, proposal: Proposal) -> bool:
        proposed.append(proposal)
        if len(proposed) == 2:
            raise ConnectionResetError
        return propose(self, log, proposal)

    with monkeypatch.context() as patched, pytest.raises(ConnectionResetError):
        patched.setattr(Leases, "propose", fail_at_the_second)
        clean(spark, place, topic)
    lost = {one.new.key for proposal in proposed[1:] for one in proposal.replacements}
    assert lost
    folder = Path(place.store_url.removeprefix("file://"))
    outcomes = clean(spark, place, topic)
    assert outcomes.failed == {}
    assert len(outcomes.cleaned) >= 2
    assert served(spark, brokers, topic) == latest(before)
    wait_until(
        lambda: not any((folder / key).exists() for key in lost), "the objects are deleted", 90
    )


def test_damage_is_named_and_left_alone(
    spark: SparkSession, brokers: ThreeSharingBrokers, place: SharedLogs
) -> None:
    topic = create(brokers.bootstrap, 3, IDLE)
    fill(brokers.bootstrap, topic, 4, count=12000)
    before = served(spark, brokers, topic)
    with Leases(place) as leases:
        leases.take([key for key in partitions(place, topic) if key[1] == 1])
        wait_until(lambda: leases.standing().granted, "it is granted", 60)
        (log,) = leases.logs(leases.standing().granted.keys())
    row = log.rows[0]
    damaged = Path(place.store_url.removeprefix("file://")) / row.key
    data = bytearray(damaged.read_bytes())
    data[row.position + 5000] ^= 1
    damaged.write_bytes(data)
    outcomes = clean(spark, place, topic)
    assert sorted(outcomes.cleaned) == [f"{topic}-0", f"{topic}-2"]
    (reason,) = outcomes.failed.values()
    assert outcomes.failed == {f"{topic}-1": reason}
    assert row.key in reason
    partition = RECORD_COLUMNS.index("partition")
    data[row.position + 5000] ^= 1
    damaged.write_bytes(data)
    assert served(spark, brokers, topic) == [
        row
        for number in range(3)
        for row in (before if number == 1 else latest(before))
        if row[partition] == number
    ]


def test_the_command_says_what_it_did(
    brokers: ThreeSharingBrokers, place: SharedLogs, tmp_path: Path
) -> None:
    topic = create(brokers.bootstrap, 3, IDLE)
    fill(brokers.bootstrap, topic, 5, count=800)
    given = ["--catalog", brokers.settings["odradek.catalog.url"]]
    given += ["--set", f"odradek.object.store.url={place.store_url}", "--topic"]
    result = CliRunner().invoke(clean_command, [*given, "no-such-topic"])
    assert (result.exit_code, result.output) == (
        1, "Error: no shared topic is selected: see --topic and --partition\n",
    )  # fmt: skip
    command = [sys.executable, "-m", "odradek.cli.main", "pipeline", "clean", *given, topic]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for number in range(3):
        assert f"{topic}-{number}: cleaned up to offset" in done.stdout
    assert done.stdout.endswith("cleaned 3 partitions, left 0 as they are, failed 0\n")
