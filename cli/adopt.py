"""odradek adopt: takes over the data directory of an Apache Kafka broker."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Iterable, Mapping, Sequence

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from odradek.broker.adoption.adopt import Prepared, Source, carry_out, is_adopted, lock, prepare
from odradek.broker.adoption.errors import AdoptionError
from odradek.broker.adoption.left_behind import counted, some
from odradek.broker.adoption.plan import AdoptedTopic, Obstacle
from odradek.broker.adoption.rights import principals_of
from odradek.broker.adoption.users import names_of
from odradek.broker.errors import MetadataError
from odradek.broker.topics import names as topic_names
from odradek.cli.tables import new_table, print_table
from odradek.cli.words import size
from odradek.config.printable import printable
from odradek.storage.errors import DirectoryInUse, StorageError
from odradek.storage.files import FileSystem
from odradek.storage.real_files import RealFileSystem

_OBSTACLES_SHOWN_MAX = 30


def adopt(source: Source, *, force: bool, dry_run: bool, fs: FileSystem | None = None) -> int:
    """Adopt log directories, print the plan and the outcome; return the exit status."""
    console = Console(highlight=False)
    fs = fs or RealFileSystem()
    try:
        return _adopt(console, fs, source, force=force, dry_run=dry_run)
    except (AdoptionError, MetadataError, StorageError) as error:
        click.echo(f"odradek: {printable(str(error))}", err=True)
        return 1


def _adopt(
    console: Console, fs: FileSystem, source: Source, *, force: bool, dry_run: bool
) -> int:
    try:
        locks = lock(fs, source)
    except DirectoryInUse as error:
        if not dry_run:
            raise
        message = f"[yellow]{_escaped(str(error))}. These figures show its present state.[/]"
        console.print(message, soft_wrap=True)
        locks = []
    if is_adopted(fs, source):
        message = f"{_escaped(_names(source))} is adopted already: nothing to do."
        console.print(message, soft_wrap=True)
        _show_next(console, source, "Serve it with")
        return 0
    prepared = prepare(fs, source)
    _show(console, prepared)
    obstacles = prepared.plan.obstacles
    _show_obstacles(console, obstacles, force=force)
    if obstacles and not force:
        return 1
    if dry_run:
        console.print("\nNothing was changed.")
        return 0
    asyncio.run(carry_out(fs, prepared))
    locks.clear()  # held until here
    note = "Kafka's own files are unchanged: Kafka can use them again until Odradek serves them."
    console.print(f"\n[bold green]Adopted.[/] {note}", soft_wrap=True)
    _show_next(console, source, "Serve them with")
    return 0


def _show(console: Console, prepared: Prepared) -> None:
    plan = prepared.plan
    cluster = _escaped(plan.cluster_id)
    console.print(f"[bold]Kafka's data[/]  cluster {cluster}, node {plan.node_id}", soft_wrap=True)
    for directory in prepared.directories:
        stop = "stopped cleanly" if directory.was_clean else "not stopped cleanly: needs recovery"
        partitions = counted(len(directory.partitions), "partition")
        console.print(f"  {_escaped(str(directory.path))}  {partitions}, {stop}", soft_wrap=True)
    console.print()
    if plan.topics:
        print_table(console, _topic_table(plan.topics))
    else:
        console.print("There are no topics.")
    _show_pairs(console, "Taken over with them", _taken(prepared))
    _show_pairs(console, "Left behind", prepared.left)
    if plan.notes:
        console.print("\n[bold]To know[/]")
        for note in plan.notes:
            console.print(f"  {_escaped(note)}", soft_wrap=True)


def _topic_table(topics: Iterable[AdoptedTopic]) -> Table:
    table = new_table()
    table.add_column("Topic", no_wrap=True)
    for title in ("Partitions", "Offsets", "Size"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("Policy")
    table.add_column("Settings of its own", overflow="fold", style="dim")
    for topic in sorted(topics, key=lambda one: (_is_internal(one), one.record.name)):
        settings = {k: v for k, v in topic.overrides.items() if k != "cleanup.policy"}
        table.add_row(
            Text(printable(topic.record.name)),
            str(topic.record.partition_count),
            _offsets(topic),
            size(sum(one.size_bytes for one in topic.partitions)),
            ",".join(sorted(topic.config.cleanup_policy)) or "keep",
            Text(printable(_settings(settings))),
            style="dim" if _is_internal(topic) else None,
        )
    return table


def _is_internal(topic: AdoptedTopic) -> bool:
    return topic.record.name in topic_names.INTERNAL


def _offsets(topic: AdoptedTopic) -> str:
    """Return the number of offsets in the partitions; "≥" marks a torn end not recovered yet."""
    spans = [one.end_offset - one.start_offset for one in topic.partitions
             if one.end_offset is not None]  # fmt: skip
    return f"{'≥ ' if len(spans) < len(topic.partitions) else ''}{sum(spans):,}"


def _taken(prepared: Prepared) -> Iterable[tuple[str, str]]:
    plan, groups = prepared.plan, prepared.groups
    for name, settings in plan.broker_configs.items():
        if settings:
            owner = f"settings of broker {name}" if name else "settings of all brokers"
            yield owner, ", ".join(sorted(settings))  # a value may be a secret
    if plan.users:
        users = f"of {some(names_of(plan.users))}"
        yield counted(len(plan.users), "SCRAM credential"), users
    if plan.acls:
        yield counted(len(plan.acls), "ACL"), f"for {some(principals_of(plan.acls))}"
    if groups.offsets:
        of = counted(groups.groups_with_offsets, "group")
        yield "committed offsets", f"{groups.offsets:,} of {of}"
    yield "producer ids", f"continue from {plan.next_producer_id:,}"


def _show_pairs(console: Console, title: str, pairs: Iterable[tuple[str, str]]) -> None:
    pairs = list(pairs)
    if not pairs:
        return
    console.print(f"\n[bold]{title}[/]")
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for what, meaning in pairs:
        table.add_row(Text(printable(f"  {what}")), Text(printable(meaning)))
    console.print(table)


def _show_obstacles(console: Console, obstacles: Sequence[Obstacle], *, force: bool) -> None:
    if not obstacles:
        return
    verdict = "left out, because of --force" if force else "nothing was adopted"
    console.print(f"\n[bold red]In the way[/]  {verdict}")
    for one in obstacles[:_OBSTACLES_SHOWN_MAX]:
        console.print(f"  {_escaped(one.subject)}: {_escaped(one.text)}", soft_wrap=True)
    if len(obstacles) > _OBSTACLES_SHOWN_MAX:
        console.print(f"  and {len(obstacles) - _OBSTACLES_SHOWN_MAX} more")
    if force:
        return
    console.print(
        "\nCorrect this in Kafka first: move partitions here with kafka-reassign-partitions, "
        "change settings with kafka-configs. Or use --force: it leaves out topics that are not "
        "complete here, and settings that are not accepted."
    )


def _show_next(console: Console, source: Source, words: str) -> None:
    names = ",".join(str(path) for path in source.directories)
    console.print(f"\n{words}\n")
    command = f"  odradek serve --set {shlex.quote(f'log.dirs={names}')}"
    console.print(f"[bold cyan]{_escaped(command)}[/]", soft_wrap=True)
    console.print("\nor with Kafka's own settings: odradek serve --config server.properties")


def _names(source: Source) -> str:
    return ", ".join(map(str, source.directories))


def _settings(settings: Mapping[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in sorted(settings.items()))


def _escaped(text: str) -> str:
    return escape(printable(text))
