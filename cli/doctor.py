"""odradek doctor: checks that a broker can run here, and that a running one is healthy."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from odradek.cli.catalog import set_option
from odradek.cli.place import DEFAULT_URL
from odradek.config.printable import printable

_COLORS = {"ok": "green", "warning": "yellow", "problem": "red"}


@click.command("doctor")
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The server.properties file of the broker.",
)
@set_option
@click.option(
    "--url",
    envvar="ODRADEK_URL",
    show_envvar=True,
    help="The URL of the metrics.listener of a broker that must be running. Without it, the "
    f"settings give the URL (else {DEFAULT_URL}), and the broker may be stopped.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(config: Path | None, pairs: Sequence[str], url: str | None, as_json: bool) -> None:
    """Check that a broker can run here, and that a running one is healthy.

    Use the settings of `odradek serve`: --config, KAFKA_… variables and --set. Each line shows
    one check, and advice where something is wrong. Nothing is changed. The exit status is 1
    when there is a problem.

    Example: odradek doctor --config server.properties
    """
    from odradek.cli.checks import PROBLEM, check_all

    findings = []
    for one in check_all(config, dict(os.environ), pairs, url):
        findings.append(one)
        if not as_json:
            state = click.style(f"{one.state:8}", fg=_COLORS[one.state])
            advice = f": {one.advice}" if one.advice else ""
            click.echo(f"{state} {one.subject:12} {printable(one.text + advice)}")
    is_well = all(one.state != PROBLEM for one in findings)
    if as_json:
        listed = [
            {"state": one.state, "subject": one.subject, "text": one.text, "advice": one.advice}
            for one in findings
        ]
        click.echo(json.dumps({"is_well": is_well, "findings": listed}, indent=2))
    sys.exit(0 if is_well else 1)
