"""A broker that is killed at any step of a change comes back with the change made or not made.

The broker runs on a file system and a metadata store that count what is written through them
and, after so many writes, refuse everything: the process is dead. Then it starts again on what
is on the disk.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest

from odradek.broker.metadata.sqlite import SqliteMetadata
from odradek.broker.metadata.store import MetadataStore
from odradek.broker.topics.plans import Enlargement, NewTopic
from odradek.broker.topics.topic import Topic
from odradek.storage.files import FileSystem
from odradek.storage.real_files import RealFileSystem
from tests.broker.admin import Admin, admin, append

WRITES = {
    "make_directory",
    "rename",
    "write_atomically",
    "remove",
    "remove_tree",
    "sync_directory",
    "create_topics",
    "begin_deletion",
    "finish_deletion",
    "enlarge_topics",
    "replace_configs",
}
COMPACT = {"cleanup.policy": "compact"}


class Killed(Exception):
    """The process is dead."""


class Life:
    """How many writes a process has left; None is as many as it likes."""

    def __init__(self) -> None:
        self.writes_left: int | None = None

    def spend(self) -> None:
        if self.writes_left is not None:
            self.writes_left -= 1
            if self.writes_left < 0:
                raise Killed


class Mortal:
    """A file system or a store that dies with its process."""

    def __init__(self, inner: object, life: Life) -> None:
        self._inner, self._life = inner, life

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._inner, name)
        if name not in WRITES:
            return operation

        def write(*arguments: Any) -> Any:
            self._life.spend()
            return operation(*arguments)

        return write


def topic_of(broker: Admin, name: str) -> Topic:
    topic = broker.topics.get(name)
    assert topic is not None
    return topic


def ends(topic: Topic | None) -> list[int] | None:
    return None if topic is None else [log.log_end_offset for log in topic.partitions]


async def create(broker: Admin) -> None:
    await broker.topics.create([NewTopic("new", 2, configs=COMPACT), NewTopic("other")])


async def delete(broker: Admin) -> None:
    await broker.topics.delete([topic_of(broker, "orders").topic_id])


async def enlarge(broker: Admin) -> None:
    await broker.topics.enlarge([Enlargement("orders", 3)])


async def alter(broker: Admin) -> None:
    await broker.topics.alter_configs({"orders": lambda _: COMPACT})


def check_creation(broker: Admin) -> None:
    made = broker.topics.get("new")
    assert ends(made) in (None, [0, 0])
    assert (broker.topics.get("other") is None) == (made is None)
    assert made is None or made.config.compact


def check_deletion(broker: Admin) -> None:
    assert ends(broker.topics.get("orders")) in (None, [2])


def check_enlargement(broker: Admin) -> None:
    assert ends(topic_of(broker, "orders")) in ([2], [2, 0, 0])


def check_alteration(broker: Admin) -> None:
    assert ends(topic_of(broker, "orders")) == [2]
    assert topic_of(broker, "orders").overrides in ({}, COMPACT)


async def killed_after(
    writes: int, path: Path, change: Callable[[Admin], Awaitable[None]]
) -> bool:
    """Make a change in a broker that dies after so many writes; return whether it died of them."""
    life = Life()
    fs = cast("FileSystem", Mortal(RealFileSystem(), life))

    def wrap(store: SqliteMetadata) -> MetadataStore:
        return cast("MetadataStore", Mortal(store, life))

    try:
        async with admin(path, fs=fs, wrap=wrap) as broker:
            await broker.topics.create([NewTopic("orders"), NewTopic("kept")])
            for name in ("orders", "kept"):
                append(topic_of(broker, name).partitions[0], "a", "b")
            life.writes_left = writes
            await change(broker)
            life.writes_left = None
            raise Killed  # the change was made; whether the stop is clean is no matter here
    except Killed:
        return life.writes_left is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "check"),
    [
        (create, check_creation),
        (delete, check_deletion),
        (enlarge, check_enlargement),
        (alter, check_alteration),
    ],
)
async def test_a_change_is_made_or_not_whenever_the_process_dies(
    tmp_path: Path,
    change: Callable[[Admin], Awaitable[None]],
    check: Callable[[Admin], None],
) -> None:
    for writes in count():
        path = tmp_path / str(writes)
        died = await killed_after(writes, path, change)
        async with admin(path) as broker:
            check(broker)
            assert ends(broker.topics.get("kept")) == [2]
            assert broker.partitions.strays == []
            # What the start had to finish is finished: everything can be done again.
            for topic in broker.topics:
                await broker.topics.delete([topic.topic_id])
            await broker.topics.create([NewTopic("orders"), NewTopic("new"), NewTopic("other")])
            assert len(broker.topics) == 3
        if not died:
            assert writes > 0, "the change wrote nothing"
            break
