"""Recordings of several clients become one history, also when a client was killed."""

from __future__ import annotations

import itertools
import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.histories.__main__ import main
from tests.histories.checks.checker import check
from tests.histories.history import Outcome, ShareAck, Topic
from tests.histories.perfect import PerfectCluster
from tests.histories.recording import Recorder, UnreadableRecording, read_recordings
from tests.histories.test_damages import Memory, Steps
from tests.support.waiting import wait_until


class Both:
    """Notes each line in memory, and in a file for each client."""

    def __init__(self, folder: Path, clock: list[float]) -> None:
        self._folder, self._clock = folder, clock
        self.memory = Memory(clock)
        self.recorders: dict[str, Recorder] = {}
        self._ids: dict[int, tuple[Recorder, int]] = {}

    def begin(self, kind: str, client: str, **members: object) -> int:
        """Note that an operation begins."""
        self._tick()
        if client not in self.recorders:
            path = self._folder / f"{client}.jsonl"
            self.recorders[client] = Recorder(path, lambda: self._clock[0])
        number = self.memory.begin(kind, client, **members)
        if "transaction" in members:
            members["transaction"] = self._ids[int(str(members["transaction"]))][1]
        recorder = self.recorders[client]
        self._ids[number] = recorder, recorder.begin(kind, client, **members)
        return number

    def end(self, number: int, outcome: str = "done", **members: object) -> None:
        """Note that an operation has ended."""
        self._tick()
        self.memory.end(number, outcome, **members)
        recorder, own = self._ids[number]
        recorder.end(own, outcome, **members)

    def _tick(self) -> None:
        self._clock[0] = round(self._clock[0] + 0.001, 6)


@given(steps=Steps, seed=st.integers(0, 1_000_000), order=st.randoms(use_true_random=False))
def test_a_history_comes_back_from_the_files_of_its_clients(
    steps: list[str], seed: int, order: random.Random, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, clock = tmp_path_factory.mktemp("recordings"), [100.0]
    notes = Both(folder, clock)
    PerfectCluster(notes, random.Random(seed), clock).play(steps)
    for one in notes.recorders.values():
        one.close()
    paths = sorted(folder.iterdir())
    order.shuffle(paths)
    assert read_recordings(paths) == notes.memory.history


def write(path: Path, *lines: object) -> Path:
    path.write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    return path


def begin(name: int | str, time_s: float, kind: str, **members: object) -> dict[str, object]:
    about = {"client": "c", "topic": "t", "partition": 0}
    return {"id": name, "time_s": time_s, "begin": kind, **about, **members}


def end(name: int | str, time_s: float, outcome: str = "done", **members: object) -> object:
    return {"id": name, "time_s": time_s, "outcome": outcome, **members}


def test_an_operation_without_an_end_is_unknown(tmp_path: Path) -> None:
    path = write(tmp_path / "a", begin(1, 1.0, "append", values=["p-0"]))
    (append,) = read_recordings([path]).appends
    assert (append.outcome, append.offset, append.done_at) == (Outcome.UNKNOWN, -1, None)


def test_a_half_line_at_the_end_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "a", begin(1, 1.0, "append", values=["p-0"]))
    whole = read_recordings([path])
    with path.open("a") as file:
        file.write(json.dumps(end(1, 1.1, offset=0))[:-1])
    assert read_recordings([path]) == whole


def test_a_killed_client_leaves_a_history(tmp_path: Path) -> None:
    path = tmp_path / "killed"
    script = (
        "import itertools, pathlib, sys\n"
        "from tests.histories.recording import Recorder\n"
        "recorder = Recorder(pathlib.Path(sys.argv[1]))\n"
        "for at in itertools.count():\n"
        "    about = {'topic': 't', 'partition': 0, 'values': [f'p-{at}']}\n"
        "    recorder.end(recorder.begin('append', 'p', **about), offset=at)\n"
    )
    client = subprocess.Popen([sys.executable, "-c", script, str(path)])
    try:
        wait_until(lambda: path.exists() and path.stat().st_size > 10_000, "lines", 60)
    finally:
        client.send_signal(signal.SIGKILL)
        client.wait()
    appends = read_recordings([path]).appends
    assert [one.values for one in appends] == [(f"p-{at}",) for at in range(len(appends))]
    assert all(one.outcome is Outcome.DONE for one in appends[:-1])
    assert len(appends) > 30


def test_files_of_other_processes_are_never_overwritten(tmp_path: Path) -> None:
    path = write(tmp_path / "a", begin(1, 1.0, "append", values=["p-0"]))
    with pytest.raises(FileExistsError):
        Recorder(path)


def test_of_lines_with_one_time_beginnings_come_first(tmp_path: Path) -> None:
    """Else a read would seem to have been answered before the commit that let it see a record."""
    transaction = begin(1, 1.0, "transaction", producer="p", number=0)
    commit = begin(2, 5.0, "commit", transaction=1)
    sent = begin(3, 2.0, "append", values=["p-0"], transaction=1)
    producer = write(tmp_path / "p", transaction, sent, end(3, 3.0, offset=0), commit)
    asked = begin("x", 4.0, "read", committed=True)
    reader = write(tmp_path / "r", asked, end("x", 5.0, records=[[0, 2, "p-0"]]))
    for paths in itertools.permutations([producer, reader]):
        assert check(read_recordings(paths)) == []


@pytest.mark.parametrize("committed", [False, True])
def test_two_last_readers_may_find_other_bounds(committed: bool, tmp_path: Path) -> None:
    """Of the two the later start and end count: the first readers were there before."""
    lines: list[object] = []
    for number, (one, start, log_end) in enumerate(
        [(committed, 1, 9), (not committed, 3, 7)]
    ):
        lines.append(begin(number, 1.0, "scan", committed=one, final=True))
        lines.append(end(number, 2.0, "done", records=[], log_start=start, log_end=log_end))
    history = read_recordings([write(tmp_path / "a", *lines)])
    assert (history.final_starts, history.final_ends) == ({("t", 0): 3}, {("t", 0): 9})


def test_another_language_may_write_it(tmp_path: Path) -> None:
    path = tmp_path / "by-hand"
    path.write_text(
        """\
{"id":"T","time_s":0,"begin":"topic","client":"x","topic":"t","compacted":true,\
"delete_retention_s":1.5,"keeps_reads":true}
{"begin":"append","client":"p","id":"a","partition":3,"time_s":1.25,"topic":"t","values":["p-0"],\
"tombstones":["p-0"],"delivery":"retried"}
{"id":"a","outcome":"done","time_s":1.5,"offset":7}
{"id":"s","time_s":2,"begin":"share_acknowledge","client":"m","group":"g","topic":"t",\
"partition":3,"first":7,"last":9,"type":"accept"}
{"id":"s","time_s":2.5,"outcome":"undone"}
"""
    )
    history = read_recordings([path])
    assert history.topics == {"t": Topic(True, True, 1.5)}
    (append,), (ack,) = history.appends, history.acks
    assert append.tombstones == {"p-0"} and append.is_plain and append.is_repeated
    assert (append.place, append.offset, append.time_s, append.done_s) == (("t", 3), 7, 1.25, 1.5)
    assert isinstance(ack, ShareAck) and ack.outcome is Outcome.UNDONE and ack.last == 9


@pytest.mark.parametrize(
    "lines",
    [
        ["no object"],
        [{"id": 1, "begin": "append"}],
        [{"time_s": 1.0, "begin": "append"}],
        [begin(1, 1.0, "no such kind")],
        [begin(1, 1.0, "append")],
        [begin(1, 1.0, "append", values=["without a number"])],
        [begin(1, 1.0, "append", values=["p-0"], delivery="perhaps")],
        [begin(1, 1.0, "append", values=["p-0"], transaction=5)],
        [begin(1, 1.0, "append", values=["p-0"]), end(1, 1.1, "good")],
        [begin(1, 1.0, "read", committed=True), begin(1, 1.1, "read", committed=True)],
        [end(1, 1.0)],
    ],
    ids=str,
)
def test_a_wrong_line_is_named(lines: list[object], tmp_path: Path) -> None:
    path = write(tmp_path / "wrong", *lines)
    with pytest.raises(UnreadableRecording, match="wrong"):
        read_recordings([path])


def test_the_command_checks_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sent = write(tmp_path / "p", begin(1, 1.0, "append", values=["p-0"]), end(1, 1.1, offset=0))
    bounds = {"log_start": 0, "log_end": 1, "records": [[0, 0, "p-0"]]}

    def scans(name: str, **members: object) -> Path:
        lines = [
            one
            for number, committed in enumerate((True, False))
            for one in (
                begin(number, 2.0, "scan", committed=committed, final=True),
                end(number, 2.1, "done", **{**bounds, **members}),
            )
        ]
        return write(tmp_path / name, *lines)

    page = tmp_path / "page.html"
    assert main([str(sent), str(scans("sound"))]) == 0
    assert not capsys.readouterr().out
    assert main([str(sent), str(scans("torn", records=[])), "--report", str(page)]) == 1
    lost = "lost: p-0 in ('t', 0), acknowledged at offset 0"
    assert capsys.readouterr().out == f"{lost}\n"
    assert "p-0" in page.read_text()
    assert main([str(tmp_path / "missing")]) == 2
