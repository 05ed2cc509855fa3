"""The scene of a siege: brokers, a PostgreSQL with a replica, a server of S3, and ways between.

Each broker has ways of its own: to the catalog, to the bucket, from clients and from the other
brokers. So each may be cut off from each of them alone.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.processes import ROOT, OdradekProcess, free_port
from bench.servers import postgresql, s3_server
from bench.servers.postgresql import Postgresql
from bench.servers.s3_server import S3Server
from tests.siege.proxies import Way, Ways
from tests.siege.shifted import write_offset

LEASE_S = 3.0  # broker.session.timeout.ms
_START_MAX_S = 60.0
# Why a start fails that succeeds later: the lease of the former life, a server that is away.
_PASSING = ("is in use by", "the catalog", "the bucket", "object store")
SETTINGS = {
    "odradek.storage": "object",
    "odradek.object.store.timeout.ms": "5000",
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BETWEEN:PLAINTEXT",
    "inter.broker.listener.name": "BETWEEN",
    "log.cleaner.backoff.ms": "500",
    "log.retention.check.interval.ms": "2000",
    "log.initial.task.delay.ms": "100",
    "log.segment.delete.delay.ms": "1000",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
}


class Broker(OdradekProcess):
    """A broker of the siege."""

    def __init__(self, folder: Path, node_id: int, servers: Servers, root: Path) -> None:
        self.node_id = node_id
        self.clock_file = folder / f"clock-{node_id}"
        self.between_port = free_port()
        super().__init__(
            folder / f"broker-{node_id}",
            environment={"SIEGE_CLOCK": str(self.clock_file)},
            module="tests.siege.shifted",
            root=root,
        )
        write_offset(self.clock_file, 0)
        ways, port = servers.ways, servers.catalog.port
        self.catalog, self.bucket = ways.to(port), ways.to(servers.bucket.port)
        self.clients, self.between = ways.to(self.port), ways.to(self.between_port)
        catalog = servers.catalog_url.replace(f":{port}/", f":{self.catalog.port}/")
        self.settings = {
            **SETTINGS,
            "node.id": str(node_id),
            "broker.rack": f"rack-{node_id}",
            "listeners": _listeners(self.port, self.between_port),
            "advertised.listeners": _listeners(self.clients.port, self.between.port),
            "odradek.catalog.url": catalog,
            **servers.bucket.settings(servers.bucket_url, self.bucket.port),
        }

    @property
    def all_ways(self) -> Mapping[str, Way]:
        """The ways of this broker, by the name of their other end."""
        return {
            "catalog": self.catalog,
            "bucket": self.bucket,
            "clients": self.clients,
            "brokers": self.between,
        }

    @property
    def is_up(self) -> bool:
        """Whether its process runs, or stands still."""
        return self.process is not None and self.process.poll() is None

    def pause(self) -> None:
        """Let it stand still."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)

    def start_again(self) -> None:
        """Start it as a service manager does: again until the lease of its former life ends."""
        end_s = time.monotonic() + _START_MAX_S
        while True:
            try:
                self.start()
            except RuntimeError:
                last = self.log_text().splitlines()[-1]
                if time.monotonic() > end_s or not any(one in last for one in _PASSING):
                    raise RuntimeError(f"broker {self.node_id}: {last}") from None
            else:
                return

    def wipe(self) -> None:
        """Remove the files of a broker that is down."""
        shutil.rmtree(self.data, ignore_errors=True)


def _listeners(clients: int, between: int) -> str:
    return f"CLIENTS://127.0.0.1:{clients},BETWEEN://127.0.0.1:{between}"


@dataclass
class Servers:
    """The servers that all brokers share."""

    ways: Ways
    catalog: Postgresql
    replica: Postgresql
    bucket: S3Server
    catalog_url: str
    bucket_url: str


@dataclass
class Stage:
    """All that the nemesis may trouble."""

    folder: Path
    servers: Servers
    brokers: list[Broker] = field(default_factory=list)

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers for clients."""
        return ",".join(f"127.0.0.1:{one.clients.port}" for one in self.brokers)

    def fail_over(self) -> None:
        """Lose the catalog, and let its replica take its place."""
        servers = self.servers
        servers.catalog.stop()
        servers.replica.promote()
        servers.catalog = servers.replica
        for one in self.brokers:
            one.catalog.target = servers.catalog.port
            one.catalog.reset()

    def heal(self) -> None:
        """Let all ways pass, and all clocks be right."""
        for one in self.brokers:
            for way in one.all_ways.values():
                way.heal()
            write_offset(one.clock_file, 0)


@contextmanager
def running(folder: Path, count: int, former: Path | None = None) -> Iterator[Stage]:
    """Run a new cluster; its brokers run the code of `former`, if there is one.

    Raises NotInstalled.
    """
    with ExitStack() as stack:
        ways = stack.enter_context(Ways().running())
        catalog = stack.enter_context(postgresql.running())
        url = catalog.create_database("catalog")
        replica = stack.enter_context(catalog.replicated())
        bucket = stack.enter_context(s3_server.running())
        servers = Servers(ways, catalog, replica, bucket, url, bucket.create_bucket("topics"))
        stage = Stage(folder, servers)
        for node_id in range(1, count + 1):
            broker = Broker(folder, node_id, servers, former or ROOT)
            stage.brokers.append(broker)
            stack.callback(_end, broker)
            broker.start()
        yield stage


def _end(broker: Broker) -> None:
    if broker.is_up:
        broker.resume()
        broker.kill()


@contextmanager
def former_code(folder: Path) -> Iterator[Path | None]:
    """Lend the code of the last commit but one; None where there is no repository."""
    path = folder / "former"
    git = ["git", "-C", str(ROOT)]
    made = subprocess.run(
        [*git, "worktree", "add", "--detach", str(path), "HEAD~1"],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        yield None
        return
    try:
        yield path
    finally:
        subprocess.run([*git, "worktree", "remove", "--force", str(path)], check=True)
