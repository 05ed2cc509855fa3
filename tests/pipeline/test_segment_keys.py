"""Segments that have none of the wanted keys are not read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="needs the pipeline extra")

from hypothesis import given
from hypothesis import strategies as st

from odradek.pipeline import segment_rows
from odradek.pipeline.segment_arrow import arrow_schema
from odradek.pipeline.segment_files import Segment, list_segments
from odradek.pipeline.segment_keys import may_have
from odradek.pipeline.segment_rows import read_segments
from odradek.pipeline.segment_selection import Selection, narrow
from tests.cleaner.test_clean_model import new_world
from tests.cleaner.worlds import EAGER, World
from tests.pipeline.segments import read
from tests.pipeline.test_segment_selection import EqualTo, In

KEYS = st.sampled_from([b"", b"a", b"seven-7", b"x" * 70, *(b"%d" % at for at in range(20))])


def written(world: World, segments: list[list[bytes]]) -> list[Segment]:
    """Write a segment of each list of keys, clean them, and return those that remain."""
    for number, keys in enumerate(segments):
        for key in keys:
            world.append([(key, b"%d" % number)])
        world.roll()
    world.clean()
    return list_segments(world.log.directory)


def keys_of(segment: Segment) -> set[bytes]:
    """Return the keys that a segment has."""
    schema = arrow_schema({"key": True})
    batches = read_segments([segment], Selection(), schema)
    return {key for batch in batches for key in batch.column("key").to_pylist()}


@given(st.lists(st.lists(KEYS, min_size=1, max_size=8), min_size=1, max_size=5), KEYS, KEYS)
def test_a_segment_with_a_wanted_key_is_read(
    segments: list[list[bytes]], one: bytes, other: bytes
) -> None:
    with new_world() as world:
        world.log.config = replace(EAGER, internal_segment_bytes=300)
        for segment in written(world, segments):
            there = keys_of(segment)
            assert may_have(segment, {one, other}) or not there & {one, other}


def test_a_segment_without_a_wanted_key_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[int] = []
    read_segment = segment_rows._read_segment

    def note_and_read(segment: Segment, *others: object) -> object:
        opened.append(segment.base_offset)
        return read_segment(segment, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(segment_rows, "_read_segment", note_and_read)
    with new_world() as world:
        world.log.config = replace(EAGER, internal_segment_bytes=300)
        segments = written(world, [[b"%d" % at, b"x" * 200] for at in range(9)])
        selection, left = narrow(Selection(), [EqualTo(("key",), b"4")])
        assert left == [EqualTo(("key",), b"4")]
        schema = arrow_schema({"offset": False})
        found = list(read_segments(segments, selection, schema))
        assert [offset for batch in found for offset in batch.column("offset").to_pylist()] == [8]
        # The active segment has no filter.
        assert set(opened) < {one.base_offset for one in segments}
        none, _ = narrow(selection, [In(("key",), (b"5", b"6"))])
        assert none.keys == frozenset()


@given(st.lists(st.lists(KEYS, min_size=1, max_size=8), min_size=1, max_size=5))
def test_the_option_selects_the_records_of_a_key(segments: list[list[bytes]]) -> None:
    with new_world() as world:
        world.log.config = replace(EAGER, internal_segment_bytes=300)
        written(world, segments)
        folder = world.log.directory
        rows = read(folder)
        for key in {row["key"] for row in rows}:
            assert read(folder, key=key.decode()) == [row for row in rows if row["key"] == key]


def test_a_damaged_filter_does_not_hide_a_segment(tmp_path: Path) -> None:
    with new_world() as world:
        first, *_ = written(world, [[b"a"], [b"b"]])
        assert not may_have(first, {b"z"})
        path = Path(first.path).with_suffix(".keys")
        data = bytearray(path.read_bytes())
        for at in range(len(data)):
            data[at] ^= 1
            path.write_bytes(data)
            assert may_have(first, {b"a"})
            data[at] ^= 1
        path.unlink()
        assert may_have(first, {b"z"})
