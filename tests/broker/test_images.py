"""Damage to any one file, or a crash at any step, loses nothing of the cluster's metadata."""

from __future__ import annotations

import asyncio
import errno
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.broker.errors import MetadataError
from odradek.broker.metadata.images import COPY_NAME, DATABASE_NAME
from odradek.broker.metadata.sqlite import SqliteMetadata
from odradek.broker.metadata.store import Metadata, Resource, ResourceType, TopicRecord
from tests.profiles import examples
from tests.simulation.crashfs import CrashFileSystem

ONE, TWO = Path("/one"), Path("/two")
NAMES = ["orders", "table"]

Damage = Callable[[bytearray], None]


def topic(name: str, number: int) -> TopicRecord:
    return TopicRecord(name, bytes([number]) * 16, 3, 1, 1_700_000_000_000)


def machine(*directories: Path) -> CrashFileSystem:
    fs = CrashFileSystem()
    for path in directories:
        fs.make_directory(path)
        fs.sync_directory(path.parent)
    return fs


async def fill(store: SqliteMetadata) -> None:
    for number, name in enumerate(NAMES):
        await store.create_topics([(topic(name, number + 1), {"retention.ms": "5"})])
    await store.allocate_producer_ids(1000)


def with_store(
    fs: CrashFileSystem,
    use: Callable[[SqliteMetadata], Awaitable[object]] | None = None,
    directories: tuple[Path, ...] = (ONE,),
    cluster_id: str = "a-cluster",
) -> Metadata:
    """Start a store, use it, end it; return what it held at the start."""

    async def run() -> Metadata:
        store = SqliteMetadata(fs, directories, lambda: cluster_id)
        try:
            loaded = await store.load()
            await store.settle()
            if use is not None:
                await use(store)
            return loaded
        finally:
            await store.close()

    return asyncio.run(run())


def filled(*directories: Path) -> tuple[CrashFileSystem, Metadata]:
    fs = machine(*directories)
    with_store(fs, fill, directories)
    return fs, with_store(fs, directories=directories)


def flips(positions: list[tuple[int, int]]) -> Damage:
    def damage(data: bytearray) -> None:
        for position, bit in positions:
            data[position % len(data)] ^= 1 << bit

    return damage


def zeros(start: int, size: int) -> Damage:
    def damage(data: bytearray) -> None:
        at = start % len(data)
        data[at : at + size] = bytes(len(data[at : at + size]))

    return damage


def cut(size: int) -> Damage:
    def damage(data: bytearray) -> None:
        del data[size % len(data) :]

    return damage


positions = st.integers(0, 1 << 20)
damages = st.one_of(
    st.lists(st.tuples(positions, st.integers(0, 7)), min_size=1, max_size=4, unique=True).map(
        flips
    ),
    st.builds(zeros, positions, st.just(512)),
    st.builds(cut, positions),
)


@settings(max_examples=examples(60))
@given(damage=damages, name=st.sampled_from([DATABASE_NAME, COPY_NAME]))
def test_damage_to_one_file_loses_nothing_and_is_mended_and_named(
    damage: Damage, name: str
) -> None:
    fs, before = FILLED[0].clone_after_kill(), FILLED[1]
    path = ONE / name
    whole = fs.read_bytes(path)
    data = bytearray(whole)
    damage(data)
    fs.write_bytes(path, bytes(data))
    with Lines() as lines:
        assert with_store(fs) == before
    if data != whole:  # zeros may have been written over zeros
        first = next(
            (at for at, (a, b) in enumerate(zip(data, whole, strict=False)) if a != b), len(data)
        )
        assert f"{path} is damaged at position {first}: " in lines.text
        assert fs.read_bytes(ONE / f"{name}.damaged") == data
    assert fs.read_bytes(ONE / DATABASE_NAME) == fs.read_bytes(ONE / COPY_NAME) == whole


class Lines(logging.Handler):
    """What is logged as an error meanwhile; hypothesis and caplog do not go together."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += record.getMessage() + "\n"

    def __enter__(self) -> Lines:
        logging.getLogger("odradek.broker.metadata.images").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("odradek.broker.metadata.images").removeHandler(self)


FILLED = filled(ONE)


def test_damage_to_both_files_is_named_with_what_to_do() -> None:
    fs = FILLED[0].clone_after_kill()
    for name in (DATABASE_NAME, COPY_NAME):
        data = bytearray(fs.read_bytes(ONE / name))
        data[77] ^= 1
        fs.write_bytes(ONE / name, bytes(data))
    before = fs.files(ONE)
    with pytest.raises(
        MetadataError,
        match=f"{ONE / DATABASE_NAME} is .*{ONE / COPY_NAME} is .*Restore .* or move them away",
    ):
        with_store(fs)
    assert fs.files(ONE) == before


@pytest.mark.parametrize("seed", range(3))
def test_a_crash_at_any_step_leaves_a_change_made_or_not_and_answered_ones_made(
    seed: int,
) -> None:
    fs = machine(ONE, TWO)
    crashed: list[CrashFileSystem] = []
    marks: list[int] = []  # how many steps there were before each answer

    async def change(store: SqliteMetadata) -> None:
        for number, name in enumerate(NAMES):
            await store.create_topics([(topic(name, number + 1), {"a": "b"})])
            marks.append(len(crashed))

    fs.before = lambda kind, path: crashed.append(fs.clone_after_crash(seed + len(crashed)))
    with_store(fs, change, (ONE, TWO))
    assert len(crashed) > 30
    for at, survivor in enumerate(crashed):
        answered = sum(mark <= at for mark in marks)
        loaded = with_store(survivor, directories=(ONE, TWO), cluster_id="another")
        names = [one.name for one in loaded.topics]
        assert names in (NAMES[:answered], NAMES[: answered + 1]), at
        if names:
            assert loaded.cluster_id == "a-cluster"
            assert len(loaded.configs) == len(names)
        # It has settled: what was found is found again, wherever one looks.
        for directories in ((ONE,), (TWO,)):
            again = with_store(survivor.clone_after_kill(), directories=directories)
            assert again.topics == loaded.topics


def test_a_crash_while_damage_is_mended_loses_nothing() -> None:
    fs, before = FILLED[0].clone_after_kill(), FILLED[1]
    fs.write_bytes(ONE / DATABASE_NAME, b"damaged")
    fs.sync_directory(ONE)
    fs.open(ONE / DATABASE_NAME, write=True).sync()
    crashed: list[CrashFileSystem] = []
    fs.before = lambda kind, path: crashed.append(fs.clone_after_crash(len(crashed)))
    assert with_store(fs) == before
    assert len(crashed) > 4
    for survivor in crashed:
        assert with_store(survivor) == before


def test_each_directory_has_the_metadata_and_any_one_is_enough() -> None:
    fs, before = filled(ONE, TWO)
    assert sorted(fs.files(Path("/"))) == [
        "one/odradek.db",
        "one/odradek.db.copy",
        "two/odradek.db",
    ]
    for name in (DATABASE_NAME, COPY_NAME):
        fs.remove(ONE / name)
    assert with_store(fs.clone_after_kill(), directories=(ONE, TWO)) == before
    assert with_store(fs, directories=(TWO, ONE)) == before
    assert len(set(fs.files(Path("/")).values())) == 1


def test_a_directory_that_was_away_is_brought_up_to_date() -> None:
    fs, _ = filled(ONE, TWO)

    async def delete(store: SqliteMetadata) -> None:
        await store.finish_deletion([topic("orders", 1).topic_id])

    with_store(fs, delete, (ONE,))
    for directories in ((TWO, ONE), (TWO,)):
        loaded = with_store(fs, directories=directories)
        assert [one.name for one in loaded.topics] == ["table"]


def test_a_change_that_one_disk_refuses_is_made_and_one_that_all_refuse_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    fs, _ = filled(ONE, TWO)
    refusing: set[Path] = {TWO}

    def refuse(kind: str, path: Path) -> OSError | None:
        return OSError(errno.EIO, "I/O error") if path.parent in refusing else None

    async def change(store: SqliteMetadata) -> None:
        fs.refuse = refuse
        await store.create_topics([(topic("new", 7), {})])
        await store.allocate_producer_ids(1)
        assert caplog.text.count("could not write a copy of the metadata: /two/") == 1
        refusing.add(ONE)
        with pytest.raises(MetadataError, match="I/O error"):
            await store.create_topics([(topic("refused", 8), {})])
        assert [one.name for one in (await store.load()).topics] == ["new", *NAMES]
        refusing.clear()
        await store.create_topics([(topic("refused", 8), {})])

    with_store(fs, change, (ONE, TWO))
    loaded = with_store(fs.clone_after_kill(), directories=(ONE, TWO))
    assert {one.name for one in loaded.topics} == {"new", "refused", *NAMES}
    assert with_store(fs, directories=(TWO,)) == loaded


def test_a_change_that_failed_half_way_is_never_taken_for_the_next_one() -> None:
    fs, _ = filled(ONE)

    async def change(store: SqliteMetadata) -> None:
        fs.refuse = lambda kind, path: (
            OSError(errno.EIO, "I/O error") if kind == "sync_directory" else None
        )
        with pytest.raises(MetadataError):
            await store.create_topics([(topic("refused", 7), {})])
        fs.refuse = lambda kind, path: (
            OSError(errno.EIO, "I/O error") if path.name == f"{DATABASE_NAME}.tmp" else None
        )
        await store.create_topics([(topic("made", 8), {})])

    with_store(fs, change)
    fs.refuse = None
    assert [one.name for one in with_store(fs).topics] == ["made", *NAMES]


def test_metadata_of_two_clusters_is_refused_and_left_as_it_is() -> None:
    fs = machine(ONE, TWO)
    with_store(fs, fill, (ONE,))
    with_store(fs, directories=(TWO,), cluster_id="foreign")
    before = fs.files(Path("/"))
    with pytest.raises(MetadataError, match=r"/one/.*\(a-cluster\) and /two/.*\(foreign\)"):
        with_store(fs, directories=(ONE, TWO))
    assert fs.files(Path("/")) == before


def test_nothing_is_written_before_it_is_settled_nor_when_nothing_has_changed() -> None:
    fs = machine(ONE)
    operations: list[str] = []
    fs.before = lambda kind, path: operations.append(kind)

    async def load() -> None:
        store = SqliteMetadata(fs, [ONE], lambda: "a-cluster")
        await store.load()
        await store.close()

    asyncio.run(load())
    assert not operations
    with_store(fs)
    assert operations
    operations.clear()
    with_store(fs)
    assert not operations


def test_the_file_is_a_database_for_any_tool(tmp_path: Path) -> None:
    image = FILLED[0].read_bytes(ONE / DATABASE_NAME)
    (tmp_path / "inspected.db").write_bytes(image)
    database = sqlite3.connect(tmp_path / "inspected.db")
    assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert database.execute("SELECT name FROM topic ORDER BY name").fetchall() == [
        (name,) for name in NAMES
    ]
    database.close()


def test_settings_come_back_from_either_file() -> None:
    for name in (DATABASE_NAME, COPY_NAME):
        fs = FILLED[0].clone_after_kill()
        fs.remove(ONE / name)
        loaded = with_store(fs)
        assert loaded.configs[Resource(ResourceType.TOPIC, "orders")] == {"retention.ms": "5"}
