"""Brokers as processes: starts Odradek or Apache Kafka on free ports, and stops them again.

Used by the benchmarks, the demo and the tests. Everything listens on loopback only.
"""

from __future__ import annotations

import atexit
import base64
import contextlib
import os
import shlex
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from odradek.testing.ports import free_port as free_port

ROOT = Path(__file__).resolve().parent.parent
# The flags of Kafka's own start script.
_KAFKA_FLAGS = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
# For programs that run for seconds only: optimized compilation would take longer.
QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_NO_KAFKA = "Kafka's jars are missing: run `make kafka` (needs Java and Maven)"
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
# The settings that Kafka's tool looks at when it formats directories.
_FORMATS = {
    "process.roles",
    "node.id",
    "log.dirs",
    "metadata.log.dir",
    "controller.quorum.voters",
    "unstable.feature.versions.enable",
}
# Folders that are there as long as this process.
_FOLDERS = contextlib.ExitStack()
atexit.register(_FOLDERS.close)


class NotInstalled(Exception):
    """A server's program is not on this machine; the message says how to get it."""


@dataclass
class OdradekProcess:
    """`odradek serve` on a directory; it can be stopped, killed and started again."""

    directory: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    log_level: str = "INFO"
    options: Sequence[str] = ()  # of `odradek serve`, in addition to the settings
    is_bare: bool = False  # whether only settings and environment have its listeners
    is_apart: bool = False  # whether Ctrl-C in this terminal does not reach it
    module: str = "odradek.cli.main"  # or another that wraps the command
    root: Path = ROOT  # the folder with its code
    port: int = field(default_factory=free_port)
    http_port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def http(self) -> str:
        """The address of /metrics and /health."""
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def data(self) -> Path:
        """The log directory."""
        return self.directory / "data"

    @property
    def log_file(self) -> Path:
        """The broker's standard output and error, of all its runs."""
        return self.directory / "broker.log"

    def start(self) -> float:
        """Start the broker, and return the seconds until its first answer."""
        own = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self.data),
            "group.initial.rebalance.delay.ms": "0",
        }
        settings = {
            **({} if self.is_bare else own),
            "metrics.listener": f"127.0.0.1:{self.http_port}",
            **self.settings,
        }
        arguments = [sys.executable, "-m", self.module, "serve", "--log-level", self.log_level]
        arguments += self.options
        for key, value in settings.items():
            arguments += ["--set", f"{key}={value}"]
        self.directory.mkdir(parents=True, exist_ok=True)
        environment = {k: v for k, v in os.environ.items() if not k.startswith("KAFKA_")}
        path = str(ROOT) if self.root == ROOT else f"{self.root}{os.pathsep}{ROOT}"
        environment.update(self.environment, PYTHONPATH=path)
        with self.log_file.open("ab") as output:
            self.process = self.launch(
                arguments,
                stdout=output,
                stderr=output,
                cwd=self.root,
                env=environment,
                start_new_session=self.is_apart,
            )
        return wait_until_answering(self.port, self.process, self.log_file)

    def launch(self, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """Begin the process; options are those of subprocess.Popen."""
        return subprocess.Popen(command, **options)

    def stop(self) -> None:
        """Stop it as `kill` would, and wait until it is gone."""
        if self.process is not None:
            self.process.terminate()
            end(self.process)
            self.process = None

    def kill(self) -> None:
        """End the broker at once (SIGKILL): nothing is flushed or closed."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def log_text(self) -> str:
        """Return the broker's output so far."""
        return self.log_file.read_text(errors="replace")

    def metrics(self) -> str:
        """Return the text of /metrics."""
        with urllib.request.urlopen(f"{self.http}/metrics", timeout=30) as answer:
            text: str = answer.read().decode()
            return text


@dataclass
class KafkaProcess:
    """Apache Kafka as one KRaft node; kafka_libs() finds its jars."""

    directory: Path
    settings: Mapping[str, str] = field(default_factory=dict)
    unset: Sequence[str] = ()  # names of settings below that are left out
    flags: Sequence[str] = ()  # of Java, in addition to the flags of Kafka's own script
    cluster_id: str = ""  # of the cluster that it joins, "" for one of its own
    port: int = field(default_factory=free_port)
    controller_port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap(self) -> str:
        """The address for clients."""
        return f"127.0.0.1:{self.port}"

    @property
    def data(self) -> Path:
        """The log directory."""
        return self.directory / "data"

    @property
    def log_file(self) -> Path:
        """The broker's output."""
        return self.directory / "kafka.log"

    def start(self) -> float:
        """Format a new data directory, start, and return the seconds to the first answer.

        KAFKA_OPTS may hold more Java flags, as for Kafka's own script.
        """
        properties = self._write_properties()
        if not self.data.exists():
            if _FORMATS.isdisjoint(self.settings) and not self.cluster_id:
                _copy_formatted(self.data)
            else:
                self._format(properties)
        own = shlex.split(os.environ.get("KAFKA_OPTS", ""))
        # INFO is the default level of both brokers.
        flags = [*_KAFKA_FLAGS, *own, *self.flags, "-Droot.level=INFO", "-Dcleaner.level=INFO"]
        with self.log_file.open("ab") as output:
            self.process = subprocess.Popen(
                [*java(flags), "kafka.Kafka", str(properties)], stdout=output, stderr=output
            )
        return wait_until_answering(self.port, self.process, self.log_file)

    def format(self) -> Path:
        """Format a new data directory with Kafka's own tool; return it."""
        self._format(self._write_properties())
        return self.data

    def _format(self, properties: Path) -> None:
        format_it = ["kafka.tools.StorageTool", "format", "-t", self.cluster_id or _new_id()]
        kafka_tool([*format_it, "-c", str(properties)])

    def _write_properties(self) -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        properties = self.directory / "server.properties"
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@127.0.0.1:{self.controller_port}",
            "listeners": (
                f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{self.controller_port}"
            ),
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **self.settings,
        }
        lines = (f"{key}={text}\n" for key, text in settings.items() if key not in self.unset)
        properties.write_text("".join(lines))
        return properties

    def stop(self) -> None:
        """Stop it as `kill` would, and wait until it is gone."""
        if self.process is not None:
            self.process.terminate()
            end(self.process)
            self.process = None

    def kill(self) -> None:
        """End the broker at once (SIGKILL)."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def log_text(self) -> str:
        """Return the broker's output so far."""
        return self.log_file.read_text(errors="replace")


@cache
def _formatted() -> Path:
    """Return a data directory that Kafka's tool has formatted, which this process keeps."""
    return KafkaProcess(Path(_FOLDERS.enter_context(tempfile.TemporaryDirectory()))).format()


def _copy_formatted(data: Path) -> None:
    """Make a formatted data directory of a new cluster: the tool takes a second each time."""
    shutil.copytree(_formatted(), data)
    properties = data / "meta.properties"
    keys = (line.partition("=")[0] for line in properties.read_text().splitlines())
    ids = "".join(f"{key}={_new_id()}\n" for key in keys if key in ("cluster.id", "directory.id"))
    # Of two lines with the same key, the later one counts.
    properties.write_text(properties.read_text() + ids)


def _new_id() -> str:
    # It must not begin with a dash: the tool would take it for an option.
    return base64.urlsafe_b64encode(b"k" + os.urandom(15)).decode().rstrip("=")


def kafka_libs() -> Path | None:
    """Return the folder of Kafka's jars (KAFKA_LIBS, else .kafka/libs), None when it is absent."""
    found = Path(os.environ.get("KAFKA_LIBS", ROOT / ".kafka" / "libs"))
    return found if shutil.which("java") and list(found.glob("kafka_2.13-*.jar")) else None


def lacks_kafka() -> bool:
    """Return whether Kafka's jars are missing, and if so print the remedy."""
    if kafka_libs() is None:
        print(_NO_KAFKA)
        return True
    return False


def java(flags: Sequence[str]) -> list[str]:
    """Return the beginning of a Java command with Kafka's jars on the class path.

    KAFKA_CLASSES may name an archive of loaded classes, which Java starts faster with.
    """
    libs = kafka_libs()
    assert libs is not None, _NO_KAFKA
    archive = os.environ.get("KAFKA_CLASSES")
    if archive:
        flags = [*flags, f"-XX:SharedArchiveFile={archive}"]
        flags += ["-Xlog:cds=off", "-Xlog:cds+dynamic=off"]  # an archive of other jars is ignored
    log4j = ROOT / "bench" / "log4j2.properties"
    return ["java", *flags, f"-Dlog4j2.configurationFile={log4j}", "-cp", f"{libs}/*"]


def kafka_tool(
    arguments: Sequence[str],
    *,
    timeout_s: float = 240,
    text: str | None = None,
    check: bool = True,
    flags: Sequence[str] = QUICK_START,
) -> subprocess.CompletedProcess[str]:
    """Run one of Kafka's tools, by its class name, to its end."""
    return subprocess.run(
        [*java(["-Xmx512m", *flags]), *arguments],
        input=text,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=check,
    )


def wait_until_answering(port: int, process: subprocess.Popen[bytes], log_file: Path) -> float:
    """Send ApiVersions until there is an answer; return the seconds until then."""
    started = time.monotonic()
    request = struct.pack(">ihhih", 10, 18, 0, 1, -1)
    while time.monotonic() - started < START_TIMEOUT_S:
        if process.poll() is not None:
            raise RuntimeError(f"the broker ended at once:\n{log_file.read_text()}")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as s:
            s.settimeout(2)
            s.sendall(request)
            if s.recv(4) and process.poll() is None:
                return time.monotonic() - started
        time.sleep(0.01)
    raise RuntimeError(f"no answer within {START_TIMEOUT_S} s:\n{log_file.read_text()}")


def wait_until_listening(port: int, title: str) -> None:
    """Wait until a process that starts takes connections on a port of this machine."""

    def connects() -> bool:
        with contextlib.suppress(ConnectionError):
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True
        return False

    wait_for(connects, title)


def wait_for(condition: Callable[[], bool], title: str) -> None:
    """Wait until a condition of a process that starts is true."""
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > START_TIMEOUT_S:
            raise RuntimeError(f"not within {START_TIMEOUT_S} s: {title}")
        time.sleep(0.01)


def end(process: subprocess.Popen[Any]) -> None:
    """Wait for a process to end, and kill it when it does not."""
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise


def resident_bytes(process: subprocess.Popen[bytes] | None = None) -> int:
    """Return the resident memory of a process, by default of this one."""
    name = "self" if process is None else process.pid
    for line in Path(f"/proc/{name}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) * 1024
    return 0
