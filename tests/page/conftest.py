"""A browser, and a broker whose page it shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.browser import CHROMIUM, NO_CHROMIUM, launch
from bench.processes import free_port
from tests.broker.workers import Workers
from tests.support.forking import ForkedOdradek
from tests.support.waiting import wait_for_http

playwright = pytest.importorskip("playwright.sync_api", reason="needs the dev extra")

_PATIENCE_MS = 20_000
# Small segments, so that there is something to clean; the cleaner does what it is asked for.
LAZY = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "1.0",
    "internal.segment.bytes": "2000",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip all of it where there is no browser, and say how to get one."""
    for item in items:
        if "tests/page" in item.nodeid and CHROMIUM is None:
            item.add_marker(pytest.mark.skip(reason=NO_CHROMIUM))


class Service(ForkedOdradek):
    """A broker that tests fill with records."""

    def start(self) -> float:
        """Start it, and wait until it serves the page, which it does a little later."""
        started = super().start()
        wait_for_http(self)
        return started

    def create(self, *names: str, partitions: int = 1, **configs: str) -> None:
        """Create topics."""
        settings = LAZY | {name.replace("_", "."): value for name, value in configs.items()}
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        topics = [NewTopic(name, partitions, 1, config=settings) for name in names]
        for one in admin.create_topics(topics).values():
            one.result(20)

    def produce(self, topic: str, *records: tuple[str, str | None]) -> None:
        """Write records in batches of their own."""
        settings = {
            "bootstrap.servers": self.bootstrap, "linger.ms": 0, "batch.num.messages": 1,
            "enable.idempotence": True, "log_level": 0,
        }  # fmt: skip
        producer = Producer(settings)
        for key, value in records:
            producer.produce(topic, value, key)
            producer.poll(0)
        assert producer.flush(20) == 0

    @property
    def token(self) -> str:
        """The admin token."""
        return (self.data / "odradek-admin-token").read_text().strip()


T = TypeVar("T", bound=Service)
IDLE = {"log.cleaner.backoff.ms": "600000"}


@pytest.fixture
def service(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Service]:
    """A broker that cleans what it is asked to, and nothing else; a test may add settings."""
    yield from _running(tmp_path / "broker", {**IDLE, **getattr(request, "param", {})})


@pytest.fixture
def clustered(tmp_path: Path) -> Mapping[str, str]:
    """The settings of a broker with a catalog."""
    return {
        **IDLE,
        "odradek.catalog.url": f"sqlite://{tmp_path / 'catalog.db'}",
        "broker.session.timeout.ms": "60000",
    }


@pytest.fixture
def first(tmp_path: Path, clustered: Mapping[str, str]) -> Iterator[Service]:
    """A broker of a cluster."""
    yield from _running(tmp_path / "first", {**clustered, "node.id": "1"})


@pytest.fixture
def second(tmp_path: Path, first: Service, clustered: Mapping[str, str]) -> Iterator[Service]:
    """Another broker of the same cluster."""
    settings = {**clustered, "node.id": "2", "broker.rack": "cellar"}
    yield from _running(tmp_path / "second", settings)


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    """An object store."""
    path = tmp_path / "bucket"
    path.mkdir()
    return path


@pytest.fixture
def sharing(tmp_path: Path, clustered: Mapping[str, str], bucket: Path) -> Iterator[Service]:
    """A broker whose topics are shared; all entries of its WAL are objects."""
    own = {
        "odradek.object.store.url": bucket.as_uri(),
        "odradek.wal.inline.bytes.max": "0",
    }
    yield from _running(tmp_path / "sharing", {**clustered, **own})


@pytest.fixture
def sharing_page(browser: playwright.Browser, sharing: Service) -> Iterator[playwright.Page]:
    """A tab that is at the page of a broker whose topics are shared."""
    yield from _tab(browser, sharing)


class Both(Workers, Service):
    """Two workers that tests fill with records."""


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Both]:
    """Two workers, which serve one page."""
    ports = {1: free_port(), 2: free_port()}
    own = {
        f"odradek.worker.{number}.listeners": f"PLAINTEXT://127.0.0.1:{port}"
        for number, port in ports.items()
    }
    running = Both(
        tmp_path / "workers",
        {**IDLE, **own},
        options=("--workers", "2"),
        port=ports[1],
        ports=ports,
    )
    yield from _run(running)


@pytest.fixture
def workers_page(browser: playwright.Browser, both: Both) -> Iterator[playwright.Page]:
    """A tab that is at the page of two workers."""
    yield from _tab(browser, both)


def _running(folder: Path, settings: Mapping[str, str]) -> Iterator[Service]:
    """Run a broker."""
    yield from _run(Service(folder, settings))


def _run(running: T) -> Iterator[T]:
    running.start()
    yield running
    if running.process is not None:
        running.stop()
    assert "Traceback" not in running.log_text()


@pytest.fixture(scope="module")
def browser() -> Iterator[playwright.Browser]:
    """A browser without a window; it has an event loop of its own, which must end with it."""
    with playwright.sync_playwright() as play:
        started = launch(play)
        yield started
        started.close()


@pytest.fixture
def page(browser: playwright.Browser, service: Service) -> Iterator[playwright.Page]:
    """A tab that is at the broker's page."""
    yield from _tab(browser, service)


@pytest.fixture
def cluster_page(browser: playwright.Browser, first: Service) -> Iterator[playwright.Page]:
    """A tab that is at the page of a broker of a cluster."""
    yield from _tab(browser, first)


def _tab(browser: playwright.Browser, service: Service) -> Iterator[playwright.Page]:
    """Open a tab; it asks nobody but the broker, and has nothing to complain of."""
    context = browser.new_context(base_url=service.http, viewport={"width": 1280, "height": 900})
    tab = context.new_page()
    tab.set_default_timeout(_PATIENCE_MS)
    playwright.expect.set_options(timeout=_PATIENCE_MS)  # which has a default of its own
    troubles: list[str] = []
    tab.on("pageerror", lambda error: troubles.append(str(error)))
    tab.on(
        "console",
        # An answer that says no is no fault of the page, which shows it.
        lambda message: message.type == "error"
        and "Failed to load resource" not in message.text
        and troubles.append(message.text),
    )
    tab.on(
        "request",
        lambda request: request.url.startswith(service.http) or troubles.append(request.url),
    )
    yield tab
    context.close()
    assert troubles == []
