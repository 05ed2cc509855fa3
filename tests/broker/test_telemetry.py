"""Client telemetry: what clients are asked to push, what is refused, what /metrics shows of it."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import threading
import time
import tracemalloc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData, NumberDataPoint, Sum
from prometheus_client.parser import text_string_to_metric_families

from odradek.broker.apis import api_versions, get_telemetry_subscriptions, push_telemetry
from odradek.broker.context import ConnectedClient
from odradek.broker.ids import random_id
from odradek.broker.metadata.store import Resource, ResourceType
from odradek.broker.observability.exposition.render import render
from odradek.broker.telemetry import reader, series
from odradek.broker.telemetry.clients import ClientRow, Telemetry
from odradek.broker.telemetry.series import SAMPLES_MAX, Push, read_push
from odradek.broker.telemetry.walk import InvalidPayload, PayloadTooLarge, Walk
from odradek.config.client_metrics import ATTRIBUTES, read_subscription
from odradek.config.errors import ConfigError
from odradek.protocol.compression import Codec, compress
from odradek.protocol.errors import ErrorCode
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from odradek.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from odradek.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from odradek.protocol.wire import ZERO_UUID
from tests.broker.admin import Admin, admin
from tests.broker.test_config_apis import change
from tests.broker.test_metrics import snapshot

SET, DELETE = 0, 1
CLIENT_METRICS = 16
ATTRIBUTES_OF_ONE = dict.fromkeys(ATTRIBUTES, "some-client")
DELTA, CUMULATIVE = 1, 2


@dataclass
class StoppedClock:
    """A clock that a test moves."""

    time_ms: int = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.time_ms


@dataclass
class World:
    """A broker whose telemetry has a clock that can be moved."""

    broker: Admin
    clock: StoppedClock
    client: ConnectedClient = field(default_factory=ConnectedClient)

    def lose(self) -> None:
        """Lose the connection."""
        for lost in self.client.on_lost.values():
            lost()

    async def subscribe(self, **settings: str) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        changes = [(name, SET, value) for name, value in named.items()]
        code, text = await change(self.broker, CLIENT_METRICS, "all", *changes)
        assert code == 0, text

    async def ask(self, instance_id: bytes = ZERO_UUID) -> GetTelemetrySubscriptionsResponse:
        request = GetTelemetrySubscriptionsRequest(client_instance_id=instance_id)
        answer: GetTelemetrySubscriptionsResponse = await self.broker.call(
            get_telemetry_subscriptions.handle, request, 0, self.client
        )
        return answer

    async def push(self, instance_id: bytes, number: int, **others: Any) -> int:
        values = {"terminating": False, "compression_type": 0, "metrics": b"", **others}
        request = PushTelemetryRequest(
            client_instance_id=instance_id, subscription_id=number, **values
        )
        answer: PushTelemetryResponse = await self.broker.call(
            push_telemetry.handle, request, 0, self.client
        )
        return answer.error_code


def world(broker: Admin, series_max: int = 1000) -> World:
    clock = StoppedClock()
    source = random.Random(1)
    made = Telemetry(
        broker.configs.resources, clock.now_ms, lambda: random_id(source), lambda: series_max
    )
    return World(replace(broker, telemetry=made), clock)


def payload(
    values: Mapping[str, float], temporality: int = DELTA, attributes: Mapping[str, str] = {}
) -> bytes:
    data = MetricsData()
    scope = data.resource_metrics.add().scope_metrics.add()
    labels = [
        KeyValue(key=name, value=AnyValue(string_value=text)) for name, text in attributes.items()
    ]
    for name, value in values.items():
        point = NumberDataPoint(as_double=value, attributes=labels)
        made = Metric(name=name)
        if name.endswith(".total"):
            counted = Sum(
                aggregation_temporality=temporality, is_monotonic=True, data_points=[point]
            )
            made.sum.CopyFrom(counted)
        else:
            made.gauge.data_points.append(point)
        scope.metrics.append(made)
    return data.SerializeToString()


def shown(one: World) -> dict[str, float]:
    text = render(snapshot(clients=one.broker.telemetry.rows()))
    return {
        sample.name: sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if sample.labels.get("client_id")
    }


async def test_without_a_subscription_nothing_is_asked_for(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        answer = await world(broker).ask()
        assert answer.error_code == 0
        assert answer.requested_metrics == []
        assert answer.client_instance_id != ZERO_UUID
        assert answer.push_interval_ms == 300_000
        assert answer.accepted_compression_types == [Codec.ZSTD, Codec.LZ4, Codec.GZIP, 2]
        assert answer.telemetry_max_bytes == 1024 * 1024


async def announced(one: World) -> set[int]:
    """Return the keys of the APIs that a client is offered."""
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    answer = await one.broker.call(api_versions.handle, request, 4, one.client)
    return {row.api_key for row in answer.api_keys}


async def test_the_apis_are_announced_while_some_metrics_are_wanted(tmp_path: Path) -> None:
    both = {71, 72}
    async with admin(tmp_path) as broker:
        one = world(broker)
        assert not both & await announced(one)
        await one.subscribe(interval_ms="1000")
        assert not both & await announced(one)
        await one.subscribe(metrics="*")
        assert both <= await announced(one)
        nowhere = replace(broker, telemetry=Telemetry(
            broker.configs.resources, one.clock.now_ms, bytes, int, is_shown=False
        ))  # fmt: skip
        assert not both & await announced(World(nowhere, one.clock))
        await one.subscribe(metrics="")
        assert not both & await announced(one)


async def test_a_change_of_the_subscriptions_reaches_a_client_at_once(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        one = world(broker)
        before = await one.ask()
        await one.subscribe(metrics="a.,b.", interval_ms="1000")
        after = await one.ask(before.client_instance_id)
        assert (after.error_code, after.push_interval_ms) == (0, 1000)
        assert sorted(after.requested_metrics) == ["a.", "b."]
        assert after.subscription_id != before.subscription_id
        assert after.client_instance_id == before.client_instance_id
        number = before.subscription_id
        assert await one.push(after.client_instance_id, number) == 117  # UNKNOWN_SUBSCRIPTION_ID


async def test_only_clients_that_match_are_asked(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        one = world(broker)
        await one.subscribe(metrics="*", match="client_id=another.*")
        assert (await one.ask()).requested_metrics == []
        await one.subscribe(match="client_id=a-.*,client_source_address=127\\..*")
        assert (await one.ask()).requested_metrics == ["*"]


async def test_a_request_that_comes_too_early_is_refused(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        one = world(broker)
        await one.subscribe(metrics="*", interval_ms="1000")
        first = await one.ask()
        known, number = first.client_instance_id, first.subscription_id
        early = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert (await one.ask(known)).error_code == early
        assert await one.push(known, number) == 0  # the first one may come at any time
        one.clock.time_ms += 999
        assert await one.push(known, number) == early
        assert (await one.ask(known)).error_code == early
        one.clock.time_ms += 1
        assert (await one.ask(known)).error_code == 0


@pytest.mark.parametrize("wrong", [{"number": 1}, {"compression_type": 5}])
async def test_a_client_that_pushed_for_another_subscription_may_ask_at_once(
    tmp_path: Path, wrong: dict[str, int]
) -> None:
    async with admin(tmp_path) as broker:
        one = world(broker)
        first = await one.ask()
        known, number = first.client_instance_id, first.subscription_id
        early = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert await one.push(known, **{"number": number, **wrong}) in (117, 76)
        assert (await one.ask(known)).subscription_id == number
        assert (await one.ask(known)).error_code == early
        assert await one.push(known, number) == early


def connected(one: World) -> World:
    """Return the same broker over a connection of its own."""
    return replace(one, client=ConnectedClient())


async def test_a_client_is_new_once_the_connection_is_lost_on_which_it_began(
    tmp_path: Path,
) -> None:
    async with admin(tmp_path) as broker:
        first = connected(world(broker))
        await first.subscribe(metrics="*")
        second = connected(first)
        known, ended = bytes([7] * 16), bytes([8] * 16)
        early = ErrorCode.THROTTLING_QUOTA_EXCEEDED
        number = (await first.ask(ended)).subscription_id
        await first.push(ended, number, metrics=payload({"a": 1}), terminating=True)
        assert (await first.ask(known)).error_code == 0
        second.lose()
        assert (await second.ask(known)).error_code == early  # lost with the first all the same
        first.lose()
        assert (await second.ask(known)).error_code == 0
        # Of all that begin on a connection only the last is lost with it.
        assert await second.push(ended, number) == ErrorCode.INVALID_REQUEST
        assert (await second.ask(bytes([9] * 16))).error_code == 0
        second.lose()
        assert (await first.ask(known)).error_code == early
        assert shown(first)  # whatever becomes of the connection


async def test_a_client_that_was_silent_is_new(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        one = world(broker)
        await one.subscribe(metrics="*", interval_ms="1000")
        first = await one.ask()
        known, number = first.client_instance_id, first.subscription_id
        assert await one.push(known, number, terminating=True) == 0
        one.clock.time_ms += 60_000
        assert await one.push(known, number) == ErrorCode.INVALID_REQUEST
        one.clock.time_ms += 60_001
        assert await one.push(known, number) == 0


async def test_the_last_push_may_come_early_and_none_after_it(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        one = world(broker)
        await one.subscribe(metrics="*", interval_ms="1000")
        first = await one.ask()
        known, number = first.client_instance_id, first.subscription_id
        assert await one.push(known, number) == 0
        assert await one.push(known, number, terminating=True) == 0
        one.clock.time_ms += 5000
        assert await one.push(known, number) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("others", "code"),
    [
        ({"subscription_id": 1}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"client_instance_id": ZERO_UUID}, ErrorCode.INVALID_REQUEST),
        ({"compression_type": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"metrics": bytes(101)}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"metrics": b"\xff\xff"}, ErrorCode.INVALID_RECORD),
        ({"metrics": b"no gzip", "compression_type": 1}, ErrorCode.INVALID_RECORD),
        (
            {"metrics": compress(Codec.GZIP, bytes(20_000)), "compression_type": 1},
            ErrorCode.TELEMETRY_TOO_LARGE,
        ),
    ],
)
async def test_an_unacceptable_push_is_refused(
    tmp_path: Path, others: dict[str, Any], code: ErrorCode
) -> None:
    async with admin(tmp_path, {"telemetry.max.bytes": "100"}) as broker:
        one = world(broker)
        await one.subscribe(metrics="*")
        first = await one.ask()
        known = {"client_instance_id": first.client_instance_id}
        known |= {"subscription_id": first.subscription_id}
        told = {**known, "terminating": False, "compression_type": 0, "metrics": b"", **others}
        answer = await one.broker.call(push_telemetry.handle, PushTelemetryRequest(**told), 0)
        assert answer.error_code == code


@pytest.mark.parametrize("codec", list(Codec))
async def test_pushed_metrics_are_shown_under_kafkas_names(tmp_path: Path, codec: Codec) -> None:
    async with admin(tmp_path) as broker:
        one = world(broker)
        await one.subscribe(metrics="*", interval_ms="1000")
        first = await one.ask()
        pushed = payload({"org.apache.kafka.producer.record.send.total": 3, "x-y": 1.5})
        for _ in range(2):
            one.clock.time_ms += 1000
            code = await one.push(
                first.client_instance_id,
                first.subscription_id,
                compression_type=codec,
                metrics=compress(codec, pushed),
            )
            assert code == 0
        assert shown(one) == {
            "kafka_client_producer_record_send_total": 6,  # the same increase, twice
            "kafka_client_x_y": 1.5,
        }


async def test_a_silent_client_is_forgotten(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        one = world(broker)
        await one.subscribe(metrics="*", interval_ms="30000")
        first = await one.ask()
        pushed = payload({"a": 1})
        await one.push(first.client_instance_id, first.subscription_id, metrics=pushed)
        one.clock.time_ms += 90_000
        assert shown(one)
        one.clock.time_ms += 1
        assert not shown(one)


async def test_series_that_find_no_room_are_counted(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        one = world(broker, series_max=2)
        await one.subscribe(metrics="*")
        first = await one.ask()
        pushed = payload({"a": 1, "b": 2, "c": 3})
        await one.push(first.client_instance_id, first.subscription_id, metrics=pushed)
        assert shown(one) == {"kafka_client_a": 1, "kafka_client_b": 2}
        assert one.broker.telemetry.dropped_series == 1


async def test_metrics_that_nobody_asked_for_are_not_read(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        one = world(broker)
        first = await one.ask()
        with mock.patch.object(reader, "read_push", side_effect=AssertionError):
            known, number = first.client_instance_id, first.subscription_id
            assert await one.push(known, number, metrics=payload({"a": 1})) == 0
        assert not shown(one)


async def test_pushes_are_read_one_by_one_and_few_wait(tmp_path: Path) -> None:
    reading, go_on = threading.Semaphore(0), threading.Semaphore(0)

    def read(*args: Any) -> Push:
        reading.release()
        assert go_on.acquire(timeout=60)
        return read_push(*args)

    async with admin(tmp_path) as broker:
        one = world(broker)
        await one.subscribe(metrics="*")
        with (
            mock.patch.object(reader, "_WAITING_MAX", 3),
            mock.patch.object(reader, "read_push", read),
        ):
            pushes = []
            for number in range(5):
                asked = await one.ask(bytes([number + 1] * 16))
                known, expected = asked.client_instance_id, asked.subscription_id
                pushed = one.push(known, expected, metrics=payload({"a": 1}))
                pushes.append(asyncio.ensure_future(pushed))
            # Of three that may wait, one is read.
            assert [await one for one in pushes[3:]] == [89, 89]  # THROTTLING_QUOTA_EXCEEDED
            for _ in range(3):
                assert await asyncio.to_thread(reading.acquire, timeout=60)
                assert not reading.acquire(blocking=False)
                go_on.release()
            assert [await one for one in pushes[:3]] == [0, 0, 0]
        one.broker.telemetry.reader.close()


def many(levels: Sequence[int], count: int) -> bytes:
    """Nest fields of some numbers, the innermost empty and there many times."""
    *outer, innermost = levels
    made = bytes([innermost << 3 | 2, 0]) * count
    for number in reversed(outer):
        made = bytes([number << 3 | 2]) + encode_varint(len(made)) + made
    return made


def encode_varint(number: int) -> bytes:
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])


# Of MetricsData: resource_metrics, resource, its attributes; scope_metrics, metrics; gauge and
# sum, and their data points, and the attributes of those.
@pytest.mark.parametrize(
    "levels", [[1], [2], [1, 2], [1, 1, 1], [1, 2, 2], [1, 2, 2, 5, 1], [1, 2, 2, 7, 1, 7]]
)
def test_a_small_push_takes_little_memory_whatever_it_unpacks_to(levels: list[int]) -> None:
    size_max = 1024 * 1024
    read_push(payload({"a": 1}), Codec.NONE, size_max)  # what is imported late
    for count in (80_000, 2_000_000):
        packed = compress(Codec.ZSTD, many(levels, count))
        assert len(packed) < 2000
        tracemalloc.start()
        with contextlib.suppress(PayloadTooLarge):
            assert len(read_push(packed, Codec.ZSTD, size_max).samples) <= SAMPLES_MAX
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4 * series._UNPACKED_BYTES_MAX


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
@pytest.mark.parametrize("levels", [[1, 2, 2], [1, 2, 2, 5, 1], [1, 2, 2, 5, 1, 7], [7]])
def test_a_bomb_is_refused_before_anything_of_it_is_read(
    levels: list[int], codec: Codec
) -> None:
    bomb = compress(codec, many(levels, 80_000))
    with pytest.raises(PayloadTooLarge, match=f"{codec.label} data exceeds"):
        read_push(bomb, codec, 1024 * 1024)


@pytest.mark.parametrize("codec", list(Codec))
def test_metrics_of_many_partitions_are_no_bomb(codec: Codec) -> None:
    data = MetricsData()
    scope = data.resource_metrics.add().scope_metrics.add()
    source = random.Random(3)
    for number in range(1500):
        for name in ("records.lag", "records.lag.max", "records.lead", "records.lead.min"):
            metric = scope.metrics.add(name=f"org.apache.kafka.consumer.fetch.manager.{name}")
            lag = float(source.randrange(1000)) if name == "records.lag" else 0.0
            point = metric.gauge.data_points.add(as_double=lag, time_unix_nano=1_700 * 10**15)
            point.attributes.add(key="topic").value.string_value = "orders"
            point.attributes.add(key="partition").value.string_value = str(number)
    pushed = read_push(compress(codec, data.SerializeToString()), codec, 1024 * 1024)
    assert (len(pushed.samples), pushed.dropped) == (6000, 0)


# A text of one character out of the ordinary takes four bytes for each.
WIDE = "a" * 255 + "\N{GRINNING FACE}"


def wide_metrics(count: int, name: str) -> bytes:
    """Encode metrics whose names and labels are as long as is kept of them."""
    data = MetricsData()
    scope = data.resource_metrics.add().scope_metrics.add()
    for number in range(count):
        metric = scope.metrics.add(name=f"{name}.{number}")
        point = metric.gauge.data_points.add(as_int=1)
        for label in range(16):
            text = f"{label:02}{WIDE[2:]}"
            point.attributes.add(key=text).value.string_value = text
    return data.SerializeToString()


async def test_long_texts_do_not_take_more_memory_than_series_may(tmp_path: Path) -> None:
    series_max = 2000  # 70 MB without a bound
    async with admin(tmp_path) as broker:
        one = world(broker, series_max)
        await one.subscribe(metrics="*")
        first = await one.ask(bytes([1] * 16))
        read_push(payload({"a": 1}), Codec.NONE, 1024 * 1024)  # what is imported late
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(2, 42):
            asked = await one.ask(bytes([number] * 16))
            known, expected = asked.client_instance_id, asked.subscription_id
            assert await one.push(known, expected, metrics=wide_metrics(50, str(number))) == 0
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert shown(one)
        assert one.broker.telemetry.dropped_series > 0
        assert kept < 2 * 2048 * series_max
        # There is room again once they are silent.
        one.clock.time_ms += 3 * 300_000 + 1
        assert not shown(one)
        asked = await one.ask(bytes([99] * 16))
        known, expected = asked.client_instance_id, asked.subscription_id
        assert await one.push(known, expected, metrics=payload({"a": 1})) == 0
        assert shown(one) == {"kafka_client_a": 1}
        assert first.error_code == 0


async def test_long_names_of_clients_are_not_kept_whole(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        one = world(broker)
        one.client.software_version = "1" * 100_000
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for number in range(200):
            instance_id = (1 << 64 | number).to_bytes(16, "big")
            request = GetTelemetrySubscriptionsRequest(client_instance_id=instance_id)
            client_id = f"{number:03}{WIDE[3:] * 100}"
            handle = get_telemetry_subscriptions.handle
            await one.broker.call(handle, request, 0, one.client, client_id=client_id)
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        assert kept < 200 * 8_000


async def test_a_large_push_does_not_hold_the_loop(tmp_path: Path) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with admin(tmp_path) as broker:
        one = world(broker, series_max=SAMPLES_MAX)
        await one.subscribe(metrics="*")
        asked = await one.ask()
        pushed = read_push(
            payload({f"m{number}": 1 for number in range(SAMPLES_MAX)}), Codec.NONE, 1 << 20
        )

        async def at_once(*_: Any) -> Push:
            return pushed

        counting = asyncio.ensure_future(count())
        with mock.patch.object(one.broker.telemetry.reader, "read", at_once):
            code = await one.push(asked.client_instance_id, asked.subscription_id, metrics=b"x")
        counting.cancel()
        assert code == 0
        assert len(shown(one)) == SAMPLES_MAX
        assert turns >= SAMPLES_MAX / 1000


async def test_the_thread_rests_after_each_push(tmp_path: Path) -> None:
    waits: list[float] = []
    read = reader.Reader()
    with (
        mock.patch.object(read._is_closed, "wait", side_effect=waits.append),
        mock.patch.object(reader, "monotonic", return_value=100.0),
        mock.patch.object(reader, "thread_time", side_effect=[1.0, 1.5, 2.0, 2.25, 3.0, 3.0]),
    ):
        for _ in range(3):
            await read.read(payload({"a": 1}), Codec.NONE, 1 << 20)
    read.close()
    assert waits == [0.0, 1.5, 0.75]


async def test_of_pushes_that_cannot_be_read_one_a_second_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with admin(tmp_path) as broker:
        one = world(broker)
        await one.subscribe(metrics="*")
        for number in range(1, 12):
            one.clock.time_ms += 100
            asked = await one.ask(bytes([number] * 16))
            known, expected = asked.client_instance_id, asked.subscription_id
            assert await one.push(known, expected, metrics=b"\xff\xff") == 87  # INVALID_RECORD
        first, second = (one for one in caplog.messages if "refused telemetry" in one)
        assert "unreported=0" in first
        assert "unreported=9" in second


def test_metrics_are_made_one_by_one_and_none_is_large() -> None:
    one = many([5, 1], series._MADE_BYTES_MAX // 2)
    scope = b"\x12" + encode_varint(len(one)) + one
    push = b"\x0a" + encode_varint(len(scope) + 4) + b"\x12" + encode_varint(len(scope)) + scope
    with pytest.raises(PayloadTooLarge, match="a metric of over"):
        read_push(push, Codec.NONE, 1 << 20)


def test_of_more_samples_than_are_taken_the_rest_is_counted() -> None:
    made = payload({f"metric.{number}": number for number in range(SAMPLES_MAX + 7)})
    pushed = read_push(made, Codec.NONE, 1 << 20)
    assert (len(pushed.samples), pushed.dropped) == (SAMPLES_MAX, 7)
    assert pushed.samples[-1].value == SAMPLES_MAX - 1


def test_a_metric_that_is_too_many_fields_away_is_not_looked_for() -> None:
    with pytest.raises(PayloadTooLarge, match="fields"):
        read_push(many([1, 2, 2], 110_000), Codec.NONE, 1 << 20)


@given(st.binary(max_size=40))
def test_a_walk_finds_what_a_parser_finds(data: bytes) -> None:
    """A group is the exception: a kind of field that nothing uses any more."""
    try:
        parsed = MetricsData.FromString(data)
    except DecodeError:
        return
    with contextlib.suppress(InvalidPayload):
        walk = Walk(data, 1000)
        found = [MetricsData.FromString(b"\x0a" + encode_varint(end - at) + data[at:end])
                 for at, end in walk.parts(1, walk.all)]
        assert [one.resource_metrics[0] for one in found] == list(parsed.resource_metrics)


def test_structures_are_no_labels() -> None:
    data = MetricsData()
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add(name="a")
    point = metric.gauge.data_points.add(as_int=1)
    point.attributes.add(key="n").value.int_value = 3
    inner = point.attributes.add(key="list").value.array_value.values
    inner.extend(AnyValue(string_value="x") for _ in range(3))
    (sample,) = read_push(data.SerializeToString(), Codec.NONE, 1000).samples
    assert sample.key.labels == (("list", ""), ("n", "3"))


async def test_made_up_ids_do_not_have_all_clients_looked_at(tmp_path: Path) -> None:
    async with admin(tmp_path) as broker:
        one = world(broker)
        for number in range(1, 50):
            await one.ask(bytes([number] * 16))
        one.clock.time_ms += 1
        telemetry = one.broker.telemetry
        with mock.patch.object(Telemetry, "_is_silent", autospec=True, return_value=False) as look:
            await one.ask(bytes([50] * 16))
        assert look.call_count <= 2
        one.clock.time_ms += 3 * 300_000
        await one.ask(bytes([51] * 16))
        assert len(telemetry._clients) == 2  # the last one was heard of too lately


def test_a_client_cannot_spoil_the_page() -> None:
    values = {"a.total": 1.0, "a_total": 2.0, "a": 3.0, "é\n": 4.0, "": 5.0}
    hostile = {"client_id": "another", "__name__": "x", 'quo"te\n': 'va"l\\ue\n', "": "e"}
    samples = read_push(payload(values, attributes=hostile), Codec.NONE, 10_000).samples
    row = ClientRow('clie"nt\n', "id", {one.key: one.value for one in samples})
    families = {
        one.name: one
        for one in text_string_to_metric_families(render(snapshot(clients=[row, row])).decode())
    }
    (sample, *_) = families["kafka_client_a"].samples
    assert sample.labels["client_id"] == 'clie"nt\n'


@given(st.binary(max_size=200), st.sampled_from(list(Codec)))
def test_any_bytes_are_metrics_or_refused(data: bytes, codec: Codec) -> None:
    with contextlib.suppress(InvalidPayload, PayloadTooLarge):
        read_push(data, codec, 1000)


@given(st.text(max_size=30))
def test_any_pattern_is_read_or_refused(pattern: str) -> None:
    try:
        read = read_subscription({"match": f"client_id={pattern}"})
    except ConfigError:
        return
    read.matches(ATTRIBUTES_OF_ONE)


def test_a_pattern_that_backtracks_without_end_is_matched_in_time() -> None:
    for pattern in ("(a+)+b", "(a|a)*b", "(.*.*.*)*x", "(?:a?){300}a{300}b"):
        read = read_subscription({"match": f"client_id={pattern}"})
        started = time.thread_time()
        assert not read.matches({"client_id": 600 * "a"})
        assert not read.matches({"client_id": 32_000 * "a"})
        assert time.thread_time() - started < 2.0


@pytest.mark.parametrize("pattern", [r"(a)\1", "(?=a)a", "x*+", "[[a]b]", "(?:a{900}){900}"])
def test_refuses_a_pattern_that_cannot_be_matched_in_time(pattern: str) -> None:
    with pytest.raises(ConfigError, match="Illegal client matching pattern: client_id="):
        read_subscription({"match": f"client_id={pattern}"})


async def test_a_stored_pattern_that_is_refused_now_is_left_out_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with admin(tmp_path) as broker:
        stored = {"metrics": "*", "match": r"client_id=(a)\1"}
        broker.configs.resources._settings[Resource(ResourceType.CLIENT_METRICS, "old")] = stored
        one = world(broker)
        await one.subscribe(metrics="*", match="client_id=another.*")
        assert [len(telemetry.match) for telemetry in broker.telemetry._subscriptions] == [1]
    assert "left out client metrics subscription name='old'" in caplog.text
