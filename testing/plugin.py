"""The plugin that pytest finds in an installed odradek: a broker for all tests of a run.

    def test_orders(odradek_broker, odradek_topic):
        topic = odradek_topic("orders", partitions=3)
        producer = KafkaProducer(bootstrap_servers=odradek_broker.bootstrap_servers)

A run that uses no fixture of these imports no more than this module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from odradek.testing.broker import OdradekBroker

_SETTINGS = "odradek_settings"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `odradek_settings` to pytest's file of settings."""
    parser.addini(
        _SETTINGS, "Settings of the fixture odradek_broker, NAME=VALUE a line.", "linelist", []
    )


@pytest.fixture(scope="session")
def odradek_settings(pytestconfig: pytest.Config) -> Mapping[str, str]:
    """The settings of the broker: those of the ini option; conftest.py may override this."""
    settings = {}
    for line in pytestconfig.getini(_SETTINGS):
        name, sign, value = line.partition("=")
        if not sign:
            raise pytest.UsageError(f"{_SETTINGS}: write {line!r} as NAME=VALUE")
        settings[name.strip()] = value.strip()
    return settings


@pytest.fixture(scope="session")
def odradek_broker(odradek_settings: Mapping[str, str]) -> Iterator[OdradekBroker]:
    """A broker that runs until the tests end; with pytest-xdist, one for each worker."""
    from odradek.testing.broker import BrokerError, OdradekBroker

    broker = OdradekBroker(odradek_settings)
    try:
        broker.start()
    except BrokerError as error:
        broker.close()
        pytest.fail(str(error), pytrace=False)
    yield broker
    broker.close()


@pytest.fixture
def odradek_topic(odradek_broker: OdradekBroker) -> Iterator[Callable[..., str]]:
    """A function that creates topics of unique names, which are deleted after the test.

    It takes the arguments of OdradekBroker.create_topic: a prefix, partitions, config, client.
    """
    created: list[tuple[str, Mapping[str, str] | None]] = []

    def create(prefix: str = "topic", **options: object) -> str:
        name = odradek_broker.create_topic(prefix, **options)  # type: ignore[arg-type]
        created.append((name, options.get("client")))  # type: ignore[arg-type]
        return name

    yield create
    for name, client in created:
        if odradek_broker.process is not None:
            odradek_broker.delete_topic(name, client=client)
