"""A broker of shared partitions under a steady load: its storing, and that of the model."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from bench.processes import OdradekProcess
from bench.scale.storing import Storing, play
from bench.shared.loads import RECORD_BYTES, Load
from bench.shared.stage import metrics_of, running
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


def compare(partitions: int, records_s: int, checkpoint_bytes: int) -> tuple[Stored, Storing]:
    """Return the storing of a broker under a load, and that of the model. Raises NotInstalled."""
    rate = records_s * RECORD_BYTES
    expected = play(partitions, rate, StoringLimits(checkpoint_bytes))
    settings = {"odradek.wal.checkpoint.bytes": str(checkpoint_bytes)}
    with running(1, is_delayed=False, has_files=True, settings=settings) as stage:
        (broker,) = stage.brokers
        stage.create(TOPIC, partitions, "object")
        load = Load(stage.bootstrap, {"linger.ms": 5})
        load.send_at_rate(TOPIC, partitions, records_s, _WARM_PERIODS * expected.period_s)
        before, begun_s = _sums(broker), time.monotonic()
        load.send_at_rate(TOPIC, partitions, records_s, _PERIODS * expected.period_s)
        passed_s = time.monotonic() - begun_s
        objects, uploaded = (
            (now - then) / passed_s for now, then in zip(_sums(broker), before, strict=True)
        )
    return Stored(objects, uploaded), expected


def _sums(broker: OdradekProcess) -> tuple[float, float]:
    text = metrics_of(broker)
    objects, uploaded = _OBJECTS.search(text), _BYTES.search(text)
    assert objects is not None and uploaded is not None
    return float(objects[1]), float(uploaded[1])
