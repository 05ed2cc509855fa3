"""A pytest fixture that gives tests a broker of their own: copy this file as conftest.py.

    def test_orders(odradek: str) -> None:
        producer = KafkaProducer(bootstrap_servers=odradek)

The broker listens on a free port of the loopback address within half a second. Its data is in a
temporary directory, and it stops when the tests end. The fixture needs only pytest and the odradek
command; if the command is not on the PATH, set the environment variable ODRADEK to it.
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
# Add Kafka's settings that the tests need, such as "num.partitions".
SETTINGS = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "metrics.listener": "",
    "group.initial.rebalance.delay.ms": "0",
    # Records of a test need not survive a crash: acks=all need not wait for the disk.
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
        # The broker prints one line once it accepts connections, and none when it cannot start.
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
