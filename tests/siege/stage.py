"""The scene of a siege: brokers, a PostgreSQL with a replica, a server of S3, and ways between.

Each broker has ways of its own: to the catalog, to the bucket, from clients and from the other
brokers. So each may be cut off from each of them alone.
"""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.processes import ROOT
from bench.servers import postgresql, s3_server
from bench.servers.postgresql import Postgresql
from bench.servers.s3_server import S3Server
from tests.siege.brokers import Broker
from tests.siege.disks import mounted
from tests.siege.proxies import Way, Ways
from tests.siege.shifted import write_offset

_WORKERS = 2
_KEEPERS = 2


@dataclass(frozen=True)
class Plan:
    """The brokers of a siege.

    One is two workers of a machine. Two are never wiped: they have the local topics, whose records
    are nowhere else.
    """

    count: int
    with_workers: int
    keepers: frozenset[int]

    @classmethod
    def drawn(cls, seed: int, count: int) -> Plan:
        """Draw it by a seed."""
        source, node_ids = random.Random(f"plan {seed}"), range(1, count + 1)
        return cls(count, source.choice(node_ids), frozenset(source.sample(node_ids, _KEEPERS)))


@dataclass
class Servers:
    """The servers that all brokers share."""

    ways: Ways
    catalog: Postgresql
    replica: Postgresql
    bucket: S3Server
    catalog_url: str
    bucket_url: str
    jobs_way: Way  # to the catalog, for those that are no brokers

    @property
    def jobs_url(self) -> str:
        """The address of the catalog by that way."""
        return self._url_by(self.jobs_way)

    def connect(self, broker: Broker) -> None:
        """Let a broker use the catalog and the bucket, by ways of its own."""
        catalog, bucket = self.ways.to(self.catalog.port), self.ways.to(self.bucket.port)
        own = self.bucket.settings(self.bucket_url, bucket.port)
        broker.reach(catalog, self._url_by(catalog), bucket, own)

    def _url_by(self, way: Way) -> str:
        return re.sub(r":\d+/", f":{way.port}/", self.catalog_url)


@dataclass
class Stage:
    """All that the nemesis may trouble."""

    folder: Path
    plan: Plan
    servers: Servers
    brokers: list[Broker] = field(default_factory=list)

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers for clients."""
        doors = [door for one in self.brokers for door in one.doors]
        return ",".join(f"127.0.0.1:{door.clients.port}" for door in doors)

    @property
    def homes(self) -> Sequence[int]:
        """The node ids that may lead local topics."""
        keepers = [one for one in self.brokers if one.node_id in self.plan.keepers]
        return [node_id for one in keepers for node_id in one.node_ids]

    def fail_over(self) -> None:
        """Lose the catalog, and let its replica take its place."""
        servers = self.servers
        servers.catalog.stop()
        servers.replica.promote()
        servers.catalog = servers.replica
        for way in (*(one.catalog for one in self.brokers), servers.jobs_way):
            way.target = servers.catalog.port
            way.reset()

    def heal(self) -> None:
        """Let all ways pass, all clocks be right, and all disks have room."""
        for one in self.brokers:
            for way in one.all_ways.values():
                way.heal()
            if one.disk is not None:
                one.disk.make_room()
            write_offset(one.clock_file, 0)


@contextmanager
def running(folder: Path, plan: Plan, former: Path | None = None) -> Iterator[Stage]:
    """Run a new cluster; its brokers run the code of `former`, if there is one.

    Raises NotInstalled.
    """
    with ExitStack() as stack:
        ways = stack.enter_context(Ways().running())
        catalog = stack.enter_context(postgresql.running())
        url = catalog.create_database("catalog")
        replica = stack.enter_context(catalog.replicated())
        bucket = stack.enter_context(s3_server.running())
        topics, for_jobs = bucket.create_bucket("topics"), ways.to(catalog.port)
        servers = Servers(ways, catalog, replica, bucket, url, topics, for_jobs)
        stage = Stage(folder, plan, servers)
        for node_id in range(1, plan.count + 1):
            workers = _WORKERS if node_id == plan.with_workers else 1
            broker = Broker(folder, node_id, workers, ways, former or ROOT)
            servers.connect(broker)
            stage.brokers.append(broker)
            copy = broker.directory / "data-in-the-end"
            broker.disk = stack.enter_context(mounted(broker.data, copy))
            stack.callback(_end, broker)
            broker.start()
        yield stage


def _end(broker: Broker) -> None:
    if broker.is_up:
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
