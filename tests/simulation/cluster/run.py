"""Runs a cluster through troubles drawn from a seed, and checks its history.

The same seed always gives the same history.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import random
import sys
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from odradek.broker.loop.garbage import uncollected
from odradek.broker.topics.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.protocol.errors import ErrorCode
from tests.histories.checks.checker import check
from tests.histories.history import History, Outcome, Place
from tests.simulation.cluster.admin import Admin
from tests.simulation.cluster.clients import Client, Unanswered
from tests.simulation.cluster.consumers import Reader, find_committed, read_all
from tests.simulation.cluster.left import NOTHING, Left
from tests.simulation.cluster.members import Member
from tests.simulation.cluster.movers import Mover
from tests.simulation.cluster.nemesis import Nemesis
from tests.simulation.cluster.network import Network
from tests.simulation.cluster.producers import (
    IdempotentProducer,
    PlainProducer,
    TransactionalProducer,
)
from tests.simulation.cluster.world import SETTINGS, World
from tests.simulation.ledger import check_indexes
from tests.support.requests import creatable, creating

W = TypeVar("W", bound=World)

TOPIC = "data"
_TROUBLE_S = 10.0
# After its troubles a cluster is well again within this time.
RECOVERY_S = 60.0
_LOOK_S = 0.2
_SEARCHES_MAX = 4


@dataclass
class Survey:
    """What a run has come past: one that came past nothing has shown nothing."""

    problems: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    history: History = field(default_factory=History)
    # The names of all troubles and of all loads, also of those that were left out.
    troubles: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)


def run(seed: int, path: Path, left: Left = NOTHING) -> Survey:
    """Run a cluster with its catalog in a directory; return its problems and its history."""
    count = random.Random(f"size {seed}").choice([1, 2, 3, 3, 3, 4, 5])
    survey = Survey()

    def scene(world: World) -> Coroutine[Any, Any, None]:
        world.left = left
        return Simulation(world, survey).run()

    survey.history = play_in(lambda: World(Network(seed), path, seed, count), scene)
    survey.problems = [str(one) for one in check(survey.history)]
    return survey


def play(
    seed: int, path: Path, count: int, scene: Callable[[World], Coroutine[Any, Any, None]]
) -> History:
    """Play a scene with the machines of a cluster, which are not started yet."""
    return play_in(lambda: World(Network(seed), path, seed, count), scene)


def play_in(
    make_world: Callable[[], W], scene: Callable[[W], Coroutine[Any, Any, None]]
) -> History:
    """Play a scene in a world of its own."""
    was_searching = gc.isenabled()
    gc.collect()
    gc.freeze()  # the next search for garbage, here or in a later play, finds new objects alone
    world = make_world()  # now: a frozen world would stay for good, with all that it refers to
    try:
        history = _play(world, scene)
        world.loop.end_threads()
        _collect_the_dead(world.loop)
    finally:
        if was_searching:  # a broker may have ended while it did without
            gc.enable()
    return history


def _play(world: W, scene: Callable[[W], Coroutine[Any, Any, None]]) -> History:
    loop = world.loop
    asyncio.set_event_loop(loop)
    loop.set_exception_handler(lambda _, report: _note_report(world, report))
    with uncollected():
        try:
            with world.simulated():
                loop.run_until_complete(scene(world))
        finally:
            loop.set_exception_handler(lambda _, report: None)
            asyncio.set_event_loop(None)
            loop.close()
            world.catalog.close()
    history, world.history = world.history, History()  # the dead write into another one
    return history


class Course:
    """The load of a run, and its end."""

    def __init__(self, world: World, survey: Survey, places: list[Place]) -> None:
        self.world, self.survey, self.places = world, survey, places
        self._history, self._ports = world.history, world.ports
        self._source = random.Random(f"load {world.seed}")
        self._is_over = False

    def _client(self, name: str) -> Client:
        source = random.Random(self._source.getrandbits(32))
        return Client(name, self._ports, source, self._history)

    def _transactional(self) -> list[TransactionalProducer]:
        source, places = self._source, self.places
        return [
            TransactionalProducer(
                self._client(f"txn{n}"),
                places,
                is_old=source.random() < 0.3,
                timeout_ms=source.choice([2_000, 10_000]),
                group_place=places[0],
            )
            for n in range(2)
        ]

    def _begin(self, workers: Sequence[Any]) -> list[asyncio.Task[None]]:
        """Begin the load."""
        left = self.world.left.loads
        self.survey.loads = [one.client.name for one in workers]
        return [
            asyncio.create_task(one.run(lambda: self._is_over))
            for one in workers
            if one.client.name not in left
        ]

    async def _trouble(self, nemesis: Nemesis, time_s: float) -> None:
        """Trouble the cluster for a time, then let it be."""
        world = self.world
        await nemesis.run(world.loop.time() + time_s * world.left.share)
        self.survey.counts += nemesis.counts
        self.survey.troubles = nemesis.begun
        self._is_over = True

    async def _join(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Wait for the end of the load."""
        if tasks:
            await asyncio.wait(tasks, timeout=RECOVERY_S)
        for task in tasks:
            if not task.done():
                self._history.troubles.append(
                    f"stuck: {task.get_coro()}: {task.get_stack()}"
                )
                task.cancel()
            elif task.exception() is not None:
                raise task.exception() or AssertionError

    async def _finish(self, reading: Coroutine[Any, Any, None]) -> None:
        """Read what there is in the end."""
        try:
            await asyncio.wait_for(reading, RECOVERY_S)
        except TimeoutError:
            self._history.troubles.append("stuck: the final reads: a transaction stays open")


class Simulation(Course):
    """The course of a run."""

    def __init__(self, world: World, survey: Survey) -> None:
        places = [(TOPIC, number) for number in range(2 * len(world.machines))]
        super().__init__(world, survey, places)

    async def run(self) -> None:
        """Start, trouble, let recover, and look at what there is."""
        world = self.world
        for machine in world.machines.values():
            world.start(machine)
        if not await settled(world, "start"):
            return
        await self._create_topic()
        tasks = self._begin(self._workers())
        await self._trouble(Nemesis(world), _TROUBLE_S)
        if not await settled(world, "recover"):
            return
        await self._join(tasks)
        if not await settled(world, "be quiet"):
            return
        await self._finish(self._read_all())
        if await settled(world, "stay quiet"):
            self._look()

    def _workers(self) -> list[Any]:
        places = self.places
        readers = [Reader(self._client(f"reader{n}"), places) for n in range(2)]
        transactional = self._transactional()
        self.groups = [(one.group, place) for one in readers for place in places]
        self.groups += [(one.group, places[0]) for one in transactional]
        member = Member(self._client("member"), places[0])
        self.groups.append((member.group, places[0]))
        others: list[Any] = [
            *(IdempotentProducer(self._client(f"idem{n}"), places) for n in range(2)),
            PlainProducer(self._client("plain"), places),
            *(Admin(self._client(f"admin{n}")) for n in range(2)),
            Mover(self._client("mover"), self._movable()),
            member,
        ]
        return [*readers, *transactional, *others]

    def _movable(self) -> dict[str, int]:
        """Return the topics whose partitions move, and their numbers of partitions."""
        of_transactions = int(SETTINGS["transaction.state.log.num.partitions"])
        of_groups = int(SETTINGS["offsets.topic.num.partitions"])
        own = {CONSUMER_OFFSETS: of_groups, TRANSACTION_STATE: of_transactions}
        return {TOPIC: len(self.places), **own}

    async def _create_topic(self) -> None:
        client = self._client("creator")
        while True:
            try:
                asked = creating(creatable(TOPIC, len(self.places)))
                (found,) = (await client.ask(1, asked, 7)).topics
            except Unanswered:
                continue
            if found.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return

    async def _read_all(self) -> None:
        client, history = self._client("final"), self.world.history
        for place in self.places:
            history.final_committed[place] = await read_all(client, place, 1)
            history.final[place] = await read_all(client, place, 0)
        for group, place in self.groups:
            while await find_committed(client, group, place) is None:
                pass

    def _look(self) -> None:
        world = self.world
        world.look()
        for machine in world.machines.values():
            broker = machine.broker
            assert broker is not None
            for log in broker.logs():
                check_indexes(log)
                topic = broker.topics.get(log.topic)
                if topic is None or topic.topic_id != log.topic_id:
                    world.history.troubles.append(
                        f"broker {machine.node_id}: {log} has no topic any more"
                    )
                    continue
                epoch = topic.record.leaders[log.partition].epoch
                if log.leader_epoch != epoch:
                    world.history.troubles.append(
                        f"broker {machine.node_id}: {log} has epoch {log.leader_epoch}, "
                        f"the catalog has {epoch}"
                    )
        done = Counter(type(one).__name__ for one in world.history.appends)
        self.survey.counts += done
        self.survey.counts["steps"] = world.loop.steps
        for name, some in (
            ("acknowledged", world.history.appends),
            ("committed", world.history.transactions),
            ("changed", world.history.topic_changes),
        ):
            self.survey.counts[name] = sum(one.outcome is Outcome.DONE for one in some)
        self.survey.counts["read"] = len(world.history.reads)
        leaders: dict[object, set[int]] = {}
        for led in world.history.led:
            leaders.setdefault(led.partition, set()).add(led.node_id)
        self.survey.counts["moved"] = sum(len(one) - 1 for one in leaders.values())


async def settled(world: World, what: str) -> bool:
    """Wait until a cluster is well; note that it could not do something, and return False."""
    end_s = world.loop.time() + RECOVERY_S
    while not world.is_settled():
        if world.loop.time() > end_s:
            why = [_state(one) for one in world.machines.values()]
            world.history.troubles.append(f"stuck: could not {what}: {why}")
            return False
        await asyncio.sleep(_LOOK_S)
    return True


def _state(machine: Any) -> str:
    broker = machine.broker
    if broker is None or not machine.is_ready:
        return f"broker {machine.node_id} is not ready"
    return (
        f"broker {machine.node_id}: problems {broker.problems()}, members {len(broker.brokers)}, "
        f"revision {broker.store.revision}, loaded {broker.loading.done()}, "
        f"offline {broker.topics.offline()}"
    )


def _collect_the_dead(loop: asyncio.AbstractEventLoop) -> None:
    """Free the coroutines of killed processes: now, so that none ends within a later test.

    They run their last steps then, without a loop, and fail; what they log is nobody's.
    """
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    logging.disable()
    try:
        for task in asyncio.all_tasks(loop):  # the world still refers to some
            with suppress(Exception):
                task.get_coro().close()  # type: ignore[union-attr]
        for _ in range(_SEARCHES_MAX):  # their last steps may leave others
            if not gc.collect():
                break
    finally:
        logging.disable(logging.NOTSET)
        sys.unraisablehook = hook


def _note_report(world: World, report: dict[str, Any]) -> None:
    error = report.get("exception")
    world.history.troubles.append(f"unhandled: {report.get('message')}: {error!r}")
