"""The arithmetic of quotas beside Apache Kafka's own Rate, TokenBucket, Avg and QuotaUtils."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.security.quotas.arithmetic import Average, Rate, TokenBucket, Window
from tests.protocol.kafka_jars import LIBS, require_jars

pytestmark = pytest.mark.kafka

ORACLE = Path(__file__).with_name("QuotaOracle.java")
START_MS = 1_700_000_000_000
SEEDS = range(300)


def ask(lines: Sequence[Mapping[str, Any]]) -> list[list[tuple[int, int, float]]]:
    """Ask Kafka's code; return its answers."""
    require_jars()
    if shutil.which("java") is None:
        pytest.skip("no java on the PATH")
    done = subprocess.run(
        ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{LIBS}/*", str(ORACLE)],
        input="".join(f"{json.dumps(line)}\n" for line in lines),
        capture_output=True,
        check=True,
        encoding="utf-8",
        timeout=120,
    )
    return [[tuple(row) for row in json.loads(line)] for line in done.stdout.splitlines()]


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
    for case, theirs in zip(cases, ask(cases), strict=True):
        for event, ours, theirs_then in zip(case["events"], played(case), theirs, strict=True):
            assert ours[:2] == theirs_then[:2], (case, event)
            # Kafka has no average of nothing.
            assert theirs_then[2] in ("NaN", pytest.approx(ours[2])), (case, event)
