"""The history of cleanings: lines that are read back, files that grow, tear and are damaged."""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek.cleaner.passes.stats import CleanResult
from odradek.cleaner.rules.policy import Reason
from odradek.cleaner.runtime.history import FILE_NAME, HISTORY_PER_PARTITION, History, HistoryStore
from odradek.cleaner.runtime.progress import Quarantined
from odradek.cleaner.runtime.runs import DamagedRun, Run, decode_run, encode_run, result_as_json
from odradek.storage.files import FileSystem
from odradek.storage.log import Log
from tests.cleaner.test_why import failure
from tests.cleaner.worlds import FS, World, pairs
from tests.profiles import examples
from tests.simulation.faultyfs import DISK_FULL, FaultyFileSystem

results = st.builds(CleanResult, map_utilization=st.floats(0, 1), cleanable_ratio=st.floats(0, 1))
runs = st.one_of(
    st.builds(Run, topic_id=st.binary(min_size=16, max_size=16), result=results,
              failure=st.none()),
    st.builds(Run, topic_id=st.binary(min_size=16, max_size=16), result=st.none(),
              failure=st.builds(Quarantined)),
)  # fmt: skip


@settings(max_examples=examples(30))
@given(runs)
def test_a_run_is_read_back_as_it_was_written(run: Run) -> None:
    line = encode_run(run)
    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert decode_run(line) == run


@settings(max_examples=examples(30))
@given(results, st.sets(st.sampled_from([f.name for f in dataclasses.fields(CleanResult)])))
def test_a_line_of_an_older_version_is_read_with_blanks(
    result: CleanResult, missing: set[str]
) -> None:
    read = json.loads(encode_run(Run("t", 0, bytes(16), 1, result, None)))
    for name in missing - {"topic", "reason"}:
        del read["result"][name]
    read["result"]["added_later"] = 1
    found = decode_run(json.dumps(read).encode()).result
    assert found is not None
    for field in dataclasses.fields(CleanResult):
        value = getattr(found, field.name)
        if field.name in missing - {"topic", "reason"}:
            assert not value
        else:
            assert value == getattr(result, field.name)


@settings(max_examples=examples(30))
@given(runs, st.data())
def test_a_damaged_line_is_no_run_or_still_one(run: Run, data: st.DataObject) -> None:
    line = bytearray(encode_run(run))
    if data.draw(st.booleans()):
        line[data.draw(st.integers(0, len(line) - 2))] = data.draw(st.integers(0, 255))
    else:
        del line[data.draw(st.integers(0, len(line) - 2)) :]
    try:
        assert isinstance(decode_run(bytes(line)), Run)
    except DamagedRun as error:
        assert str(error)


@settings(max_examples=examples(30))
@given(results)
def test_derived_numbers_are_in_the_json(result: CleanResult) -> None:
    found = result_as_json(result)
    assert found["reason"] == result.reason.name
    assert found["reclaimed_bytes"] == result.start_bytes - result.end_bytes
    assert found["removed_records"] == result.start_records - result.end_records
    assert json.loads(json.dumps(found)) == found


# --- files ------------------------------------------------------------------------------------


def at_once(function: Callable[[], None]) -> None:
    function()


def start(logs: list[Log], fs: FileSystem = FS) -> History:
    """Begin as a broker does, but write within the call."""
    history = History(logs)
    history.keep(HistoryStore(fs, at_once, at_once))
    return history


def result(world: World, at: int = 0) -> CleanResult:
    """Make a result that differs from others in its number."""
    values: dict[str, object] = {
        field.name: {"int": 0, "float": 0.0, "bool": False}.get(str(field.type))
        for field in dataclasses.fields(CleanResult)
    }
    values |= {"topic": world.log.topic, "reason": Reason.DIRTY, "started_ms": at}
    return CleanResult(**values)  # type: ignore[arg-type]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "data")


def numbers(history: History, log: Log) -> list[int]:
    return [run.result.started_ms for run in history.runs(log) if run.result is not None]


def test_processes_of_one_directory_read_the_runs_of_all(world: World) -> None:
    first, second = History([world.log]), History([world.log])
    for process, history in enumerate((first, second), 1):
        history.keep(HistoryStore(FS, at_once, at_once, process))
    for at in range(4):
        (first if at % 2 else second).succeeded(world.log, result(world, at), at)
    for process in (1, 2, 3):
        later = History([world.log])
        later.keep(HistoryStore(FS, at_once, at_once, process))
        assert numbers(later, world.log) == [0, 1, 2, 3]


def test_the_last_runs_outlive_a_restart_the_failed_ones_too(world: World) -> None:
    history = start([world.log])
    for at in range(HISTORY_PER_PARTITION + 3):
        history.succeeded(world.log, result(world, at), at)
    history.failed(world.log, failure(99), 77)
    before = history.runs(world.log)
    assert len(before) == HISTORY_PER_PARTITION
    assert before[-1].failure == failure(99)
    assert start([world.log]).runs(world.log) == before


def test_the_file_stays_small_and_says_the_same(world: World) -> None:
    history, largest = start([world.log]), 0
    path = world.directory.path / FILE_NAME
    for at in range(1000):
        history.succeeded(world.log, result(world, at), at)
        largest = max(largest, path.read_bytes().count(b"\n"))
    assert HISTORY_PER_PARTITION < largest <= 100
    assert numbers(start([world.log]), world.log) == list(range(990, 1000))


@pytest.mark.parametrize("damage", [b"{\n", b"\xff\n", b"[]\n", b"torn", b"\0\0\0\0", b"1\n\n"])
def test_a_damaged_line_is_left_out_with_a_warning_and_mended(
    world: World, damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    history = start([world.log])
    history.succeeded(world.log, result(world, 1), 1)
    path = world.directory.path / FILE_NAME
    path.write_bytes(path.read_bytes() + damage)
    again = start([world.log])
    assert numbers(again, world.log) == [1]
    assert "left out a damaged line" in caplog.text and str(path) in caplog.text
    again.succeeded(world.log, result(world, 2), 2)
    caplog.clear()
    assert numbers(start([world.log]), world.log) == [1, 2]
    assert not caplog.records


def test_a_partition_created_again_has_no_history(world: World) -> None:
    history = start([world.log])
    history.succeeded(world.log, result(world, 1), 1)
    world.directory.delete_log(world.log, 0)
    other = world.directory.create_log(
        world.log.topic, 0, b"another topic id", world.log.config, now_ms=0
    )
    assert not start([other]).runs(other)
    logs = [other]
    history = History(logs)
    history.succeeded(world.log, result(world, 1), 1)
    history.forget_absent()
    assert not history.runs(world.log)


def test_runs_that_end_before_the_file_was_read_are_kept_with_those_in_it(world: World) -> None:
    start([world.log]).succeeded(world.log, result(world, 1), 1)
    waiting: list[Callable[[], None]] = []
    history = History([world.log])
    history.keep(HistoryStore(FS, waiting.append, at_once))
    history.succeeded(world.log, result(world, 2), 2)
    assert not history.is_loaded
    while waiting:
        waiting.pop(0)()
    assert history.is_loaded and numbers(history, world.log) == [1, 2]
    assert numbers(start([world.log]), world.log) == [1, 2]


def test_runs_that_the_disk_refuses_are_written_as_soon_as_it_accepts(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    fs = FaultyFileSystem()
    history = start([world.log], fs)
    history.succeeded(world.log, result(world, 1), 1)
    fs.refuse = lambda kind, path: DISK_FULL if path.name.startswith(FILE_NAME) else None
    history.succeeded(world.log, result(world, 2), 2)
    history.succeeded(world.log, result(world, 3), 3)
    assert "No space left" in caplog.text
    fs.refuse = lambda kind, path: None
    history.succeeded(world.log, result(world, 4), 4)
    assert numbers(start([world.log]), world.log) == [1, 2, 3, 4]


def test_each_run_is_a_line_in_the_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "odradek.cleaner.runtime.runs")
    history = History([world.log])
    history.succeeded(world.log, result(world, 5), 6)
    history.failed(world.log, failure(7), 8)
    lines = [
        one.getMessage() for one in caplog.records if one.name == "odradek.cleaner.runtime.runs"
    ]
    assert [json.loads(line)["outcome"] for line in lines] == ["CLEANED", "FAILED"]
    assert json.loads(lines[0])["result"]["started_ms"] == 5


def test_a_real_run_is_kept_whole(world: World) -> None:
    for pair in pairs("a:1 a:2 b:1 a:3"):
        world.append([pair])
    world.roll()
    cleaned = world.clean()
    assert cleaned is not None
    start([world.log]).succeeded(world.log, cleaned, 1)
    (run,) = start([world.log]).runs(world.log)
    assert run.result == cleaned
