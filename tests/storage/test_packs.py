"""Packs: the files of segments come back byte for byte, or damage is reported."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.storage.errors import CorruptFile
from odradek.storage.objects.packs import (
    KINDS,
    DamagedPack,
    FilePart,
    OpenPack,
    PackedSegment,
    read_pack_index,
    read_packed_file,
)
from odradek.storage.objects.store import ObjectDamaged, ObjectMissing, ObjectStore
from odradek.storage.real_files import RealFileSystem
from tests.storage.object_stores import bucket as bucket
from tests.storage.object_stores import s3_server as s3_server
from tests.storage.object_stores import store as store
from tests.support.object_store import MemoryStore

Files = dict[str, bytes]
KEY = "packs/1"
FILES = st.dictionaries(st.sampled_from(KINDS), st.binary(max_size=60), min_size=1)
SEGMENTS = st.lists(
    st.tuples(
        st.tuples(st.binary(min_size=16, max_size=16), st.integers(0, 2**31 - 1)),
        st.integers(0, 2**62),
        st.integers(1, 2**31),
        FILES,
    ),
    max_size=6,
)
Segments = list[tuple[tuple[bytes, int], int, int, Files]]


def packed(segments: Segments) -> OpenPack:
    pack = OpenPack()
    for partition, base, count, files in segments:
        pack.add(partition, base, base + count, files)
    return pack


def read_all(store: ObjectStore, segments: list[PackedSegment]) -> list[Files]:
    return [
        {kind: read_packed_file(store, KEY, one, kind) for kind in one.files} for one in segments
    ]


@given(SEGMENTS)
def test_the_files_come_back_by_the_object_alone(segments: Segments) -> None:
    pack, objects = packed(segments), MemoryStore()
    objects.create(KEY, pack.object())
    found = read_pack_index(objects, KEY)
    assert found == pack.segments
    assert [(one.partition, one.base_offset, one.next_offset) for one in found] == [
        (partition, base, base + count) for partition, base, count, _ in segments
    ]
    assert read_all(objects, found) == [files for _, _, _, files in segments]
    assert objects.objects[KEY].startswith(
        b"".join(data for _, _, _, files in segments for data in files.values())
    )


@given(SEGMENTS)
def test_the_files_come_back_by_the_rows_of_the_catalog(segments: Segments) -> None:
    pack, objects = packed(segments), MemoryStore()
    objects.create(KEY, pack.object())
    rows = [
        PackedSegment.of_table(
            one.partition, one.base_offset, one.next_offset, one.position, one.table()
        )
        for one in pack.segments
    ]
    assert rows == pack.segments
    assert read_all(objects, rows) == [files for _, _, _, files in segments]


@given(SEGMENTS, st.data())
def test_each_damaged_byte_is_noticed(segments: Segments, data: st.DataObject) -> None:
    found = bytearray(b"".join(packed(segments).object()))
    found[data.draw(st.integers(0, len(found) - 1))] ^= data.draw(st.integers(1, 255))
    objects = MemoryStore()
    objects.create(KEY, found)
    with pytest.raises(DamagedPack, match=KEY):
        read_all(objects, read_pack_index(objects, KEY))


@given(SEGMENTS, st.data())
def test_an_object_that_ends_early_is_noticed(segments: Segments, data: st.DataObject) -> None:
    found = b"".join(packed(segments).object())
    objects = MemoryStore()
    objects.create(KEY, found[: data.draw(st.integers(0, len(found) - 1))])
    with pytest.raises(DamagedPack, match=KEY):
        read_pack_index(objects, KEY)


@given(FILES, st.data())
def test_a_file_table_of_another_length_or_kind_is_noticed(
    files: Files, data: st.DataObject
) -> None:
    segment = OpenPack().add((b"t" * 16, 3), 7, 9, files)
    table = bytearray(segment.table())
    row_bytes = len(table) // len(files)
    cut = data.draw(st.integers(0, len(table)).filter(lambda size: size % row_bytes))
    kind = data.draw(st.integers(len(KINDS), 255))
    double = table + table[:row_bytes]
    for wrong in (b"", table[:cut], bytes((kind,)) + table[1:], double):
        with pytest.raises(DamagedPack, match=f"offsets 7 to 8 of partition 3 .*{b't'.hex()}"):
            PackedSegment.of_table(segment.partition, 7, 9, 0, wrong)


def test_a_damaged_file_is_named_and_others_can_be_read(store: ObjectStore) -> None:
    pack = OpenPack()
    pack.add((b"t" * 16, 3), 7, 9, {".log": b"damaged", ".index": b"kept"})
    data = bytearray(b"".join(pack.object()))
    data[0] ^= 1
    store.create(KEY, data)
    (found,) = read_pack_index(store, KEY)
    with pytest.raises(
        DamagedPack,
        match=f".log of offsets 7 to 8 of partition 3 of the topic with id {b't'.hex() * 16} "
        f"is damaged in {KEY}",
    ):
        read_packed_file(store, KEY, found, ".log")
    assert read_packed_file(store, KEY, found, ".index") == b"kept"


def test_a_row_that_names_more_than_the_object_has_is_noticed(store: ObjectStore) -> None:
    store.create(KEY, packed([]).object())
    segment = OpenPack().add((b"t" * 16, 3), 7, 9, {".log": b"x" * 1_000})
    with pytest.raises(DamagedPack, match=f"offsets 7 to 8 .* in {KEY}"):
        read_packed_file(store, KEY, segment, ".log")


def test_a_lost_pack_is_reported(store: ObjectStore) -> None:
    segment = OpenPack().add((b"t" * 16, 3), 7, 9, {".log": b"x"})
    with pytest.raises(ObjectMissing):
        read_packed_file(store, KEY, segment, ".log")
    with pytest.raises(ObjectMissing):
        read_pack_index(store, KEY)


def test_an_index_of_many_segments_is_read_whole(store: ObjectStore) -> None:
    pack = OpenPack()
    for number in range(1_000):
        pack.add((b"t" * 16, number), 0, 1, {".log": b"%d" % number, ".epochs": b""})
    store.create(KEY, pack.object())
    found = read_pack_index(store, KEY)
    assert found == pack.segments
    assert read_packed_file(store, KEY, found[777], ".log") == b"777"


def test_the_begin_of_a_file_is_packed_and_no_more(tmp_path: Path) -> None:
    fs, content = RealFileSystem(), bytes(range(256)) * 10_000
    file = fs.open(tmp_path / "0.log", write=True)
    file.append(0, [content])
    pack = OpenPack()
    size = len(content) - 1_000
    pack.add((b"t" * 16, 0), 0, 9, {".log": FilePart(file, size), ".index": b"index"})
    file.append(len(content), [b"later"])
    objects = MemoryStore()
    objects.create(KEY, pack.object())
    (found,) = read_pack_index(objects, KEY)
    assert read_packed_file(objects, KEY, found, ".log") == content[:size]
    assert found.files[".log"].crc == OpenPack().add(
        (b"t" * 16, 0), 0, 9, {".log": content[:size]}
    ).files[".log"].crc


def test_a_file_that_is_too_short_is_not_packed(tmp_path: Path) -> None:
    file = RealFileSystem().open(tmp_path / "0.log", write=True)
    file.append(0, [b"short"])
    pack = OpenPack()
    kept = pack.add((b"t" * 16, 0), 0, 9, {".log": b"kept"})
    with pytest.raises(CorruptFile, match=r"0\.log.*position 5.*6 bytes"):
        pack.add((b"t" * 16, 1), 0, 9, {".index": b"index", ".log": FilePart(file, 6)})
    objects = MemoryStore()
    objects.create(KEY, pack.object())
    assert read_pack_index(objects, KEY) == [kept]


def test_damage_is_an_error_of_the_store_that_no_repetition_cures() -> None:
    assert issubclass(DamagedPack, ObjectDamaged)
    assert not DamagedPack.retriable
