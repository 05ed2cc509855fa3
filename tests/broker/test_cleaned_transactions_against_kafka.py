"""Transactions of real producers in a compacted topic of Kafka's, cleaned by Kafka and by us."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.processes import ROOT, KafkaProcess
from odradek.protocol.batches import BatchHeader, Record
from odradek.storage.transactions import AbortedTransaction
from tests.broker.moved_cluster import (
    KAFKA_SETTINGS,
    PATIENCE_S,
    Place,
    SeenRecord,
    read_all,
    reader,
    transactional,
)
from tests.cleaner.kafka_cleaner import aborted_in, batches_in, segment_offsets
from tests.support.forking import ForkedOdradek
from tests.support.waiting import wait_until

TOPIC = "accounts"
PLACES: list[Place] = [(TOPIC, 0), (TOPIC, 1)]
TELLERS = 4
TRANSACTIONS = 120
SETTINGS = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "3000",
    "min.cleanable.dirty.ratio": "0.01",
}
NEVER_CLEANED = {**KAFKA_SETTINGS, "log.cleaner.backoff.ms": "3600000"}

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

Seen = dict[Place, list[SeenRecord]]
Left = dict[Place, tuple[list[tuple[BatchHeader, tuple[Record, ...]]], list[AbortedTransaction]]]


@dataclass
class Both:
    """What consumers see of a topic, and what its files hold."""

    before: Seen
    ours: Seen
    kafkas: Seen
    our_files: Left
    kafkas_files: Left


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """Fill a Kafka that cleans nothing; let each broker clean a copy of its data."""
    folder = tmp_path_factory.mktemp("transactions")
    filled = KafkaProcess(folder / "filled", NEVER_CLEANED)
    kafka = KafkaProcess(folder / "kafka", KAFKA_SETTINGS)
    odradek = ForkedOdradek(folder / "odradek", {"log.cleaner.backoff.ms": "200"})
    try:
        filled.start()
        fill(filled.bootstrap)
        before = read(filled.bootstrap)
        filled.stop()
        for broker in (kafka, odradek):
            shutil.copytree(filled.data, broker.data)
        adopt = [sys.executable, "-m", "odradek.cli.main", "adopt", str(odradek.data)]
        subprocess.run(adopt, cwd=ROOT, check=True, capture_output=True, timeout=60)
        for broker in (kafka, odradek):
            broker.start()
            wait_until(partial(is_clean, broker.data), f"{broker} has cleaned")
        seen = read(odradek.bootstrap), read(kafka.bootstrap)
        # With the process ends whatever might still be written.
        for broker in (kafka, odradek):
            broker.stop()
        yield Both(before, *seen, left(odradek.data), left(kafka.data))
    finally:
        for broker in (filled, kafka, odradek):
            broker.stop()


def fill(bootstrap: str) -> None:
    """Commit and abort transactions of several producers, which overlap."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics([NewTopic(TOPIC, len(PLACES), 1, config=SETTINGS)])
    made[TOPIC].result()
    source = random.Random(1)
    tellers = [transactional(bootstrap, f"teller-{at}") for at in range(TELLERS)]
    open_: list[Producer] = []
    for number in range(TRANSACTIONS):
        idle = [teller for teller in tellers if teller not in open_]
        if idle:
            teller = source.choice(idle)
            teller.begin_transaction()
            open_.append(teller)
        for teller in open_:
            for _ in range(source.randrange(1, 6)):
                produce(teller, source, number)
            assert teller.flush(PATIENCE_S) == 0
        if source.random() < 0.6:
            end(open_.pop(source.randrange(len(open_))), commits=source.random() < 0.6)
    for teller in open_:
        end(teller, commits=True)


def produce(teller: Producer, source: random.Random, number: int) -> None:
    key = f"account-{source.randrange(30)}".encode()
    value = None if source.random() < 0.2 else f"{number} ".encode() * 10
    teller.produce(TOPIC, value, key, source.randrange(len(PLACES)))


def end(teller: Producer, *, commits: bool) -> None:
    if commits:
        teller.commit_transaction(PATIENCE_S)
    else:
        teller.abort_transaction(PATIENCE_S)


def read(bootstrap: str) -> Seen:
    consumer = reader(bootstrap, "read_committed")
    found = read_all(consumer, dict.fromkeys(PLACES, 0))
    consumer.close()
    return found


def is_clean(data: Path) -> bool:
    """Return whether both partitions are clean up to their active segments."""
    checkpoint = data / "cleaner-offset-checkpoint"
    words = [line.split() for line in checkpoint.read_text().splitlines()]
    cleaned = {(word[0], int(word[1])): int(word[2]) for word in words if len(word) == 3}
    return all(
        cleaned.get((topic, partition)) == segment_offsets(data / f"{topic}-{partition}")[-1]
        for topic, partition in PLACES
    )


def left(data: Path) -> Left:
    found: Left = {}
    for topic, partition in PLACES:
        directory = data / f"{topic}-{partition}"
        batches = [(batch.facts, batch.records) for batch in batches_in(directory)]
        found[topic, partition] = batches, aborted_in(directory)
    return found


def without_horizons(files: Left) -> Left:
    """Leave out at what time the cleanings were."""
    return {
        place: (
            [
                (replace(h, base_timestamp=0) if h.has_delete_horizon else h, records)
                for h, records in batches
            ],
            aborted,
        )
        for place, (batches, aborted) in files.items()
    }


def test_both_have_removed_records_and_aborted_transactions(both: Both) -> None:
    for place in PLACES:
        assert len(both.ours[place]) < len(both.before[place]) / 2
        assert len({record[2] for record in both.ours[place]}) == len(
            {record[2] for record in both.before[place]}
        )


def test_readers_of_committed_records_see_the_same(both: Both) -> None:
    assert both.ours == both.kafkas


def test_the_final_state_is_what_it_was(both: Both) -> None:
    for place in PLACES:
        states = [{key: value for _, _, key, value, _ in seen[place]}
                  for seen in (both.before, both.ours)]  # fmt: skip
        assert states[0] == states[1]


def test_the_same_batches_and_aborted_transactions_are_left(both: Both) -> None:
    assert any(aborted for _, aborted in both.our_files.values())
    assert without_horizons(both.our_files) == without_horizons(both.kafkas_files)
