"""odradek cluster fsck: proves that the object store has all of the shared topics."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from odradek.cli.catalog import catalog_options, open_bucket
from odradek.cli.refusals import CommandError
from odradek.cli.words import count, size
from odradek.config.printable import printable

if TYPE_CHECKING:
    from odradek.broker.shared.checking import Check, Problem

_MS_PER_HOUR = 3_600_000
_PROGRESS_S = 0.2


@click.command()
@catalog_options
@click.option("--quick", is_flag=True, help="Compare sizes only, and read no object.")
@click.option("--delete-orphans", is_flag=True, help="Delete orphans, if nothing else is wrong.")
@click.option("--with-kept", is_flag=True, help="Take objects that a restore keeps for orphans.")
@click.option(
    "--orphan-age",
    "orphan_age_h",
    metavar="HOURS",
    type=click.FloatRange(min=0),
    default=24.0,
    show_default=True,
    help="Leave orphans alone that are younger: a late request may have stored them.",
)
def fsck(
    config: Path | None,
    pairs: tuple[str, ...],
    url: str | None,
    quick: bool,
    delete_orphans: bool,
    with_kept: bool,
    orphan_age_h: float,
) -> None:
    """Prove that the object store has all of the shared topics, and nothing else.

    All objects are read, and compared with the catalog by size and CRC. Offsets that neither a
    segment nor the WAL has are found, and orphans: objects that no row of the catalog names, and
    whose broker has ended. Each problem is a line, and the exit status is 1 then. Brokers may be
    running.

    Settings come from --config, KAFKA_… variables and --set, as for `odradek serve`.

    Example: odradek cluster fsck --config server.properties
    """
    from odradek.broker.shared.checking import Check

    with open_bucket(config, pairs, url) as (engine, bucket), Progress() as progress:
        check = Check(
            engine,
            bucket.store,
            bucket.reads,
            orphans_before_ms=int(time.time() * 1000 - orphan_age_h * _MS_PER_HOUR),
            is_quick=quick,
            with_kept=with_kept,
            on_progress=progress.show,
        )
        progress.print_problems(check.problems())
        _end(check, delete_orphans=delete_orphans)


def _end(check: Check, *, delete_orphans: bool) -> None:
    orphans = check.orphans
    taken = f"{count(len(orphans), 'orphan')} ({size(sum(one.size_bytes for one in orphans))})"
    if delete_orphans and not check.faults:
        check.delete_orphans()
        if orphans:
            click.echo(f"Deleted {taken}.")
    else:
        for problem in check.orphan_problems():
            click.echo(_line(problem))
        if check.faults and orphans:
            raise CommandError(
                f"{count(check.faults, 'problem')}, and {taken}: keep the orphans until the "
                "problems are solved, since they may have lost records"
            )
        if orphans:
            raise CommandError(f"{taken}: --delete-orphans deletes them")
        if check.faults:
            raise CommandError(count(check.faults, "problem"))
    _summarize(check)


def _summarize(check: Check) -> None:
    entries = f"{count(check.entries, 'entry', 'entries')} of the WAL ({check.inline:,} inline)"
    click.echo(
        f"No problem in {count(check.partitions, 'partition')}, {count(check.segments, 'segment')}"
        f" and {entries}: {count(check.objects, 'object')}, {size(check.checked_bytes)}."
    )
    if check.uploads:
        found = f"{count(check.uploads, 'object')} ({size(check.upload_bytes)})"
        click.echo(f"Of running brokers without a name, perhaps uploads under way: {found}.")
    if check.young:
        found = f"{count(check.young, 'orphan')} ({size(check.young_bytes)})"
        click.echo(f"Too young to be deleted: {found}.")
    if check.kept:
        found = f"{count(check.kept, 'object')} ({size(check.kept_bytes)})"
        click.echo(f"Without a name, and kept since a restore: {found}.")
    if check.foreign:
        click.echo(f"Not stored by brokers: {count(check.foreign, 'object')}.")


def _line(problem: Problem) -> str:
    parts = []
    if problem.topic:
        parts.append(f"{problem.topic}-{problem.partition}")
    if problem.offsets is not None:
        first, end = problem.offsets
        parts.append(f"offsets {first} to {end - 1}" if end - first > 1 else f"offset {first}")
    if problem.key:
        parts.append(problem.key)
    return printable(f"{', '.join(parts)}: {problem.wrong}; lost: {problem.lost}")


class Progress:
    """The line on a terminal that says how far the check is."""

    def __init__(self) -> None:
        self._is_terminal, self._is_shown, self._next_s = sys.stderr.isatty(), False, 0.0

    def __enter__(self) -> Progress:
        """Show nothing yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the line."""
        self._clear()

    def show(self, done_bytes: int, total_bytes: int) -> None:
        """Show the bytes that were checked, and those of all objects."""
        if self._is_terminal and time.monotonic() >= self._next_s:
            text = f"checked {size(done_bytes)} of {size(total_bytes)}"
            click.echo(f"\r{text}\x1b[K", nl=False, err=True)
            self._is_shown, self._next_s = True, time.monotonic() + _PROGRESS_S

    def print_problems(self, problems: Iterable[Problem]) -> None:
        """Print problems as they are found, and remove the line once all are."""
        for problem in problems:
            self._clear()
            click.echo(_line(problem))
        self._clear()

    def _clear(self) -> None:
        if self._is_shown:
            click.echo("\r\x1b[K", nl=False, err=True)
            self._is_shown = False
