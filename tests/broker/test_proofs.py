"""The proof of one object: each byte of it counts, however it is read."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from odradek.broker.catalog.segment_rows import SegmentRow
from odradek.broker.catalog.wal_rows import EntryRow, object_key
from odradek.broker.shared import proofs
from odradek.broker.shared.proofs import prove_entry, prove_pack
from odradek.broker.wal.entries import OpenEntry
from odradek.storage.objects.packs import KINDS, OpenPack, PackedSegment
from odradek.storage.segment import LOG
from tests.support.object_store import MemoryStore

TOPIC = b"t" * 16


def row_of(one: PackedSegment, key: str = "pack") -> SegmentRow:
    return SegmentRow(
        one.partition, one.base_offset, one.next_offset, key, one.position, one.table(),
        one.files[LOG].size_bytes, 1, 1, 1, False,
    )  # fmt: skip


def pack(store: MemoryStore, count: int) -> list[PackedSegment]:
    """Store segments that have all kinds of files, some of them empty."""
    made = OpenPack()
    for number in range(count):
        files = {kind: bytes([at]) * (7 * at) for at, kind in enumerate(KINDS)}
        made.add((TOPIC, number), 10, 20, {**files, LOG: b"batches" * 5})
    store.create("pack", made.object())
    return made.segments


def flip(store: MemoryStore, key: str, position: int) -> None:
    content = bytearray(store.objects[key])
    content[position] ^= 0x10
    store.objects[key] = bytes(content)


@pytest.mark.slow
@pytest.mark.parametrize("chunk_bytes", [1, 10, 1 << 20])
def test_each_byte_of_a_pack_counts(chunk_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "_CHUNK_BYTES", chunk_bytes)
    store = MemoryStore()
    segments = pack(store, 3)
    rows = [row_of(one) for one in segments]

    def faults(some: Sequence[SegmentRow] = rows) -> list[tuple[int | None, str]]:
        found = prove_pack(store, "pack", some, None, is_quick=False)
        return [(one.row.partition[1] if one.has_offsets else None, one.wrong) for one in found]

    assert faults() == []
    for position in range(len(store.objects["pack"])):
        flip(store, "pack", position)
        (found,) = faults()
        expected = [
            (number, kind)
            for number, one in enumerate(segments)
            for kind, file in one.files.items()
            if file.position <= position < file.position + file.size_bytes
        ]
        if expected:
            assert found == (expected[0][0], f"the CRC of the {expected[0][1]} file is wrong")
        else:
            assert found[0] is None
        # Bytes of a segment that no row names do not count.
        if expected and expected[0][0] == 1:
            assert faults([rows[0], rows[2]]) == []
        flip(store, "pack", position)


def test_a_pack_is_read_by_few_requests() -> None:
    store = MemoryStore()
    rows = [row_of(one) for one in pack(store, 50)]
    before = store.requests
    size = len(store.objects["pack"])
    assert prove_pack(store, "pack", rows, size, is_quick=False) == []
    assert store.requests - before <= 3  # its files, its size, its end
    assert prove_pack(store, "pack", rows, size, is_quick=True) == []
    assert store.requests - before <= 3


def test_the_index_of_another_pack_is_no_index() -> None:
    store = MemoryStore()
    first, second = pack(store, 2)
    moved = PackedSegment(second.partition, 11, 20, second.files)
    (found,) = prove_pack(
        store, "pack", [row_of(first), row_of(moved)], None, is_quick=False
    )
    assert (found.row.base_offset, "lacks offsets 11 to 19" in found.wrong) == (11, True)


def test_a_row_that_contradicts_itself_is_named() -> None:
    store = MemoryStore()
    (segment,) = pack(store, 1)
    for table in (b"", b"xy", segment.table() + segment.table(), segment.table()[9:]):
        row = SegmentRow(
            segment.partition, 10, 20, "pack", 0, table, 35, 1, 1, 1, False
        )
        (found,) = prove_pack(store, "pack", [row], None, is_quick=True)
        assert found.wrong.startswith("the file table in the catalog ")


@pytest.mark.parametrize("chunk_bytes", [1, 10, 1 << 20])
def test_each_byte_of_an_entry_counts(chunk_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "_CHUNK_BYTES", chunk_bytes)
    made = OpenEntry()
    for number in range(3):
        made.add((TOPIC, number), b"batch" * (number + 1), 5, 9)
    entry, key, store = made.seal(), object_key(1, 2), MemoryStore()
    row = EntryRow(9, 1, 2, entry.size_bytes, entry.index(), is_inline=False)
    store.create(key, entry.object())
    assert prove_entry(store, row, None, is_quick=False) == []
    for position in range(len(store.objects[key])):
        flip(store, key, position)
        (found,) = prove_entry(store, row, None, is_quick=False)
        hit = [
            run for run in entry.runs if run.position <= position < run.position + run.size_bytes
        ]
        assert found.run == (hit[0] if hit else None)
        flip(store, key, position)
    damaged = EntryRow(9, 1, 2, entry.size_bytes + 1, entry.index(), is_inline=False)
    (found,) = prove_entry(store, damaged, None, is_quick=True)
    assert found.lost == "the records of the entry"
