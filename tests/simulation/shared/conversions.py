"""Runs a cluster whose topics go from disks to the bucket and back, meanwhile in use.

    kill    a machine that loses its power keeps its disk: a local topic has no other
    end     all topics go to the bucket, and then all disks are lost

Local topics promise less than shared ones (tests/histories/history.py), and so do those that were
local for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

from odradek.broker.reassignment.conversions import Conversions
from odradek.broker.topics.names import CONSUMER_OFFSETS, TRANSACTION_STATE
from odradek.config.object_store import LOCAL, OBJECT, STORAGE
from odradek.config.values import INT64_MAX
from odradek.storage.log import Log
from tests.histories.checks.checker import check
from tests.histories.history import Place, Topic
from tests.simulation.cluster.clients import Client, Unanswered
from tests.simulation.cluster.left import NOTHING, Left
from tests.simulation.cluster.movers import Mover
from tests.simulation.cluster.run import RECOVERY_S, Survey, play_in, settled
from tests.simulation.cluster.world import Machine, World
from tests.simulation.shared.clients import Deleter, Gaps
from tests.simulation.shared.run import COMPACTED, DATA, SharedCourse
from tests.simulation.shared.world import SharedWorld
from tests.support.requests import altering

TOPICS = (DATA, COMPACTED, CONSUMER_OFFSETS, TRANSACTION_STATE)
_PAUSE_S = 1.5


def run(seed: int, path: Path, left: Left = NOTHING) -> Survey:
    """Run a cluster with its catalog in a directory; return its problems and its history."""
    count = random.Random(f"size {seed}").choice([1, 2, 2, 3])
    survey = Survey()

    def scene(world: ConvertingWorld) -> Coroutine[Any, Any, None]:
        world.left = left
        return ConvertingCourse(world, survey).run()

    survey.history = history = play_in(lambda: ConvertingWorld(path, seed, count), scene)
    history.topics = {
        DATA: Topic(keeps_deletions=False),
        COMPACTED: Topic(keeps_deletions=False, is_compacted=True),
    }
    survey.problems = [str(one) for one in check(history)]
    return survey


class ConvertingWorld(SharedWorld):
    """A world in which a broker that is killed keeps its disk, as after a crash."""

    conversions = 0

    def kill(self, machine: Machine, *, loses_power: bool) -> None:
        """End a broker at once, and leave its disk as after that."""
        World.kill(self, machine, loses_power=loses_power)

    @contextlib.contextmanager
    def simulated(self) -> Iterator[None]:
        """Count conversions, too."""
        convert = Conversions._convert

        async def counted(conversions: Conversions, log: Log) -> bool:
            is_done = await convert(conversions, log)
            self.conversions += is_done
            return is_done

        with super().simulated(), patch.object(Conversions, "_convert", counted):
            yield

    def committed_end(self, place: Place) -> int:
        """Return a bound of what may be read: the catalog does not know the ends of local logs."""
        return INT64_MAX

    def storages(self) -> Mapping[Place, str]:
        """Return the storages of all partitions, by the catalog."""
        topics, _ = self.catalog.load()
        return {
            (topic.name, number): OBJECT if leader.is_shared else LOCAL
            for topic in topics
            for number, leader in enumerate(topic.leaders)
        }


class Converter:
    """Sets the storages of topics."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def run(self, is_over: Callable[[], bool]) -> None:
        """Set storages until it is over."""
        source = self.client.source
        while not is_over():
            await asyncio.sleep(_PAUSE_S * source.random())
            await self.set_storage(source.choice(TOPICS), source.choice([LOCAL, OBJECT]))

    async def set_storage(self, topic: str, storage: str) -> bool:
        """Set the storage of a topic; return whether that is acknowledged."""
        asked = altering(topic, {STORAGE: storage})
        try:
            answer = await self.client.ask(self.client.any_broker(), asked, 1)
        except Unanswered:
            return False
        return not answer.responses[0].error_code


class ConvertingCourse(SharedCourse):
    """The course of a run."""

    world: ConvertingWorld

    def _count(self) -> None:
        super()._count()
        self.survey.counts["conversions"] = self.world.conversions

    @property
    def _moves(self) -> bool:
        """Whether partitions move to other hosts.

        A copy there is not quite the log, as in Kafka: it does not know the producers of deleted
        records, whose next batches are refused, and may have records that compaction has removed
        meanwhile. So nobody deletes, or looks for gaps.
        """
        return self.world.seed % 2 == 1

    def _gaps(self) -> Gaps | None:
        return None if self._moves else super()._gaps()

    def _workers(self) -> list[Any]:
        other = Deleter if self._moves else Mover
        workers = [one for one in super()._workers() if not isinstance(one, other)]
        return [*workers, Converter(self._client("converter"))]

    async def _share(self) -> None:
        converter, world = Converter(self._client("last converter")), self.world
        end_s = world.loop.time() + RECOVERY_S
        while world.loop.time() < end_s:
            # A former setting may come late, so that this repeats.
            for topic in sorted({topic for topic, _ in world.storages()}):
                while not await converter.set_storage(topic, OBJECT):
                    await converter.client.back_off()
            await asyncio.sleep(_PAUSE_S)
            # Once all brokers know the settings and no change is under way, none gets local again.
            is_settled = await settled(world, "follow the storages")
            if not is_settled or LOCAL not in world.storages().values():
                return
        left = [place for place, storage in world.storages().items() if storage == LOCAL]
        world.history.troubles.append(f"stuck: local for good: {left}")
