"""Damage is reported by file, position and offset; the open end of a partition is none."""

from __future__ import annotations

import logging
import os
import random
import struct
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyarrow", reason="needs the pipeline extra")

from odradek.pipeline import segment_batches
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.segment_files import list_segments
from odradek.pipeline.segment_selection import Selection
from odradek.protocol.batches import (
    Record,
    batch_crc,
    encode_batch,
    read_header,
    replace_section,
    with_section,
)
from odradek.protocol.compression import Codec, compress
from tests.pipeline.segments import partition_folder, read, write_log, write_segment
from tests.protocol.legacy_messages import encode_entry

COUNT = 6
LENGTH_END = 12  # a batch's length is that of what follows it


def batch(at: int, codec: Codec = Codec.NONE, size: int = 60) -> bytes:
    """A batch of two records, at twice its number."""
    rng = random.Random(at)
    records = [Record(2 * at + one, 1, b"k", rng.randbytes(size)) for one in range(2)]
    return encode_batch(records, base_offset=2 * at, codec=codec)


def offsets(folder: Path, **options: object) -> list[int]:
    return [row["offset"] for row in read(folder, **options, columns="offset")]


def offsets_of(batches: list[int]) -> list[int]:
    return [2 * at + one for at in batches for one in range(2)]


# The bytes that are checked by themselves: the length, and what the CRC covers.
CHECKED = st.one_of(st.integers(8, 11), st.integers(16, 190))


@given(
    st.integers(0, COUNT - 1),
    CHECKED,
    st.integers(1, 255),
    st.booleans(),
    st.sampled_from([100, 10_000]),
    st.sampled_from(Codec),
)
def test_a_damaged_batch_is_reported_or_left_out_alone(
    number: int, at: int, flipped: int, is_last: bool, chunk_bytes: int, codec: Codec
) -> None:
    batches = [bytearray(batch(one, codec)) for one in range(COUNT)]
    at = min(at, len(batches[number]) - 1)
    batches[number][at] ^= flipped
    position = sum(map(len, batches[:number]))
    with partition_folder() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(segment_batches, "CHUNK_BYTES", chunk_bytes)
        (path,) = {one.path for one in write_segment(folder, 0, map(bytes, batches))}
        if not is_last:
            write_segment(folder, 2 * COUNT, [batch(COUNT)])
        later = [COUNT] * (not is_last)
        others = [*range(number), *range(number + 1, COUNT), *later]
        length = int.from_bytes(batches[number][8:12], "big", signed=True)
        claims_more = length + LENGTH_END > len(batches[number])
        if is_last and number == COUNT - 1 and claims_more:
            assert offsets(folder) == offsets_of(others), "an append that is not finished"
            return
        with pytest.raises(PipelineError) as error:
            read(folder)
        assert f"{path} is damaged at position {position}, offset {2 * number}: " in str(
            error.value
        )
        assert "\n" not in str(error.value)
        assert offsets(folder, onDamage="skip") == offsets_of(others)
        rows = read(folder, onDamage="report")
        (damage,) = (row for row in rows if row["damage"] is not None)
        assert (damage["segment"], damage["position"]) == (str(path), position)
        assert (damage["offset"], damage["batch_size_bytes"]) == (2 * number, len(batches[number]))
        assert sorted(row["offset"] for row in rows if row["damage"] is None) == offsets_of(
            sorted(others)
        )


@given(st.integers(1, COUNT - 2), st.integers(-40, 40), st.booleans())
def test_offsets_that_do_not_follow_are_reported_and_cost_one_batch_at_most(
    number: int, wrong_by: int, is_last: bool
) -> None:
    batches = [bytearray(batch(one)) for one in range(COUNT)]
    wrong = max(0, 2 * number + wrong_by)
    batches[number][:8] = wrong.to_bytes(8, "big")
    others = offsets_of([*range(number), *range(number + 1, COUNT)])
    with partition_folder() as folder:
        write_segment(folder, 0, map(bytes, batches))
        if not is_last:
            write_segment(folder, 2 * COUNT, [batch(COUNT)])
            others += offsets_of([COUNT])
        found = offsets(folder, onDamage="skip")
        if wrong != 2 * number:
            with pytest.raises(PipelineError, match="a batch's offsets do not follow"):
                read(folder)
    assert set(found) <= {*others, wrong, wrong + 1}
    # Where two batches contradict each other, it may be the good one that is left out.
    assert set(others) - set(found) <= set(offsets_of([number + 1]))


@given(st.integers(0, 700), st.booleans())
def test_the_last_segment_ends_where_an_append_was_cut_off(size: int, is_old: bool) -> None:
    batches = [batch(one) for one in range(COUNT)]
    if is_old:
        batches = [
            encode_entry(1, Record(2 * at, 1, b"k", bytes(70))) for at in range(COUNT)
        ]
    with partition_folder() as folder:
        (path,) = {one.path for one in write_segment(folder, 0, batches)}
        size = min(size, path.stat().st_size)
        path.write_bytes(path.read_bytes()[:size])
        whole = [at for at in range(COUNT) if sum(map(len, batches[: at + 1])) <= size]
        expected = [2 * at for at in whole] if is_old else offsets_of(whole)
        assert offsets(folder) == expected
        write_segment(folder, 2 * COUNT, [batch(COUNT)])
        if size not in (0, *(sum(map(len, batches[: at + 1])) for at in range(COUNT))):
            with pytest.raises(PipelineError, match=f"{path.name} is damaged at position"):
                read(folder)
        assert offsets(folder, onDamage="skip")[-2:] == offsets_of([COUNT])


@pytest.mark.parametrize("zeros", [1, 11, 12, 16, 17, 60, 61, 5000])
def test_room_taken_ahead_is_the_end_of_the_last_segment_and_of_no_other(
    zeros: int, tmp_path: Path
) -> None:
    folder = tmp_path / "orders-0"
    write_segment(folder, 0, [batch(0), bytes(zeros)])
    assert offsets(folder) == offsets_of([0])
    write_segment(folder, 2, [batch(1)])
    with pytest.raises(PipelineError, match="is damaged at position"):
        read(folder)


def test_a_torn_length_amid_the_last_segment_is_not_taken_for_its_end(tmp_path: Path) -> None:
    damaged = bytearray(batch(1))
    damaged[8:12] = (1 << 30).to_bytes(4, "big")
    write_segment(tmp_path / "orders-0", 0, [batch(0), bytes(damaged), batch(2)])
    with pytest.raises(PipelineError, match="offset 2: a batch is cut off"):
        read(tmp_path)
    assert offsets(tmp_path, onDamage="skip") == offsets_of([0, 2])


def test_a_batch_inside_of_a_damaged_ones_record_is_no_batch_of_the_log(tmp_path: Path) -> None:
    within = batch(3)
    outer = bytearray(encode_batch([Record(2, 1, None, within)], base_offset=2))
    outer[-1] ^= 1
    outer[-1 - len(within)] ^= 1
    write_segment(tmp_path / "orders-0", 0, [batch(0), bytes(outer), batch(4)])
    assert offsets(tmp_path, onDamage="skip") == offsets_of([0, 4])


@pytest.mark.parametrize("codec", Codec)
def test_records_that_do_not_parse_are_damage_even_under_a_right_crc(
    codec: Codec, tmp_path: Path
) -> None:
    broken = bytes(with_section(batch(1, codec), b"\x01 no records"))
    write_segment(tmp_path / "orders-0", 0, [batch(0, codec), broken, batch(2, codec)])
    with pytest.raises(PipelineError, match=f"position {len(batch(0, codec))}, offset 2: "):
        read(tmp_path)
    assert offsets(tmp_path, onDamage="skip") == offsets_of([0, 2])


def test_offsets_that_belong_to_another_segment_are_damage(tmp_path: Path) -> None:
    folder = tmp_path / "orders-0"
    write_segment(folder, 2, [batch(1), batch(0), batch(2), batch(5)])
    write_segment(folder, 6, [batch(3)])
    with pytest.raises(PipelineError, match="do not follow"):
        read(folder)
    assert offsets(folder, onDamage="skip") == offsets_of([1, 2, 3])


def test_an_old_message_that_is_damaged_is_left_out(tmp_path: Path) -> None:
    entries = [bytearray(encode_entry(1, Record(at, 1, b"k", b"v" * 30))) for at in range(4)]
    entries[1][40] ^= 1
    write_segment(tmp_path / "orders-0", 0, [*map(bytes, entries), batch(3)])
    with pytest.raises(PipelineError, match="offset 1: a batch's CRC"):
        read(tmp_path)
    assert offsets(tmp_path, onDamage="skip") == [0, 2, 3, *offsets_of([3])]


def test_damage_that_is_left_out_is_logged_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    batches = [bytearray(batch(one)) for one in range(4)]
    for one in (1, 3):
        batches[one][50] ^= 1
    (path,) = {one.path for one in write_segment(tmp_path / "orders-0", 0, map(bytes, batches))}
    with caplog.at_level(logging.WARNING):
        assert offsets(tmp_path, onDamage="skip") == offsets_of([0, 2])
    size = len(batches[0])
    assert caplog.messages == [
        f"left out damage path={path} position={size} bytes={size} offset=2 "
        "cause=a batch's CRC does not match its bytes",
        f"left out damage path={path} position={3 * size} bytes={size} offset=6 "
        "cause=a batch's CRC does not match its bytes",
        f"left out damage path={path} places=2 bytes={2 * size}",
    ]


def test_a_missing_or_exchanged_segment_is_reported_with_advice(tmp_path: Path) -> None:
    from odradek.pipeline.segment_arrow import arrow_schema
    from odradek.pipeline.segment_rows import read_segments

    folder = tmp_path / "orders-0"
    write_log(folder, [batch(0), batch(1)], [1])
    first, last = list_segments(folder)
    schema = arrow_schema({"offset": True})

    def task(segment: object) -> int:
        return sum(len(one) for one in read_segments((segment,), Selection(), schema))  # type: ignore[arg-type]

    with Path(last.path).open("ab") as file:
        file.write(batch(2))
    assert task(last) == 2, "what was appended since is left for another time"
    for path, size in ((first.path, 70), (first.path, 5000), (last.path, 70)):
        Path(path).write_bytes(bytes(size))
        with pytest.raises(PipelineError, match=r"got another size .* run it again, or on a copy"):
            task(first if path == first.path else last)
    Path(first.path).rename(tmp_path / "elsewhere")
    with pytest.raises(PipelineError, match=r"was removed or renamed .* or on a copy"):
        task(first)


# --- files made to do harm ----------------------------------------------------------------------


def test_a_search_for_batches_takes_time_in_proportion_to_the_file() -> None:
    size = 6 << 20
    false = bytearray(size)
    for at in range(0, size - 61, 61):  # each claims all that follows
        struct.pack_into(">qiibIhi", false, at, 1, size - at - 12, 0, 2, 0, 0, 0)
    with partition_folder() as folder:
        write_segment(folder, 0, [b"\xff" * 61, bytes(false)])
        begun_s = time.process_time()
        assert offsets(folder, onDamage="skip") == []
        # To check each of 100,000 claims would read 300 GB.
        assert time.process_time() - begun_s < 30


def test_an_irregular_file_is_reported_in_a_line() -> None:
    with partition_folder() as folder:
        write_segment(folder, 0, [batch(0)])
        os.mkfifo(folder / f"{2:020d}.log")
        os.mkfifo(folder / f"{0:020d}.timeindex")
        os.mkfifo(folder / f"{0:020d}.index")
        segment = list_segments(folder)[1]
        with pytest.raises(PipelineError, match="not a regular file"):
            list(segment_batches.read_chunks(replace(segment, size_bytes=9), segment_batches.stop))
        assert offsets(folder, startingTimestamp="1", startingOffset="1") == [1]


def test_a_batch_that_unpacks_to_far_too_much_is_damage() -> None:
    header = read_header(batch(0))
    bomb = replace_section(header, compress(Codec.ZSTD, bytes(300 << 20)), Codec.ZSTD)
    struct.pack_into(">I", bomb, 17, batch_crc(bomb, 0, len(bomb)))
    with partition_folder() as folder:
        write_segment(folder, 0, [bytes(bomb), batch(1)])
        assert offsets(folder, onDamage="skip") == offsets_of([1])
