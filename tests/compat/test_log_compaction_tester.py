"""Kafka's own LogCompactionTester: random upserts and deletes, read back after compaction."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from bench.processes import kafka_tool
from tests.conftest import StartBroker

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

DUPLICATES = 5
_ROWS = re.compile(r"(\d+) rows of data produced, (\d+) rows of data consumed")


@dataclass(frozen=True, slots=True)
class Load:
    """What the tool writes, and for how long it then waits."""

    messages: int  # to each topic
    topics: int
    deletes_percent: int
    sleep_s: int
    timeout_s: int


@pytest.mark.parametrize(
    "load",
    [
        pytest.param(Load(200_000, 2, 10, 5, 240), marks=pytest.mark.timeout(600), id="small"),
        pytest.param(
            Load(2_000_000, 10, 20, 60, 3400),
            marks=[pytest.mark.interop, pytest.mark.timeout(3600)],
            id="full",
        ),
    ],
)
def test_log_compaction_tester_validates_without_a_mismatch(
    start_broker: StartBroker, load: Load
) -> None:
    # The tool's topics set nothing but cleanup.policy: small segments are the broker's doing.
    broker = start_broker(
        {
            "internal.segment.bytes": "500000",
            "log.cleaner.backoff.ms": "100",
            "log.cleaner.min.cleanable.ratio": "0.01",
            "log.cleaner.delete.retention.ms": "0",
        }
    )
    done = kafka_tool(
        ["org.apache.kafka.tools.LogCompactionTester", "--bootstrap-server", broker.bootstrap]
        + ["--messages", str(load.messages), "--duplicates", str(DUPLICATES)]
        + ["--percent-deletes", str(load.deletes_percent)]
        + ["--topics", str(load.topics), "--sleep", str(load.sleep_s)],
        timeout_s=load.timeout_s,
    )
    assert "Validated" in done.stdout, done.stdout + done.stderr
    assert re.search(r"\b0 mismatches", done.stdout), done.stdout
    topics = set(re.findall(r"cleaned log (log-cleaner-test-\S+)-\d+ ", broker.log_text()))
    assert len(topics) == load.topics, "some topics were never cleaned"
    rows = _ROWS.search(done.stdout)
    assert rows is not None, done.stdout
    produced, consumed = map(int, rows.groups())
    assert produced == load.messages * load.topics
    # Each key comes DUPLICATES times; only the last segments still have all of them.
    assert consumed < produced / 2, done.stdout
    assert "ERROR" not in broker.log_text()
