"""Ctrl-C ends the threads of a load, whatever step of Python's locks it comes at."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Any

import pytest

from odradek.cli.interruption import Interruption
from odradek.cli.perf_figures import Workers

STEPS = [
    threading.Condition.__enter__,
    threading.Condition.__exit__,
    threading.Condition._acquire_restore,
    threading.Event.wait,
    threading.Event.is_set,
]


@pytest.mark.timeout(30)
@pytest.mark.parametrize("time", [1, 2, 3])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.__qualname__)
def test_threads_end_whatever_step_ctrl_c_comes_at(step: Any, time: int) -> None:
    count = 0

    def interrupt(frame: FrameType, event: str, argument: object) -> None:
        nonlocal count
        if frame.f_code is step.__code__:
            count += 1
            if count == time:
                signal.raise_signal(signal.SIGINT)

    workers = Workers([lambda stop: bool(stop.wait())])
    sys.settrace(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            workers.wait(lambda: None)
    finally:
        sys.settrace(None)
    assert count >= time
    assert workers.stop.is_set()


def test_a_second_ctrl_c_acts_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), Interruption() as interruption:
        signal.raise_signal(signal.SIGINT)
        assert interruption.is_asked
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("it continued")
