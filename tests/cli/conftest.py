"""Brokers that commands are tried on: Odradek, and Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.processes import KafkaProcess, OdradekProcess
from tests.cli.commands import Commands
from tests.conftest import starting
from tests.support.forking import ForkedOdradek

AnyBroker = OdradekProcess | KafkaProcess


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(ForkedOdradek, id="odradek"),
        pytest.param(KafkaProcess, id="kafka", marks=pytest.mark.kafka),
    ],
)
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AnyBroker]:
    """Run one broker of each kind for all tests of a module, with the module's SETTINGS."""
    starts = starting(request.param, tmp_path_factory.mktemp("broker"))
    yield next(starts)(getattr(request.module, "SETTINGS", {}))
    assert next(starts, None) is None


@pytest.fixture
def commands(broker: AnyBroker) -> Commands:
    """Return what runs commands against the broker."""
    return Commands(broker.bootstrap)
