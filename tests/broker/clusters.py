"""Several brokers as if they were one process: for tests that only need a broker.

They have started once all of them answer, and the first knows the others. To a client that came
earlier, one broker might be the whole cluster, as with Kafka's: sarama's administrator would list
the groups of this one only, until it refreshes its metadata after ten minutes.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.processes import OdradekProcess, free_port, wait_until_answering
from odradek.protocol.messages.metadata import MetadataRequest
from tests.broker.kafka_peer import Peer
from tests.broker.workers import Workers, workers
from tests.support.forking import ForkedOdradek
from tests.support.servers import running_postgresql
from tests.support.waiting import wait_until

_KILL_EACH_S = 60.0


class TwoWorkers(Workers):
    """`odradek serve --workers 2`."""

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        made = workers(directory, 2, settings)
        super().__init__(
            directory,
            made.settings,
            options=made.options,
            port=made.port,
            count=made.count,
            ports=made.ports,
            source=random.Random(1),
        )

    @property
    def bootstrap(self) -> str:
        """The address of one worker: a client finds the others."""
        return f"127.0.0.1:{self.port}"

    def start(self) -> float:
        """Start the workers."""
        took_s = super().start()
        assert self.process is not None
        for port in self.ports.values():
            took_s += wait_until_answering(port, self.process, self.log_file)
        wait_until_known(self.count, self.port)
        return took_s


@dataclass
class ThreeBrokers(OdradekProcess):
    """Three brokers with a PostgreSQL; this is the first, which starts and stops the others."""

    others: list[OdradekProcess] = field(default_factory=list)
    stack: ExitStack = field(default_factory=ExitStack)
    source: random.Random = field(default_factory=lambda: random.Random(1))

    def start(self) -> float:
        """Start the database, then the brokers that do not run."""
        if not self.others:
            url = self.stack.enter_context(running_postgresql()).create_database("catalog")
            shared = {**self.settings, "odradek.catalog.url": url}
            self.settings = {**shared, "node.id": "1"}
            for node_id in (2, 3):
                own = {**shared, "node.id": str(node_id)}
                if "listeners" in own:
                    own["listeners"] = f"PLAINTEXT://127.0.0.1:{free_port()}"
                self.others.append(ForkedOdradek(self.directory / str(node_id), own))
        took_s = super().start() if self.process is None else 0.0
        took_s += sum(one.start() for one in self.others if one.process is None)
        wait_until_known(1 + len(self.others), self.port)
        return took_s

    def kill(self) -> None:
        """Kill one of the brokers."""
        victim = self.source.choice([self, *self.others])
        OdradekProcess.kill(victim)

    def stop(self) -> None:
        """Stop the brokers; they may be started again."""
        for one in self.others:
            one.stop()
        super().stop()

    def close(self) -> None:
        """Stop the database."""
        self.stack.close()

    def log_text(self) -> str:
        """Return the output of all brokers."""
        return super().log_text() + "".join(one.log_text() for one in self.others)


class ThreeSharingBrokers(ThreeBrokers):
    """Three brokers with a PostgreSQL and a bucket, a folder; all topics are shared."""

    def start(self) -> float:
        """Start the database, then the brokers."""
        bucket = self.directory / "bucket"
        bucket.mkdir(parents=True, exist_ok=True)
        self.settings = {
            **self.settings,
            "odradek.object.store.url": f"file://{bucket}",
        }
        return super().start()


class BesiegedBrokers(ThreeSharingBrokers):
    """Three brokers of shared topics, of which one is killed each minute and started again.

    The minutes are those of all tests together: most tests take less than one.
    """

    _next_kill_s = 0.0

    @property
    def bootstrap(self) -> str:
        """The addresses of all: any one of them may be down."""
        return ",".join(f"127.0.0.1:{one.port}" for one in (self, *self.others))

    def start(self) -> float:
        """Start the database, then the brokers, and begin to kill some."""
        if not self.others:
            self._turns, self._is_over = threading.RLock(), threading.Event()
            self._siege = threading.Thread(target=self._besiege)
        with self._turns:
            took_s = super().start()
        if not self._siege.ident:
            self._siege.start()
        return took_s

    def kill(self) -> None:
        """Kill one of the brokers."""
        with self._turns:
            super().kill()

    def stop(self) -> None:
        """Stop the brokers; they may be started again."""
        with self._turns:
            super().stop()

    def close(self) -> None:
        """End the siege, and stop the database."""
        self._is_over.set()
        self._siege.join()
        super().close()

    def _besiege(self) -> None:
        cls = type(self)
        while not self._is_over.wait(0.5):
            with self._turns:
                is_up = all(one.process is not None for one in (self, *self.others))
                if is_up and time.monotonic() >= cls._next_kill_s:
                    cls._next_kill_s = time.monotonic() + _KILL_EACH_S
                    self.kill()
                    self.start()


def wait_until_known(count: int, port: int) -> None:
    """Wait until the broker at a port lists as many brokers."""
    with Peer(port) as peer:
        wait_until(
            lambda: len(peer.ask(MetadataRequest(topics=[]), 12).brokers) == count,
            f"the broker at {port} knows the others",
        )
