"""Reads log cleaners' reports from brokers' logs; Odradek writes them in Kafka's words."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.cleaner_load import PARTITION

_START = re.compile(
    rf"Log cleaner thread \d+ cleaned log {PARTITION} \(dirty section = \[(\d+), (\d+)\]\)"
)
_NUMBER = r"([\d.,]+)"
# The lines with a run's figures; only Odradek writes the lines of the second group.
_FIGURES = {
    "log_mb": rf"{_NUMBER} MB of log processed",
    "seconds": rf"processed in {_NUMBER} seconds",
    "rate": rf"seconds \({_NUMBER} MB/sec\)",
    "end_mb": rf"End size: {_NUMBER} MB",
    "end_records": rf"End size: .*\({_NUMBER} messages\)",
}
_OWN_FIGURES = {
    "spilled_mb": rf"{_NUMBER} MB spilled",
    "segments_written": rf"{_NUMBER} written with",
    "written_mb": rf"written with {_NUMBER} MB",
    "segments_kept": rf"{_NUMBER} kept as they were",
}


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a cleaner over the log, from the cleaner's report."""

    end_offset: int
    log_mb: float
    seconds: float
    written_mb: float
    spilled_mb: float
    segments_written: int | None  # Kafka does not report it
    segments_kept: int | None
    end_records: int


def runs(log_text: str) -> list[Run]:
    """Return the runs over the benchmark's partition in a broker's log, in order.

    A run whose report is not complete yet is left out.
    """
    starts = [*_START.finditer(log_text)]
    edges = [*(start.start() for start in starts), len(log_text)]
    texts = [log_text[edge:after] for edge, after in itertools.pairwise(edges)]
    return [
        _run(int(start[2]), text)
        for start, text in zip(starts, texts, strict=True)
        if "fewer messages)\n" in text
    ]


def _run(end_offset: int, text: str) -> Run:
    figures = _figures(text, _FIGURES)
    own = _figures(text, _OWN_FIGURES)
    log_mb, seconds = figures["log_mb"], figures["seconds"]
    # The rate has more digits than the seconds, which are reported in tenths.
    if "rate" in figures and min(log_mb, figures["rate"]) > 1:
        seconds = log_mb / figures["rate"]
    kept, written = own.get("segments_kept"), own.get("segments_written")
    return Run(
        end_offset,
        log_mb,
        seconds,
        own.get("written_mb", figures["end_mb"]),
        own.get("spilled_mb", 0.0),
        None if written is None else int(written),
        None if kept is None else int(kept),
        int(figures["end_records"]),
    )


def _figures(text: str, patterns: Mapping[str, str]) -> dict[str, float]:
    found = {name: re.search(pattern, text) for name, pattern in patterns.items()}
    return {name: float(hit[1].replace(",", "")) for name, hit in found.items() if hit}


def total(all_runs: Sequence[Run]) -> Run:
    """Add runs up to one run; the size of the log is the largest that a run reported."""
    last = all_runs[-1]
    return Run(
        last.end_offset,
        max(run.log_mb for run in all_runs),
        sum(run.seconds for run in all_runs),
        sum(run.written_mb for run in all_runs),
        sum(run.spilled_mb for run in all_runs),
        _sum([run.segments_written for run in all_runs]),
        _sum([run.segments_kept for run in all_runs]),
        last.end_records,
    )


def _sum(counts: Sequence[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
