"""Puts the benchmarks' questions to Odradek and Apache Kafka in turn, and prints the ratios.

    python -m bench.run [QUESTION …] [--rounds N] [--scale F] [--save]
                        [--only odradek|kafka]

Without a QUESTION all are put. Needs Java and Kafka's jars (`make kafka`), and a machine that does
nothing else.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from bench.page import span
from bench.pairs import BROKERS, Answer, Question, put, put_once
from bench.processes import lacks_kafka
from bench.questions import QUESTIONS
from bench.results import save

_TITLE_WIDTH = 1 + max(len(one.title) for each in QUESTIONS.values() for one in each.figures)
_HEAD = f"{'':{_TITLE_WIDTH + 2}} {'Odradek':>22} {'Kafka':>22} {'':10} times better (from, to)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Put the questions, and print a row for each figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("questions", nargs="*", metavar="QUESTION", help=", ".join(QUESTIONS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="of all counts")
    parser.add_argument("--only", choices=[name.lower() for name in BROKERS])
    parser.add_argument("--save", action="store_true", help="keep the answers in figures.json")
    given = parser.parse_args(arguments)
    unknown = set(given.questions) - set(QUESTIONS)
    if unknown:
        known = ", ".join(QUESTIONS)
        parser.error(f"no such question: {', '.join(sorted(unknown))}. There are {known}")
    if lacks_kafka():
        return 1
    for question in [QUESTIONS[name] for name in given.questions or QUESTIONS]:
        print(f"\n{question.name}: {question.title}")
        if given.only:
            for _ in range(given.rounds):
                ask_one(question, given.only.title(), given.scale)
        else:
            print(_HEAD)
            answers = put(question, given.rounds, given.scale)
            for answer in answers:
                print(row(answer), flush=True)
            if given.save:
                save(question, answers, given.rounds, given.scale)
    return 0


def ask_one(question: Question, broker_name: str, scale: float) -> None:
    """Put a question to one broker, and print its figures, for example under a profiler."""
    values = put_once(question, broker_name, scale)
    print("  ".join(f"{title}: {value:,.4g}" for title, value in values.items()), flush=True)


def row(answer: Answer) -> str:
    """Return a figure's line."""
    figure, advantages = answer.figure, answer.advantages
    promised = "" if figure.at_least is None else f"  promised {figure.at_least:g}"
    return (
        f"  {figure.title:{_TITLE_WIDTH}} {span(answer.ours):>22} {span(answer.theirs):>22}"
        f" {figure.unit:10} {answer.advantage:6.2f}"
        f" ({min(advantages):.2f} to {max(advantages):.2f}){promised}"
        f"{'  FALLS SHORT' if answer.falls_short else ''}"
    )


if __name__ == "__main__":
    sys.exit(main())
