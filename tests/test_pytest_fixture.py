"""docs/pytest_fixture.py in a project of its own, as somebody who has copied it has it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench.processes import ROOT

FIXTURE = ROOT / "docs" / "pytest_fixture.py"
TESTS = '''
import socket

from kafka import KafkaConsumer, KafkaProducer


def test_produced_records_are_consumed(odradek):
    producer = KafkaProducer(bootstrap_servers=odradek)
    for number in range(3):
        producer.send("orders", b"order %d" % number)
    producer.close()
    consumer = KafkaConsumer(
        "orders", bootstrap_servers=odradek, auto_offset_reset="earliest", group_id="tests",
        consumer_timeout_ms=60_000, metadata_max_age_ms=1_000,
    )
    assert [next(consumer).value for _ in range(3)] == [b"order 0", b"order 1", b"order 2"]
    consumer.close()


def test_the_broker_is_the_same_for_all(odradek):
    host, port = odradek.split(":")
    assert host == "127.0.0.1"
    print("at", port)
    socket.create_connection((host, int(port))).close()
'''

pytestmark = pytest.mark.slow


def run(folder: Path, odradek: str) -> subprocess.CompletedProcess[str]:
    """Run the project's tests with what ODRADEK says."""
    shutil.copy(FIXTURE, folder / "conftest.py")
    (folder / "test_orders.py").write_text(TESTS)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("KAFKA_", "PYTEST_"))}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "--rootdir", folder]
        + [str(folder)],
        env={**environment, "ODRADEK": odradek, "PYTHONPATH": str(ROOT)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_a_project_gets_a_broker_of_its_own_that_ends_with_its_tests(tmp_path: Path) -> None:
    done = run(tmp_path, f"{sys.executable} -m odradek.cli.main")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    port = done.stdout.split("at ")[1].split()[0]
    listening = subprocess.run(
        [sys.executable, "-c", f"import socket; socket.create_connection(('127.0.0.1', {port}))"],
        capture_output=True,
        text=True,
    )
    assert "ConnectionRefusedError" in listening.stderr


def test_a_broker_that_cannot_start_says_why(tmp_path: Path) -> None:
    done = run(tmp_path, f"{sys.executable} -m odradek.cli.main nonsense")
    assert done.returncode == 1
    assert "No such command 'nonsense'" in done.stdout
