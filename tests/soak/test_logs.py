"""Complaints of brokers are found, and those outside of troubles are strange."""

from __future__ import annotations

import logging
from pathlib import Path

from odradek.broker.process.logs import TextFormatter
from tests.soak.logs import Trouble, complaints, unexplained

_AT_S = 1_000_000_000.0


def _write(path: Path, *records: tuple[float, int, str]) -> None:
    lines = []
    for at_s, level, text in records:
        record = logging.LogRecord("odradek.broker", level, "", 0, text, None, None)
        record.created = at_s
        record.msecs = at_s % 1 * 1_000
        lines.append(TextFormatter().format(record))
    path.write_text("\n".join(lines) + "\n")


def test_each_line_above_info_is_a_complaint(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    levels = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
    _write(log, *((_AT_S + at, level, "text") for at, level in enumerate(levels)))
    assert [one.at_s for one in complaints(log)] == [_AT_S + at for at in (2, 3, 4)]


def test_a_complaint_outside_of_troubles_is_strange(tmp_path: Path) -> None:
    log = tmp_path / "broker.log"
    seconds = (0.0, 1.5, 3.0, 4.5)
    _write(log, *((_AT_S + one, logging.WARNING, f"after {one}") for one in seconds))
    troubles = [Trouble(_AT_S + begin, _AT_S + begin + 1) for begin in (1, 4)]
    strange, explained = unexplained(log, troubles)
    assert strange == [
        "WARNING odradek.broker: after 0.0", "WARNING odradek.broker: after 3.0"
    ]
    assert explained == 2
