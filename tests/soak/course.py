"""The course of a soak: full load for a moment, then a third of it for hours, with restarts.

Each round begins with the restart of a broker, a stop and a kill in turn. The first broker is
never restarted, so that a leak there has the whole run to show. In each round members join and
leave groups, and a topic is created and deleted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

from confluent_kafka.admin import AdminClient

from bench.processes import OdradekProcess
from bench.servers import postgresql, s3_server
from tests.siege.load.client import SETTINGS as CLIENT_SETTINGS
from tests.soak.clients import Client, ClientFailed
from tests.soak.levels import growing
from tests.soak.logs import Trouble, unexplained
from tests.soak.sampling import Samples, Sampling
from tests.soak.topics import created, passing

_BROKERS = 3
_SETTINGS = {
    "broker.session.timeout.ms": "3000",
    "odradek.object.delete.delay.ms": "60000",
    "odradek.wal.checkpoint.bytes": str(16 << 20),
    "odradek.cache.bytes": str(256 << 20),
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.num.partitions": "4",
    "log.cleaner.backoff.ms": "1000",
    "log.retention.check.interval.ms": "5000",
}
_TRANSACTIONS_A_SECOND = "2"
_FULL = "0"  # as fast as possible
# Of the full load.
_SHARE = 1 / 3
_PROTOCOLS = ("classic", "consumer")
# Clients look for new leaders, and brokers for new coordinators, for so long after a restart.
_AFTERMATH_S = 15.0
_SAMPLES = 300


@dataclass(frozen=True)
class Plan:
    """The seconds of a soak, of each of its rounds, and of the full load before it."""

    seconds: float
    round_s: float
    full_s: float


@dataclass
class Report:
    """The result of a soak."""

    samples: Samples
    seconds: float = 0.0
    full_rate: float = 0.0  # records a second
    written: int = 0
    read: int = 0
    troubles: list[Trouble] = field(default_factory=list)
    complaints: int = 0  # lines above INFO that a restart explains
    problems: list[str] = field(default_factory=list)


@dataclass
class Cluster:
    """The brokers of a soak, and the places of what they share."""

    brokers: list[OdradekProcess]
    catalog_url: str
    buckets: Path

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers."""
        return ",".join(one.bootstrap for one in self.brokers)


class Soak:
    """A cluster under load, whose levels are watched."""

    def __init__(self, cluster: Cluster, plan: Plan) -> None:
        self._cluster, self._plan = cluster, plan
        self._sampling = Sampling(
            cluster.brokers, cluster.catalog_url, cluster.buckets, plan.seconds / _SAMPLES
        )
        self._report = Report(self._sampling.samples)
        self._admin = AdminClient(
            {**CLIENT_SETTINGS, "bootstrap.servers": cluster.bootstrap}
        )

    def run(self) -> Report:
        """Load the cluster for its time; return what was found."""
        report = self._report
        for future in self._admin.create_topics(created()).values():
            future.result()
        report.full_rate = self._find_full_rate()
        rate = str(report.full_rate * _SHARE)
        with ExitStack() as stack:
            kinds = [("produce", rate), ("transact", _TRANSACTIONS_A_SECOND)]
            writers = [stack.enter_context(self._client(*kind)) for kind in kinds]
            readers = [stack.enter_context(self._client(one)) for one in _PROTOCOLS * 2]
            with self._sampling as sampling:
                while sampling.seconds < self._plan.seconds:
                    self._run_round()
                report.seconds = sampling.seconds
            report.written = sum(map(self._end, writers))
            report.read += sum(map(self._end, readers))
        for one in self._cluster.brokers:
            strange, explained = unexplained(one.log_file, report.troubles)
            report.problems += [f"{one.directory.name}: {line}" for line in strange]
            report.complaints += explained
        report.problems += growing(report.samples, report.seconds)
        return report

    def _client(self, *kind: str) -> AbstractContextManager[Client]:
        return Client.running(self._cluster.bootstrap, *kind)

    def _end(self, client: Client) -> int:
        """Let a client end; return the number of its records."""
        try:
            return client.end()
        except ClientFailed as error:
            self._report.problems.append(str(error))
            return 0

    def _find_full_rate(self) -> float:
        with ExitStack() as stack:
            producer = stack.enter_context(self._client("produce", _FULL))
            readers = [stack.enter_context(self._client(one)) for one in _PROTOCOLS * 2]
            begun_s = time.monotonic()
            Event().wait(self._plan.full_s)
            count = producer.end()
            seconds = time.monotonic() - begun_s
            for one in readers:
                one.end()
        return count / seconds

    def _run_round(self) -> None:
        """Restart a broker; let members come and go, and a topic."""
        report = self._report
        number = len(report.troubles)
        end_s = time.monotonic() + self._plan.round_s
        others = self._cluster.brokers[1:]
        broker, begun_s = others[number % len(others)], time.time()
        name = ("stop", "kill")[number // len(others) % 2]
        getattr(broker, name)()
        broker.start()
        minute = self._sampling.seconds / 60
        print(f"minute {minute:.1f}: {name} and start of {broker.directory.name}", flush=True)
        ended_s = time.time() + _AFTERMATH_S
        report.troubles.append(Trouble(begun_s, ended_s))
        topic = passing(number)
        with ExitStack() as stack:
            members = [stack.enter_context(self._client(one)) for one in _PROTOCOLS]
            self._admin.create_topics([topic])[topic.topic].result()
            Event().wait(max(end_s - time.monotonic(), 0.0))
            self._admin.delete_topics([topic.topic])[topic.topic].result()
            # Some members leave, others are killed.
            for one in members[number % len(members) :]:
                report.read += self._end(one)


@contextmanager
def running(folder: Path) -> Iterator[Cluster]:
    """Run brokers with a PostgreSQL and a server of S3. Raises NotInstalled."""
    with ExitStack() as stack:
        catalog = stack.enter_context(postgresql.running())
        url = catalog.create_database("catalog")
        bucket = stack.enter_context(s3_server.running())
        store = bucket.settings(bucket.create_bucket("topics"), bucket.port)
        shared = {**_SETTINGS, **store, "odradek.catalog.url": url}
        brokers = []
        for node_id in range(1, _BROKERS + 1):
            settings = {**shared, "node.id": str(node_id)}
            broker = OdradekProcess(folder / f"broker-{node_id}", settings, is_apart=True)
            stack.callback(broker.stop)
            broker.start()
            brokers.append(broker)
        yield Cluster(brokers, url, bucket.folder / "buckets")
