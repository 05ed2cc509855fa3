"""What is in memory only when it is needed."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.processes import ROOT, START_TIMEOUT_S, OdradekProcess
from tests.broker.memory import load_kernels
from tests.support.waiting import wait_until

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


def code_bytes(broker: OdradekProcess) -> int:
    """Return the resident bytes of what is in files."""
    assert broker.process is not None
    status = Path(f"/proc/{broker.process.pid}/status").read_text()
    return int(re.findall(r"RssFile:\s+(\d+) kB", status)[0]) * 1024


def wait_until_loaded(broker: OdradekProcess, kernels: str) -> None:
    """Wait until the broker tells that kernels are loaded, and the compiler's code is gone."""
    wait_for_line(broker, f"loaded kernels of={kernels}")
    assert (compiler_bytes(broker) or 0) < 10_000_000


def wait_for_line(broker: OdradekProcess, text: str) -> None:
    """Wait until the broker has logged a text."""
    wait_until(lambda: text in broker.log_text(), text, START_TIMEOUT_S, shown=broker.log_text)


def produce(broker: OdradekProcess, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for at in range(count):
        producer.produce("prices", b"%d" % at, str(at % 3))
        assert producer.flush(20) == 0


@pytest.fixture(scope="module", autouse=True)
def compiled() -> None:
    """Have all kernels in the cache, as after a first start: to compile takes more memory."""
    subprocess.run([sys.executable, "-m", "odradek.broker.process.warm_up"], cwd=ROOT, check=True)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OdradekProcess]:
    """A broker that tells what it loads, and cleans soon."""
    running = OdradekProcess(
        tmp_path / "broker", {"log.cleaner.backoff.ms": "50"}, log_level="DEBUG"
    )
    running.start()
    yield running
    running.stop()


def test_an_idle_broker_has_no_compiler_and_a_busy_one_not_its_code(
    broker: OdradekProcess,
) -> None:
    assert compiler_bytes(broker) is None
    produce(broker, 1)
    assert compiler_bytes(broker) is None
    load_kernels(broker, {})
    wait_until_loaded(broker, "log")


def test_many_syncs_bring_the_compiled_thread(broker: OdradekProcess) -> None:
    produce(broker, 2_500)
    wait_until_loaded(broker, "log")


def test_code_that_ran_at_the_start_is_given_back(broker: OdradekProcess) -> None:
    wait_until(
        lambda: code_bytes(broker) <= 10_000_000,  # 20 MB were touched
        "the code is given back",
        START_TIMEOUT_S,
        shown=lambda: code_bytes(broker),
    )


def test_the_cleaners_kernels_are_loaded_when_there_is_something_to_clean(
    broker: OdradekProcess,
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "segment.ms": "1"}
    (made,) = admin.create_topics([NewTopic("prices", 1, 1, config=config)]).values()
    made.result(20)
    produce(broker, 1)
    assert "of=cleaner" not in broker.log_text()
    produce(broker, 9)  # each a segment of its own
    wait_until_loaded(broker, "cleaner")
    assert "of=log" not in broker.log_text()
    wait_for_line(broker, "cleaned log prices-0")
