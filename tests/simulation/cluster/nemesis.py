"""The troubles of a cluster, by a seed: of brokers, clocks, the catalog and the network."""

from __future__ import annotations

import asyncio
import copy
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from tests.histories.history import Disruption
from tests.simulation.cluster.network import CLIENTS
from tests.simulation.cluster.world import Machine, World

_PAUSE_MAX_S = 1.5
_DOWN_MAX_S = 3.0
# Longer than a session.
_STOPPED_MAX_S = 4.0
_AWAY_MAX_S = 4.0
_CUT_MAX_S = 4.0
_JUMP_MAX_MS = 600_000

Step = Callable[[], Coroutine[Any, Any, None]]


class Nemesis:
    """Troubles a cluster until it is over, then ends all troubles."""

    def __init__(self, world: World) -> None:
        self._world, self._chance = world, random.Random(f"nemesis {world.seed}")
        self.counts: Counter[str] = Counter()
        # The names of the troubles, also of those that are left out.
        self.begun: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []

    def steps(self) -> dict[Step, int]:
        """Return the troubles and their weights."""
        return {
            self.kill: 4,
            self.stop: 2,
            self.pause: 5,
            self.jump: 2,
            self.lose_catalog: 3,
            self.slow_catalog: 1,
            self.spoil_catalog: 4,
            self.cut: 3,
            self.reset: 5,
        }

    async def run(self, until_s: float) -> None:
        """Trouble the cluster until a time."""
        steps, loop = self.steps(), self._world.loop
        while loop.time() < until_s:
            await asyncio.sleep(self._chance.random() * _PAUSE_MAX_S)
            (step,) = self._chance.choices(list(steps), list(steps.values()))
            number = len(self.begun)
            self.begun.append(step.__name__)
            if number not in self._world.left.troubles:
                self.counts[step.__name__] += 1
                self._tasks.append(asyncio.create_task(self._disrupt(number, step.__name__)))
        await asyncio.gather(*self._tasks)
        self.end()

    async def _disrupt(self, number: int, name: str) -> None:
        history = self._world.history
        noted = history.add(Disruption(name))
        # With draws of its own, so that others have theirs when it is left out.
        one = copy.copy(self)
        one._chance = random.Random(f"nemesis {self._world.seed} {number}")
        await getattr(one, name)()
        noted.done_at = history.tick()

    def end(self) -> None:
        """End all troubles."""
        self._world.loop.heal()
        self._world.catalog.heal()
        for machine in self._world.machines.values():
            if machine.process is not None and machine.process.is_paused:
                self._world.loop.resume(machine.process)
            if not machine.is_up:
                self._world.start(machine)

    async def kill(self) -> None:
        """Kill a broker, or its machine, and start it again."""
        machine = self._draw()
        if machine is not None:
            self._world.kill(machine, loses_power=self._chance.random() < 0.5)
            await self._start_later(machine)

    async def stop(self) -> None:
        """Stop a broker cleanly, and start it again."""
        machine = self._draw()
        if machine is not None and machine.is_ready:
            await self._world.stop(machine)
            await self._start_later(machine)

    async def pause(self) -> None:
        """Let a broker stand still, often longer than its session lasts."""
        machine = self._draw()
        if machine is None:
            return
        process = machine.process
        assert process is not None
        process.is_paused = True
        await asyncio.sleep(self._chance.random() * _STOPPED_MAX_S)
        self._world.loop.resume(process)

    async def jump(self) -> None:
        """Let the wall clock of a machine jump; the first one has the catalog, too."""
        machine = self._chance.choice(list(self._world.machines.values()))
        machine.clock.offset_ms = self._chance.randint(-_JUMP_MAX_MS, _JUMP_MAX_MS)
        if machine.node_id == 1:
            self._world.catalog.offset_ms = machine.clock.offset_ms

    async def lose_catalog(self) -> None:
        """Let the catalog be away."""
        self._world.catalog.away_until_s = self._later(_AWAY_MAX_S)

    async def slow_catalog(self) -> None:
        """Let the catalog be slow."""
        self._world.catalog.slow_until_s = self._later(_AWAY_MAX_S)

    async def spoil_catalog(self) -> None:
        """Let the catalog refuse operations and lose answers."""
        catalog = self._world.catalog
        catalog.refused_share = self._chance.choice([0.0, 0.1, 0.3])
        catalog.lost_share = self._chance.choice([0.0, 0.2, 0.5])
        await asyncio.sleep(self._chance.random() * _AWAY_MAX_S)
        catalog.refused_share = catalog.lost_share = 0.0

    async def cut(self) -> None:
        """Cut a broker off from another one, or from all clients."""
        ports = sorted(self._world.ports.values())
        one, other = self._chance.choice(ports), self._chance.choice([CLIENTS, *ports])
        if one != other:
            self._world.loop.cut(one, other, self._chance.random() * _CUT_MAX_S)

    async def reset(self) -> None:
        """Reset some connections."""
        self._world.loop.reset_some(self._chance.choice([0.2, 1.0]))

    def _draw(self) -> Machine | None:
        up = [one for one in self._world.machines.values() if one.is_up]
        up = [one for one in up if one.process is not None and not one.process.is_paused]
        return self._chance.choice(up) if up else None

    async def _start_later(self, machine: Machine) -> None:
        await asyncio.sleep(self._chance.random() * _DOWN_MAX_S)
        if not machine.is_up:
            self._world.start(machine)

    def _later(self, time_max_s: float) -> float:
        return self._world.loop.time() + self._chance.random() * time_max_s
