"""The arithmetic of quotas beside Apache Kafka's own Rate, TokenBucket, Avg and QuotaUtils."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.security.quotas.arithmetic import Average, Rate, TokenBucket, Window
from odradek.broker.security.quotas.charge import Charge
from odradek.broker.security.quotas.clients import ClientQuotas
from odradek.broker.security.quotas.entities import CLIENT_ID, PRODUCE, USER, Entity, entity_of
from odradek.config.quota import QuotaConfig
from odradek.protocol.frames import PRODUCE_KEY
from tests.support.java import ask

pytestmark = pytest.mark.kafka

ORACLE = Path(__file__).with_name("QuotaOracle.java")
START_MS = 1_700_000_000_000
SEEDS = range(300)


def drawn(seed: int) -> dict[str, Any]:
    """Draw a window, a limit and events that go past it now and then."""
    draw = random.Random(seed)
    samples, sample_ms = draw.choice([1, 2, 3, 11]), draw.choice([100, 1000, 2000])
    limit = draw.choice([0.5, 5.0, 100.0, 12_345.0])
    events, now_ms = [], START_MS
    for _ in range(60):
        steps = [0, 1, sample_ms // 3, sample_ms, sample_ms * samples, sample_ms * samples * 3]
        now_ms += draw.choice(steps) + draw.choice([0, 0, 1, 7])
        value = draw.choice([0.0, 1.0, 3.5, limit * sample_ms / 1000, limit * samples, -1.0])
        events.append((now_ms, value * draw.choice([1, 1, draw.random()])))
    return {"samples": samples, "sample_ms": sample_ms, "limit": limit, "events": events}


def played(case: Mapping[str, Any]) -> list[tuple[int, int, float]]:
    """Answer as Kafka's code is asked to."""
    window, limit = Window(case["samples"], case["sample_ms"]), case["limit"]
    rate, bucket, average = Rate(window), TokenBucket(window), Average()
    answers = []
    for now_ms, value in case["events"]:
        rate.record(value, now_ms)
        bucket.record(value, limit, now_ms)
        average.record(value, now_ms)
        answers.append(
            (
                rate.throttle_ms(limit, now_ms),
                bucket.throttle_ms(limit, now_ms),
                average.measure(now_ms),
            )
        )
    return answers


def test_throttle_times_are_kafkas() -> None:
    cases = [drawn(seed) for seed in SEEDS]
    for case, theirs in zip(cases, ask(ORACLE, cases), strict=True):
        for event, ours, theirs_then in zip(case["events"], played(case), theirs, strict=True):
            assert list(ours[:2]) == theirs_then[:2], (case, event)
            # Kafka has no average of nothing.
            assert theirs_then[2] in ("NaN", pytest.approx(ours[2])), (case, event)


def drawn_clients(seed: int) -> dict[str, Any]:
    """Draw quotas, what clients send, and changes of the quotas that there are."""
    draw = random.Random(seed)
    levels = draw.sample([(USER,), (CLIENT_ID,), (USER, CLIENT_ID)], draw.randint(1, 3))
    entities = {
        tuple((kind, draw.choice(["a", "b", None])) for kind in draw.choice(levels))
        for _ in range(draw.randint(1, 8))
    }
    steps: list[dict[str, Any]] = [
        {**dict(one), "limit": draw.choice([10.0, 100.0, 1_000.0])}
        for one in sorted(entities, key=str)
    ]
    there = sorted(entities, key=str)
    now_ms = START_MS
    for _ in range(80):
        now_ms += draw.choice([0, 10, 500, 3_000])
        if there and draw.random() < 0.1:
            one = draw.choice(there)
            limit = draw.choice([None, 50.0, 500.0])
            if limit is None:
                there.remove(one)
            steps.append({**dict(one), "limit": limit})
        who = {USER: draw.choice("abc"), CLIENT_ID: draw.choice("abc")}
        steps.append({**who, "size": draw.choice([0.0, 40.0, 900.0]), "at": now_ms})
    return {"samples": draw.choice([2, 11]), "steps": steps}


def played_clients(case: Mapping[str, Any]) -> list[int]:
    """Answer as Kafka's manager of quotas is asked to."""
    now = [0]
    config = QuotaConfig(quota_window_num=case["samples"])
    quotas = ClientQuotas(config, lambda: 1_000, lambda: now[0])
    limits: dict[Entity, float | None] = {}
    answers = []
    for step in case["steps"]:
        if "limit" in step:
            parts = [(kind, step[kind]) for kind in (USER, CLIENT_ID) if kind in step]
            limits[entity_of(parts)] = step["limit"]
            quotas.put_in_force(
                {one: {PRODUCE: limit} for one, limit in limits.items() if limit is not None}
            )
        else:
            now[0] = step["at"]
            charge = Charge(quotas, step[USER], step[CLIENT_ID], PRODUCE_KEY, step["size"], 0)
            charge.settle_produce(is_answered=True)
            answers.append(charge.throttle_ms)
    return answers


def test_clients_are_held_back_for_as_long_as_by_kafka() -> None:
    cases = [drawn_clients(seed) for seed in SEEDS]
    for case, theirs in zip(cases, ask(ORACLE, cases), strict=True):
        assert played_clients(case) == theirs, case
