"""Which files are read, which are left out, and the error where there is nothing to read."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from odradek.pipeline import segment_files
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.segment_files import find_segments, list_segments, prune
from odradek.pipeline.segment_selection import Selection, Span, parse_options

SEGMENT = "00000000000000000000.log"


def touch(folder: Path, *names: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(b"x")


def found(*paths: Path | str, **options: object) -> list[tuple[str, int, int]]:
    given = {name: str(value) for name, value in options.items()}
    parsed = parse_options({"path": ",".join(map(str, paths)), **given})
    segments = find_segments(parsed, parsed.selection)
    return [(one.topic, one.partition, one.base_offset) for one in segments]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log directory with two topics, and all that may lie about in one."""
    touch(tmp_path / "a-b-0", SEGMENT, f"{42:020d}.log", f"{42:020d}.index", "partition.metadata")
    touch(tmp_path / "a-b-0", f"{99:020d}.log.deleted", f"{7:020d}.log.cleaned")
    touch(tmp_path / "a-b-1", SEGMENT)
    touch(tmp_path / "c-0", SEGMENT)
    touch(tmp_path / "c-0.1b9d6bcd-delete", SEGMENT)
    touch(tmp_path / "c-0.1b9d6bcd-future", SEGMENT)
    touch(tmp_path / "c-0-stray", SEGMENT)
    touch(tmp_path, "meta.properties", "cleaner-offset-checkpoint")
    return tmp_path


def test_a_log_directory_holds_the_segments_of_its_partitions(data: Path) -> None:
    assert found(data) == [("a-b", 0, 0), ("a-b", 0, 42), ("a-b", 1, 0), ("c", 0, 0)]


def test_a_path_may_be_a_partition_or_a_segment_and_there_may_be_several(data: Path) -> None:
    assert found(data / "a-b-0") == [("a-b", 0, 0), ("a-b", 0, 42)]
    assert found(data / "a-b-0" / f"{42:020d}.log") == [("a-b", 0, 42)]
    assert found(data / "c-0", data / "a-b-1") == [("a-b", 1, 0), ("c", 0, 0)]
    # Named twice, read once.
    assert found(data / "c-0", data / "c-0" / SEGMENT, data / "." / "c-0") == [("c", 0, 0)]


def test_a_folder_may_be_where_one_stands(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data / "c-0")
    assert found(".") == [("c", 0, 0)]
    assert found(SEGMENT) == [("c", 0, 0)]


def test_a_segments_offsets_end_where_the_next_one_begins(data: Path) -> None:
    first, last = list_segments(data / "a-b-0")
    assert (first.offsets, first.next_base_offset) == (Span(0, 42), 42)
    assert (last.offsets, last.next_base_offset) == (Span(42, 42 + 2**31), None)


def test_topics_and_partitions_are_chosen_by_name(data: Path) -> None:
    assert found(data, topic="c") == [("c", 0, 0)]
    assert found(data, topic="c, a-b", partition="0,1", startingOffset=3) == found(data)
    assert found(data, partition=1) == [("a-b", 1, 0)]


@pytest.mark.parametrize(
    ("path", "options", "words"),
    [
        ("nowhere", {}, "{data}/nowhere does not exist"),
        ("c-0-stray", {}, "is out of use"),
        ("c-0.1b9d6bcd-delete", {}, "is out of use"),
        ("meta.properties", {}, "is not a segment"),
        ("a-b-0/00000000000000000099.log.deleted", {}, "is not a segment"),
        ("empty", {}, "holds no segments"),
        ("other", {}, "is not named TOPIC-PARTITION"),
        ("", {"topic": "c,d"}, "topic d is not in {data}: there are a-b, c"),
        ("", {"topic": "c", "partition": "1"}, "has a partition 1"),
    ],
)
def test_a_path_that_cannot_be_read_is_reported_in_one_line(
    data: Path, path: str, options: dict[str, str], words: str
) -> None:
    touch(data / "empty")
    touch(data / "other", SEGMENT)
    with pytest.raises(PipelineError) as error:
        found(data / path, **options)
    assert words.format(data=data) in str(error.value)
    assert "\n" not in str(error.value)


def test_partitions_that_a_filter_excludes_are_no_error(data: Path) -> None:
    options = parse_options({"path": str(data)})
    assert find_segments(options, Selection(topics=frozenset({"d"}))) == []
    segments = find_segments(options, Selection(partition_span=Span(1, 9)))
    assert [one.partition for one in segments] == [1]


def test_nothing_is_read_while_segments_are_exchanged(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    swap = data / "a-b-0" / f"{SEGMENT}.swap"
    swap.write_bytes(b"x")
    looks: list[float] = []
    monkeypatch.setattr(segment_files.time, "sleep", looks.append)
    with pytest.raises(PipelineError, match=r"a-b-0 has files that end in \.swap"):
        found(data)
    assert found(data, topic="c") == [("c", 0, 0)], "another partition is not concerned"
    assert len(looks) > 5
    monkeypatch.setattr(segment_files.time, "sleep", lambda _: swap.unlink(missing_ok=True))
    assert len(found(data)) == 4


def test_a_list_that_changes_while_it_is_made_is_made_again(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = data / "a-b-0"
    really, calls = segment_files.os.listdir, []

    def listdir(path: Path) -> list[str]:
        names = really(path)
        calls.append(path)
        if len(calls) == 1:  # as if it was made while the old segment made way for the new one
            names = [name for name in names if name != SEGMENT]
        return names

    monkeypatch.setattr(segment_files.os, "listdir", listdir)
    assert [one.base_offset for one in list_segments(folder)] == [0, 42]


def test_segments_are_pruned_by_offset(data: Path) -> None:
    options = parse_options({"path": str(data / "a-b-0")})
    segments = find_segments(options, options.selection)
    for offsets, bases in [
        (Span(), [0, 42]),
        (Span(end=42), [0]),
        (Span(start=41), [0, 42]),
        (Span(start=42), [42]),
        (Span(end=0), []),
        (Span(start=5, end=9), [0]),
    ]:
        pruned = prune(segments, Selection(offsets=offsets))
        assert [one.base_offset for one in pruned] == bases


@pytest.mark.parametrize(
    ("index", "is_known"),
    [
        (struct.pack(">qiqi", 500, 3, 1000, 41), True),
        (None, False),
        (b"", False),
        (struct.pack(">qi", 1000, 41)[:-1], False),
        (struct.pack(">qiqi", 1000, 41, 0, 0), False),  # not sealed when it was copied
        (struct.pack(">qi", 1000, 42), False),  # of an offset that is not in the segment
        (struct.pack(">qi", 1000, -1), False),
    ],
)
def test_sealed_segments_are_pruned_by_the_end_of_their_time_index(
    data: Path, index: bytes | None, is_known: bool
) -> None:
    folder = data / "a-b-0"
    for base in (0, 42):
        if index is not None:
            (folder / f"{base:020d}.timeindex").write_bytes(index)
    segments = list_segments(folder)
    for start, bases in [(1000, [0, 42]), (1001, [42])]:
        pruned = prune(segments, Selection(timestamps=Span(start=start)))
        assert [one.base_offset for one in pruned] == (bases if is_known else [0, 42])


def test_empty_segments_are_not_read(data: Path) -> None:
    (data / "c-0" / SEGMENT).write_bytes(b"")
    options = parse_options({"path": str(data / "c-0")})
    assert prune(find_segments(options, options.selection), options.selection) == []
