"""Quotas: whose counts, how much is remembered, and what a client feels of one."""

from __future__ import annotations

import asyncio
import tracemalloc
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.apis import alter_client_quotas, describe_client_quotas, metadata
from odradek.broker.composition import Broker
from odradek.broker.context import RequestContext
from odradek.broker.errors import CloseConnection, MetadataError, Refusal
from odradek.broker.network import charging
from odradek.broker.observability.exposition.quota_rows import SHOWN_MAX, read_quotas
from odradek.broker.security.quotas import charge as charges
from odradek.broker.security.quotas.charge import Charge
from odradek.broker.security.quotas.clients import ClientQuotas, RateQuota
from odradek.broker.security.quotas.entities import (
    CONNECTION,
    FETCH,
    MUTATION,
    PRODUCE,
    REQUEST,
    Entity,
    entity_of,
    read_entity,
    write_entity,
)
from odradek.broker.security.quotas.limits import Limits
from odradek.broker.security.quotas.sensors import EXPIRE_MS
from odradek.config.quota import QuotaConfig
from odradek.protocol.errors import ErrorCode
from odradek.protocol.frames import API_VERSIONS_KEY, FETCH_KEY, PRODUCE_KEY
from odradek.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from odradek.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from odradek.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from odradek.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
)
from odradek.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
)
from odradek.protocol.messages.share_fetch import ShareFetchResponse
from tests.broker.admin import admin
from tests.broker.live import append, batch, client, create, live, on_uvloop
from tests.broker.sasl_client import log_in
from tests.broker.sasl_client import settings as sasl_settings
from tests.support.requests import creatable, creating, describing, producing

METADATA_KEY, SHARE_FETCH_KEY = 3, 78
# A burst is what one second brings, and a client waits for a second at most.
SMALL = {"quota.window.num": "2", "quota.window.size.seconds": "1"}


def entity(**parts: str | None) -> Entity:
    return entity_of((kind.replace("_", "-"), name) for kind, name in parts.items())


# --- whose quota counts ---------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", None])
ENTITIES = st.one_of(
    st.builds(lambda user: entity(user=user), NAMES),
    st.builds(lambda client_id: entity(client_id=client_id), NAMES),
    st.builds(lambda user, client_id: entity(user=user, client_id=client_id), NAMES, NAMES),
)


@given(st.dictionaries(ENTITIES, st.integers(1, 1000).map(float)))
def test_the_quota_that_says_most_of_a_client_counts(quotas: dict[Entity, float]) -> None:
    limits = Limits(quotas)
    assert bool(limits) == bool(quotas)
    for user, client_id in product("abc", "abc"):
        order = [
            (entity(user=user, client_id=client_id), (user, client_id)),
            (entity(user=user, client_id=None), (user, client_id)),
            (entity(user=user), (user, None)),
            (entity(user=None, client_id=client_id), (user, client_id)),
            (entity(user=None, client_id=None), (user, client_id)),
            (entity(user=None), (user, None)),
            (entity(client_id=client_id), (None, client_id)),
            (entity(client_id=None), (None, client_id)),
        ]
        expected = next(((key, quotas[one]) for one, key in order if one in quotas), None)
        assert limits.find(user, client_id) == expected


def test_a_client_without_an_id_is_like_any_other() -> None:
    assert Limits({entity(client_id=None): 1.0}).find("u", "") == ((None, ""), 1.0)
    both = Limits({entity(user="u", client_id=None): 1.0, entity(user="u"): 2.0})
    assert both.find("u", "") == (("u", ""), 1.0)
    assert Limits({entity(client_id="a"): 1.0}).find("u", "") is None


@given(ENTITIES)
def test_an_entity_is_read_as_it_was_written(one: Entity) -> None:
    assert read_entity(write_entity(one)) == one


# --- what is counted ------------------------------------------------------------------------


class World:
    """Quotas, and a clock that is moved by hand."""

    def __init__(self, *, most: int = 100, **settings: int) -> None:
        self.now_ms = 0
        self.quotas = ClientQuotas(QuotaConfig(**settings), lambda: most, lambda: self.now_ms)

    def charge(
        self,
        api_key: int = API_VERSIONS_KEY,
        size: int = 0,
        user: str = "ANONYMOUS",
        client_id: str = "c",
    ) -> Charge:
        return Charge(self.quotas, user, client_id, api_key, size, 0)

    def produce(self, size: int, client_id: str = "c") -> int:
        one = self.charge(PRODUCE_KEY, size, client_id=client_id)
        one.settle_produce(is_answered=True)
        return one.throttle_ms


@pytest.mark.parametrize("size", [1_000, 16_384, 65_536])
@pytest.mark.parametrize(("samples", "time_ms"), [(11, 33_000), (3, 30_000)])
def test_a_client_that_sends_what_it_may_gets_its_rate_within_a_tenth(
    size: int, samples: int, time_ms: int
) -> None:
    """Over the time of whole windows: each lets a burst pass, as Kafka's do."""
    world = World(quota_window_num=samples)
    rate = 500_000.0
    world.quotas.put_in_force({entity(client_id="c"): {PRODUCE: rate}})
    sent, others = 0, 0
    while world.now_ms < time_ms:
        throttle_ms = world.produce(size)
        others += world.produce(size, client_id="other")
        sent += size
        world.now_ms += throttle_ms or 1
    assert sent / time_ms * 1000 == pytest.approx(rate, rel=0.1)
    assert others == 0


def test_a_fetch_that_is_emptied_is_not_counted() -> None:
    world = World()
    world.quotas.put_in_force({entity(client_id=None): {FETCH: 1_000.0}})
    one = world.charge(FETCH_KEY)
    assert one.fetch_bytes_max() == 10_000
    assert one.settle_fetch(10_000) == 0
    world.now_ms += 500
    for _ in range(5):
        again = world.charge(FETCH_KEY)
        # 20 kB in ten and a half seconds: half as long again and more.
        assert again.settle_fetch(10_000) == 9_500
    answer = FetchResponse(responses=[])
    again.settle(answer, lambda: 0)
    assert answer.throttle_time_ms == 9_500
    assert (again.take_mute_s(), again.take_mute_s()) == (9.5, 0.0)


def test_the_answer_to_a_share_fetch_is_sent_and_counted() -> None:
    world = World()
    world.quotas.put_in_force({entity(client_id=None): {FETCH: 1_000.0}})
    one, answer = world.charge(SHARE_FETCH_KEY), ShareFetchResponse(responses=[])
    one.settle(answer, lambda: 20_000)
    assert answer.throttle_time_ms == 10_000
    assert one.take_mute_s() == 10.0


def test_time_is_counted_and_held_back_for_one_sample_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, clock = World(), [0]
    monkeypatch.setattr(charges, "perf_counter_ns", lambda: clock[0])
    world.quotas.put_in_force({entity(user="u"): {REQUEST: 10.0}})

    def take(time_ms: int, user: str, client_id: str) -> int:
        one = world.charge(user=user, client_id=client_id)
        one.resume()
        clock[0] += time_ms * 1_000_000
        answer = MetadataResponse(brokers=[], topics=[])
        one.settle(answer, lambda: 0)
        assert answer.throttle_time_ms == one.throttle_ms
        return one.throttle_ms

    # A tenth of the ten seconds that a young rate is spread over, for all of the user's clients.
    assert take(600, user="u", client_id="c") == 0
    assert take(400, user="u", client_id="d") == 0
    assert take(20, user="u", client_id="e") == 200
    assert take(2_000, user="u", client_id="e") == 1_000
    assert take(2_000, user="v", client_id="e") == 0


def test_the_steps_of_an_answer_are_counted_and_what_it_waits_for_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, clock = World(), [0]
    monkeypatch.setattr(charges, "perf_counter_ns", lambda: clock[0])
    world.quotas.put_in_force({entity(client_id=None): {REQUEST: 1.0}})

    def pass_ms(time_ms: int) -> None:
        clock[0] += time_ms * 1_000_000

    async def answer(awaited: asyncio.Future[str]) -> str:
        pass_ms(30)
        try:
            await awaited
        except ValueError:
            pass_ms(40)
        pass_ms(50)
        return "done"

    async def run() -> None:
        one = world.charge()
        awaited: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        running = asyncio.ensure_future(one.metered(answer(awaited)))
        await asyncio.sleep(0)
        pass_ms(1_000)
        awaited.set_exception(ValueError())
        assert await running == "done"
        pass_ms(1_000)
        one.resume()
        one.settle(None, lambda: 0)
        sensor = world.quotas.request.find("ANONYMOUS", "c", 0)
        assert sensor is not None
        # 120 ms in ten seconds.
        assert sensor.rate.measure(0) == pytest.approx(1.2)
        assert one.throttle_ms == 1_000

    asyncio.run(run())


def test_changes_of_topics_are_refused_until_they_are_paid() -> None:
    world = World(controller_quota_window_num=2)
    world.quotas.put_in_force({entity(client_id=None): {MUTATION: 5.0}})
    world.charge().spend(10, is_strict=True)
    world.charge().spend(1, is_strict=True)
    with pytest.raises(Refusal) as refusal:
        world.charge().spend(1, is_strict=True)
    assert refusal.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    late = world.charge()
    late.spend(1, is_strict=False)
    world.now_ms += 150
    late.settle(None, lambda: 0)
    assert late.throttle_ms == 250  # two owed, at five a second
    world.now_ms += 250
    world.charge().spend(1, is_strict=True)


def test_quotas_that_change_count_for_those_who_are_there() -> None:
    world = World()
    quotas = world.quotas
    quotas.put_in_force({entity(client_id=None): {PRODUCE: 1_000.0}})
    assert world.produce(10_000) == 0
    quotas.put_in_force({entity(client_id=None): {PRODUCE: 500.0}})
    assert world.produce(0) == 10_000
    quotas.put_in_force({entity(client_id="c"): {PRODUCE: 1_000_000.0}})
    assert world.produce(0) == 0
    quotas.put_in_force({entity(client_id="d"): {PRODUCE: 1.0}})
    assert world.produce(1_000_000) == 0


def test_made_up_client_ids_are_remembered_up_to_a_bound_and_for_an_hour() -> None:
    world = World(most=10)
    world.quotas.put_in_force({entity(client_id=None): {PRODUCE: 1.0}})
    for number in range(1_000):
        world.produce(100, client_id=f"client-{number}")
        assert world.produce(0, client_id="steady") == 0
    sensors = world.quotas.produce.sensors
    assert len(sensors) == 10
    assert sensors.evictions == 1_001 - 10
    assert {key for key, _ in sensors.latest(2)} == {(None, "steady"), (None, "client-999")}
    world.now_ms += EXPIRE_MS + 1
    world.produce(0, client_id="new")
    assert len(sensors) == 1


def test_long_names_take_no_more_memory_than_short_ones_and_stay_distinct() -> None:
    count = 300
    world = World(most=count)
    everyone = dict.fromkeys((PRODUCE, FETCH, REQUEST, MUTATION), 1000.0)
    world.quotas.put_in_force({entity(user=None, client_id=None): everyone})
    tail = "\U0001f600" + "x" * 32_000
    tracemalloc.start()
    try:
        for number in range(count):
            for quota in world.quotas.by_kind.values():
                if isinstance(quota, RateQuota):
                    quota.find(f"{number}u{tail}", f"{number}c{tail}", world.now_ms)
                else:
                    quota.spend("u", f"{number}c{tail}", 1, world.now_ms, is_strict=False)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 6 << 20  # it was 300 MiB
    for quota in world.quotas.by_kind.values():
        assert len(quota.sensors) == count
        for (user, client_id), _ in quota.sensors.latest(count):
            assert len(user or "") < 200 and len(client_id or "") < 200


def test_a_limit_of_a_long_name_is_that_of_the_whole_name() -> None:
    limits = Limits({entity(user="u" * 1_000): 5.0})
    found = limits.find("u" * 1_000, "c")
    assert found is not None and found[1] == 5.0
    assert limits.find("u" * 1_001, "c") is None
    for length in (100, 200):  # a user's rate is one, whatever its clients are called
        limits = Limits({entity(user=None): 5.0})
        keys = {limits.find("u" * length, "c" * size) for size in (1, 100, 200, 9_000)}
        assert len(keys) == 1


# --- the APIs -------------------------------------------------------------------------------


def request(of: Entity, **quotas: float | None) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(
        entries=[
            EntryData(
                entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in of],
                ops=[
                    OpData(key=key, value=value or 0.0, remove=value is None)
                    for key, value in quotas.items()
                ],
            )
        ],
        validate_only=False,
    )


ALL = DescribeClientQuotasRequest(components=[], strict=False)


def told(response: Any) -> dict[Entity, dict[str, float]]:
    return {
        entity_of((part.entity_type, part.entity_name) for part in one.entity): {
            value.key: value.value for value in one.values
        }
        for one in response.entries
    }


async def test_quotas_are_there_after_a_restart(tmp_path: Path) -> None:
    one, other = entity(client_id="c", user=None), entity(ip="127.0.0.1")
    async with admin(tmp_path) as broker:
        for asked in (request(one, **{PRODUCE: 7.0}), request(other, **{CONNECTION: 8.0})):
            answer = await broker.call(alter_client_quotas.handle, asked, 1)
            assert answer.entries[0].error_code == 0
    async with admin(tmp_path) as broker:
        answer = await broker.call(describe_client_quotas.handle, ALL, 1)
        assert told(answer) == {one: {PRODUCE: 7.0}, other: {CONNECTION: 8.0}}
        quotas = broker.security.quotas
        assert quotas.clients is not None
        assert quotas.addresses is not None
        assert quotas.addresses.rates == {"127.0.0.1": 8.0}
        for asked in (request(one, **{PRODUCE: None}), request(other, **{CONNECTION: None})):
            await broker.call(alter_client_quotas.handle, asked, 0)
        assert [quotas.clients, quotas.addresses] == [None, None]
    async with admin(tmp_path) as broker:
        assert not broker.security.quotas.entries


async def test_a_quota_that_could_not_be_written_is_not_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any) -> None:
        raise MetadataError("the disk is full")

    async with admin(tmp_path) as broker:
        monkeypatch.setattr(broker.store, "change_security", fail)
        asked = request(entity(client_id="c"), **{PRODUCE: 7.0})
        answer = await broker.call(alter_client_quotas.handle, asked, 1)
        assert answer.entries[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.security.quotas.clients is None
        assert not broker.security.quotas.entries


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
async def test_no_quota_is_nothing_or_no_number(tmp_path: Path, value: float) -> None:
    async with admin(tmp_path) as broker:
        for key in (PRODUCE, REQUEST):
            asked = request(entity(user="u"), **{key: value})
            answer = await broker.call(alter_client_quotas.handle, asked, 1)
            assert answer.entries[0].error_code == ErrorCode.INVALID_REQUEST
            assert "must be greater than 0" in answer.entries[0].error_message


async def test_a_filter_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        component = ComponentData(entity_type="nosuch", match_type=0, match="x")
        asked = DescribeClientQuotasRequest(components=[component], strict=True)
        answer = await broker.call(describe_client_quotas.handle, asked, 1)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert answer.entries is None


# --- what a client feels --------------------------------------------------------------------


async def quota(broker: Broker, of: Entity, **quotas: float | None) -> None:
    alterations = [(of, list(quotas.items()))]
    outcomes = await broker.security.quotas.alter(alterations, validate_only=False)
    assert outcomes == {of: None}


def production(size: int, *, acks: int = 1) -> ProduceRequest:
    return producing("t", batch(b"v" * size), acks=acks)


def fetching(session_id: int = 0, epoch: int = 0, size_max: int = 1_000_000) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=size_max,
        session_id=session_id,
        session_epoch=epoch,
        topics=[] if epoch else [FetchTopic(topic="t", partitions=[wanted])],
        forgotten_topics_data=[],
    )


ANY = MetadataRequest(topics=[])


@on_uvloop
async def test_nothing_is_counted_while_there_is_no_quota(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(charging, "Charge", None)
        async with live(tmp_path) as broker, client(broker) as one:
            assert (await one.ask(ANY, version=9)).throttle_time_ms == 0
            await quota(broker, entity(client_id=None), **{PRODUCE: 1.0})
            await quota(broker, entity(client_id=None), **{PRODUCE: None})
            assert (await one.ask(ANY, version=9)).throttle_time_ms == 0


@on_uvloop
async def test_a_client_that_produces_too_much_is_answered_and_then_not_read_for_a_while(
    tmp_path: Path,
) -> None:
    loop = asyncio.get_running_loop()
    async with live(tmp_path, SMALL) as broker, client(broker) as one, client(broker) as other:
        await create(broker, "t")
        other.client_id = "other"
        await quota(broker, entity(client_id="a-client"), **{PRODUCE: 10_000.0})
        begun = loop.time()
        # Nothing after the first is begun, though Produce requests may overlap.
        one.send(production(13_000, acks=-1), production(1, acks=-1), version=9)
        first = (await one.receive())[1]
        assert 250 < first.throttle_time_ms < 350
        (log,) = broker.topics.get("t").logs  # type: ignore[union-attr]
        answer = await other.ask(production(50_000), version=9)
        assert answer.throttle_time_ms == 0
        if loop.time() < begun + 0.25:
            assert log.log_end_offset == 2
        await one.receive()
        assert loop.time() - begun >= first.throttle_time_ms / 1000
        assert log.log_end_offset == 3
        rows = read_quotas(broker)
        (row,) = rows.clients[PRODUCE]
        assert (row.user, row.client_id) == ("", "a-client")
        assert row.throttle_ms > 0
        assert rows.limits == {PRODUCE: 1}


@on_uvloop
async def test_a_client_that_produces_too_much_without_answers_is_not_read_either(
    tmp_path: Path,
) -> None:
    loop = asyncio.get_running_loop()
    async with live(tmp_path, SMALL) as broker, client(broker) as one:
        await create(broker, "t")
        await quota(broker, entity(user="ANONYMOUS"), **{PRODUCE: 10_000.0})
        begun = loop.time()
        one.send(production(13_000, acks=0), version=9)
        one.send(ANY, version=9)
        number, answer = await one.receive()
        assert (number, answer.throttle_time_ms) == (1, 0)
        assert loop.time() - begun >= 0.25


@on_uvloop
async def test_produced_bytes_count_even_if_the_connection_is_closed_for_a_refusal(
    tmp_path: Path,
) -> None:
    """As in Kafka: else a client that names a missing partition would have no quota."""
    async with live(tmp_path, SMALL) as broker:
        await create(broker, "t")
        await quota(broker, entity(client_id="a-client"), **{PRODUCE: 10_000.0})
        produced = production(13_000, acks=0)
        wrong = PartitionProduceData(index=7, records=memoryview(batch(b"v")))
        produced.topic_data[0].partition_data.append(wrong)
        async with client(broker) as one:
            one.send(produced, version=9)
            assert await one.is_closed()
        (log,) = broker.topics.get("t").logs  # type: ignore[union-attr]
        assert log.log_end_offset == 1
        async with client(broker) as again:
            answer = await again.ask(production(1), version=9)
            assert answer.throttle_time_ms > 0


@pytest.mark.parametrize("is_awaited", [False, True])
@pytest.mark.parametrize("error", [CloseConnection("no"), ZeroDivisionError()])
def test_time_counts_though_the_connection_is_closed_instead_of_an_answer(
    tmp_path: Path, is_awaited: bool, error: Exception
) -> None:
    settled: list[tuple[int, bool]] = []

    class Counted(Charge):
        def _settle(self, *args: Any, counts_time: bool) -> Any:
            settled.append((self._api_key, counts_time))
            return super()._settle(*args, counts_time=counts_time)

    def fail(_: Broker, context: RequestContext, request: MetadataRequest) -> Any:
        raise error

    async def fail_later(_: Broker, context: RequestContext, request: MetadataRequest) -> Any:
        raise error

    @on_uvloop
    async def main() -> None:
        async with live(tmp_path) as broker, client(broker) as one:
            await quota(broker, entity(client_id="a-client"), **{REQUEST: 1.0})
            one.send(ANY, version=9)
            assert await one.is_closed()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(charging, "Charge", Counted)
        patch.setattr(metadata, "handle", fail_later if is_awaited else fail)
        main()
    assert settled == [(METADATA_KEY, True)]


@on_uvloop
async def test_a_fetch_of_too_much_is_emptied_and_its_session_goes_on(tmp_path: Path) -> None:
    async with live(tmp_path, SMALL) as broker, client(broker) as one:
        topic = await create(broker, "t")
        for _ in range(4):
            append(topic.logs[0], batch(b"v" * 4_000))
        await quota(broker, entity(client_id=None), **{FETCH: 10_000.0})
        first = await one.ask(fetching(size_max=8_400), version=12)
        records = first.responses[0].partitions[0].records
        assert len(records) == 8_400
        assert (first.throttle_time_ms, first.session_id > 0) == (0, True)
        epoch, again = 1, first
        while not again.throttle_time_ms:
            again = await one.ask(fetching(first.session_id, epoch, 8_400), version=12)
            epoch += 1
        assert (again.session_id, again.responses) == (first.session_id, [])
        while again.throttle_time_ms:
            again = await one.ask(fetching(first.session_id, epoch, 8_400), version=12)
            epoch += 1
        assert again.responses[0].partitions[0].records == records


@on_uvloop
async def test_a_user_is_held_back_whatever_its_clients_call_themselves(tmp_path: Path) -> None:
    settings = {**sasl_settings(), **SMALL}
    async with (
        live(tmp_path, settings) as broker,
        client(broker, listener=1) as one,
        client(broker, listener=1) as other,
        client(broker, listener=1) as of_bob,
    ):
        await create(broker, "t")
        await quota(broker, entity(user=None), **{PRODUCE: 10_000.0})
        for connection, name in ((one, "alice"), (other, "alice"), (of_bob, "bob")):
            assert (await log_in(connection, name)).error_code == 0
        one.client_id, other.client_id = "one", "other"
        assert (await one.ask(production(9_000), version=9)).throttle_time_ms == 0
        assert (await other.ask(production(90_000), version=9)).throttle_time_ms > 0
        assert (await of_bob.ask(production(9_000), version=9)).throttle_time_ms == 0
        assert {row.user for row in read_quotas(broker).clients[PRODUCE]} == {"alice", "bob"}


@on_uvloop
async def test_too_many_new_topics_are_refused_and_asked_for_again(tmp_path: Path) -> None:
    settings = {**SMALL, "controller.quota.window.num": "1"}
    async with live(tmp_path, settings) as broker, client(broker) as one, client(broker) as other:
        await quota(broker, entity(client_id=None), **{MUTATION: 1.0})
        answer = await one.ask(creating(creatable("many", 21), "more"), version=7)
        found = {topic.name: topic.error_code for topic in answer.topics}
        assert found == {"many": 0, "more": ErrorCode.THROTTLING_QUOTA_EXCEEDED}
        assert 0 < answer.throttle_time_ms <= 20_000
        missing = describing("made", creates=True)
        # The connection that owes is not read; this one is, and told to look again later.
        answer = await other.ask(missing, version=9)
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        async with client(broker) as third:
            await quota(broker, entity(client_id=None), **{MUTATION: 1_000.0})
            while (await third.ask(missing, version=9)).topics[0].error_code:
                pass


@on_uvloop
async def test_an_address_that_connects_too_often_is_let_wait_and_closed(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    async with live(tmp_path, SMALL) as broker:
        await quota(broker, entity(ip="127.0.0.1"), **{CONNECTION: 1.0})
        refused_s: list[float] = []
        for _ in range(4):
            begun = loop.time()
            async with client(broker) as one:
                one.send(ANY, version=9)
                try:
                    await one.receive()
                except (asyncio.IncompleteReadError, ConnectionError):
                    refused_s.append(loop.time() - begun)
        assert refused_s
        assert max(refused_s) > 0.2
        name = broker.server.listeners[0].name
        assert broker.server.refused[name] == len(refused_s)
        assert broker.server.accepted[name] == 4 - len(refused_s)
        assert [address for address, _ in read_quotas(broker).addresses] == ["127.0.0.1"]
        # Any other may come as it likes.
        await quota(broker, entity(ip="127.0.0.1"), **{CONNECTION: None})
        await quota(broker, entity(ip="127.0.0.77"), **{CONNECTION: 1.0})
        for _ in range(5):
            async with client(broker) as one:
                await one.ask(ANY, version=9)


@on_uvloop
async def test_the_number_of_shown_clients_is_bounded(tmp_path: Path) -> None:
    async with live(tmp_path) as broker:
        await quota(broker, entity(client_id=None), **{PRODUCE: 1.0})
        quotas = broker.security.quotas.clients
        assert quotas is not None
        for number in range(SHOWN_MAX + 5):
            quotas.produce.find("u", f"c{number}", quotas.now_ms())
        shown = [row.client_id for row in read_quotas(broker).clients[PRODUCE]]
        assert len(shown) == SHOWN_MAX
        assert f"c{SHOWN_MAX + 4}" in shown
        assert "c0" not in shown
