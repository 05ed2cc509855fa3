"""The broker of the interop tests: Odradek, or Apache Kafka when INTEROP_BROKER=kafka.

The latter shows whether a doubtful result is the broker's or the client's.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.processes import KafkaProcess, OdradekProcess

Broker = OdradekProcess | KafkaProcess
StartBroker = Callable[..., Broker]


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Start a broker of its own: what one client leaves must not help the next."""
    kind = KafkaProcess if os.environ.get("INTEROP_BROKER") == "kafka" else OdradekProcess
    started: list[Broker] = []

    def start(settings: dict[str, str] | None = None) -> Broker:
        broker = kind(tmp_path / f"broker-{len(started)}", settings or {})
        started.append(broker)
        broker.start()
        return broker

    yield start
    for broker in started:
        broker.stop()
    for broker in started:
        if isinstance(broker, OdradekProcess):
            for sign in ("ERROR", "Traceback", "never retrieved"):
                assert sign not in broker.log_text(), broker.log_text()
