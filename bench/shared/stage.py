"""Brokers with a PostgreSQL and a server of S3, all of them on this machine."""

from __future__ import annotations

import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from confluent_kafka.admin import AdminClient

from bench.clients import create_topic
from bench.processes import OdradekProcess, wait_for
from bench.servers import cloud, postgresql, s3_server
from bench.servers.s3_server import S3Server
from bench.watch import cpu_s

_UNSTORED = re.compile(r"^odradek_wal_unstored_bytes (\S+)", re.MULTILINE)
_PUTS = re.compile(
    r'^odradek_object_store_requests_total\{method="PUT",purpose="(\w+)"\} (\S+)', re.MULTILINE
)


@dataclass
class Stage:
    """Brokers of one cluster."""

    brokers: list[OdradekProcess]
    store: S3Server | None  # None with a folder for it

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(one.bootstrap for one in self.brokers)

    def create(
        self, topic: str, partitions: int, storage: str, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic, and wait until each broker knows it."""
        settings = {"odradek.storage": storage, **(config or {})}
        create_topic(self.brokers[0], topic, partitions, settings)
        for broker in self.brokers:
            admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
            wait_for(partial(_leads, admin, topic), f"leaders of {topic}")

    def cpu_s(self) -> float:
        """Return the CPU seconds that the brokers have used."""
        return sum(map(cpu_s, self.brokers))

    def store_cpu_s(self) -> float:
        """Return the CPU seconds that the server of S3 has used."""
        return 0.0 if self.store is None else cpu_s(self.store)

    def puts(self) -> Counter[str]:
        """Return how many PUTs the brokers have sent, by purpose."""
        found = Counter[str]()
        for one in self.brokers:
            for purpose, count in _PUTS.findall(one.metrics()):
                found[purpose] += int(float(count))
        return found

    def settle(self, size_bytes: float) -> None:
        """Wait until the bucket has all records but for less than so many bytes."""

        def is_stored() -> bool:
            found = [_UNSTORED.search(one.metrics()) for one in self.brokers]
            return sum(float(one[1]) for one in found if one) < size_bytes

        wait_for(is_stored, "the segments are stored")

    def puts_a_second(self, seconds: float, after_s: float = 0.0) -> str:
        """Watch for some seconds, later; return the PUTs a second of a broker as text."""
        time.sleep(after_s)
        before, begun_s = self.puts(), time.monotonic()
        time.sleep(seconds)
        broker_s = (time.monotonic() - begun_s) * len(self.brokers)
        found = self.puts() - before
        of_them = ", ".join(f"{count / broker_s:.1f} {one}" for one, count in found.items())
        return f"{found.total() / broker_s:.1f} PUT/s a broker ({of_them})"


def _leads(admin: AdminClient, topic: str) -> bool:
    found = admin.list_topics(topic, timeout=30).topics[topic]
    return bool(found.partitions) and all(one.leader >= 0 for one in found.partitions.values())


@contextmanager
def running(
    count: int, *, is_delayed: bool, has_files: bool, settings: Mapping[str, str]
) -> Iterator[Stage]:
    """Run brokers; with `has_files` the catalog is a file of SQLite, and the bucket a folder.

    Raises NotInstalled.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        if has_files:
            (folder / "bucket").mkdir()
            store, engines = None, {
                "odradek.catalog.url": f"sqlite://{folder / 'catalog.db'}",
                "odradek.object.store.url": f"file://{folder / 'bucket'}",
            }
        else:
            store, engines = _servers(stack, is_delayed)
        brokers = [
            OdradekProcess(
                folder / str(node_id), {**engines, "node.id": str(node_id), **settings}
            )
            for node_id in range(1, count + 1)
        ]
        for one in brokers:
            stack.callback(one.stop)
            one.start()
        yield Stage(brokers, store)


def _servers(stack: ExitStack, is_delayed: bool) -> tuple[S3Server, dict[str, str]]:
    """Start a PostgreSQL and a server of S3; return the settings of brokers, too."""
    database = stack.enter_context(postgresql.running(is_durable=True))
    s3 = stack.enter_context(s3_server.running())
    catalog, store = database.create_database("catalog"), s3.create_bucket("topics")
    s3_port = s3.port
    if is_delayed:
        ports = stack.enter_context(cloud.running(s3.port, database.port))
        s3_port, catalog = ports[0], catalog.replace(f":{database.port}/", f":{ports[1]}/")
    return s3, {
        "odradek.catalog.url": catalog,
        **s3.settings(store, s3_port),
        "odradek.object.store.sign.payload": "false",  # as with TLS, which the server lacks here
    }
