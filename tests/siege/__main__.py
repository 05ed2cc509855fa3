"""Besieges a cluster of processes, checks all that its clients saw, and looks for bugs in logs.

    python -m tests.siege [--minutes 10] [--seed N] [--brokers 3] [--keep FOLDER] [--report FILE]

The report is a page about the first problem, artifacts/siege.html by default. The exit status is 1
if a promise was broken. The seed decides on the troubles and their order, not on what the clients
and the brokers do meanwhile.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.histories.report import write_page
from tests.siege.course import Siege
from tests.siege.stage import Plan, former_code, running

_REPORT = Path("artifacts/siege.html")


def main() -> None:
    """Run a siege."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--brokers", type=int, choices=range(3, 6), default=3)
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    parser.add_argument("--report", type=Path, default=_REPORT, metavar="FILE")
    given = parser.parse_args()
    plan = Plan.drawn(given.seed, given.brokers)
    print(f"seed {given.seed}: {plan}", flush=True)
    with ExitStack() as stack:
        folder = given.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        former = stack.enter_context(former_code(folder))
        stage = stack.enter_context(running(folder, plan, former))
        report = Siege(stage, given.seed).run(given.minutes * 60)
    history = report.history
    print(f"{len(history.appends):,} records written, {len(history.reads):,} read")
    print(", ".join(f"{count} {name}" for name, count in report.troubles.most_common()))
    print(f"{report.hung} clients hung, and were replaced")
    for problem in report.problems:
        print(problem)
    if report.problems:
        given.report.parent.mkdir(parents=True, exist_ok=True)
        given.report.write_text(write_page(history, report.problems))
        print(f"the page about the first one: {given.report.absolute()}")
    sys.exit(1 if report.problems else 0)


if __name__ == "__main__":
    main()
