"""Kafka's share consumers see of us what they see of Kafka: what can become of a record."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from bench.processes import KafkaProcess, kafka_libs
from tests.support.forking import ForkedOdradek
from tests.support.java import program

PROGRAM = Path(__file__).with_name("ShareConsumerOracle.java")
SETTINGS = {
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "group.share.min.record.lock.duration.ms": "1000",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
}
TIMEOUT_S = 240


@pytest.mark.interop
@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_records_go_the_same_ways(tmp_path: Path) -> None:
    if kafka_libs() is None:
        pytest.skip("Kafka's jars are not there: `make kafka` fetches them")
    ours = ForkedOdradek(tmp_path / "ours", SETTINGS)
    theirs = KafkaProcess(tmp_path / "theirs", settings=SETTINGS)
    try:
        for broker in (ours, theirs):
            broker.start()
        printed = [_run(broker.bootstrap) for broker in (ours, theirs)]
    finally:
        ours.stop()
        theirs.stop()
    assert printed[0] == printed[1]
    assert "got 6 value0 2" in printed[0]
    assert "aborted" not in " ".join(printed[0])


def _run(bootstrap: str) -> list[str]:
    command = program(PROGRAM, bootstrap)
    run = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S)
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout.splitlines()
