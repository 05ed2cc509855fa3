"""The broker of the interop tests: Odradek, or Apache Kafka when INTEROP_BROKER=kafka.

The latter shows whether a doubtful result is the broker's or the client's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.processes import KafkaProcess, OdradekProcess
from tests.conftest import starting

Broker = OdradekProcess | KafkaProcess
StartBroker = Callable[..., Broker]


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Start a broker of its own: what one client leaves must not help the next."""
    if os.environ.get("INTEROP_BROKER") == "kafka":
        yield from starting(KafkaProcess, tmp_path)
    else:
        yield from starting(OdradekProcess, tmp_path, "ERROR")
