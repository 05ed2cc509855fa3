"""What Apache Kafka has written and cleaned holds what is proved of a log as it is."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench.processes import KafkaProcess
from odradek.cleaner.proof.guarantees import Finding
from odradek.cleaner.proof.snapshot import take_snapshot
from odradek.cleaner.proof.soundness import (
    INDEXES_RIGHT,
    NO_GHOSTS,
    ONE_RECORD,
    prove_clean_section,
    prove_indexes,
)
from odradek.config.topic import TopicConfig
from odradek.storage.checkpoints import read_offsets
from odradek.storage.readable_log import LogIdentity
from odradek.storage.recovery import Checkpointed, load_log
from tests.broker.moved_cluster import KAFKA_SETTINGS, OFFSETS, cleaned_to, fill
from tests.cleaner.worlds import FS
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]


@dataclass(frozen=True, slots=True)
class Partition:
    """What was found of one of Kafka's partitions, and how far Kafka has cleaned it."""

    name: str
    clean_offset: int
    findings: dict[str, Finding]


@pytest.fixture(scope="module")
def partitions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Partition]]:
    """Kafka's partitions, some cleaned, after a clean stop."""
    kafka = KafkaProcess(tmp_path_factory.mktemp("kafka"), KAFKA_SETTINGS)
    kafka.start()
    try:
        fill(kafka.bootstrap, 300, 1)
        for topic in ("compacted", "both", OFFSETS):
            _wait_until_cleaned(kafka, topic)
    finally:
        kafka.stop()
    yield [_prove(path, kafka.data) for path in sorted(kafka.data.glob("[a-z_]*-[0-9]"))]


def _wait_until_cleaned(kafka: KafkaProcess, topic: str) -> None:
    wait_until(lambda: cleaned_to(kafka.data, topic) > 20, f"Kafka cleans {topic}")


def _prove(path: Path, data: Path) -> Partition:
    topic, number = path.name.rsplit("-", 1)
    log = load_log(
        FS,
        path,
        LogIdentity(topic, int(number), bytes(16)),
        TopicConfig(),
        Checkpointed(0, 0, was_clean=True),
        now_ms=0,
        random_source=random.Random(1),
    )
    checkpoints = read_offsets(FS, data / "cleaner-offset-checkpoint")
    clean_offset = checkpoints.get((topic, int(number)), 0)
    snapshot = take_snapshot(log)
    findings = prove_indexes(snapshot, FS, lambda size: None)
    findings += prove_clean_section(snapshot, clean_offset, lambda size: None)
    return Partition(path.name, clean_offset, {one.name: one for one in findings})


def test_nothing_is_found_to_be_broken(partitions: list[Partition]) -> None:
    assert len(partitions) > 10
    for one in partitions:
        assert [f.violation for f in one.findings.values()] == [None] * 4, one.name


def test_there_was_something_to_look_at(partitions: list[Partition]) -> None:
    cleaned = [one.findings for one in partitions if one.clean_offset > 20]
    assert len(cleaned) >= 3
    assert all(one[ONE_RECORD].examined > 0 for one in cleaned)
    assert any(one[NO_GHOSTS].examined > 0 for one in cleaned)
    assert sum(one.findings[INDEXES_RIGHT].examined for one in partitions) > 20
