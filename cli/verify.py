"""odradek cleaner verify: proves the four guarantees of a compacted topic."""

from __future__ import annotations

import json
import sys
from typing import Any, cast

import click

from odradek.cli.arguments import partition_option
from odradek.cli.ask import answer_or_exit, token_option, url_option
from odradek.cli.completion import complete_topics


@click.command("verify")
@click.argument("topic", shell_complete=complete_topics)
@partition_option("Only this partition.")
@click.option(
    "--dry-run",
    is_flag=True,
    help="Clean nothing; prove the guarantees that can be proved without a cleaning.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the broker's answer unchanged.")
@url_option
@token_option
def verify(
    topic: str, partition: int | None, dry_run: bool, as_json: bool, url: str, token: str | None
) -> None:
    """Clean a topic now, and prove that no needed record is lost.

    The log is read before and after, record by record, as a consumer reads it: a consumer that
    keeps up sees every record, order and offsets never change, and a reader from the start sees
    the final state of every key. The exit status is 1 when anything was not proved.

    It takes a while: plain Python reads the log several times, no faster than
    log.cleaner.io.max.bytes.per.second allows, and keeps its keys in memory.

    Example: odradek cleaner verify latest-product-price
    """
    asked = {"topic": topic, "partition": partition, "dry_run": "true" if dry_run else None}
    answer = cast(
        dict[str, Any],
        answer_or_exit(url, "/api/cleaner/verify", asked, post=True, token=token),
    )
    if as_json:
        click.echo(json.dumps(answer, indent=2))
    else:
        from odradek.cli.findings import show  # rich takes a while to load

        show(topic, answer["partitions"])
    sys.exit(0 if answer["is_proved"] else 1)
