"""What Kafka's own tool says of both brokers: the same versions of all that is served."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.processes import KafkaProcess, kafka_tool
from odradek.broker.api_table import APIS
from tests.support.forking import ForkedOdradek

pytestmark = [pytest.mark.slow, pytest.mark.kafka, pytest.mark.timeout(600)]

# "	Fetch(1): 4 to 18 [usable: 18]," or "	OffsetDelete(47): 0 [usable: 0],"
_LINE = re.compile(r"^\t(\w+)\((\d+)\): (\d+)(?: to (\d+))? \[usable: (\d+)\]", re.MULTILINE)

# Telemetry of clients (KIP-714). Kafka announces it where a plugin receives it; here it is
# announced when there is a subscription.
TELEMETRY = {71, 72}

Range = tuple[int, int, int]


def test_kafkas_tool_finds_the_ranges_of_kafka(tmp_path: Path) -> None:
    ours, theirs = ForkedOdradek(tmp_path / "odradek"), KafkaProcess(tmp_path / "kafka")
    try:
        ours.start()
        theirs.start()
        mine, other = _ranges(ours.bootstrap), _ranges(theirs.bootstrap)
    finally:
        ours.stop()
        theirs.stop()
    assert mine.keys() == {api.key for api in APIS} - TELEMETRY
    assert not TELEMETRY & other.keys()
    assert mine == {key: found for key, found in other.items() if key in mine}


def _ranges(bootstrap: str) -> dict[int, Range]:
    """Return first, last and usable version by API key."""
    tool = "org.apache.kafka.tools.BrokerApiVersionsCommand"
    text = kafka_tool([tool, "--bootstrap-server", bootstrap]).stdout
    return {
        int(key): (int(first), int(last or first), int(usable))
        for _, key, first, last, usable in _LINE.findall(text)
    }
