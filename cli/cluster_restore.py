"""odradek cluster restore: makes a bucket and a copy of its catalog safe to serve."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import click

from odradek.cli.catalog import catalog_options, open_bucket
from odradek.cli.cluster_fsck import Progress
from odradek.cli.refusals import CommandError
from odradek.cli.words import count, size
from odradek.config.printable import printable

if TYPE_CHECKING:
    from odradek.broker.shared.restoration import Restoration
    from odradek.broker.shared.salvage import Cut


@click.command()
@catalog_options
@click.option("--apply", "is_applied", is_flag=True, help="Do it; without it nothing is changed.")
@click.option("--full", is_flag=True, help="Read all objects, and compare their CRCs.")
@click.option(
    "--accept-loss",
    is_flag=True,
    help="Of each log that lacks records, keep the largest part without a loss.",
)
def restore(
    config: Path | None,
    pairs: tuple[str, ...],
    url: str | None,
    is_applied: bool,
    full: bool,
    accept_loss: bool,
) -> None:
    """Make a copy of the catalog safe to serve, after the catalog was lost.

    All brokers must be stopped. The records are those of the moment of the copy. The command
    checks that the object store has all objects that the copy names, closes all sessions, and
    raises the numbers that were given away since: session and leader epochs, producer ids.
    Objects that are newer than the copy stay, but nothing names them.

    Settings come from --config, KAFKA_… variables and --set, as for `odradek serve`.

    Example: odradek cluster restore --config server.properties
    """
    from odradek.broker.ids import random_id
    from odradek.broker.shared.restoration import Restoration
    from odradek.protocol.wire import encode_uuid

    with open_bucket(config, pairs, url) as (engine, bucket), Progress() as progress:
        one = Restoration(
            engine,
            bucket.store,
            bucket.reads,
            is_quick=not full,
            on_progress=progress.show,
        )
        progress.print_problems(one.problems())
        _show(one)
        if one.cuts and not accept_loss:
            raise CommandError(
                f"{count(len(one.cuts), 'log')} lost records: bring the objects back (a store "
                "with versions may have them), or give these offsets up with --accept-loss"
            )
        if is_applied:
            one.apply(encode_uuid(random_id(random.SystemRandom())))
            click.echo("Restored: start the brokers.")
        else:
            click.echo("Nothing is changed yet: --apply does it.")


def _show(one: Restoration) -> None:
    """Print the things that a restore does."""
    check = one.check
    for (topic, partition), cut in one.cuts.items():
        click.echo(printable(f"{topic}-{partition} {_cut_text(cut)}"))
    entries = f"{count(check.entries, 'entry', 'entries')} of the WAL ({check.inline:,} inline)"
    click.echo(
        f"The copy has {count(check.partitions, 'partition')}, {count(check.segments, 'segment')}"
        f" and {entries}."
    )
    if one.newer:
        found = f"{count(one.newer, 'object')} ({size(one.newer_bytes)})"
        click.echo(f"Newer than the copy, kept without a name: {found}.")
    brokers = ", ".join(str(member.node_id) for member in one.copy.open)
    closed = f"The sessions of broker {brokers} end" if brokers else "No session is open"
    click.echo(f"{closed}. The next ones begin after {one.session:,}.")


def _cut_text(cut: Cut) -> str:
    if not cut.given_up:
        return "gives up no record, but the sequences of its producers"
    ranges = " and ".join(f"{first} to {end - 1}" for first, end in cut.given_up)
    first, end = max(cut.start, cut.kept.first), cut.kept.end
    left = f"keeps {first} to {end - 1}" if first < end else "keeps none"
    return f"gives up the offsets {ranges}, and {left}"
