"""Samples what the brokers, the catalog and the bucket of a soak take."""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import psycopg

from bench.processes import OdradekProcess, resident_bytes
from tests.soak.levels import Point, Quantity

MEMORY = Quantity("memory, MB", 10)
FILES = Quantity("open files", 30)
THREADS = Quantity("threads", 4)
DISK = Quantity("files in the log directory, MB", 30)
CATALOG = Quantity("size, MB", 4)
ROWS = Quantity("rows of segments", 100)
GARBAGE = Quantity("objects that are garbage", 200)
OBJECTS = Quantity("objects", 200)
STORED = Quantity("stored, MB", 50)
QUANTITIES = (MEMORY, FILES, THREADS, DISK, CATALOG, ROWS, GARBAGE, OBJECTS, STORED)
_MB = 1_000_000
_BLOCK_BYTES = 512  # see stat(2)
_COUNTS = {
    CATALOG: f"SELECT pg_database_size(current_database()) / {_MB}.0",
    ROWS: "SELECT count(*) FROM segment",
    GARBAGE: "SELECT count(*) FROM garbage",
}

Samples = Mapping[Quantity, Mapping[str, Sequence[Point]]]


class Sampling:
    """A thread that samples now and then, until the end of its context."""

    def __init__(
        self,
        brokers: Sequence[OdradekProcess],
        catalog_url: str,
        bucket: Path,
        interval_s: float,
    ) -> None:
        self._brokers, self._catalog_url, self._bucket = brokers, catalog_url, bucket
        self._interval_s = interval_s
        self._found: defaultdict[Quantity, defaultdict[str, list[Point]]] = defaultdict(
            lambda: defaultdict(list)
        )
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.begun_s = 0.0

    @property
    def samples(self) -> Samples:
        """All that was found."""
        return self._found

    @property
    def seconds(self) -> float:
        """The seconds since the begin."""
        return time.monotonic() - self.begun_s

    def __enter__(self) -> Sampling:
        self.begun_s = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._interval_s):
            for number, broker in enumerate(self._brokers, 1):
                self._look_at(broker, f"broker {number}")
            self._count()

    def _look_at(self, broker: OdradekProcess, owner: str) -> None:
        process = broker.process
        if process is None:
            return
        try:
            found = {
                MEMORY: resident_bytes(process) / _MB,
                FILES: _count_in(f"/proc/{process.pid}/fd"),
                THREADS: _count_in(f"/proc/{process.pid}/task"),
            }
        except OSError:  # it has just ended
            return
        found[DISK] = _extent(broker.data)[1] / _MB
        self._add(owner, found)

    def _count(self) -> None:
        with psycopg.connect(self._catalog_url, autocommit=True) as catalog:
            rows = {one: catalog.execute(query.encode()) for one, query in _COUNTS.items()}
            found = {one: float(cursor.fetchall()[0][0]) for one, cursor in rows.items()}
        self._add("the catalog", found)
        count, size_bytes = _extent(self._bucket)
        self._add("the bucket", {OBJECTS: count, STORED: size_bytes / _MB})

    def _add(self, owner: str, found: Mapping[Quantity, float]) -> None:
        second = self.seconds
        for quantity, value in found.items():
            self._found[quantity][owner].append((second, value))


def _count_in(folder: str) -> int:
    return sum(1 for _ in Path(folder).iterdir())


def _extent(folder: Path) -> tuple[int, int]:
    """Return the number and the bytes of all files in a folder, some of which may go meanwhile."""
    count = size_bytes = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                size_bytes += Path(place, name).stat().st_blocks * _BLOCK_BYTES
                count += 1
            except OSError:
                continue
    return count, size_bytes
