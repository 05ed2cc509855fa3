"""Segment files become the rows that they hold: every codec and format, and what is selected."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="needs the pipeline extra")

import pyarrow as pa

from odradek.pipeline import segment_batches, segment_rows
from odradek.pipeline.segment_arrow import Rows, arrow_schema
from odradek.pipeline.segment_columns import COLUMNS
from odradek.protocol.batches import (
    HEADER_SIZE,
    Record,
    empty_batch,
    encode_batch,
    read_header,
)
from odradek.protocol.compression import Codec
from tests.pipeline.segments import (
    Written,
    expected_rows,
    partition_folder,
    read,
    records_of,
    write_index,
    write_log,
    write_segment,
    write_time_index,
)
from tests.protocol.batch_strategies import CODECS, record_lists
from tests.protocol.legacy_messages import encode_entry, encode_wrapper

CUTS = st.lists(st.integers(1, 5), max_size=2)
WIDEST = (("starting", -(2**63)), ("ending", 2**63))


@st.composite
def logs(draw: st.DrawFn) -> list[bytes]:
    """Batches whose offsets rise, with gaps inside of them and between."""
    batches: list[bytes] = []
    next_offset = draw(st.integers(0, 5))
    for _ in range(draw(st.integers(1, 6))):
        times = st.integers(-1, 40)
        records = draw(record_lists(timestamps=times, size_max=4, base_offset=next_offset))
        has_producer = draw(st.booleans())
        last_delta = records[-1].offset - next_offset + draw(st.integers(0, 3))
        batches.append(
            encode_batch(
                records,
                base_offset=next_offset,
                last_offset_delta=last_delta,
                codec=draw(CODECS),
                leader_epoch=draw(st.integers(0, 9)),
                producer_id=7 if has_producer else -1,
                producer_epoch=2 if has_producer else -1,
                base_sequence=draw(st.sampled_from([0, 2**31 - 2])) if has_producer else -1,
                log_append_time=draw(st.booleans()),
                delete_horizon_ms=draw(st.one_of(st.none(), st.integers(0, 50))),
            )
        )
        next_offset += last_delta + 1 + draw(st.integers(0, 3))
    return batches


@given(logs(), CUTS)
def test_batches_come_as_the_rows_that_the_plain_decoder_reads(
    batches: list[bytes], cuts: list[int]
) -> None:
    with partition_folder() as folder:
        written = write_log(folder, batches, cuts)
        rows = read(folder.parent)
        sizes = [row.pop("size_bytes") for row in rows]
        assert [row.pop("aborted") for row in rows] == [False] * len(rows)
        assert rows == expected_rows(written)
        assert all(size >= 7 for size in sizes)


@given(
    logs(),
    CUTS,
    st.randoms(use_true_random=False),
    st.fixed_dictionaries(
        {},
        optional={
            "startingOffset": st.integers(-5, 1500),
            "endingOffset": st.integers(-5, 1500),
            "startingTimestamp": st.integers(-5, 45),
            "endingTimestamp": st.integers(-5, 45),
        },
    ),
)
def test_pruning_loses_no_row_that_is_asked_for_and_keeps_no_other(
    batches: list[bytes], cuts: list[int], rng: random.Random, options: dict[str, int]
) -> None:
    with partition_folder() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(segment_batches, "CHUNK_BYTES", rng.choice([100, 300, 10_000]))
        written = write_log(folder, batches, cuts)
        everything = read(folder)
        for path, group in itertools.groupby(written, key=lambda one: one.path):
            write_indexes(path, list(group), rng)
        offsets = range(*(options.get(f"{end}Offset", at) for end, at in WIDEST))
        times = range(*(options.get(f"{end}Timestamp", at) for end, at in WIDEST))
        assert read(folder, **options) == [
            row
            for row in everything
            if row["offset"] in offsets and row["timestamp"] // 1000 in times
        ]


def write_indexes(path: Path, batches: list[Written], rng: random.Random) -> None:
    """Write the indexes of a segment as a broker may leave them, or an .index that is wrong."""
    kind = rng.randrange(4)
    if kind == 0:
        path.with_suffix(".index").write_bytes(rng.randbytes(rng.randrange(40)))
    elif kind == 1:
        write_index(path, rng.sample(batches, 1), zeros=rng.randrange(3))
    elif kind == 2:
        write_index(path, [one for one in batches if one.position and rng.random() < 0.7])
    if rng.random() < 0.7:
        write_time_index(path, batches)


def test_an_offset_far_inside_a_segment_is_found_by_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_batches, "CHUNK_BYTES", 4000)
    folder = tmp_path / "orders-0"
    batches = [encode_batch([Record(at, 1, None, bytes(500))], base_offset=at) for at in range(99)]
    written = write_segment(folder, 0, batches)
    write_index(written[0].path, written[5::10])
    # Whoever reads the first batches meets this.
    damaged = bytearray(written[0].path.read_bytes())
    damaged[100] ^= 1
    written[0].path.write_bytes(damaged)
    rows = read(folder, startingOffset=70, columns="offset")
    assert [row["offset"] for row in rows] == list(range(70, 99))


@given(record_lists(gaps=False, size_max=30), st.integers(1, 5), st.integers(1, 300))
def test_record_batches_stay_within_their_bounds(
    records: list[Record], rows_max: int, bytes_max: int
) -> None:
    sizes: list[list[int]] = []
    really = segment_rows.record_batch

    def noting(rows: Rows, schema: pa.Schema) -> pa.RecordBatch:
        made = really(rows, schema)
        sizes.append(made.column("size_bytes").to_pylist())
        return made

    later = [Record(one.offset + 100, 1, one.key, one.value) for one in records]
    with partition_folder() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(segment_rows, "ROWS_MAX", rows_max)
        patched.setattr(segment_rows, "BYTES_MAX", bytes_max)
        patched.setattr(segment_batches, "CHUNK_BYTES", 100)
        patched.setattr(segment_rows, "record_batch", noting)
        alone = [encode_batch([one], base_offset=one.offset, codec=Codec.LZ4) for one in records]
        write_segment(folder, 0, [*alone, encode_batch(later, base_offset=100)])
        offsets = [row["offset"] for row in read(folder)]
    assert offsets == [record.offset for record in (*records, *later)]
    assert all(len(one) <= rows_max for one in sizes)
    assert all(sum(one) <= bytes_max or len(one) == 1 for one in sizes)


def test_a_batch_larger_than_a_chunk_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_batches, "CHUNK_BYTES", 1000)
    sizes = [10, 5000, 900, 939, 20_000]
    batches = [
        encode_batch([Record(at, at, b"k", bytes(size))], base_offset=at)
        for at, size in enumerate(sizes)
    ]
    write_segment(tmp_path / "orders-0", 0, batches)
    assert [row["value_size_bytes"] for row in read(tmp_path)] == sizes


def test_more_batches_than_a_table_has_rows_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_batches, "_ROWS", 3)
    batches = [encode_batch([Record(at, 1, None, None)], base_offset=at) for at in range(10)]
    write_segment(tmp_path / "orders-0", 0, batches)
    assert [row["offset"] for row in read(tmp_path)] == list(range(10))


def test_only_the_columns_asked_for_come_and_in_their_order(tmp_path: Path) -> None:
    write_segment(tmp_path / "orders-0", 0, [encode_batch([Record(0, 5, b"k", b"v")])])
    (row,) = read(tmp_path, columns="value_size_bytes, key")
    assert list(row.items()) == [("value_size_bytes", 1), ("key", b"k")]


def test_every_column_has_a_type_in_arrow() -> None:
    assert arrow_schema(dict.fromkeys(COLUMNS, True)).names == list(COLUMNS)


def test_a_batch_that_was_emptied_has_no_rows(tmp_path: Path) -> None:
    emptied = encode_batch([Record(0, 1, b"k", b"v")], last_offset_delta=4)
    kept = encode_batch([Record(5, 1, b"k", b"v")], base_offset=5)
    write_segment(tmp_path / "orders-0", 0, [empty_batch(read_header(emptied)), kept])
    assert [row["offset"] for row in read(tmp_path)] == [5]


def test_a_time_that_spark_cannot_hold_is_null(tmp_path: Path) -> None:
    times = [2**63 - 1, -(2**63), 2**63 // 1000, 2**63 // 1000 - 1, -1]
    batches = [
        encode_batch([Record(at, time, None, None)], base_offset=at)
        for at, time in enumerate(times)
    ]
    write_segment(tmp_path / "orders-0", 0, batches)
    found = [row["timestamp"] for row in read(tmp_path)]
    assert found[:2] == [None, None]
    assert found[3:] == [times[3] * 1000, -1000]


def test_a_header_name_that_is_no_utf_8_is_read_as_java_reads_it(tmp_path: Path) -> None:
    whole = Record(0, 1, b"k", b"v", (("né", b"1"), ("b\udcff", None)))
    write_segment(tmp_path / "orders-0", 0, [encode_batch([whole])])
    (row,) = read(tmp_path)
    assert row["headers"] == [{"key": "né", "value": b"1"}, {"key": "b\ufffd", "value": None}]


def test_a_records_size_is_that_in_its_uncompressed_batch(tmp_path: Path) -> None:
    records = [Record(at, at, b"k" * at, b"v" * 99, (("h", b"x"),)) for at in range(5)]
    batches = [encode_batch(records, codec=codec) for codec in (Codec.NONE, Codec.GZIP)]
    for number, batch in enumerate(batches):
        write_segment(tmp_path / f"orders-{number}", 0, [batch])
    plain, packed = (read(tmp_path, partition=number) for number in (0, 1))
    assert sum(row["size_bytes"] for row in plain) == len(batches[0]) - HEADER_SIZE
    assert [row["size_bytes"] for row in plain] == [row["size_bytes"] for row in packed]
    assert packed[0]["batch_size_bytes"] == len(batches[1])


# A wrapper of magic 0 keeps no time, and an old message no headers.
OLD = st.tuples(st.sampled_from([0, 1]), st.sampled_from([None, Codec.GZIP, Codec.LZ4]))


@given(
    st.lists(st.tuples(OLD, record_lists(timestamps=st.integers(0, 40), gaps=False)), max_size=4),
    st.booleans(),
)
def test_old_formats_are_read_beside_the_new_one(
    runs: list[tuple[tuple[int, Codec | None], list[Record]]], has_new: bool
) -> None:
    batches: list[bytes] = []
    expected: list[Record] = []
    for (magic, codec), records in runs:
        moved = [
            Record(len(expected) + at, one.timestamp if magic else -1, one.key, one.value)
            for at, one in enumerate(records)
        ]
        if codec is None:
            batches += [encode_entry(magic, one) for one in moved]
        else:
            batches.append(encode_wrapper(magic, codec, moved))
        expected += moved
    if has_new or not batches:
        last = Record(len(expected), 7, b"k", b"v", (("h", b"x"),))
        batches.append(encode_batch([last], base_offset=last.offset))
        expected.append(last)
    with partition_folder() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(segment_batches, "CHUNK_BYTES", 300)
        write_segment(folder, 0, batches)
        rows = read(folder)
        assert records_of(rows) == expected
        for start, end in ((0, 2), (3, 5)):
            chosen = read(folder, startingOffset=start, endingOffset=end)
            assert records_of(chosen) == expected[start:end]
    assert all(row["producer_id"] == row["sequence"] == -1 for row in rows)


def test_an_old_message_has_its_own_size_codec_and_append_time(tmp_path: Path) -> None:
    records = [Record(at, 5, b"key", b"value") for at in range(2)]
    entries = [encode_entry(0, records[0]), encode_wrapper(1, Codec.GZIP, records[1:], 9)]
    write_segment(tmp_path / "orders-0", 0, entries)
    first, second = read(tmp_path)
    assert (first["size_bytes"], first["codec"], first["leader_epoch"]) == (26 + 8, "none", -1)
    assert first["batch_size_bytes"] == len(entries[0])
    assert (second["size_bytes"], second["codec"], second["timestamp"]) == (34 + 8, "gzip", 9000)
    assert (second["timestamp_type"], second["position"]) == (1, len(entries[0]))
