"""What is in memory only when it is needed."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from bench.processes import START_TIMEOUT_S, OdradekProcess
from tests.conftest import StartBroker

pytestmark = pytest.mark.slow

COMPILER = "libllvmlite"


def compiler_bytes(broker: OdradekProcess) -> int | None:
    """Return the resident bytes of the compiler's code, None when it is not loaded."""
    assert broker.process is not None
    smaps = Path(f"/proc/{broker.process.pid}/smaps")
    if not smaps.exists():
        pytest.skip("only Linux tells what is in memory")
    found = re.findall(rf"r-xp .*{COMPILER}.*\n(?:\w+:.*\n)*?Rss: +(\d+) kB", smaps.read_text())
    return sum(map(int, found)) * 1024 if found else None


def test_an_idle_broker_has_no_compiler_and_a_busy_one_not_its_code(
    start_broker: StartBroker,
) -> None:
    broker = start_broker()
    assert compiler_bytes(broker) is None
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    producer.produce("prices", b"11", b"p3")
    assert producer.flush(20) == 0
    deadline = time.monotonic() + START_TIMEOUT_S
    # It is there whole while kernels are loaded, and then all but what happens to run again.
    while (left := compiler_bytes(broker)) is None or left > 10_000_000:
        assert time.monotonic() < deadline, left
        time.sleep(0.05)
