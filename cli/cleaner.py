"""odradek cleaner: shows what a running broker's cleaner does, will do and has done."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import TypeVar, cast

import click

from odradek.cli.answers import HistoryAnswer, PlanAnswer, RunAnswer, WhyAnswer
from odradek.cli.arguments import partition_option
from odradek.cli.ask import ANSWER_TIMEOUT_S, answer_or_exit, token_option, url_option
from odradek.cli.completion import complete_topics
from odradek.cli.verify import verify
from odradek.cli.words import printable_answer

F = TypeVar("F", bound=Callable[..., None])
Answer = dict[str, object]


def _asking(command: F) -> F:
    """Add the options that all commands have."""
    command = click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")(
        command
    )
    return url_option(command)


@click.group()
def cleaner() -> None:
    """Inspect a running broker's log cleaner, or start a cleaning.

    `plan` and `why` show what it will do, when, and why not yet. `run` cleans a topic now.
    `history` shows the last runs. `verify` cleans a topic and proves the result.
    """


@cleaner.command()
@click.argument("topic", required=False, shell_complete=complete_topics)
@partition_option("Only this partition.")
@click.option(
    "--exact/--estimate",
    default=None,
    help="Compute exact figures by a dry run, or show bounds only. By default the figures of a "
    "TOPIC are exact, and those of all topics are bounds.",
)
@_asking
def plan(
    topic: str | None, partition: int | None, exact: bool | None, url: str, as_json: bool
) -> None:
    """Show what the cleaner would do with a TOPIC, or with all topics.

    Nothing is changed: a dry run reads and judges every record, and writes nothing.

    Example: odradek cleaner plan prices
    """
    parameters = {"topic": topic, "partition": partition, "exact": _text(exact)}
    answer = _ask(url, "/api/cleaner/plan", parameters)
    if as_json:
        return _print_json(answer)
    from odradek.cli.cleaner_plan import show_plan

    show_plan(cast(PlanAnswer, printable_answer(answer)), topic)


@cleaner.command()
@click.argument("topic", shell_complete=complete_topics)
@click.argument("partition", type=click.IntRange(min=0))
@_asking
def why(topic: str, partition: int, url: str, as_json: bool) -> None:
    """Show every condition for the cleaning of a partition.

    Each condition has its value, its threshold, and the time at which it will be met.

    Example: odradek cleaner why prices 0
    """
    answer = _ask(url, "/api/cleaner/why", {"topic": topic, "partition": partition})
    if as_json:
        return _print_json(answer)
    from odradek.cli.cleaner_why import show_why

    show_why(cast(WhyAnswer, printable_answer(answer)))


@cleaner.command()
@click.argument("topic", shell_complete=complete_topics)
@partition_option("Only this partition.")
@click.option("--no-wait", is_flag=True, help="Do not wait for the result.")
@_asking
@token_option
def run(
    topic: str,
    partition: int | None,
    no_wait: bool,
    url: str,
    as_json: bool,
    token: str | None,
) -> None:
    """Clean a TOPIC now.

    It is cleaned before all other topics, at any dirty ratio. The active segment is sealed first.
    Records younger than min.compaction.lag.ms and records of open transactions stay unchanged.

    Example: odradek cleaner run prices
    """
    parameters = {"topic": topic, "partition": partition, "wait": _text(not no_wait)}
    answer = answer_or_exit(url, "/api/cleaner/run", parameters, post=True, token=token)
    if as_json:
        _print_json(answer)
    else:
        from odradek.cli.cleaner_runs import show_outcomes

        show_outcomes(cast(RunAnswer, printable_answer(answer)))
    outcomes = answer.get("outcomes", [])
    assert isinstance(outcomes, list)
    sys.exit(any(one["outcome"] not in ("CLEANED", "NOTHING") for one in outcomes))


@cleaner.command()
@click.argument("topic", shell_complete=complete_topics)
@click.argument("partition", type=click.IntRange(min=0))
@_asking
def history(topic: str, partition: int, url: str, as_json: bool) -> None:
    """Show the last runs over a partition, including failed ones.

    Example: odradek cleaner history prices 0
    """
    answer = _ask(url, "/api/cleaner/history", {"topic": topic, "partition": partition})
    if as_json:
        return _print_json(answer)
    from odradek.cli.cleaner_runs import show_history

    show_history(cast(HistoryAnswer, printable_answer(answer)))


cleaner.add_command(verify)


def _ask(url: str, path: str, parameters: Mapping[str, object]) -> Answer:
    return answer_or_exit(url, path, parameters, timeout_s=ANSWER_TIMEOUT_S)


def _print_json(answer: Answer) -> None:
    click.echo(json.dumps(answer, indent=2))


def _text(flag: bool | None) -> str | None:
    return None if flag is None else str(flag).lower()
