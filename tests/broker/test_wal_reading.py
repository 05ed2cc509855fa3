"""The WAL read back: by partition, in the order of offsets, whichever brokers led it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bench.wal import begin_session
from odradek.broker.catalog import wal_reading
from odradek.broker.catalog.engines import open_engine
from odradek.broker.catalog.lines import Calls, Line
from odradek.broker.catalog.wal_reading import Batches, read_wal
from odradek.broker.catalog.wal_rows import NewRow, commit_entries, entry_parts, object_key
from odradek.broker.ids import Partition
from odradek.broker.metadata.statements import Connection
from odradek.broker.wal.entries import DamagedEntry, OpenEntry
from odradek.storage.objects.opening import StoreOptions, open_store
from odradek.storage.objects.store import ObjectStore
from tests.broker.catalogs import catalog_url as catalog_url
from tests.broker.catalogs import new_database as new_database
from tests.broker.catalogs import postgresql as postgresql

ORDERS, OTHER = (b"o" * 16, 0), (b"x" * 16, 3)


class Shelf:
    """A catalog and a bucket, filled by hand."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.engine = url, open_engine(url)
        folder.mkdir()
        self.store: ObjectStore = open_store(f"file://{folder}", StoreOptions())
        self.sequences: dict[int, int] = {}

    def session(self) -> int:
        return begin_session(self.engine)

    def commit(self, session: int, *parts: tuple[Partition, bytes, int], inline: bool) -> str:
        """Commit an entry with batches of one record each; return the key of its object."""
        entry = OpenEntry()
        for key, batch, offset in parts:
            entry.add(key, batch, offset, offset + 1)
        sealed, sequence = entry.seal(), self.sequences.get(session, 0)
        self.sequences[session] = sequence + 1
        if not inline:
            self.store.create(object_key(session, sequence), sealed.object())
        body = b"".join(sealed.body) if inline else None
        row = NewRow(sealed.size_bytes, sealed.index(), body)
        self.engine.touch(lambda to: commit_entries(to, session, sequence, [row]))
        return object_key(session, sequence)

    def read(self, wanted: dict[Partition, int]) -> list[tuple[int, bytes]]:
        async def work() -> list[tuple[int, bytes]]:
            line = Line(open_engine(self.url), "wal", Calls())
            with ThreadPoolExecutor(4) as threads:
                found = [
                    (run.base_offset, taken(batches))
                    async for some in read_wal(line, self.store, threads, wanted)
                    for run, batches in some
                ]
            await line.close()
            return found

        return asyncio.run(work())


def taken(batches: Batches) -> bytes:
    """Return batches; raises their error."""
    if isinstance(batches, DamagedEntry):
        raise batches
    return bytes(batches)


@pytest.fixture
def shelf(catalog_url: str, tmp_path: Path) -> Shelf:
    return Shelf(catalog_url, tmp_path / "bucket")


@pytest.mark.parametrize("inline", [True, False])
def test_a_partition_that_went_to_and_fro_is_read_in_the_order_of_its_offsets(
    shelf: Shelf, inline: bool
) -> None:
    older, younger = shelf.session(), shelf.session()
    expected = []
    for offset in range(40):
        batch = b"%02d" % offset
        session = (younger, older)[offset // 5 % 2]
        shelf.commit(session, (ORDERS, batch, offset), (OTHER, b"-", offset), inline=inline)
        expected.append((offset, batch))
    assert shelf.read({ORDERS: 0}) == expected
    assert shelf.read({ORDERS: 17}) == expected[17:]
    assert shelf.read({}) == []


def test_a_lost_object_is_reported_and_others_can_be_read(shelf: Shelf) -> None:
    session = shelf.session()
    key = shelf.commit(session, (ORDERS, b"lost", 0), inline=False)
    shelf.commit(session, (OTHER, b"kept", 0), inline=False)
    shelf.store.delete([key])
    with pytest.raises(DamagedEntry, match=key):
        shelf.read({ORDERS: 0, OTHER: 0})
    assert shelf.read({OTHER: 0}) == [(0, b"kept")]


def test_an_entry_that_is_forgotten_while_it_is_read_is_not_looked_for_in_the_bucket(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = shelf.session()
    shelf.commit(session, (ORDERS, b"forgotten", 0), inline=True)

    def parts_of(
        connection: Connection, parts: Sequence[tuple[int, int, int]]
    ) -> Mapping[int, bytes]:
        shelf.engine.touch(lambda to: to.execute("DELETE FROM wal_entry"))
        return entry_parts(connection, parts)

    monkeypatch.setattr(wal_reading, "entry_parts", parts_of)
    with pytest.raises(DamagedEntry, match=f"has forgotten entry 0 of session {session}"):
        shelf.read({ORDERS: 0})


def test_damage_is_reported_and_others_can_be_read(shelf: Shelf) -> None:
    session = shelf.session()
    key = shelf.commit(session, (ORDERS, b"damaged", 0), (OTHER, b"kept", 0), inline=False)
    data = bytearray(shelf.store.read(key))
    data[data.index(b"damaged")] ^= 1
    shelf.store.delete([key])
    shelf.store.create(key, data)
    with pytest.raises(DamagedEntry, match=f"partition 0 of the topic with id {ORDERS[0].hex()}"):
        shelf.read({ORDERS: 0})
    assert shelf.read({OTHER: 0}) == [(0, b"kept")]
