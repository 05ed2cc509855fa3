"""Runs a cluster with shared topics through troubles drawn from a seed, and checks its history.

The same seed always gives the same history.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from odradek.protocol.errors import ErrorCode
from tests.histories.checks.checker import check
from tests.histories.history import SHARED, Outcome, Topic
from tests.simulation.cluster.clients import Unanswered
from tests.simulation.cluster.left import NOTHING, Left
from tests.simulation.cluster.movers import Mover
from tests.simulation.cluster.nemesis import Nemesis, Step
from tests.simulation.cluster.network import CLIENTS
from tests.simulation.cluster.producers import IdempotentProducer, PlainProducer
from tests.simulation.cluster.run import Course, Survey, play_in, settled
from tests.simulation.shared.clients import Deleter, Gaps, SharedReader, read_from_start
from tests.simulation.shared.world import SharedWorld
from tests.support.requests import creatable, creating

DATA, COMPACTED = "data", "compacted"
_PARTITIONS = 2
_TROUBLE_S = 6.0
_AWAY_MAX_S = 3.0
_STRANDED_MAX_S = 2.0
# Of stranded brokers, those whose answers are lost.
_MUTE_SHARE = 0.3
_LEASE_S = 1.5
_CONFIGS = {
    "internal.segment.bytes": "700",
    "retention.ms": "-1",
    "file.delete.delay.ms": "500",
    "min.cleanable.dirty.ratio": "0.01",
}


def run(seed: int, path: Path, left: Left = NOTHING) -> Survey:
    """Run a cluster with its catalog in a directory; return its problems and its history."""
    count = random.Random(f"size {seed}").choice([2, 2, 3])
    survey = Survey()

    def scene(world: SharedWorld) -> Coroutine[Any, Any, None]:
        world.left = left
        return SharedCourse(world, survey).run()

    survey.history = history = play_in(lambda: SharedWorld(path, seed, count), scene)
    history.topics = {DATA: SHARED, COMPACTED: Topic(keeps_reads=True, is_compacted=True)}
    survey.problems = [str(one) for one in check(history)]
    return survey


class SharedNemesis(Nemesis):
    """Troubles the bucket, too."""

    _world: SharedWorld

    def steps(self) -> dict[Step, int]:
        """Return the troubles and their weights."""
        return {
            self.kill: 2,
            self.strand: 6,
            self.stop: 2,
            self.pause: 3,
            self.lose_catalog: 1,
            self.spoil_catalog: 3,
            self.reset: 2,
            self.cut: 1,
            self.lose_bucket: 1,
            self.spoil_bucket: 4,
        }

    def end(self) -> None:
        """End all troubles."""
        self._world.bucket.heal()
        super().end()

    async def strand(self) -> None:
        """Let commits of a broker take long, cut off its answers, then kill or pause it."""
        machine = self._draw()
        if machine is None:
            return
        process = machine.process
        assert process is not None
        chance = self._chance
        end_s = self._world.loop.time() + 2 * _STRANDED_MAX_S
        self._world.catalog.slow_commits[process.name] = end_s
        await asyncio.sleep(chance.random() * _STRANDED_MAX_S / 2)
        if chance.random() < _MUTE_SHARE:
            self._world.loop.cut(CLIENTS, machine.port, _STRANDED_MAX_S)
            await asyncio.sleep(chance.random() * _STRANDED_MAX_S)
        if machine.process is not process or process.is_dead or process.is_paused:
            return
        if chance.random() < 0.3:
            self._world.kill(machine, loses_power=chance.random() < 0.5)
            await self._start_later(machine)
        else:
            process.is_paused = True
            await asyncio.sleep(_LEASE_S * (1.3 + chance.random()))
            self._world.loop.resume(process)

    async def lose_bucket(self) -> None:
        """Let the bucket be away."""
        self._world.bucket.away_until_s = self._later(_AWAY_MAX_S)

    async def spoil_bucket(self) -> None:
        """Let the bucket refuse requests, lose answers, and take requests late or twice."""
        bucket = self._world.bucket
        bucket.refused_share = self._chance.choice([0.0, 0.1, 0.3])
        bucket.lost_share = self._chance.choice([0.0, 0.2, 0.5])
        bucket.duplicate_share = self._chance.choice([0.0, 0.3])
        await asyncio.sleep(self._chance.random() * _AWAY_MAX_S)
        bucket.refused_share = bucket.lost_share = bucket.duplicate_share = 0.0


class SharedCourse(Course):
    """The course of a run."""

    world: SharedWorld

    def __init__(self, world: SharedWorld, survey: Survey) -> None:
        topics = (DATA, COMPACTED)
        places = [(topic, number) for topic in topics for number in range(_PARTITIONS)]
        super().__init__(world, survey, places)

    async def run(self) -> None:
        """Start, trouble, let recover, lose all disks, and look at what there is."""
        world = self.world
        for machine in world.machines.values():
            world.start(machine)
        if not await settled(world, "start"):
            return
        await self._create_topics()
        tasks = self._begin(self._workers())
        await self._trouble(SharedNemesis(world), _TROUBLE_S)
        if not await settled(world, "recover"):
            return
        await self._join(tasks)
        await self._share()
        for machine in world.machines.values():
            world.wipe(machine)
            world.start(machine)
        if await settled(world, "start without disks"):
            await self._finish(self._read_all())
            world.look_at_catalog()
        self._count()

    def _gaps(self) -> Gaps | None:
        return Gaps(self.world.history)

    async def _share(self) -> None:
        """Bring all topics to the bucket: they are there."""

    def _workers(self) -> list[Any]:
        places = self.places
        transactional = self._transactional()
        gaps = self._gaps()
        others: list[Any] = [
            *(IdempotentProducer(self._client(f"idem{n}"), places) for n in range(4)),
            PlainProducer(self._client("plain"), places),
            *(
                SharedReader(
                    self._client(f"reader{n}"), places, n, self.world.committed_end, gaps
                )
                for n in range(2)
            ),
            *(
                SharedReader(
                    self._client(f"near{n}"),
                    places,
                    n,
                    self.world.committed_end,
                    gaps,
                    is_near=True,
                )
                for n in range(2)
            ),
            Deleter(self._client("deleter"), [one for one in places if one[0] == DATA]),
            Mover(self._client("mover"), {DATA: _PARTITIONS, COMPACTED: _PARTITIONS}),
        ]
        return [*transactional, *others]

    async def _create_topics(self) -> None:
        client = self._client("creator")
        topics = [
            creatable(DATA, _PARTITIONS, configs=_CONFIGS),
            creatable(COMPACTED, _PARTITIONS, configs={**_CONFIGS, "cleanup.policy": "compact"}),
        ]
        while True:
            try:
                found = (await client.ask(1, creating(*topics), 7)).topics
            except Unanswered:
                continue
            done = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
            if all(one.error_code in done for one in found):
                return
            self.world.history.troubles += [f"refused: {one.error_message}" for one in found]

    async def _read_all(self) -> None:
        client, history = self._client("final"), self.world.history
        for place in self.places:
            start, history.final_committed[place] = await read_from_start(client, place, 1)
            _, history.final[place] = await read_from_start(client, place, 0)
            history.final_starts[place] = start

    def _count(self) -> None:
        history, counts = self.world.history, self.survey.counts
        for name, some in (
            ("acknowledged", history.appends),
            ("committed", history.transactions),
            ("deleted", history.deletions),
        ):
            counts[name] = sum(one.outcome is Outcome.DONE for one in some)
        counts["read"] = len(history.reads)
        counts["steps"] = self.world.loop.steps
        counts["requests"] = self.world.bucket.requests
        counts["merges"] = self.world.merges
        counts["segments"] = self.world.catalog.read(
            lambda connection: connection.execute("SELECT count(*) FROM segment")
        )[0][0]
        counts["compacted"] = sum(
            place[0] == COMPACTED and reads[-1].offset - start + 1 - len(reads)
            for place, reads in history.final.items()
            if reads and (start := history.final_starts[place]) >= 0
        )
