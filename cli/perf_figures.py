"""A histogram of latencies, of bounded size, and the line and table that show a measurement."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from odradek.cli.interruption import Interruption
from odradek.cli.words import size

if TYPE_CHECKING:
    from rich.progress import Progress

_LEAST_S, _MOST_S = 1e-6, 1e3
_RESOLUTION = 1.01  # a percentile is at most 1 % too large
_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p999": 0.999}
_TICK_S = 0.2


class Latencies:
    """Counts latencies in buckets that grow by 1 %."""

    def __init__(self) -> None:
        steps = int(np.ceil(np.log(_MOST_S / _LEAST_S) / np.log(_RESOLUTION)))
        self._edges_s = _LEAST_S * _RESOLUTION ** np.arange(steps + 1)
        self._counts = np.zeros(len(self._edges_s) + 1, dtype=np.int64)
        self._sum_s = 0.0
        self._max_s = 0.0
        self.count = 0

    def add(self, latencies_s: Sequence[float]) -> None:
        """Count latencies, in seconds."""
        if not latencies_s:
            return
        array = np.asarray(latencies_s, dtype=np.float64)
        places = np.searchsorted(self._edges_s, array)
        self._counts += np.bincount(places, minlength=len(self._counts))
        self._sum_s += float(array.sum())
        self._max_s = max(self._max_s, float(array.max()))
        self.count += len(array)

    def take(self, latencies_s: list[float]) -> None:
        """Count the entries of a list, and remove them; another thread may append meanwhile."""
        count = len(latencies_s)
        self.add(latencies_s[:count])
        del latencies_s[:count]

    def quantile_ms(self, share: float) -> float | None:
        """Return the milliseconds that a share of all latencies does not exceed, or None."""
        if not self.count:
            return None
        rank = max(1, int(np.ceil(share * self.count)))
        place = int(np.searchsorted(np.cumsum(self._counts), rank))
        upper_s = self._edges_s[min(place, len(self._edges_s) - 1)]
        return float(min(upper_s, self._max_s)) * 1000

    def document(self) -> dict[str, float | None]:
        """Return mean, percentiles and maximum in milliseconds, or None for each without data."""
        mean = self._sum_s / self.count * 1000 if self.count else None
        found = {"mean": mean, **{k: self.quantile_ms(q) for k, q in _QUANTILES.items()}}
        found["max"] = self._max_s * 1000 if self.count else None
        return {name: None if ms is None else round(ms, 3) for name, ms in found.items()}


def rates(records: int, size_bytes: int, seconds: float) -> dict[str, float | int]:
    """Return the figures that every measurement has."""
    span_s = max(seconds, 1e-9)
    return {
        "records": records,
        "bytes": size_bytes,
        "seconds": round(seconds, 3),
        "records_per_second": round(records / span_s, 1),
        "bytes_per_second": round(size_bytes / span_s, 1),
    }


def rate_rows(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the rows of a table for rates()."""
    return [
        ("Records", f"{found['records']:,}"),
        ("Bytes", size(found["bytes"])),
        ("Time", f"{found['seconds']:,.2f} s"),
        ("Rate", f"{found['records_per_second']:,.0f} records/s"),
        ("", f"{size(found['bytes_per_second'])}/s"),
    ]


def latency_rows(found: dict[str, float | None], title: str) -> list[tuple[str, str]]:
    """Return the rows of a table for latencies."""
    names = {"mean": "mean", "p50": "p50", "p95": "p95", "p99": "p99", "p999": "p99.9",
             "max": "max"}  # fmt: skip
    return [
        (title if not number else "", f"{label:<6}{_milliseconds(found[name])}")
        for number, (name, label) in enumerate(names.items())
    ]


def print_pairs(rows: Iterable[tuple[str, str]]) -> None:
    """Print a table of names and figures."""
    rows = list(rows)
    width = max(len(name) for name, _ in rows)
    for name, figure in rows:
        click.echo(f"{name:<{width}}  {figure}".rstrip())


class Workers:
    """Threads that measure until all have ended; a failure of one stops the others."""

    def __init__(self, runs: Sequence[Callable[[threading.Event], None]]) -> None:
        self.stop = threading.Event()
        self._errors: list[BaseException] = []
        # join() is not reliable: when Ctrl-C interrupts it, Python 3.11 regards the thread as
        # ended, though it still runs (bpo-45274).
        self._ends = [threading.Event() for _ in runs]
        self._threads = [
            threading.Thread(target=self._run, args=pair, daemon=True)
            for pair in zip(runs, self._ends, strict=True)
        ]

    def wait(self, tick: Callable[[], None]) -> None:
        """Start the threads, wait for them, and call `tick` meanwhile; raises a thread's error.

        Ctrl-C stops the threads, and is raised once they have ended.
        """
        with Interruption() as interruption:
            for thread in self._threads:
                thread.start()
            while running := [end for end in self._ends if not end.is_set()]:
                running[0].wait(_TICK_S)
                if interruption.is_asked:
                    self.stop.set()
                tick()
        if self._errors:
            raise self._errors[0]
        if interruption.is_asked:
            raise KeyboardInterrupt

    def _run(self, run: Callable[[threading.Event], None], end: threading.Event) -> None:
        try:
            run(self.stop)
        except BaseException as error:  # raised again by wait()
            self._errors.append(error)
            self.stop.set()
        finally:
            end.set()


class LiveLine(AbstractContextManager["LiveLine"]):
    """A line on a terminal that shows the progress; elsewhere nothing."""

    def __init__(self, what: str, total: int | None) -> None:
        self._what, self._total = what, total
        self._progress: Progress | None = None
        self._started_s = time.monotonic()

    def __enter__(self) -> LiveLine:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            self._progress = Progress(
                TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(),
                console=Console(stderr=True, highlight=False), transient=True,
            )  # fmt: skip
            self._task = self._progress.add_task(self._what, total=self._total)
            self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def show(self, records: int, size_bytes: int, p99_ms: float | None = None) -> None:
        """Show the progress."""
        if self._progress is None:
            return
        span_s = max(time.monotonic() - self._started_s, 1e-9)
        line = f"{records:,} records, {records / span_s:,.0f}/s, {size(size_bytes / span_s)}/s"
        line += "" if p99_ms is None else f", p99 {p99_ms:,.1f} ms"
        self._progress.update(self._task, completed=records, description=line)


def _milliseconds(found: float | None) -> str:
    return "-" if found is None else f"{found:,.2f} ms"
