"""kafka_exporter, as operators run it, shows the offsets and the lag that are true.

It is looked for in .interop, where `make interop` puts it if Go's module proxy has it, and on the
PATH.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import urllib.request
from collections import Counter
from pathlib import Path

import pytest

from bench.processes import free_port
from tests.compat.clients import Confluent
from tests.interop.conftest import StartBroker
from tests.interop.programs import BUILDS
from tests.support.waiting import wait_until

TOPIC, GROUP = "exported", "exported-group"
PARTITIONS, COUNT, CONSUMED = 3, 50, 20
START_TIMEOUT_S = 60.0

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="([^"]*)"')


def test_kafka_exporter_shows_what_is_true(start_broker: StartBroker, tmp_path: Path) -> None:
    program = shutil.which("kafka_exporter", path=BUILDS) or shutil.which("kafka_exporter")
    if program is None:
        pytest.skip("kafka_exporter is not there")
    broker, client = start_broker(), Confluent()
    client.create_topic(broker.bootstrap, TOPIC, PARTITIONS)
    entries = [(f"k{n}", "v") for n in range(COUNT)]
    client.produce(broker.bootstrap, TOPIC, "none", entries)
    # Offsets begin at 0: what was read of a partition is what is committed of it.
    read = Counter(s.partition for s in client.consume(broker.bootstrap, TOPIC, GROUP, CONSUMED))
    ends = Counter(s.partition for s in client.consume(broker.bootstrap, TOPIC, "all", COUNT))
    shown = _metrics(program, broker.bootstrap, tmp_path)

    def of(metric: str, **labels: str) -> dict[int, int]:
        wanted = {"topic": TOPIC, **labels}.items()
        return {
            int(found["partition"]): int(value)
            for name, found, value in shown
            if name == metric and wanted <= found.items()
        }

    assert of("kafka_topic_partition_current_offset") == ends
    assert of("kafka_topic_partition_oldest_offset") == dict.fromkeys(ends, 0)
    assert of("kafka_topic_partition_leader_is_preferred") == dict.fromkeys(ends, 1)
    assert of("kafka_topic_partition_under_replicated_partition") == dict.fromkeys(ends, 0)
    committed = of("kafka_consumergroup_current_offset", consumergroup=GROUP)
    lag = of("kafka_consumergroup_lag", consumergroup=GROUP)
    assert {p: offset for p, offset in committed.items() if offset > 0} == read
    assert {p: lag[p] for p in read} == {p: ends[p] - read[p] for p in read}
    assert set(of("kafka_consumergroup_lag", consumergroup="all").values()) == {0}
    assert [value for name, _, value in shown if name == "kafka_brokers"] == [1]


def _metrics(
    program: str, bootstrap: str, directory: Path
) -> list[tuple[str, dict[str, str], float]]:
    """Return the samples of the first scrape that tells of a group."""
    address = f"127.0.0.1:{free_port()}"

    def log_text() -> str:
        return (directory / "kafka_exporter.log").read_text()

    def scraped() -> str:
        assert exporter.poll() is None, log_text()
        with contextlib.suppress(OSError):
            text: str = urllib.request.urlopen(f"http://{address}/metrics").read().decode()
            return text if "kafka_consumergroup_lag{" in text else ""
        return ""

    with (directory / "kafka_exporter.log").open("wb+") as log:
        exporter = subprocess.Popen(
            [program, f"--kafka.server={bootstrap}", f"--web.listen-address={address}"],
            stdout=log,
            stderr=log,
        )
        try:
            text = wait_until(scraped, "a group is shown", START_TIMEOUT_S, shown=log_text)
        finally:
            exporter.kill()
            exporter.wait()
    return [
        (name, dict(_LABEL.findall(labels)), float(value))
        for name, labels, value in _SAMPLE.findall(text)
    ]
