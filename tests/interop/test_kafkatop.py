"""kafkatop, a monitor from PyPI, shows the states, the lag and the leaders that are true.

It runs unchanged, with the Python client that the tests have; `make interop` puts it into
.interop.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

from tests.compat.clients import Confluent
from tests.interop.conftest import StartBroker
from tests.interop.programs import BUILDS

TOPIC, GROUP = "watched", "watched-group"
PARTITIONS, COUNT, CONSUMED = 3, 50, 20
TIMEOUT_S = 90
FOLDER = BUILDS / "kafkatop"

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


def test_kafkatop_shows_what_is_true(start_broker: StartBroker) -> None:
    assert (FOLDER / "kafkatop.py").exists(), "kafkatop is not there: run `make interop`"
    broker, client = start_broker(), Confluent()
    client.create_topic(broker.bootstrap, TOPIC, PARTITIONS)
    entries = [(f"k{n}", "v") for n in range(COUNT)]
    client.produce(broker.bootstrap, TOPIC, "none", entries)
    # Offsets begin at 0: what was read of a partition is what is committed of it.
    read = Counter(s.partition for s in client.consume(broker.bootstrap, TOPIC, GROUP, CONSUMED))
    ends = Counter(s.partition for s in client.consume(broker.bootstrap, TOPIC, "all", COUNT))

    shown = _run(broker.bootstrap, "--topicinfo-parts")
    nodes = {int(node): f"{at['host']}:{at['port']}" for node, at in shown["brokers"].items()}
    assert set(broker.bootstrap.split(",")) <= set(nodes.values())
    assert sorted(part["id"] for part in shown["topics"][TOPIC]["partinfo"]) == [0, 1, 2]
    for part in shown["topics"][TOPIC]["partinfo"]:
        assert part["leader"] in nodes
        assert (part["replicas"], part["nisrs"]) == ([part["leader"]], 1)

    groups = _run(broker.bootstrap, "--summary-json", "--all")
    assert {group["state"] for group in groups.values()} == {"ConsumerGroupState.EMPTY"}
    # It tells of the partitions of which something is committed.
    lags = [ends[partition] - count for partition, count in read.items()]
    assert groups[GROUP]["topics"][TOPIC] == {
        "partitions": len(lags),
        "lag_max": max(lags),
        "lag_min": min(lags),
    }
    assert groups["all"]["topics"][TOPIC] == {
        "partitions": len(ends),
        "lag_max": 0,
        "lag_min": 0,
    }


def _run(bootstrap: str, *options: str) -> Any:
    """Return what it prints."""
    done = subprocess.run(
        [sys.executable, FOLDER / "kafkatop.py", "--kafka-broker", bootstrap, *options],
        env={**os.environ, "PYTHONPATH": str(FOLDER)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
