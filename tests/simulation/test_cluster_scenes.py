"""Scenes in which simulated clusters once broke a promise, each reduced to its cause."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.catalog.engines import CatalogAway
from odradek.broker.catalog.store import CatalogStore
from odradek.broker.metadata.members import NO_LEADER
from odradek.broker.metadata.store import Metadata
from odradek.broker.topics.following import FollowingTopics
from odradek.broker.topics.plans import Enlargement, NewTopic, TopicPlan
from odradek.broker.topics.registry import Topics
from odradek.broker.topics.states import RemotePartition
from odradek.protocol.errors import ErrorCode
from tests.histories.checks.checker import check
from tests.histories.history import History
from tests.simulation.cluster.clients import Client
from tests.simulation.cluster.producers import IdempotentProducer
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


def hold_news(broker: SimulatedBroker, release: asyncio.Event) -> None:
    """Let a broker not hear of changes until an event is set."""
    store = broker.store
    assert isinstance(store, CatalogStore)
    has_news = store.has_news

    async def wait() -> bool:
        await release.wait()
        return await has_news()

    store.has_news = wait  # type: ignore[method-assign]


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


def test_a_topic_is_deleted_while_its_leader_stands_still(tmp_path: Path) -> None:
    """The leader that comes back has resigned, and removes its files all the same."""

    async def scene(world: World) -> None:
        one, two = await started(world)
        first, second = world.machines.values()
        await at(first, world, one.topics.create([NewTopic("t", 2)]))
        await ended(world)
        topic = two.topics.get("t")
        assert topic is not None
        assert second.process is not None
        second.process.is_paused = True
        await asyncio.sleep(2 * LEASE_S)
        await at(first, world, one.topics.delete([topic.topic_id]))
        world.loop.resume(second.process)
        await ended(world)
        for broker in (one, two):
            assert [log.name for log in broker.logs()] == []
        await at(first, world, one.topics.create([NewTopic("t", 2)]))  # the name is free
        await ended(world)
        assert [log.name for log in two.logs()] == ["t-1"]

    passed(play(0, tmp_path, 2, scene))


def test_a_new_topic_gets_no_log_of_a_former_one_whose_deletion_failed(tmp_path: Path) -> None:
    """The disk refused the deletion; the next start finishes it, and creates the new one."""

    async def scene(world: World) -> None:
        one, two = await started(world)
        first, second = world.machines.values()
        await at(first, world, one.topics.create([NewTopic("t", 2)]))
        await ended(world)
        former = two.topics.get("t")
        assert former is not None
        refused: list[Path] = []

        def refuse(kind: str, path: Path) -> OSError | None:
            if kind != "rename" or path.name != "t-1":
                return None
            refused.append(path)
            return OSError(errno.EIO, "Input/output error")

        second.fs.refuse = refuse
        await at(first, world, one.topics.delete([former.topic_id]))
        await until(lambda: refused)
        second.fs.refuse = None
        await at(first, world, one.topics.create([NewTopic("t", 2)]))
        await until(lambda: two.topics.get("t"))
        topic = two.topics.get("t")
        assert topic is not None
        assert [one.log_end_offset for one in topic.logs if one.topic_id == former.topic_id] == []
        world.kill(second, loses_power=False)
        world.start(second)
        await ended(world)
        (log,) = broker_of(second).topics.get("t").logs  # type: ignore[union-attr]
        assert log.topic_id == topic.topic_id

    passed(play(0, tmp_path, 2, scene))


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
        delay_of = world.loop.delay_of

        def load_slowly(executor: ThreadPoolExecutor) -> float | None:
            is_load = executor._thread_name_prefix == "load"
            is_second = world.loop.current is second.process
            return 5.0 if is_load and is_second else delay_of(executor)

        world.loop.delay_of = load_slowly
        world.start(second)
        await until(lambda: hasattr(second.broker, "topics"))
        topic = one.topics.get("b")
        assert topic is not None
        await at(first, world, one.topics.enlarge([Enlargement("a", 5)]))
        await at(first, world, one.topics.delete([topic.topic_id]))
        assert not second.is_ready, "it was quicker than the changes"
        await ended(world)

    passed(play(0, tmp_path, 2, scene))


def test_changes_of_others_wait_while_a_broker_deletes_remains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It follows them once its topics are loaded: before, there is nothing to change."""
    delete_remains = FollowingTopics.delete_remains
    begun: list[object] = []

    async def slowly(topics: FollowingTopics, metadata: Metadata) -> None:
        begun.append(topics)
        await asyncio.sleep(LEASE_S / 2)
        await delete_remains(topics, metadata)

    async def scene(world: World) -> None:
        one, _ = await started(world)
        first, second = world.machines.values()
        await at(first, world, one.topics.create([NewTopic("t", 2)]))
        await ended(world)
        world.kill(second, loses_power=False)
        monkeypatch.setattr(FollowingTopics, "delete_remains", slowly)
        world.start(second)
        await until(lambda: begun)
        change = one.topics.alter_configs({"t": lambda _: {"retention.ms": "7"}})
        await at(first, world, change)
        await ended(world)
        assert broker_of(second).topics.get("t").config.retention_ms == 7  # type: ignore[union-attr]

    passed(play(0, tmp_path, 2, scene))


def test_a_broker_whose_lease_ends_before_it_has_resumed_does_not_serve(tmp_path: Path) -> None:
    """Another change holds it up; the lease that it waits with is over by its turn."""

    async def scene(world: World) -> None:
        one, two = await started(world)
        first, _ = world.machines.values()
        await at(first, world, one.topics.create([NewTopic("t")]))
        await ended(world)
        membership = one._cluster._membership
        assert membership is not None
        go_on = asyncio.Event()

        async def hold_up() -> None:
            await go_on.wait()

        holding = asyncio.create_task(at(first, world, one.changes.run(hold_up)))
        membership._suspend()  # as at the end of a lease; the next heartbeat resumes
        await asyncio.sleep(LEASE_S / 2)
        hold_renewals(one)
        await asyncio.sleep(2 * LEASE_S)
        go_on.set()
        await holding
        for _ in range(50):
            await asyncio.sleep(0.01)
            topic = one.topics.get("t")
            assert topic is not None
            assert all(isinstance(part, RemotePartition) for part in topic.partitions)
        record = two.topics.get("t").record  # type: ignore[union-attr]
        assert record.leaders[0].node_id == NO_LEADER

    passed(play(0, tmp_path, 2, scene))


def test_a_broker_that_was_taken_for_ended_while_it_started_does_not_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It loads for long, and refuses connections meanwhile; its lease is not extended."""

    async def scene(world: World) -> None:
        one, two = await started(world)
        first, second = world.machines.values()
        await at(first, world, one.topics.create([NewTopic("t", 2)]))
        await ended(world)
        (led,) = two.topics.get("t").logs  # type: ignore[union-attr]
        client, place = Client("c", world.ports, world.chance, world.history), ("t", led.partition)
        client._timeout_s = 0.1
        producer = IdempotentProducer(client, [place])
        await producer.produce(place)
        expelled, load = asyncio.Event(), Topics.load

        async def load_slowly(self: Topics, metadata: Metadata) -> None:
            await expelled.wait()
            await load(self, metadata)

        monkeypatch.setattr(Topics, "load", load_slowly)
        world.catalog.loads_slowly = False  # the lease is not over by then
        world.kill(second, loses_power=False)
        world.start(second)
        former = _session_of(two)
        await until(lambda: _session_of(broker_of(second)) > former)
        session, release = _session_of(broker_of(second)), hold_renewals(broker_of(second))
        hold_news(broker_of(second), release)
        producing = asyncio.create_task(producer.produce(place))
        await until(lambda: 2 not in world.catalog.open_sessions)
        expelled.set()
        await asyncio.sleep(LEASE_S)
        release.set()
        await producing
        await ended(world)
        assert _session_of(broker_of(second)) > session

    passed(play(0, tmp_path, 2, scene))


def _session_of(broker: SimulatedBroker) -> int:
    store = getattr(broker, "store", None)
    return store.session_epoch if isinstance(store, CatalogStore) else 0


def test_a_broker_that_has_resigned_leads_no_new_partitions(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        one, two = await started(world)
        first, second = world.machines.values()
        membership = two._cluster._membership
        assert membership is not None
        release = hold_renewals(two)
        await asyncio.sleep(HEARTBEAT_S)
        membership._suspend()
        await at(first, world, one.topics.create([NewTopic("t", 2)]))
        await until(lambda: two.topics.get("t"))
        topic = two.topics.get("t")
        assert topic is not None
        assert topic.logs == []
        release.set()
        await ended(world)
        assert [log.partition for log in two.topics.get("t").logs] == [1]  # type: ignore[union-attr]
        (made,) = (one for one in second.fs.list(Path("/data")) if one.startswith("t-"))
        assert made == "t-1"

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
        membership._tasks[-1].cancel()
        await at(first, world, one.topics.create([NewTopic("t")]))

        async def away() -> None:
            raise CatalogAway("the catalog is away")

        two.store.news = away  # type: ignore[union-attr, method-assign]
        client = Client("c", world.ports, world.chance, world.history)
        client._timeout_s = 60.0
        (answer,) = (await client.ask(2, creating("u"), 7)).topics
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert answer.error_message == "the catalog is away"

    passed(play(0, tmp_path, 2, scene))
