"""A cluster of brokers in one loop: their machines, their lives, and what they know."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import random
import traceback
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from odradek.broker.catalog import opening
from odradek.broker.catalog.engines import CatalogAway
from odradek.broker.composition import Broker
from odradek.broker.errors import MetadataError
from odradek.broker.hosts import addresses
from odradek.broker.metadata.store import Resource, ResourceType
from odradek.broker.topics.names import INTERNAL
from odradek.cleaner.runtime.pool import CleanerPool
from odradek.config import effective
from odradek.config.resolution import Layer, Source
from odradek.storage.errors import StorageError
from odradek.storage.log import Log
from tests.histories.history import History, Led, View
from tests.simulation.cluster.admin import SETTING
from tests.simulation.cluster.catalog import SimulatedCatalog
from tests.simulation.cluster.clients import rack_of
from tests.simulation.cluster.left import NOTHING
from tests.simulation.cluster.loop import Process
from tests.simulation.cluster.network import Network
from tests.simulation.cluster.settings import resolve_once
from tests.simulation.crashfs import CrashFileSystem

BASE_PORT = 9_000
_BEGIN_MS = 1_700_000_000_000
_RESTART_S = 0.5
SETTINGS = {
    "odradek.catalog.url": "sqlite:///simulated",
    "metrics.listener": "",
    "log.dirs": "/data",
    "log.cleaner.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "broker.session.timeout.ms": "1500",
    "broker.heartbeat.interval.ms": "300",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "2000",
    "log.flush.start.offset.checkpoint.interval.ms": "2000",
    "auto.create.topics.enable": "false",
    "log.retention.ms": "-1",
    "num.recovery.threads.per.data.dir": "1",
}


class WallClock:
    """The wall clock of a machine, which may jump; also that of its file system."""

    def __init__(self, loop: Network) -> None:
        self._loop = loop
        self.offset_ms = 0

    def now_ms(self) -> int:
        """Return the time."""
        return _BEGIN_MS + int(self._loop.time() * 1_000) + self.offset_ms


class SimulatedBroker(Broker):
    """A broker that reports to the world when it appends."""

    on_appended: Any = None

    def _appended(self, log: Log, size_bytes: int, record_count: int) -> None:
        super()._appended(log, size_bytes, record_count)
        if self.on_appended is not None:
            self.on_appended(log)


class Machine:
    """A machine with a disk and a clock; a broker runs on it again and again."""

    def __init__(self, node_id: int, loop: Network) -> None:
        self.node_id, self.port = node_id, BASE_PORT + node_id
        self.clock = WallClock(loop)
        self.fs = CrashFileSystem(self.clock)  # type: ignore[arg-type]
        self.process: Process | None = None
        self.broker: SimulatedBroker | None = None
        # Since when the broker has been ready; None while it starts, or is not there.
        self.is_ready = False

    @property
    def is_up(self) -> bool:
        """Whether a process runs, or stands still."""
        return self.process is not None and not self.process.is_dead


class World:
    """The machines, the network, the catalog."""

    settings: Mapping[str, str] = SETTINGS
    left = NOTHING

    def __init__(self, loop: Network, path: Path, seed: int, count: int) -> None:
        self.loop, self.seed = loop, seed
        self.history = History()
        self.catalog = SimulatedCatalog(path / "catalog.db", loop, seed, self.history)
        self.machines = {n: Machine(n, loop) for n in range(1, count + 1)}
        self.chance = random.Random(f"world {seed}")
        self._lives = itertools.count()
        # Keeps brokers of earlier lives: their coroutines must not end by the garbage collector.
        self._past: list[Any] = []
        self.log = Troubles(self)

    @property
    def ports(self) -> dict[int, int]:
        """The port of each broker."""
        return {one.node_id: one.port for one in self.machines.values()}

    def passes(self, error: Exception) -> bool:
        """Return whether another start may succeed after an error."""
        return isinstance(error, CatalogAway)

    def start(self, machine: Machine) -> None:
        """Start a broker; it is started again when that fails."""
        process = Process(f"broker-{machine.node_id}", machine.port)
        machine.process, machine.is_ready = process, False
        context = process.context()
        task = self.loop.create_task(self._serve(machine, process), context=context)
        self._past.append(task)

    async def _serve(self, machine: Machine, process: Process) -> None:
        listener = f"PLAINTEXT://127.0.0.1:{machine.port}"
        values = {**self.settings, "node.id": str(machine.node_id), "listeners": listener}
        values["broker.rack"] = rack_of(machine.node_id)
        broker = SimulatedBroker(
            Layer(Source.STATIC_BROKER, values), machine.fs, machine.clock
        )
        lives = f"{self.seed} {next(self._lives)}"
        broker.random = random.Random(lives)  # type: ignore[assignment]
        broker.on_appended = lambda log: self._appended(machine, log)
        machine.broker = broker
        try:
            await broker.start()
            machine.is_ready = True
        except (MetadataError, StorageError) as error:
            if not self.passes(error):
                self.history.troubles.append(f"broker {machine.node_id} cannot start: {error}")
            self.kill(machine, loses_power=False)
            own = self.loop.clients.context()
            self.loop.call_later(_RESTART_S, self._start_again, machine, process, context=own)
        except Exception as error:
            where = "".join(traceback.format_exception(error)[-4:])
            self.history.troubles.append(f"broker {machine.node_id} cannot start: {where}")
            self.kill(machine, loses_power=False)

    def _start_again(self, machine: Machine, former: Process) -> None:
        if machine.process is former:
            self.start(machine)

    def kill(self, machine: Machine, *, loses_power: bool) -> None:
        """End a broker at once, and leave its disk as after that."""
        self._end(machine, self.chance.random() if loses_power else 0.0)
        if loses_power:
            machine.fs = machine.fs.clone_after_crash(self.chance.getrandbits(32))
        else:
            machine.fs = machine.fs.clone_after_kill()

    async def stop(self, machine: Machine) -> None:
        """Stop a broker cleanly, as far as its catalog lets it."""
        broker, process = machine.broker, machine.process
        assert broker is not None
        assert process is not None
        machine.is_ready = False
        stopping = self.loop.create_task(broker.stop(), context=process.context())
        self._past.append(stopping)
        await asyncio.wait([stopping], timeout=10.0)
        if machine.process is process and not process.is_dead:
            self.kill(machine, loses_power=False)

    def _end(self, machine: Machine, notice_s: float) -> None:
        assert machine.process is not None
        machine.process.is_dead, machine.is_ready = True, False
        self._past.append(machine.broker)
        self.loop.drop(machine.process, notice_s)

    # --- observations --------------------------------------------------------------------------

    def _appended(self, machine: Machine, log: Log) -> None:
        key = log.topic_id.hex(), log.partition
        self.history.add(Led(key, log.leader_epoch, machine.node_id, log.topic))
        if log.topic in INTERNAL:  # timers write there, too: after a pause before the lease's own
            return
        if machine.node_id not in self.catalog.open_sessions:
            self.history.troubles.append(
                f"sessions: broker {machine.node_id} appends to {log} without a session"
            )
        epoch = self.catalog.epoch_of(log.topic_id, log.partition)
        if log.leader_epoch < epoch:
            self.history.troubles.append(
                f"leaders: broker {machine.node_id} appends to {log} in epoch "
                f"{log.leader_epoch}, the catalog has {epoch}"
            )

    def is_settled(self) -> bool:
        """Return whether all brokers serve, know each other and lead their partitions."""
        head = self.catalog.revision()
        for machine in self.machines.values():
            broker = machine.broker
            if broker is None or not machine.is_ready or broker.problems():
                return False
            if broker.changes._tasks:
                return False
            if not broker.loading.done() or len(broker.brokers) != len(self.machines):
                return False
            if broker.store.revision != head or broker.topics.offline():
                return False
            if any(one.node_id < 0 for topic in broker.topics for one in topic.record.leaders):
                return False
        return True

    def look(self) -> None:
        """Note in the history what each broker, and the catalog, know."""
        topics, configs = self.catalog.load()
        self.history.views["the catalog"] = View(
            {
                one.topic_id.hex(): _topic(
                    one,
                    configs.get(Resource(ResourceType.TOPIC, one.name), {}),
                )
                for one in topics
            },
            tuple(self.machines),
        )
        for machine in self.machines.values():
            broker = machine.broker
            assert broker is not None
            self.history.views[f"broker {machine.node_id}"] = View(
                {one.topic_id.hex(): _topic(one.record, one.overrides) for one in broker.topics},
                tuple(one.node_id for one in broker.brokers),
            )

    @contextlib.contextmanager
    def simulated(self) -> Iterator[None]:
        """Replace what brokers take from the machine by the simulation's."""
        chance, loop = random.Random(f"ids {self.seed}"), self.loop

        def new_uuid() -> uuid.UUID:
            return uuid.UUID(int=chance.getrandbits(128), version=4)

        def write(pool: CleanerPool, function: Any) -> None:
            loop.call_soon(function)

        sources = SimpleNamespace(
            SystemRandom=lambda: random.Random(chance.getrandbits(32)), Random=random.Random
        )
        with contextlib.ExitStack() as stack:
            for target, name, value in (
                (opening, "open_engine", self.catalog.engine),
                (addresses, "bind", loop.bind),
                (uuid, "uuid4", new_uuid),
                (CleanerPool, "_write", write),
                (effective, "resolve", resolve_once),
            ):
                stack.enter_context(patch.object(target, name, value))
            for path, value in (
                ("odradek.broker.composition.random", sources),
                ("odradek.broker.network.dispatch.begin_ns", loop.time_ns),
                ("odradek.broker.counters.latency.perf_counter_ns", loop.time_ns),
                ("odradek.broker.counters.object_requests.perf_counter_ns", loop.time_ns),
                ("odradek.storage.objects.counting.perf_counter_ns", loop.time_ns),
                ("odradek.broker.network.connection.perf_counter", loop.time),
                ("odradek.protocol.pacing.perf_counter", loop.time),
                ("odradek.broker.loop.garbage.monotonic", loop.time),
            ):
                stack.enter_context(patch(path, value))
            stack.enter_context(self.log.listening())
            yield


class Troubles(logging.Handler):
    """Notes errors that only a bug can lead to: those that are logged with a traceback."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        """Take a line of the brokers' log."""
        if record.exc_info and record.exc_info[1] is not None:
            error = record.exc_info[1]
            name = self._world.loop.current.name
            line = f"logged by {name}: {record.getMessage()}: {error!r}"
            self._world.history.troubles.append(line)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Take lines while the body runs."""
        root = logging.getLogger("odradek")
        root.addHandler(self)
        try:
            yield
        finally:
            root.removeHandler(self)


def _topic(record: Any, overrides: Any) -> dict[str, Any]:
    return {
        "name": record.name,
        "partitions": record.partition_count,
        "leaders": [(one.node_id, one.epoch) for one in record.leaders],
        "setting": int(overrides.get(SETTING, 0)),
        "is_deleting": record.is_deleting,
    }

