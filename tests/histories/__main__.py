"""Checks recorded histories: `python -m tests.histories FILE... [--report page.html]`.

The files of one run (tests/histories/recording.py) are one history. It prints the problems, and
exits with 1 if there are any, with 2 if a file cannot be read.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.histories.checks.checker import check
from tests.histories.recording import UnreadableRecording, read_recordings
from tests.histories.report import write_page


def main(arguments: Sequence[str]) -> int:
    """Check the files that the arguments name; return the status."""
    parser = argparse.ArgumentParser(prog="python -m tests.histories", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--report", type=Path, help="write a page about the problems")
    asked = parser.parse_args(arguments)
    try:
        history = read_recordings(asked.files)
    except (OSError, UnreadableRecording) as error:
        print(error, file=sys.stderr)
        return 2
    problems = check(history)
    for one in problems:
        print(one)
    if asked.report is not None:
        asked.report.write_text(write_page(history, problems))
    print(f"{len(problems)} problems in {len(history.events())} events", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
