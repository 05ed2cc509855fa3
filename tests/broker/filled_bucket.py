"""A cluster with shared topics in all states: segments, an open one, entries of the WAL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from odradek.broker.catalog.engines import Engine
from odradek.broker.composition import Broker
from odradek.broker.metadata.statements import Connection, Value
from odradek.broker.shared.checking import Check, Problem
from odradek.broker.shared.sharing import Sharing
from odradek.broker.shared.tails import StoringLimits, Tail
from odradek.protocol.batches import Record, encode_batch
from odradek.storage.objects.opening import open_store
from tests.broker.live import create, until
from tests.broker.test_cluster import known_everywhere
from tests.broker.test_shared_segments import EAGER, SMALL, free, log_of, stored
from tests.broker.test_shared_topics import leader_of, produce

SETTINGS = {**EAGER, "odradek.wal.inline.bytes.max": "300"}
PARTITIONS = 2
# The records of each partition that are stored as segments, and the sizes of the other ones. Those
# of the first partition begin another segment.
STORED = 32
SIZES = ((10, 10, 400, 400, 400, 10), (10, 10, 301))

T = TypeVar("T")


def sequenced(sequence: int, size: int) -> bytes:
    """Encode a batch of an idempotent producer."""
    record = Record(0, 1 + sequence, b"k%d" % sequence, bytes(size))
    return encode_batch([record], producer_id=7, producer_epoch=0, base_sequence=sequence)


async def fill(brokers: Sequence[Broker]) -> None:
    """Create a topic; store most of it as segments, the rest inline and as objects of the WAL."""
    configs = {**SMALL, "retention.ms": "-1", "index.interval.bytes": "100"}
    await create(brokers[0], "t", PARTITIONS, configs)
    await known_everywhere(brokers, "t")
    leaders = [one for number in range(PARTITIONS) if (one := leader_of(brokers, number))]
    for number, leader in enumerate(leaders):
        for at in range(STORED):
            await produce(leader, sequenced(at, 100), number)
        await stored(leader, number)
        await free(leader)
    for leader in leaders:
        sharing(leader).uploads._limits = StoringLimits()
    for number, leader in enumerate(leaders):
        for at, size in enumerate(SIZES[number], STORED):
            await produce(leader, sequenced(at, size), number)
        tail = tail_of(leader, number)
        await until(lambda tail=tail: not tail.has_sealed)


def sharing(broker: Broker) -> Sharing:
    """Return the parts of a broker for shared topics."""
    found = broker._cluster._sharing
    assert found is not None
    return found


def tail_of(broker: Broker, partition: int) -> Tail:
    """Return the end of a log that only the WAL has."""
    log = log_of(broker, partition)
    return sharing(broker).uploads._tails[log.topic_id, partition]


@dataclass
class Place:
    """A bucket and its catalog."""

    path: Path
    engine: Engine

    def check(
        self, *, is_quick: bool = False, orphans_before_ms: int = 1 << 60
    ) -> tuple[list[Problem], Check]:
        """Check everything; return the problems, and the check with its counts."""
        store = open_store(f"file://{self.path}")
        with ThreadPoolExecutor(2) as threads:
            made = Check(
                self.engine,
                store,
                threads,
                orphans_before_ms=orphans_before_ms,
                is_quick=is_quick,
            )
            return [*made.problems(), *made.orphan_problems()], made

    def run(self, statement: str, *values: Value) -> list[tuple[Any, ...]]:
        def work(connection: Connection) -> list[tuple[Any, ...]]:
            return connection.execute(statement, values)

        return self.engine.transact(work)

    def objects(self) -> dict[str, int]:
        """Return the sizes of all objects; brokers must have stopped."""
        return {key: (self.path / key).stat().st_size for key in self.keys()}

    def keys(self) -> set[str]:
        """Return the keys of all objects; brokers may store and delete some."""
        every = (str(one.relative_to(self.path)) for one in self.path.rglob("*/*/*"))
        return {key for key in every if "#" not in key}  # not while it is written

    @contextmanager
    def changed(self, key: str, content: bytes | None) -> Iterator[None]:
        """Let an object have another content, or None for none, for a while."""
        path = self.path / key
        before = path.read_bytes() if path.exists() else None
        self._write(path, content)
        yield
        self._write(path, before)

    def flipped(self, key: str, position: int) -> Any:
        content = bytearray((self.path / key).read_bytes())
        content[position] ^= 1
        return self.changed(key, bytes(content))

    @contextmanager
    def removed(self, table: str, condition: str, *values: Value) -> Iterator[None]:
        """Let a table have no rows of a condition for a while."""
        kept = self.run(f"SELECT * FROM {table} WHERE {condition}", *values)
        self.run(f"DELETE FROM {table} WHERE {condition}", *values)
        yield
        rule = " OVERRIDING SYSTEM VALUE" if self.engine.name == "postgresql" else ""
        for row in kept:
            marks = ", ".join("?" * len(row))
            self.run(f"INSERT INTO {table}{rule} VALUES ({marks})", *row)

    @staticmethod
    def _write(path: Path, content: bytes | None) -> None:
        if content is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
