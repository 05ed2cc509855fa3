"""Scenes in which simulated clusters once broke a promise, each reduced to its cause."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.catalog.store import CatalogStore
from odradek.broker.topics.plans import Enlargement, NewTopic, TopicPlan
from odradek.protocol.errors import ErrorCode
from tests.simulation.cluster.checker import check
from tests.simulation.cluster.clients import Client
from tests.simulation.cluster.history import History
from tests.simulation.cluster.run import play, settled
from tests.simulation.cluster.world import Machine, SimulatedBroker, World
from tests.support.requests import creating
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("quiet_logs")

LEASE_S, HEARTBEAT_S = 1.5, 0.3


def broker_of(machine: Machine) -> SimulatedBroker:
    assert machine.broker is not None
    return machine.broker


async def started(world: World) -> list[SimulatedBroker]:
    """Start all machines; return their brokers."""
    for machine in world.machines.values():
        world.start(machine)
    assert await settled(world, "start"), world.history.troubles
    return [broker_of(one) for one in world.machines.values()]


async def at(machine: Machine, world: World, change: Coroutine[Any, Any, Any]) -> Any:
    """Run a change as a task of a broker's process."""
    assert machine.process is not None
    context = machine.process.context()
    return await asyncio.wait_for(world.loop.create_task(change, context=context), 30)


async def ended(world: World) -> None:
    """Wait until all is quiet, and note what the brokers know."""
    assert await settled(world, "be quiet"), world.history.troubles
    world.look()


def hold_renewals(broker: SimulatedBroker) -> asyncio.Event:
    """Let a broker not extend its lease until an event is set."""
    store, release = broker.store, asyncio.Event()
    assert isinstance(store, CatalogStore)
    renew = store.renew

    async def wait(lease_ms: int) -> None:
        await release.wait()
        await renew(lease_ms)

    store.renew = wait  # type: ignore[method-assign]
    return release


def passed(history: History) -> None:
    """Check that nothing was wrong."""
    problems = check(history)
    assert not problems, problems


@pytest.mark.parametrize("seed", range(6))
def test_brokers_start_at_once_on_a_new_catalog(seed: int, tmp_path: Path) -> None:
    """The one that makes the catalog finds that others have joined before it has loaded it."""

    async def scene(world: World) -> None:
        await started(world)
        await ended(world)

    passed(play(seed, tmp_path, 4, scene))


def test_a_first_start_survives_a_power_failure(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        await started(world)
        (machine,) = world.machines.values()
        for seed in range(40):
            left = machine.fs.clone_after_crash(seed)
            assert left.exists(Path("/data/meta.properties")), seed

    passed(play(0, tmp_path, 1, scene))


def test_a_deletion_whose_answer_is_lost_leaves_the_name_free(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        (one,) = await started(world)
        (machine,) = world.machines.values()
        await at(machine, world, one.topics.create([NewTopic("t")]))
        topic = one.topics.get("t")
        assert topic is not None
        world.catalog.lost_share = 1.0
        (refused,) = await at(machine, world, one.topics.delete([topic.topic_id]))
        world.catalog.heal()
        assert isinstance(refused, Exception)
        await ended(world)
        (created,) = await at(machine, world, one.topics.create([NewTopic("t", 3)]))
        assert isinstance(created, TopicPlan), created
        await ended(world)

    passed(play(0, tmp_path, 1, scene))


def test_changes_of_others_wait_until_a_broker_has_loaded_its_topics(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        one, _ = await started(world)
        first, second = world.machines.values()
        for name in ("a", "b"):
            await at(first, world, one.topics.create([NewTopic(name, 2)]))
        await ended(world)
        world.kill(second, loses_power=False)
        world.catalog.loads_slowly = True
        world.start(second)
        await until(lambda: hasattr(second.broker, "topics"))
        topic = one.topics.get("b")
        assert topic is not None
        await at(first, world, one.topics.enlarge([Enlargement("a", 5)]))
        await at(first, world, one.topics.delete([topic.topic_id]))
        assert not second.is_ready, "it was quicker than the changes"
        await ended(world)

    passed(play(0, tmp_path, 2, scene))


def test_a_change_that_cannot_follow_the_others_is_refused_with_the_reason(
    tmp_path: Path,
) -> None:
    """A client gets an error after which it tries again, not an unknown one."""

    async def scene(world: World) -> None:
        one, two = await started(world)
        first, second = world.machines.values()
        assert second.process is not None
        membership = two._cluster._membership
        assert membership is not None
        # It decides by old metadata, then loses the catalog before it can follow.
        membership._tasks[1].cancel()
        await at(first, world, one.topics.create([NewTopic("t")]))
        news = two.store.news  # type: ignore[union-attr]

        async def away() -> None:
            world.catalog.away_until_s = world.loop.time() + 0.5
            return await news()  # type: ignore[return-value]

        two.store.news = away  # type: ignore[union-attr, method-assign, assignment]
        client = Client("c", world.ports, world.chance, world.history)
        client._timeout_s = 10.0
        (answer,) = (await client.ask(2, creating("u"), 7)).topics
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "session" in answer.error_message or "away" in answer.error_message

    passed(play(0, tmp_path, 2, scene))
