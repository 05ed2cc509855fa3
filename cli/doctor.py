"""odradek doctor: looks whether a broker can run here, and how the one that runs is."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from cli.ask import DEFAULT_URL
from config.printable import printable

_COLORS = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.command("doctor")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The server.properties file that the broker is started with.",
)
@click.option("--set", "pairs", multiple=True, metavar="KEY=VALUE", help="As for serve.")
@click.option(
    "--url",
    envvar="ODRADEK_URL",
    show_envvar=True,
    help=f"The metrics.listener of a broker that has to run; else that of the settings "
    f"({DEFAULT_URL}), if one does.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(config: Path | None, pairs: Sequence[str], url: str | None, as_json: bool) -> None:
    """Check that a broker can run here, and look after the one that does.

    Say it with the settings of `odradek serve`: --config, KAFKA_… variables and --set. Each line
    is one thing that was checked, and what to do about it. Nothing is changed. Exit status 1
    when there is a problem.

    Example: odradek doctor --config server.properties
    """
    from cli.checks import PROBLEM, check_all

    findings = []
    for one in check_all(config, dict(os.environ), pairs, url):
        findings.append(one)
        if not as_json:
            state = click.style(f"{one.state:8}", fg=_COLORS[one.state])
            advice = f": {one.advice}" if one.advice else ""
            click.echo(f"{state} {one.subject:12} {printable(one.text + advice)}")
    is_well = all(one.state != PROBLEM for one in findings)
    if as_json:
        told = [
            {"state": one.state, "subject": one.subject, "text": one.text, "advice": one.advice}
            for one in findings
        ]
        click.echo(json.dumps({"is_well": is_well, "findings": told}, indent=2))
    sys.exit(0 if is_well else 1)
