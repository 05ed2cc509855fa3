"""Finds the lines above INFO in brokers' logs, and those of them that no trouble explains."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

# 2026-11-30 08:15:02,123 WARNING odradek.broker.peers: no answer
_LINE = re.compile(r"(\S+ \S+) +(WARNING|ERROR|CRITICAL) +(.*)")
_TIME_FORMAT = "%Y-%m-%d %H:%M:%S,%f"


@dataclass(frozen=True, slots=True)
class Trouble:
    """A time, in seconds since the epoch, in which brokers may complain."""

    begin_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Complaint:
    """A line above INFO, and when it was written, in seconds since the epoch."""

    at_s: float
    text: str


def complaints(path: Path) -> Iterator[Complaint]:
    """Iterate over the lines above INFO of a log in the form of text."""
    with path.open(errors="replace") as file:
        for line in file:
            if found := _LINE.match(line):
                at_s = datetime.strptime(found[1], _TIME_FORMAT).timestamp()
                yield Complaint(at_s, f"{found[2]} {found[3]}")


def unexplained(path: Path, troubles: Sequence[Trouble]) -> tuple[list[str], int]:
    """Return the lines above INFO that were written in no trouble, and the number of others."""
    strange, explained = [], 0
    for one in complaints(path):
        if any(trouble.begin_s <= one.at_s <= trouble.end_s for trouble in troubles):
            explained += 1
        else:
            strange.append(one.text)
    return strange, explained
