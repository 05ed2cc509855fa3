"""A job that is killed at any moment, along with the broker, ends with a table that is right."""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import time
from os import environ, killpg
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="needs the pipeline extra")

from bench.processes import ROOT, OdradekProcess
from odradek.pipeline.connector import KAFKA
from odradek.pipeline.kept_table import KeptTable
from odradek.pipeline.session import SessionOptions, open_session
from odradek.pipeline.tickets import tickets
from tests.pipeline.conftest import CACHE
from tests.pipeline.tables import SQLITE, kept_table, table_arguments
from tests.support.forking import ForkedOdradek

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TOPIC, PARTITIONS, TICKETS = "tickets", 4, 1200
SCHEMA = (
    "id BIGINT, account_id BIGINT, status STRING, version BIGINT, subject STRING, "
    "description STRING"
)
DELETED = "id % 7 = 0"
TABLE = ("--bytes", "300", "--accounts", "10")
START_TIMEOUT_S = 200
SEED = int(environ.get("KILLS_SEED", "1"))


@pytest.mark.interop
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("kind", ["delta", "hadoop", "jdbc"])
@pytest.mark.parametrize("kills", [2, 10])
def test_a_job_killed_with_its_broker_ends_equal_to_the_source(
    tmp_path: Path, kind: str, kills: int
) -> None:
    chance = random.Random(SEED)
    settings = {"log.cleaner.backoff.ms": "200", "log.cleaner.dedupe.buffer.size": "8000000"}
    broker = ForkedOdradek(tmp_path / "broker", settings)
    broker.start()
    kept = kept_table(kind, tmp_path)
    job, publisher = _Job(tmp_path, broker, kept), _Publisher(tmp_path, broker)
    try:
        publisher.begin()
        for number in range(kills):
            job.begin()
            job.await_commit()
            time.sleep(chance.uniform(0, 2))  # a random moment of the next batch
            job.kill(whole=chance.random() < 0.5)
            if number % 2:
                broker.kill()
                broker.start()
            publisher.go_on()
        publisher.finish()
        job.begin("--available-now")
        assert job.finish() == 0
    finally:
        publisher.kill()
        job.kill(whole=True)
        broker.stop()
    packages = (KAFKA, SQLITE, *kept.packages)
    with open_session(SessionOptions(CACHE, packages=packages)) as spark:
        table = kept.read(spark).select("value.*")
        version = publisher.version
        source = tickets(spark, TICKETS, bytes_each=300, accounts=10, version=version)
        source = source.where(f"NOT ({DELETED})")
        assert table.exceptAll(source).count() == source.exceptAll(table).count() == 0


class _Job:
    """The command that keeps the table, killed and started again."""

    def __init__(self, folder: Path, broker: OdradekProcess, table: KeptTable) -> None:
        self._command = [
            *(sys.executable, "-m", "odradek.pipeline.materialize", "--topic", TOPIC),
            *("--bootstrap-servers", broker.bootstrap, *table_arguments(table)),
            *("--checkpoint", str(folder / "checkpoint"), "--cache", str(CACHE)),
            *("--format", "json", "--schema", SCHEMA, "--interval-seconds", "0"),
            *("--max-offsets-per-trigger", "400"),
        ]
        self._process: subprocess.Popen[str] | None = None

    def begin(self, *more: str) -> None:
        self._process = subprocess.Popen(
            [*self._command, *more],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def await_commit(self) -> None:
        """Wait until a batch is in the table; a job that the broker's end stopped starts again."""
        said = []
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            assert self._process is not None
            assert self._process.stdout is not None
            line = self._process.stdout.readline()
            said.append(line)
            if line.startswith("committed"):
                return
            if not line:
                assert self._process.wait() == 1, said
                self.begin()
        raise AssertionError(f"no batch in {START_TIMEOUT_S} s: {said}")

    def kill(self, *, whole: bool) -> None:
        """Kill the command, or all of it with its Java side."""
        if self._process is not None:
            if whole:
                _kill_group(self._process)
            self._process.kill()
            self._process.wait()
            # What is left of it ends by itself; the next one must not meet it.
            self._process.communicate()
            self._process = None

    def finish(self) -> int:
        """Wait for its end and return its exit code."""
        process, self._process = self._process, None
        assert process is not None
        print(process.communicate()[0])
        return process.returncode


class _Publisher:
    """Publishes the tickets again and again, each time in another version, as commands."""

    def __init__(self, folder: Path, broker: OdradekProcess) -> None:
        self._folder, self._broker = folder, broker
        self._process: subprocess.Popen[str] | None = None
        self._errors = ""
        self.version = 0

    def begin(self) -> None:
        """Begin with the next version."""
        self.version += 1
        self._start()

    def go_on(self) -> None:
        """Begin with the next version, or with this one again, if it is not at work."""
        if self._process is not None and self._process.poll() is None:
            return
        if self._end() == 0:
            self.begin()
        else:
            self._start()

    def finish(self) -> None:
        """Wait until the version at work is published: one that nothing befalls now goes on."""
        if self._end() != 0:
            self._start()
            assert self._end() == 0, self._errors

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            _kill_group(self._process)
            self._process.communicate()

    def _start(self) -> None:
        command = [
            *(sys.executable, "-m", "odradek.pipeline.publish", "--topic", TOPIC, "--create"),
            *("--partitions", str(PARTITIONS), "--bootstrap-servers", self._broker.bootstrap),
            *("--topic-config", "min.cleanable.dirty.ratio=0.1"),
            *("--topic-config", "internal.segment.bytes=40000"),
            *("--option", "kafka.batch.size=16384", "--cache", str(CACHE)),
            *("--work", str(self._folder / "work"), "--tickets", str(TICKETS), *TABLE),
            *("--version", str(self.version), "--deleted-where", DELETED),
            *("--records-per-second", "100"),
        ]
        self._process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def _end(self) -> int:
        assert self._process is not None
        self._errors = self._process.communicate()[1]
        assert "Traceback" not in self._errors, self._errors
        return self._process.returncode


def _kill_group(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        killpg(process.pid, signal.SIGKILL)
