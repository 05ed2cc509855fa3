"""Runs a cluster for hours, and checks that nothing grows and that nobody complains.

    python -m tests.soak [--minutes 360] [--round-minutes 10] [--keep FOLDER] [--plots FILE]

The exit status is 1 if something grows, or if a broker has logged a line above INFO that no
restart explains.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.soak.course import Plan, Report, Soak, running
from tests.soak.levels import levels
from tests.soak.plot import draw

_PLOTS = Path("artifacts/soak.png")
_MINUTE_S = 60
_FULL_S = 30.0


def main() -> None:
    """Run a soak."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=360.0)
    parser.add_argument("--round-minutes", type=float, default=10.0)
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    parser.add_argument("--plots", type=Path, default=_PLOTS, metavar="FILE")
    given = parser.parse_args()
    plan = Plan(given.minutes * _MINUTE_S, given.round_minutes * _MINUTE_S, _FULL_S)
    with ExitStack() as stack:
        folder = given.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        report = Soak(stack.enter_context(running(folder)), plan).run()
    show(report)
    draw(report.samples, given.plots)
    print(f"the plots: {given.plots.absolute()}")
    sys.exit(1 if report.problems else 0)


def show(report: Report) -> None:
    """Print the levels, and what is wrong."""
    print(f"full load: {report.full_rate:,.0f} records of 1 kB a second; then a third of it")
    print(
        f"{report.seconds / _MINUTE_S:.0f} minutes, {len(report.troubles)} restarts,"
        f" {report.written:,} records written, {report.read:,} read;"
        f" {report.complaints} lines above INFO at restarts"
    )
    print(f"{'level':45} {'second third':>12} {'last':>12}")
    for quantity, owners in report.samples.items():
        for owner, points in owners.items():
            if found := levels(points, report.seconds):
                title = f"{owner}: {quantity.title}"
                print(f"{title:45} {found.second:12,.0f} {found.last:12,.0f}")
    for problem in report.problems:
        print(problem)


if __name__ == "__main__":
    main()
