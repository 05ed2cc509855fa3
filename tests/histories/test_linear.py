"""The work of the checks grows with the length of a history: ten times the history, ten times it.

The work is counted in instructions of the interpreter, which are the same each time.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from tests.histories import checks
from tests.histories.checks.checker import check
from tests.histories.history import (
    Append,
    History,
    OffsetCommit,
    OffsetFetch,
    Outcome,
    Read,
    Topic,
    Watermark,
)
from tests.histories.test_damages import drawn

_FOLDER = next(iter(checks.__path__))
_ROOM = 1.2


def instructions(history: History) -> int:
    """Count the instructions of the modules of checks over a sound history."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(_FOLDER):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        found = check(history)
    finally:
        sys.settrace(before)
    assert found == []
    return count


def table(count: int) -> History:
    """Make a long history of one partition, with five keys."""
    place, done = ("table", 0), Outcome.DONE
    history = History({"table": Topic(True, True)}, at=4 * count)
    history.reads = [
        Read("r", place, at, 0, f"i-{at}", True, at=4 * at) for at in range(count)
    ]
    history.appends = [
        Append("i", place, (one.value,), outcome=done, offset=one.offset, done_at=one.at)
        for one in history.reads
    ]
    history.final = history.final_committed = {place: history.reads}
    history.commits = [
        OffsetCommit("g", place, at, outcome=done, at=4 * at, done_at=4 * at + 1)
        for at in range(count)
    ]
    history.fetches = [OffsetFetch("g", place, at, at=4 * at + 2) for at in range(count)]
    history.watermarks = [
        Watermark("r", place, at // 7, at, at=4 * at, done_at=4 * at + 3) for at in range(count)
    ]
    return history


def test_each_event_of_a_long_table_costs_as_much_as_of_a_short_one() -> None:
    assert 10_000 < instructions(table(1_000)) < _ROOM * 10 * instructions(table(100))


def test_each_event_of_a_long_load_costs_as_much_as_of_a_short_one() -> None:
    short, long = drawn(1, 100), drawn(1, 600)
    counts = [instructions(one) / len(one.events()) for one in (short, long)]
    assert 0 < counts[1] < _ROOM * counts[0]
