"""The broker of the interop tests: Odradek, or the one that INTEROP_BROKER names.

    kafka      Apache Kafka: shows whether a doubtful result is the broker's or the client's
    workers    Odradek with two workers
    cluster    three Odradeks with a PostgreSQL
    shared     the same with a bucket, in which all topics are
    siege      the same, and one of the three is killed each minute
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.processes import KafkaProcess, OdradekProcess
from tests.broker.clusters import BesiegedBrokers, ThreeBrokers, ThreeSharingBrokers, TwoWorkers
from tests.conftest import starting

Broker = OdradekProcess | KafkaProcess
StartBroker = Callable[..., Broker]
_KINDS: dict[str, Callable[..., Broker]] = {
    "": OdradekProcess,
    "kafka": KafkaProcess,
    "workers": TwoWorkers,
    "cluster": ThreeBrokers,
    "shared": ThreeSharingBrokers,
    "siege": BesiegedBrokers,
}
KIND = _KINDS[os.environ.get("INTEROP_BROKER", "")]


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Start a broker of its own: what one client leaves must not help the next."""
    signs = () if KIND in (KafkaProcess, BesiegedBrokers) else ("ERROR",)
    yield from starting(KIND, tmp_path, *signs)
