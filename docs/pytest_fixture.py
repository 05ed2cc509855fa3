"""A pytest fixture that gives tests a broker of their own: copy this file, as conftest.py say.

    def test_orders(odradek: str) -> None:
        producer = KafkaProducer(bootstrap_servers=odradek)

The broker listens on the loopback address, at a port that was free, within half a second. Its
data lie in a temporary directory, and it ends with the tests. ODRADEK says how to run the command
where it is not on the PATH. It needs nothing but pytest and the odradek command.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

COMMAND = shlex.split(os.environ.get("ODRADEK", "odradek"))
# Whatever the tests need: settings of Kafka's, such as "num.partitions".
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "metrics.listener": "",
    "group.initial.rebalance.delay.ms": "0",
    # Nobody mourns what a test has written: acks=all need not wait for the disk.
    "log.flush.acks.all": "false",
}
STOP_TIMEOUT_S = 30


@pytest.fixture(scope="session")
def odradek(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a running broker, for bootstrap.servers."""
    folder = tmp_path_factory.mktemp("odradek")
    log = folder / "broker.log"
    with log.open("w") as errors:
        process = subprocess.Popen(
            _command(folder / "data"), stdout=subprocess.PIPE, stderr=errors, text=True
        )
    assert process.stdout is not None
    with process, process.stdout:
        # The one line that it prints, once it accepts connections; nothing when it cannot start.
        found = re.search(r"accepts connections on (\S+),", process.stdout.readline())
        try:
            assert found is not None, log.read_text()
            yield found[1]
        finally:
            process.terminate()
            process.wait(STOP_TIMEOUT_S)


def _command(data: Path) -> list[str]:
    settings = {**SETTINGS, "log.dirs": str(data)}
    return [*COMMAND, "serve", *(f"--set={name}={value}" for name, value in settings.items())]
