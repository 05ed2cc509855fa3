"""Prices of a broker's work in the catalog, measured on a PostgreSQL that flushes to the disk.

The CPU time is that of the server's processes alone; the log is
the one that the server writes ahead of its tables.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import time
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import psycopg

from bench.scale.million import fill, open_store
from bench.scale.model import Broker, Operation, Price, Prices, Rates
from bench.servers.postgresql import Postgresql
from bench.watch import children_of
from odradek.broker.catalog import changes
from odradek.broker.catalog.engines import open_engine
from odradek.broker.catalog.garbage_rows import due_garbage, forget_garbage
from odradek.broker.catalog.segment_rows import Leadership, SegmentRow, add_segments
from odradek.broker.catalog.sessions import open_session, renew_session
from odradek.broker.catalog.wal_rows import NewRow, commit_entries
from odradek.broker.catalog.wal_trimming import trim_wal
from odradek.broker.ids import Partition
from odradek.broker.metadata.members import Member
from odradek.broker.metadata.statements import Connection
from odradek.broker.wal.entries import Entry, Run

_PARTITIONS, _OF, _BROKERS = 100_000, 10, 100
_LEASE_MS = 3_600_000
_ENTRY_BYTES, _SEGMENT_BYTES = 2 << 20, 1 << 20
_FILES = bytes(54)  # the table of the files of a segment, as broker/shared/packing.py writes it
_AT_ONCE = 512


class Player:
    """A broker's session, and its work in the catalog."""

    def __init__(self, url: str, node_id: int) -> None:
        self.engines = [open_engine(url) for _ in range(4)]
        self._segments, self._janitor = self.engines[2:]
        self.session = self._segments.transact(
            lambda to: open_session(to, self._segments, Member(node_id, "h", None, ()), _LEASE_MS)
        )
        self._known = self._segments.read(
            lambda to: (changes.revision_of(to), changes.id_of(to, changes.revision_of(to)) or "")
        )
        self.led = self._segments.transact(lambda to: _lead(to, node_id))
        self._ends = dict.fromkeys(self.led, 0)
        self._sequence, self._objects = 0, itertools.count()
        self._next = itertools.cycle(self.led)

    def poll(self) -> None:
        """Look for news."""
        self.engines[0].read(lambda to: changes.check_past(to, "catalog", self._known))

    def renew(self) -> None:
        """Renew the lease."""

        def work(connection: Connection) -> None:
            changes.check_past(connection, "catalog", self._known)
            renew_session(connection, self.engines[0], self.session, _LEASE_MS)

        self.engines[0].touch(work)

    def commit(self, runs: int) -> None:
        """Commit an entry that the bucket has, with so many partitions."""
        parts = sorted(itertools.islice(self._next, runs))
        size = _ENTRY_BYTES // runs
        found = [Run(one, 0, 1, 0, size, _checksum()) for one in parts]
        index = Entry((), found, _ENTRY_BYTES).index()
        first, self._sequence = self._sequence, self._sequence + 1
        rows = [NewRow(_ENTRY_BYTES, index, None)]
        self.engines[1].touch(lambda to: commit_entries(to, self.session, first, rows))

    def store(self, count: int) -> None:
        """Name an object with so many segments, each of which replaces one that has grown."""
        key = f"segments/{self.session:010d}/{next(self._objects):012d}"
        rows = [self._row(one, key) for one in itertools.islice(self._next, count)]
        epochs = dict.fromkeys((one.partition for one in rows), 0)
        led = Leadership(self.session, epochs)
        self._segments.touch(lambda to: add_segments(to, self._segments, led, rows))

    def _row(self, partition: Partition, key: str) -> SegmentRow:
        end = self._ends[partition] = self._ends[partition] + 1
        return SegmentRow(partition, 0, end, key, 0, _FILES, _SEGMENT_BYTES, -1, -1, 0, True)

    def free(self) -> int:
        """Free entries, all of whose partitions are stored; return their number."""
        engine = self._janitor
        return engine.touch(lambda to: trim_wal(to, engine, -1, _AT_ONCE)).freed_count

    def delete(self) -> int:
        """Delete garbage; return the number of objects."""
        engine = self._janitor
        keys = engine.touch(lambda to: due_garbage(to, engine, 0, _AT_ONCE // 2))
        if keys:
            engine.touch(lambda to: forget_garbage(to, keys))
        return len(keys)

    def close(self) -> None:
        """Close the connections."""
        for one in self.engines:
            one.close()


def _checksum() -> int:
    return int.from_bytes(os.urandom(4), "big")


def _lead(connection: Connection, node_id: int) -> list[Partition]:
    """Return the partitions of a broker, which the catalog has in epoch 0."""
    found = "SELECT topic_id, number FROM partition WHERE leader = ?"
    rows = connection.execute(found, (node_id,))
    return [(bytes(topic_id), number) for topic_id, number in rows]


class Meter:
    """The CPU time of a PostgreSQL's processes, and the bytes of its log."""

    def __init__(self, server: Postgresql) -> None:
        assert server.process is not None
        self._pid, self._url = server.process.pid, server.url
        self.restart()

    def restart(self) -> None:
        """Count from now on."""
        self._cpu_s, self._log_bytes = self._now()

    def spent(self) -> Price:
        """Return the price of all work since the start."""
        cpu_s, log_bytes = self._now()
        return Price(cpu_s - self._cpu_s, log_bytes - self._log_bytes)

    def _now(self) -> tuple[float, float]:
        with psycopg.connect(self._url) as connection:
            found = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'").fetchone()
        assert found is not None
        times = (Path(f"/proc/{one}/schedstat") for one in children_of(self._pid))
        return sum(int(one.read_text().split()[0]) for one in times if one.exists()) / 1e9, float(
            found[0]
        )


def measure(server: Postgresql) -> Prices:
    """Return the prices, each of operations one after the other."""
    url = _new_catalog(server)
    player, meter = Player(url, 1), Meter(server)
    for _ in range(-(-len(player.led) // _AT_ONCE)):
        player.store(_AT_ONCE)
    found = {
        Operation.POLL: _price(meter, 2_000, player.poll),
        Operation.RENEWAL: _price(meter, 500, player.renew),
    }
    few, many = 8, 512
    entries, freed = [], []
    for runs in (few, many):
        entries.append(_price(meter, 256, partial(player.commit, runs)))
        freed.append(_all(meter, player.free))
    found[Operation.ENTRY], found[Operation.RUN] = _line(few, entries[0], many, entries[1])
    found[Operation.FREED_ENTRY], found[Operation.FREED_RUN] = _line(few, freed[0], many, freed[1])
    objects = [
        _price(meter, repeats, partial(player.store, count))
        for count, repeats in ((few, 200), (many, 20))
    ]
    found[Operation.OBJECT], found[Operation.ROW] = _line(few, objects[0], many, objects[1])
    found[Operation.GARBAGE] = _all(meter, player.delete)
    player.close()
    return found


def mix(server: Postgresql, one: Broker, brokers: int, seconds: float) -> tuple[Rates, Price]:
    """Let some brokers work at once; return the work of all and its price, each a second."""
    url = _new_catalog(server)
    players = [Player(url, node_id) for node_id in range(1, brokers + 1)]
    for player in players:
        for _ in range(-(-len(player.led) // _AT_ONCE)):
            player.store(_AT_ONCE)
    done: Counter[Operation] = Counter()
    end_s = time.monotonic() + seconds
    works = [work for player in players for work in _works(player, one, done)]
    works.append(_freeing(players[0], round(one.runs), done))
    with ThreadPoolExecutor(len(works)) as threads:
        meter = Meter(server)
        waiting = [threads.submit(_repeat, work, rate, end_s) for work, rate in works]
        for future in waiting:
            future.result()
        spent = meter.spent()
    for player in players:
        player.close()
    rates = {one: count / seconds for one, count in done.items()}
    return rates, Price(spent.cpu_s / seconds, spent.log_bytes / seconds)


_Work = tuple[Callable[[], None], float]


def _works(player: Player, one: Broker, done: Counter[Operation]) -> list[_Work]:
    """Return a broker's work and its rates; each has a thread and a connection."""
    runs, rows = round(one.runs), max(round(one.storing.rows / one.storing.objects), 1)
    polls = itertools.cycle(range(round(one.rates[Operation.POLL] / one.rates[Operation.RENEWAL])))

    def look() -> None:
        player.poll()
        done[Operation.POLL] += 1
        if not next(polls):
            player.renew()
            done[Operation.RENEWAL] += 1

    def commit() -> None:
        player.commit(runs)
        done.update({Operation.ENTRY: 1, Operation.RUN: runs})

    def store() -> None:
        player.store(rows)
        done.update({Operation.OBJECT: 1, Operation.ROW: rows})

    return [
        (look, one.rates[Operation.POLL]),
        (commit, one.entries),
        (store, one.storing.objects),
    ]


def _freeing(player: Player, runs: int, done: Counter[Operation]) -> _Work:
    """Return the work that one broker does for all, each second."""

    def free() -> None:
        count = player.free()
        done.update({Operation.FREED_ENTRY: count, Operation.FREED_RUN: count * runs})
        done[Operation.GARBAGE] += player.delete()

    return free, 1.0


def _repeat(work: Callable[[], None], rate: float, end_s: float) -> None:
    """Work at a rate until a time, and leave out work that is late by a second."""
    due_s = time.monotonic()
    while due_s < end_s:
        time.sleep(max(due_s - time.monotonic(), 0))
        work()
        due_s = max(due_s + 1 / rate, time.monotonic() - 1)


def _new_catalog(server: Postgresql) -> str:
    url = server.create_database(f"catalog-{uuid.uuid4().hex}")
    asyncio.run(_prepare(url))
    fill(url, _PARTITIONS // _OF, _OF, _BROKERS)
    with psycopg.connect(url) as connection:
        connection.execute("UPDATE session SET closed_at_ms = 0")
    return url


async def _prepare(url: str) -> None:
    store = await open_store(url)
    await store.close()


def _price(meter: Meter, count: int, work: Callable[[], object]) -> Price:
    meter.restart()
    for _ in range(count):
        work()
    spent = meter.spent()
    return Price(spent.cpu_s / count, spent.log_bytes / count)


def _all(meter: Meter, work: Callable[[], int]) -> Price:
    """Repeat work until nothing is left of it; return the price of each of its objects."""
    meter.restart()
    count = sum(iter(work, 0))
    spent = meter.spent()
    return Price(spent.cpu_s / count, spent.log_bytes / count)


def _line(few: int, first: Price, many: int, second: Price) -> tuple[Price, Price]:
    """Return the price of a transaction, and that of each of its parts."""
    part = Price(
        (second.cpu_s - first.cpu_s) / (many - few),
        (second.log_bytes - first.log_bytes) / (many - few),
    )
    return Price(first.cpu_s - few * part.cpu_s, first.log_bytes - few * part.log_bytes), part
