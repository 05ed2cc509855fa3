"""Brokers of shared partitions under a steady load: their storing, and that of the model."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from dataclasses import dataclass

from bench.processes import OdradekProcess
from bench.scale.storing import Storing, play
from bench.shared.loads import RECORD_BYTES, Load
from bench.shared.stage import running
from odradek.broker.shared.tails import StoringLimits

TOPIC = "even"
# Periods of the storing: so many before the measurement, and so many in it.
_WARM_PERIODS, _PERIODS = 4, 8
_OBJECTS = re.compile(
    r'^odradek_object_store_requests_total\{method="PUT",purpose="segments"\} (\S+)', re.MULTILINE
)
_BYTES = re.compile(
    r'^odradek_object_store_sent_bytes_total\{purpose="segments"\} (\S+)', re.MULTILINE
)


@dataclass(frozen=True, slots=True)
class Stored:
    """The storing of a broker, a second."""

    objects: float
    uploaded_bytes: float


def compare(
    partitions: int, records_s: int, checkpoint_bytes: int, count: int = 1
) -> tuple[Stored, Storing]:
    """Return the storing of each of some brokers under a load, and that of the model.

    `partitions` and `records_s` are those of one broker. Raises NotInstalled.
    """
    rate = records_s * RECORD_BYTES
    expected = play(partitions, rate, StoringLimits(checkpoint_bytes), count - 1)
    settings = {"odradek.wal.checkpoint.bytes": str(checkpoint_bytes)}
    partitions, records_s = partitions * count, records_s * count
    with running(count, is_delayed=False, has_files=True, settings=settings) as stage:
        stage.create(TOPIC, partitions, "object")
        load = Load(stage.bootstrap, {"linger.ms": 5})
        load.send_at_rate(TOPIC, partitions, records_s, _WARM_PERIODS * expected.period_s)
        before, begun_s = _sums(stage.brokers), time.monotonic()
        load.send_at_rate(TOPIC, partitions, records_s, _PERIODS * expected.period_s)
        passed_s = time.monotonic() - begun_s
        objects, uploaded = (
            (now - then) / passed_s / count
            for now, then in zip(_sums(stage.brokers), before, strict=True)
        )
    return Stored(objects, uploaded), expected


def _sums(brokers: Iterable[OdradekProcess]) -> tuple[float, float]:
    objects = uploaded = 0.0
    for broker in brokers:
        text = broker.metrics()
        objects += _value(_OBJECTS, text)
        uploaded += _value(_BYTES, text)
    return objects, uploaded


def _value(metric: re.Pattern[str], text: str) -> float:
    found = metric.search(text)
    assert found is not None
    return float(found[1])
