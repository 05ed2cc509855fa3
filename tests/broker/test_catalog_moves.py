"""Metadata goes into a catalog and back: all of it, once, whatever step a crash interrupts."""

from __future__ import annotations

import asyncio
import errno
import itertools
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.broker.catalog.engines import Engine, open_engine
from odradek.broker.catalog.moving_in import has_own, mark_moved, move_in
from odradek.broker.catalog.moving_out import Export, move_out
from odradek.broker.catalog.store import CatalogStore
from odradek.broker.errors import MetadataError
from odradek.broker.metadata.images import places
from odradek.broker.metadata.members import Endpoint, Leader, Member
from odradek.broker.metadata.sqlite import SqliteMetadata
from odradek.broker.metadata.store import (
    Metadata,
    Resource,
    ResourceType,
    SecurityKind,
    TopicRecord,
)
from odradek.storage import checkpoints
from odradek.storage.errors import DirectoryInUse, StorageError
from odradek.storage.meta_properties import META, check_meta, read_directory_id
from odradek.storage.partition_directories import note_topic_id
from odradek.storage.real_files import RealFileSystem
from tests.broker.catalogs import catalog_url as catalog_url
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql
from tests.broker.live import batch, client, create, live, on_uvloop, until
from tests.profiles import examples
from tests.simulation.crashfs import CrashFileSystem
from tests.support.requests import producing

T = TypeVar("T")

DIRECTORIES = (Path("/one"), Path("/two"))
NODE_ID, LEASE_MS = 1, 60_000
CONFIGS = {Resource(ResourceType.TOPIC, "orders"): {"retention.ms": "5"}}
HELD = Metadata(
    "a-cluster",
    (
        TopicRecord("going", b"g" * 16, 2, 1, 7, is_deleting=True, made_count=2),
        TopicRecord("orders", b"o" * 16, 3, 1, 1_700_000_000_000, made_count=2),
    ),
    {**CONFIGS, Resource(ResourceType.BROKER, ""): {"log.cleaner.threads": "2"}},
    {"group.version": 1},
    {SecurityKind.ACL: {"one": "1"}, SecurityKind.SCRAM_CREDENTIAL: {"b": ""}},
    3_000,
)


class Crashed(BaseException):
    """The process is gone."""


def machine(held: Metadata | None = HELD) -> CrashFileSystem:
    """Return the disks of a stopped broker, with the directories of its partitions."""
    fs = CrashFileSystem()
    for path in DIRECTORIES:
        fs.make_directory(path)
        fs.sync_directory(path.parent)
        check_meta(fs, path / META, (held or HELD).cluster_id, NODE_ID)
        checkpoints.write_offsets(fs, path / checkpoints.RECOVERY_POINTS, {})
    if held is not None:
        asyncio.run(_fill(fs, held))
        for topic in held.topics:
            for number in range(topic.made_count):
                add_partition(fs, topic, number, DIRECTORIES[number % 2])
    return fs


async def _fill(fs: CrashFileSystem, held: Metadata) -> None:
    store = SqliteMetadata(fs, DIRECTORIES, lambda: held.cluster_id)
    topics = {Resource(ResourceType.TOPIC, one.name): one for one in held.topics}
    await store.create_topics([(one, held.configs.get(at, {})) for at, one in topics.items()])
    await store.replace_configs({k: v for k, v in held.configs.items() if k not in topics})
    await store.finalize_features(held.features)
    for kind, rows in held.security.items():
        await store.change_security(kind, rows)
    await store.allocate_producer_ids(held.next_producer_id)
    await store.close()


def add_partition(fs: CrashFileSystem, topic: TopicRecord, number: int, home: Path) -> None:
    path = home / f"{topic.name}-{number}"
    fs.make_directory(path)
    note_topic_id(fs, path, topic.topic_id)
    fs.sync_directory(home)


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 60))


def into(fs: CrashFileSystem, url: str) -> Metadata:
    return run(move_in(fs, DIRECTORIES, url, NODE_ID))


def out(fs: CrashFileSystem, url: str, *, only_here: bool = False) -> Export:
    return run(move_out(fs, DIRECTORIES, url, only_here=only_here))


def made(metadata: Metadata) -> list[int]:
    return [one.made_count for one in metadata.topics]


async def alone(fs: CrashFileSystem) -> Metadata:
    """Start a broker without a catalog; return what it finds, or raise MetadataError."""
    store = SqliteMetadata(fs, DIRECTORIES, lambda: "another")
    try:
        await store.settle()
        return await store.load()
    finally:
        await store.close()


async def joined(
    fs: CrashFileSystem, url: str, ids: Callable[[], str] = lambda: "an-id"
) -> CatalogStore:
    """Start a broker with the catalog; return its store."""
    if has_own(fs, DIRECTORIES):
        await move_in(fs, DIRECTORIES, url, NODE_ID)
    store = CatalogStore(lambda: open_engine(url), ids)
    try:
        await store.prepare(lambda: Metadata("another", (), {}))
        await store.join(member(fs), LEASE_MS)
        mark_moved(fs, DIRECTORIES)
    except BaseException:
        await store.close()
        raise
    return store


async def together(fs: CrashFileSystem, url: str) -> Metadata:
    """Start a broker with the catalog and stop it; return what it finds."""
    store = await joined(fs, url)
    try:
        found = await store.load()
        await store.leave(NODE_ID)
        return found
    finally:
        await store.close()


def member(fs: CrashFileSystem, node_id: int = NODE_ID, host: str = "") -> Member:
    endpoints = (Endpoint("PLAINTEXT", "127.0.0.1", 9092, "PLAINTEXT"),)
    return Member(node_id, host or read_directory_id(fs, DIRECTORIES[0]), None, endpoints)


def without_leaders(metadata: Metadata) -> Metadata:
    return replace(metadata, topics=tuple(replace(one, leaders=()) for one in metadata.topics))


def change(url: str, statement: str) -> None:
    engine: Engine = open_engine(url)
    engine.transact(lambda connection: connection.execute(statement))
    engine.close()


# --- the whole way --------------------------------------------------------------------------

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
rows = st.dictionaries(texts, texts, max_size=3)


@st.composite
def metadata(draw: st.DrawFn) -> Metadata:
    names = draw(st.lists(st.from_regex(r"[a-z._-]{1,5}", fullmatch=True), unique=True))
    topics = []
    for number, name in enumerate(sorted(names)):
        count = draw(st.integers(1, 4))
        topic_id = bytes([number, *draw(st.binary(min_size=15, max_size=15))])
        is_deleting, made_count = draw(st.booleans()), draw(st.integers(0, count))
        created_ms = draw(st.integers(0, 1 << 62))
        topics.append(
            TopicRecord(name, topic_id, count, 1, created_ms, is_deleting, made_count)
        )
    named = st.sampled_from(["", *names]) | texts
    owners = st.builds(Resource, st.sampled_from(ResourceType), named)
    return Metadata(
        "a-cluster",
        tuple(topics),
        draw(st.dictionaries(owners, rows.filter(bool), max_size=4)),
        draw(st.dictionaries(texts, st.integers(0, 9), max_size=3)),
        draw(st.dictionaries(st.sampled_from(SecurityKind), rows.filter(bool))),
        draw(st.integers(0, 1 << 62)),
    )


@settings(
    max_examples=examples(20),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(held=metadata())
def test_any_metadata_comes_back_as_it_went_in(catalog_url: str, held: Metadata) -> None:
    _empty(catalog_url)
    fs = machine(held)
    assert into(fs, catalog_url) == held
    assert without_leaders(run(together(fs, catalog_url))) == held
    moved = out(fs, catalog_url)
    assert (moved.metadata, moved.left_out) == (held, ())
    found = run(alone(fs))
    assert found == held
    assert made(found) == made(held)


def _empty(url: str) -> None:
    if url.startswith("sqlite"):
        for path in Path(url.removeprefix("sqlite://")).parent.glob("catalog.db*"):
            path.unlink()
        return
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")


def test_changes_made_in_the_cluster_come_back(catalog_url: str) -> None:
    ids = map(str, itertools.count())
    fs = machine()
    host = read_directory_id(fs, DIRECTORIES[0])
    new = TopicRecord("new", b"n" * 16, 2, 1, 8).led_by(Leader(NODE_ID, 3, host, NODE_ID))

    async def use() -> None:
        store = await joined(fs, catalog_url, lambda: next(ids))
        await store.load()
        await store.create_topics([(new, {"a": "b"})])
        await store.finish_deletion([b"g" * 16])
        await store.allocate_producer_ids(500)
        store.note_made(new.topic_id, (0, 1))
        await store.leave(NODE_ID)
        await store.close()

    run(use())
    for number in range(2):
        add_partition(fs, new, number, DIRECTORIES[number])
    out(fs, catalog_url)
    found = run(alone(fs))
    assert [(one.name, one.made_count) for one in found.topics] == [("new", 2), ("orders", 2)]
    assert found.configs[Resource(ResourceType.TOPIC, "new")] == {"a": "b"}
    assert found.next_producer_id == 3_500
    # Clients have seen the epochs of the catalog, which rose when the broker left.
    for number, path in enumerate(DIRECTORIES):
        epochs = checkpoints.read_offsets(fs, path / checkpoints.ADOPTED_EPOCHS)
        assert epochs[("new", number)] == 4
    # Topics that were deleted at another broker: their files go at the next start.
    for number, path in enumerate(DIRECTORIES):
        assert not fs.exists(path / f"going-{number}")


def test_metadata_may_go_in_and_out_again(catalog_url: str) -> None:
    fs = machine()
    for _ in range(2):
        into(fs, catalog_url)
        out(fs, catalog_url)
        with pytest.raises(MetadataError, match=r"was exported .* broker 1: .*empty database"):
            into(fs, catalog_url)
        _empty(catalog_url)
    assert run(alone(fs)) == HELD


# --- crashes --------------------------------------------------------------------------------


def crashes(move: Callable[[CrashFileSystem], object], fs: CrashFileSystem, at: int) -> bool:
    """Run a move until its step of a number; return whether it has so many."""
    steps = itertools.count()

    def before(kind: str, path: Path) -> None:
        if next(steps) == at:
            raise Crashed

    fs.before = before
    try:
        move(fs)
    except Crashed:
        return True
    finally:
        fs.before = None
    return False


@pytest.mark.parametrize("goes_on_with", ["command", "start", "start without"])
def test_a_crash_on_the_way_in_loses_nothing(catalog_url: str, goes_on_with: str) -> None:
    refused = 0
    for at in itertools.count():
        _empty(catalog_url)
        fs = machine()
        if not crashes(lambda fs: into(fs, catalog_url), fs, at):
            break
        fs = fs.clone_after_crash(at)
        if goes_on_with == "start without":
            try:
                assert run(alone(fs)) == HELD
            except MetadataError as error:
                assert "is in a catalog" in str(error)
                refused += 1
        elif goes_on_with == "command":
            with suppress(MetadataError):  # all files were renamed: it was done
                assert into(fs, catalog_url) == HELD
        assert without_leaders(run(together(fs, catalog_url))) == HELD
        assert not has_own(fs, DIRECTORIES)
    assert at > 5


@pytest.mark.parametrize("goes_on_with", ["command", "start", "start without"])
def test_a_crash_on_the_way_out_loses_nothing(catalog_url: str, goes_on_with: str) -> None:
    outcomes = set()
    for at in itertools.count():
        _empty(catalog_url)
        fs = machine()
        into(fs, catalog_url)
        if not crashes(lambda fs: out(fs, catalog_url), fs, at):
            break
        fs = fs.clone_after_crash(at)
        if goes_on_with != "command":
            start = alone(fs) if goes_on_with == "start without" else together(fs, catalog_url)
            try:
                assert without_leaders(run(start)) == HELD
                outcomes.add("started")
            except MetadataError as error:
                assert any(word in str(error) for word in ("was exported", "is in a catalog"))
                outcomes.add("refused")
        assert out(fs, catalog_url).metadata == HELD
        assert run(alone(fs)) == HELD
        for path in places(DIRECTORIES):
            assert fs.exists(path)
            assert not fs.exists(Path(f"{path}.moved-to-catalog"))
    assert at > 10
    expected = {"command": set(), "start": {"refused"}, "start without": {"started", "refused"}}
    assert outcomes == expected[goes_on_with]


@pytest.mark.parametrize("way", [into, out])
def test_a_disk_that_refuses_a_step_loses_nothing(
    catalog_url: str, way: Callable[[CrashFileSystem, str], object]
) -> None:
    """The command fails, or does without a copy; given again, it finishes the work."""
    for at in itertools.count():
        _empty(catalog_url)
        fs = machine()
        if way is out:
            into(fs, catalog_url)
        steps = itertools.count()

        def refuse(kind: str, path: Path) -> OSError | None:
            return OSError(errno.EIO, "refused") if next(steps) == at else None  # noqa: B023

        fs.refuse = refuse
        with suppress(MetadataError, StorageError):
            way(fs, catalog_url)
        fs.refuse = None
        if next(steps) <= at:
            break
        if way is out:
            assert out(fs, catalog_url).metadata == HELD
            assert run(alone(fs)) == HELD
        else:
            assert without_leaders(run(together(fs, catalog_url))) == HELD
            assert not has_own(fs, DIRECTORIES)
    assert at > 5


# --- refusals -------------------------------------------------------------------------------


def test_directories_in_use_are_refused(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path / 'catalog.db'}"
    fs = machine()
    (tmp_path / "catalog.db").touch()
    held = fs.lock(DIRECTORIES[1] / ".lock")
    with pytest.raises(DirectoryInUse):
        into(fs, url)
    with pytest.raises(DirectoryInUse):
        out(fs, url)
    del held
    into(fs, url)


def test_files_that_have_changed_since_are_refused(catalog_url: str) -> None:
    """A broker was started without the catalog after the files were brought back by hand."""
    fs = machine()
    before = fs.clone_after_kill()
    into(fs, catalog_url)
    fs = before.clone_after_kill()
    assert without_leaders(run(together(fs, catalog_url))) == HELD  # they are what went in
    fs = before.clone_after_kill()

    async def use() -> None:
        store = SqliteMetadata(fs, DIRECTORIES, lambda: "another")
        await store.allocate_producer_ids(1)
        await store.close()

    run(use())
    with pytest.raises(MetadataError, match="has changed since it was moved to the catalog"):
        run(together(fs, catalog_url))
    assert has_own(fs, DIRECTORIES)


def test_a_catalog_that_has_another_cluster_is_refused(catalog_url: str) -> None:
    into(machine(), catalog_url)
    fs = machine()
    with pytest.raises(MetadataError, match=r"cluster already, and /one/odradek.db that of an"):
        into(fs, catalog_url)
    assert run(alone(fs)) == HELD


def test_nobody_leaves_a_cluster_that_runs(catalog_url: str) -> None:
    fs = machine()

    async def use() -> None:
        store = await joined(fs, catalog_url)  # it crashes: its session stays open
        await store.close()
        other = CatalogStore(lambda: open_engine(catalog_url), lambda: "an-id")
        await other.join(member(fs, 2, "elsewhere"), LEASE_MS)
        with pytest.raises(MetadataError, match=r"in use by broker 2: stop all brokers"):
            await move_out(fs, DIRECTORIES, catalog_url)
        await other.load()
        await other.leave(2)
        await other.join(member(fs, 2, "elsewhere"), 0)  # it has ended at once
        assert (await move_out(fs, DIRECTORIES, catalog_url)).metadata == HELD
        with pytest.raises(MetadataError, match="was exported"):
            await other.join(member(fs, 2, "elsewhere"), LEASE_MS)
        await other.close()

    run(use())


def test_topics_of_other_brokers_are_left_out_if_asked(catalog_url: str) -> None:
    fs = machine()
    into(fs, catalog_url)
    change(catalog_url, "UPDATE partition SET host = 'elsewhere' WHERE number = 2")
    with pytest.raises(MetadataError, match=r"other brokers: orders. Move .*--only-here"):
        out(fs, catalog_url)
    assert without_leaders(run(together(fs, catalog_url))) == HELD
    moved = out(fs, catalog_url, only_here=True)
    assert moved.left_out == ("orders",)
    assert moved.strays == (Path("/one/orders-0"), Path("/two/orders-1"))
    found = run(alone(fs))
    assert [one.name for one in found.topics] == ["going"]
    assert found.configs == {k: v for k, v in HELD.configs.items() if k not in CONFIGS}
    assert found.security == HELD.security


def test_a_broker_that_did_not_stop_is_started_first(catalog_url: str) -> None:
    fs = machine()
    into(fs, catalog_url)
    fs.remove(DIRECTORIES[1] / checkpoints.RECOVERY_POINTS)  # as workers do
    with pytest.raises(MetadataError, match="/two have not stopped as asked: start and stop"):
        out(fs, catalog_url)
    checkpoints.write_offsets(fs, DIRECTORIES[1] / f"{checkpoints.RECOVERY_POINTS}.2", {})
    with pytest.raises(MetadataError, match="/two have not stopped as asked: start and stop"):
        out(fs, catalog_url)
    assert without_leaders(run(together(fs, catalog_url))) == HELD


def test_a_directory_that_was_not_named_is_missed(catalog_url: str) -> None:
    fs = machine()
    into(fs, catalog_url)
    with pytest.raises(MetadataError, match=r"none of the directories has orders-1: name all"):
        run(move_out(fs, DIRECTORIES[:1], catalog_url))
    assert without_leaders(run(together(fs, catalog_url))) == HELD


def test_a_catalog_is_not_exported_into_other_directories(catalog_url: str) -> None:
    into(machine(), catalog_url)
    fs = machine(None)
    with pytest.raises(MetadataError, match="knows no broker with these log directories"):
        out(fs, catalog_url)
    fs = machine(replace(HELD, cluster_id="other"))
    with pytest.raises(MetadataError, match=r"has cluster a-cluster, the .* other"):
        out(fs, catalog_url)
    assert run(alone(fs)).cluster_id == "other"


# --- whole brokers --------------------------------------------------------------------------


@on_uvloop
async def test_a_broker_goes_into_a_cluster_and_back(tmp_path: Path, catalog_url: str) -> None:
    shared = {"odradek.catalog.url": catalog_url, "broker.session.timeout.ms": "60000"}
    paths = [tmp_path / "1" / "data"]
    async with live(tmp_path / "1", {"node.id": "1"}) as one:
        await create(one, "t", 2)
        await append(one, b"a")
    await move_in(RealFileSystem(), paths, catalog_url, 1)
    for _ in range(2):
        async with live(tmp_path / "1", {"node.id": "1", **shared}) as one:
            await append(one, b"b")
    async with (
        live(tmp_path / "1", {"node.id": "1", **shared}) as one,
        live(tmp_path / "2", {"node.id": "2", **shared}) as two,
    ):
        await until(lambda: len(one.brokers) == 2)
        await create(one, "spread", 4)
        await until(lambda: two.topics.get("spread") is not None)
        found = one.topics.get("t")
        assert found is not None
        epoch = found.record.leaders[0].epoch
    with pytest.raises(MetadataError, match="other brokers: spread"):
        await move_out(RealFileSystem(), paths, catalog_url)
    moved = await move_out(RealFileSystem(), paths, catalog_url, only_here=True)
    assert moved.left_out == ("spread",)
    assert {path.name[:7] for path in moved.strays} == {"spread-"}
    for number in "12":
        with pytest.raises(MetadataError, match=r"was exported .* broker 1"):
            async with live(tmp_path / number, {"node.id": number, **shared}):
                raise AssertionError("it started")
    with pytest.raises(MetadataError, match="is in a catalog"):
        async with live(tmp_path / "2", {"node.id": "2"}):
            raise AssertionError("it started")
    for _ in range(2):
        async with live(tmp_path / "1", {"node.id": "1"}) as one:
            topic = one.topics.get("t")
            assert topic is not None
            assert [log.log_end_offset for log in topic.logs] == [3, 0]
            assert all(log.leader_epoch > epoch for log in topic.logs)
            assert one.partitions.strays == list(moved.strays)


async def append(broker: Any, value: bytes) -> None:
    async with client(broker) as one:
        answer = await one.ask(producing("t", batch(value)), version=9)
        assert not answer.responses[0].partition_responses[0].error_code
