"""Puts questions about shared topics to brokers with a PostgreSQL and a server of S3.

    python -m bench.shared [QUESTION …] [--delays] [--files] [--seconds 10] [--rounds 5]
        [--set NAME=VALUE …]

With --delays each PUT, GET and commit takes as long as in a cloud (bench/servers/cloud.py). With
--files the catalog is a file of SQLite, and the bucket a folder. Rounds are kills, or pairs of
measurements. All of it, the clients too, shares the cores of this machine.
"""

from __future__ import annotations

import argparse

from bench.shared.questions import QUESTIONS
from bench.shared.stage import running


def main() -> None:
    """Put the questions, each to new brokers, and print the answers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("questions", nargs="*", metavar="QUESTION", help=", ".join(QUESTIONS))
    parser.add_argument("--delays", action="store_true")
    parser.add_argument("--files", action="store_true")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    given = parser.parse_args()
    unknown = set(given.questions) - set(QUESTIONS)
    if unknown:
        parser.error(f"no such question: {', '.join(sorted(unknown))}")
    settings = dict(one.split("=", 1) for one in given.set)
    for name in given.questions or QUESTIONS:
        question = QUESTIONS[name]
        print(f"{name}: {question.title}\n  wanted  {question.wanted}", flush=True)
        with running(
            question.brokers,
            is_delayed=given.delays,
            has_files=given.files,
            settings={**question.settings, **settings},
        ) as stage:
            question.ask(stage, given.seconds, given.rounds)


if __name__ == "__main__":
    main()
