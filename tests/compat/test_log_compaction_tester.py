"""Kafka's own LogCompactionTester: random upserts and deletes, read back after compaction."""

from __future__ import annotations

import re

import pytest

from bench.processes import kafka_tool
from tests.conftest import StartBroker

MESSAGES = 200_000
DUPLICATES = 5
DELETES_PERCENT = 10

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(300)]


def test_log_compaction_tester_validates_without_a_mismatch(start_broker: StartBroker) -> None:
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
        + ["--messages", str(MESSAGES), "--duplicates", str(DUPLICATES)]
        + ["--percent-deletes", str(DELETES_PERCENT), "--topics", "2", "--sleep", "5"],
        timeout_s=240,
    )
    assert "Validated" in done.stdout, done.stdout + done.stderr
    assert re.search(r"\b0 mismatches", done.stdout), done.stdout
    cleaned = re.findall(r"cleaned log log-cleaner-test-\S+", broker.log_text())
    reduced = re.findall(r"([\d.]+)% size reduction", broker.log_text())
    assert len(cleaned) >= 2, "the topics were never cleaned"
    assert max(float(percent) for percent in reduced) > 0
    assert "ERROR" not in broker.log_text()
