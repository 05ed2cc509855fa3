"""odradek cluster init and export, as an operator gives them."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from odradek.broker.composition import Broker
from odradek.broker.errors import MetadataError
from odradek.config.workers import CATALOG_NAME
from tests.broker.live import create, live, on_uvloop, until
from tests.broker.workers import workers
from tests.cli.commands import Commands
from tests.support.forking import ForkedOdradek

COMMANDS = Commands("127.0.0.1:1")  # no broker is asked
DIRECTORY = "data"


def served(
    folder: Path, settings: Mapping[str, str], topic: str | None = None
) -> list[str]:
    """Run a broker, which creates a topic; return the topics that it had."""
    names: list[str] = []

    @on_uvloop
    async def serve() -> None:
        async with live(folder, settings) as broker:
            names.extend(_names(broker))
            if topic is not None:
                await create(broker, topic)

    serve()
    return names


def _names(broker: Broker) -> list[str]:
    return sorted(topic.name for topic in broker.topics)


@pytest.fixture
def catalog(tmp_path: Path) -> str:
    return f"sqlite://{tmp_path / 'catalog.db'}"


def test_a_broker_goes_into_a_catalog_and_back_by_two_commands(
    tmp_path: Path, catalog: str
) -> None:
    data = str(tmp_path / DIRECTORY)
    served(tmp_path, {}, "orders")
    into = ("cluster", "init", "--from", data, "--catalog", catalog)
    assert COMMANDS.shown(*into) == (
        "Moved 1 topic into the catalog.\nStart the broker with odradek.catalog.url.\n"
    )
    assert "in a catalog already" in COMMANDS.shown(*into)
    shared = {"odradek.catalog.url": catalog}
    assert served(tmp_path, shared, "prices") == ["orders"]
    back = ("cluster", "export", "--catalog", catalog, "--to", data)
    for _ in range(2):
        assert COMMANDS.shown(*back) == (
            "Moved 2 topics to the log directories of broker 1.\n"
            "Start the broker without odradek.catalog.url.\n"
        )
    assert served(tmp_path, {}) == ["orders", "prices"]
    assert "was exported" in COMMANDS.refusal(*into)
    with pytest.raises(MetadataError, match="was exported"):
        served(tmp_path, shared)


def test_topics_that_stay_behind_are_named(tmp_path: Path, catalog: str) -> None:
    def settings(number: int) -> dict[str, str]:
        return {"node.id": str(number), "odradek.catalog.url": catalog}

    data = tmp_path / "1" / DIRECTORY

    @on_uvloop
    async def serve() -> None:
        async with live(tmp_path / "1", settings(1)) as one, live(tmp_path / "2", settings(2)):
            await until(lambda: len(one.brokers) == 2)
            await create(one, "spread", 2)

    serve()
    back = ("cluster", "export", "--catalog", catalog, "--to", str(data))
    line = COMMANDS.refusal(*back)
    assert "other brokers: spread. Move their partitions" in line
    shown = COMMANDS.shown(*back, "--only-here")
    assert "Left out topic spread, which has partitions of other brokers." in shown
    assert f"Belongs to no topic, move it away: {data}/spread-" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (lambda data: ("init", "--from", data, "--catalog", "sqlite://{}"), "no metadata of a"),
        (lambda data: ("export", "--to", data, "--catalog", "sqlite://{}"), "there is no catalog"),
    ],
    ids=["init", "export"],
)
def test_a_directory_without_a_broker_is_refused(
    tmp_path: Path, arguments: Callable[[str], tuple[str, ...]], message: str
) -> None:
    catalog = str(tmp_path / "catalog.db")
    words = [one.format(catalog) for one in arguments(str(tmp_path))]
    assert message in COMMANDS.refusal("cluster", *words)
    assert not (tmp_path / "catalog.db").exists()


def test_a_wrong_address_is_explained(tmp_path: Path, catalog: str) -> None:
    served(tmp_path, {})
    data = str(tmp_path / DIRECTORY)
    line = COMMANDS.refusal("cluster", "init", "--from", data, "--catalog", "mysql://a:secret@b/c")
    assert "write postgresql://" in line
    assert "secret" not in line
    COMMANDS.shown("cluster", "init", "--from", data, "--catalog", catalog)
    other = f"sqlite://{tmp_path / 'other.db'}"
    line = COMMANDS.refusal("cluster", "export", "--to", data, "--catalog", other)
    assert f"there is no catalog {tmp_path / 'other.db'}" in line
    assert not (tmp_path / "other.db").exists()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_workers_give_their_data_back_to_a_single_broker(tmp_path: Path) -> None:
    """Their catalog is in the log directory: a start would find it there."""
    some = workers(tmp_path / "broker")
    data = some.data.resolve()
    back = ("cluster", "export", "--catalog", f"sqlite://{data / CATALOG_NAME}", "--to", str(data))
    some.start()
    try:
        commands = Commands(some.bootstrap)
        commands.shown("topics", "create", "prices", "--partitions", "4")
        lines = "".join(f"{number}\n" for number in range(100))
        commands.shown("produce", "prices", text=lines)
        assert "is in use by another process" in COMMANDS.refusal(*back)
        some.kill_all()
        some.process = None
        assert "have not stopped as asked" in COMMANDS.refusal(*back)
        some.start()
    finally:
        some.stop()
    shown = COMMANDS.shown(*back)
    assert re.search(r"^Moved \d+ topics? to the log directories of broker 1\.$", shown, re.M)
    assert "there is no catalog" in COMMANDS.refusal(*back)
    alone = ForkedOdradek(tmp_path / "broker")
    alone.start()
    try:
        shown = Commands(alone.bootstrap).shown("consume", "prices", "--to", "end")
        assert sorted(map(int, shown.split())) == list(range(100))
        assert not (data / CATALOG_NAME).exists()
    finally:
        alone.stop()
