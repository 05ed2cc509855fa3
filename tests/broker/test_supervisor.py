"""The supervisor of workers: which silence it takes for a fault."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker.workers.host import Host
from odradek.broker.workers.supervisor import Supervisor
from odradek.storage.real_files import RealFileSystem


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Run a process in the place of a worker."""
    with subprocess.Popen(["sleep", "600"]) as found:
        yield found
        found.kill()


def supervisor_of(process: subprocess.Popen[bytes], path: Path) -> Supervisor:
    """Return a supervisor without patience, whose worker has served for a while."""
    host = Host(RealFileSystem(), [path], "", None)
    made = Supervisor(host, [1], lambda *_: 0, 0.0, _nothing, _nothing, _nothing)
    made._children[0].pid = process.pid
    made._beats.beat(0)
    made._look_for_silent()
    return made


def _nothing() -> None:
    pass


def test_a_silent_worker_is_killed(process: subprocess.Popen[bytes], tmp_path: Path) -> None:
    supervisor = supervisor_of(process, tmp_path)
    supervisor._look_for_silent()
    assert process.wait() == -signal.SIGKILL


def test_a_worker_that_stops_may_be_silent(
    process: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    supervisor = supervisor_of(process, tmp_path)
    supervisor._beats.rest(0)
    for _ in range(3):
        supervisor._look_for_silent()
    assert process.poll() is None


def test_a_worker_that_counts_is_left_alone(
    process: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    supervisor = supervisor_of(process, tmp_path)
    for _ in range(3):
        supervisor._beats.beat(0)
        supervisor._look_for_silent()
    assert process.poll() is None
