"""Fixtures that every test may use: brokers as real processes, and Kafka's jars."""

from __future__ import annotations

import gc
import logging
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings

# It is loaded by the first test that needs it otherwise, where pytest parses it. Before Python
# 3.11.5 that fails if a task's error is logged meanwhile, which parses lines, too (gh-106905).
from hypothesis.internal.conjecture import optimiser  # noqa: F401
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

from bench.processes import ROOT, KafkaProcess, OdradekProcess, kafka_libs
from tests.broker.beside_kafka import BesideKafka, running_beside_kafka
from tests.kafka_classes import ARCHIVE
from tests.long_forms import is_long
from tests.support.forking import ForkedOdradek
from tests.support.registry import RunningRegistry, require_registry, running_registry
from tests.support.shared import Shared, is_in

# `make test` (short) and `make test-all` (default) try the same examples each time, so that a
# change is to blame when one fails. Others are tried by `make check` (quick), by `make fuzz`
# (random), and by hand (thorough).
settings.register_profile(
    "default",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
    derandomize=True,
)
settings.register_profile("short", parent=settings.get_profile("default"), max_examples=40)
settings.register_profile("random", parent=settings.get_profile("default"), derandomize=False)
settings.register_profile("quick", parent=settings.get_profile("random"), max_examples=10)
settings.register_profile("thorough", parent=settings.get_profile("random"), max_examples=2000)
settings.load_profile("default")

# Kafka runs beside many tests, none of them for long enough to be compiled well.
os.environ.setdefault("KAFKA_OPTS", "-XX:TieredStopAtLevel=1")
if ARCHIVE.exists():
    os.environ.setdefault("KAFKA_CLASSES", str(ARCHIVE))

OPEN_FILES_MAX = 500
LONGEST = ("spark", "kafka", "slow", "live")
# The text of a file that starts brokers, servers, simulated clusters or other processes.
LIVE = (
    r"tests\.broker\.(?:live|catalogs|test_)|tests\.simulation|tests\.support\.servers"
    r"|tests\.pipeline\.|OdradekProcess|BesideKafka|start_broker|subprocess|pyspark"
    r"|tests\.support\.forking|RunningRegistry"
)
B = TypeVar("B", OdradekProcess, KafkaProcess)
StartBroker = Callable[..., OdradekProcess]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import files whose tests `make check` leaves out."""
    is_test = collection_path.match("test_*.py")
    return (is_test and "not live" in config.option.markexpr and _is_live(collection_path)) or None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the long forms, and the tests of files that start processes, servers or brokers."""
    if is_long(item.nodeid):
        item.add_marker("long")
    if _is_live(item.path):
        item.add_marker("live")


def _is_live(file: Path) -> bool:
    return is_in(LIVE, file)


@pytest.hookimpl(tryfirst=True)
def pytest_collection() -> None:
    """Do not search for garbage: modules and tests stay, and are millions of objects."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Search among the objects of the tests alone from now on."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that lack Kafka's jars; put the longest files first, and those together that
    share a process.

    Each of these goes to one worker: one that takes minutes must not be the last one to begin.
    """
    ranks: dict[str, int] = {}
    counts = Counter(item.path for item in items)
    scopes = {path: _scope(str(path)) for path in counts}
    for item in items:
        rank = next((at for at, mark in enumerate(LONGEST) if mark in item.keywords), len(LONGEST))
        scope = scopes[item.path]
        ranks[scope] = min(rank, ranks.get(scope, rank))

    def order(item: pytest.Item) -> tuple[int, int, int]:
        scope = scopes[item.path]
        place = SIGNS.index(scope) if scope in SIGNS else len(SIGNS)
        return ranks[scope], place, -counts[item.path]

    items.sort(key=order)
    if kafka_libs() is None:
        skip = pytest.mark.skip(reason="Kafka's jars are not there: `make kafka` fetches them")
        for item in items:
            if "kafka" in item.keywords:
                item.add_marker(skip)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadFileScheduling | None:
    """Give each file to one worker, and all files that share a process to the same one."""
    return ByJavaProcess(config, log) if config.option.dist == "loadfile" else None


class ByJavaProcess(LoadFileScheduling):
    """Keeps together the tests that share a process of Java: it takes a while to become fast."""

    def _split_scope(self, nodeid: str) -> str:
        return _scope(str(super()._split_scope(nodeid)))


def _scope(file: str) -> str:
    """Return the sign of the process that a file shares with others, or the file."""
    return next((sign for sign in SIGNS if is_in(sign, ROOT / file)), file)


@pytest.fixture
def quiet_logs() -> Iterator[None]:
    """Leave out what thousands of recoveries and refused operations have to say."""
    loggers = [logging.getLogger(name) for name in ("odradek.storage", "odradek.cleaner")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.fixture(autouse=True, scope="module")
def few_open_files() -> Iterator[None]:
    """Fail where tests leave files open: beyond 1,024 select() ends the process's other tests."""
    yield
    folder = Path("/proc/self/fd")
    if folder.exists() and len(list(folder.iterdir())) > OPEN_FILES_MAX:
        # What was frozen meanwhile may be garbage of other tests, too.
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        assert len(list(folder.iterdir())) <= OPEN_FILES_MAX


@pytest.fixture(autouse=True, scope="module")
def same_process() -> Iterator[None]:
    """Fail where tests leave the process's folder, or its search for garbage, changed."""
    folder = Path.cwd()
    yield
    is_searching, folder_now = gc.isenabled(), Path.cwd()
    gc.enable()
    os.chdir(folder)
    assert is_searching
    assert folder_now == folder


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[StartBroker]:
    """Start Odradek with settings: start_broker({"num.partitions": "3"})."""
    yield from starting(ForkedOdradek, tmp_path)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OdradekProcess]:
    """One Odradek for all tests of a module that only need their own topics."""
    running = ForkedOdradek(tmp_path_factory.mktemp("broker"))
    running.start()
    yield running
    running.stop()
    _check_log(running)


@pytest.fixture(scope="module")
def registry(request: pytest.FixtureRequest) -> RunningRegistry:
    """One schema registry for all tests, each of which has subjects of its own."""
    return REGISTRY.start(request)


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaProcess]:
    """One Apache Kafka for all tests of a module."""
    running = KafkaProcess(tmp_path_factory.mktemp("kafka"))
    running.start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def beside_kafka(request: pytest.FixtureRequest) -> BesideKafka:
    """Odradek and Apache Kafka for all tests that have topics of their own at both."""
    return BESIDE_KAFKA.start(request)


@pytest.fixture(scope="module")
def java_of_spark(request: pytest.FixtureRequest) -> None:
    """End the Java process of Spark when the tests that share it have ended."""
    JAVA_OF_SPARK.start(request)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """End what the next test does not share, once the fixtures of this one have ended."""
    scope = "" if nextitem is None else _scope(str(nextitem.path))
    for shared in SHARED:
        if shared.sign != scope:
            shared.end()


@contextmanager
def _run_beside_kafka(folder: Path) -> Iterator[BesideKafka]:
    with running_beside_kafka(folder) as both:
        yield both
    _check_log(both.ours)


@contextmanager
def _run_registry(folder: Path) -> Iterator[RunningRegistry]:
    require_registry()
    broker = ForkedOdradek(folder)
    broker.start()
    with running_registry(folder, broker.bootstrap) as running:
        yield running
    broker.stop()
    _check_log(broker)


@contextmanager
def _end_java_of_spark(_: Path) -> Iterator[None]:
    """End the process that the first session starts, and that PySpark keeps for later ones."""
    yield
    from pyspark import SparkContext

    from odradek.pipeline.session import end_java

    if SparkContext._gateway is not None:
        end_java(SparkContext._gateway)


BESIDE_KAFKA = Shared("BesideKafka|append_peers|test_core_against_kafka", _run_beside_kafka)
REGISTRY = Shared("RunningRegistry", _run_registry)
# The fixture `spark` in pipeline/conftest.py uses it.
JAVA_OF_SPARK = Shared(r"SparkSession|pipeline\.both", _end_java_of_spark)
SHARED = (JAVA_OF_SPARK, BESIDE_KAFKA, REGISTRY)
SIGNS = [shared.sign for shared in SHARED]


def starting(kind: Callable[..., B], directory: Path, *signs: str) -> Iterator[Callable[..., B]]:
    """Yield what starts brokers of a kind; then stop them, and look at what they have logged."""
    started: list[B] = []

    def start(settings: dict[str, str] | None = None) -> B:
        broker = kind(directory / f"broker-{len(started)}", settings or {})
        started.append(broker)
        broker.start()
        return broker

    yield start
    for broker in started:
        broker.stop()
        close = getattr(broker, "close", None)  # of a database beside it
        if close is not None:
            close()
    for broker in started:
        if isinstance(broker, OdradekProcess):
            _check_log(broker, *signs)


def _check_log(broker: OdradekProcess, *signs: str) -> None:
    """Fail when a broker met a bug of its own: nothing that clients do may cause a trace."""
    text = broker.log_text()
    for sign in ("Traceback", "Task was destroyed", "never retrieved", *signs):
        assert sign not in text, text
