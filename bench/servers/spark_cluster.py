"""Spark's standalone cluster as processes on loopback: a master, and workers.

It is PySpark's own distribution, started as Spark's start-master.sh and start-worker.sh do it,
which PySpark leaves out. A job that needs Python for its executors names it by PYSPARK_PYTHON.
"""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from os import environ
from pathlib import Path
from typing import Any

import pyspark

from bench.processes import end, free_port, wait_for

# An executor's memory by default, and a little.
WORKER_MEMORY = "1100m"
_HOST = "127.0.0.1"
_KEPT = ("PATH", "HOME", "JAVA_HOME", "LANG")


@dataclass
class Daemon:
    """A master or a worker, and the port of its page."""

    directory: Path
    main: str
    arguments: Sequence[str]
    port: int = field(default_factory=free_port)
    page_port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        """Return the address of a master."""
        return f"spark://{_HOST}:{self.port}"

    def start(self) -> None:
        """Start it, and wait until its page is there."""
        self.directory.mkdir(parents=True)
        home = environ.get("SPARK_HOME") or str(Path(pyspark.__file__).parent)
        environment = {name: environ[name] for name in _KEPT if name in environ}
        environment |= {
            "SPARK_HOME": home,
            "SPARK_LOCAL_IP": _HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        ports = ["--host", _HOST, "--port", f"{self.port}", "--webui-port", f"{self.page_port}"]
        command = [f"{home}/bin/spark-class", f"org.apache.spark.deploy.{self.main}", *ports]
        with (self.directory / "daemon.log").open("ab") as output:
            self.process = subprocess.Popen(
                [*command, *self.arguments], stdout=output, stderr=output, env=environment
            )
        wait_for(self._answers, f"{self.main} answers")

    def page(self) -> dict[str, Any]:
        """Return its page as JSON."""
        address = f"http://{_HOST}:{self.page_port}/json/"
        with urllib.request.urlopen(address, timeout=30) as page:
            status: dict[str, Any] = json.load(page)
        return status

    def stop(self) -> None:
        """Stop it as `kill` would, and wait until it is gone."""
        if self.process is not None:
            self.process.terminate()
            end(self.process)

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.directory / "daemon.log").read_text()
        try:
            return bool(self.page())
        except OSError:
            return False


@dataclass(frozen=True)
class Cluster:
    """A master and its workers."""

    master: Daemon
    workers: Sequence[Daemon]

    def apps(self) -> list[dict[str, Any]]:
        """Return the applications that have ended, in order."""
        ended: list[dict[str, Any]] = self.master.page()["completedapps"]
        return sorted(ended, key=lambda app: int(app["starttime"]))

    def tasks(self, app: str) -> list[int]:
        """Return how many tasks of an application each worker began."""
        return [
            sum(
                log.read_text(errors="replace").count("Running task ")
                for log in (worker.directory / "work" / app).glob("*/stderr")
            )
            for worker in self.workers
        ]


@contextmanager
def running_cluster(directory: Path, workers: int = 2, cores: int = 1) -> Iterator[Cluster]:
    """Run a cluster whose workers, of some cores each, the master knows; and end it."""
    master = Daemon(directory / "master", "master.Master", ())
    started = [master]
    try:
        master.start()
        for number in range(workers):
            folder = directory / f"worker-{number}"
            size = ["--cores", f"{cores}", "--memory", WORKER_MEMORY]
            work = ["--work-dir", f"{folder}/work", master.address]
            worker = Daemon(folder, "worker.Worker", [*size, *work])
            started.append(worker)
            worker.start()
        alive = partial(_has_workers, master, workers)
        wait_for(alive, f"{workers} workers are alive")
        yield Cluster(master, started[1:])
    finally:
        for daemon in reversed(started):
            daemon.stop()


def _has_workers(master: Daemon, count: int) -> bool:
    return bool(master.page()["aliveworkers"] == count)
