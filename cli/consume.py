"""odradek consume: prints the records of a topic of any Kafka."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.arguments import Name, partitions_option
from odradek.cli.client import Connection, broker_options
from odradek.cli.completion import complete_groups, complete_topics
from odradek.cli.positions import BEGINNING, END, Kind, Position, PositionType, resolve
from odradek.cli.records import (
    LineError,
    Write,
    template,
    write_json,
    write_key_value,
    write_value,
)
from odradek.cli.refusals import CommandError
from odradek.cli.registry import Decoding, registry_option

if TYPE_CHECKING:
    from odradek.schemas.records import Codecs


@click.command()
@click.argument("topic", type=Name(), shell_complete=complete_topics)
@click.option(
    "--from",
    "start",
    type=PositionType(),
    metavar="POSITION",
    help="beginning, end, an offset (42), the last few of each partition (-10), or a time "
    "(@2026-11-22T10:00:00Z, @MILLISECONDS). [default: beginning; with --group only "
    "where the group has no offset yet]",
)
@click.option(
    "--to",
    "stop",
    type=PositionType(),
    metavar="POSITION",
    help="Stop before this position; end is the current end of each partition. "
    "[default: --follow]",
)
@click.option(
    "--count", "count_max", type=click.IntRange(1), help="Stop after this number of records."
)
@click.option("--follow", is_flag=True, help="Wait for new records; this is the default.")
@partitions_option("Read")
@click.option(
    "--group",
    type=Name(),
    shell_complete=complete_groups,
    help="Join this consumer group, and commit offsets.",
)
@click.option(
    "--format",
    "form",
    default="value",
    show_default=True,
    metavar="value|key-value|json|TEMPLATE",
    help=r"TEMPLATE is as kcat's: %k key, %v value, %t topic, %p partition, %o offset, %T "
    r"timestamp, %h headers, %K and %S sizes, \n, \t; it adds no line end by itself.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option(
    "--key-separator",
    default="\t",
    help="The text between key and value of --format key-value. [default: a tab]",
)
@click.option("--null-value", default="", metavar="TEXT", help="The text to print for null.")
@click.option(
    "--key",
    help="Print only records with this key; all records are read. With --registry, the data of a "
    "key counts, too.",
)
@click.option(
    "--isolation",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    show_default=True,
    help="Whether to leave out records of open and aborted transactions.",
)
@broker_options
@registry_option
def consume(
    topic: str,
    start: Position | None,
    stop: Position | None,
    count_max: int | None,
    follow: bool,
    numbers: tuple[int, ...],
    group: str | None,
    form: str,
    as_json: bool,
    key: str | None,
    isolation: str,
    connection: Connection,
    codecs: Codecs | None,
    **text: str,
) -> None:
    """Print the records of a topic.

    It runs until it is interrupted (exit status 130), unless --to or --count is given. Bytes
    are printed unchanged, unless --registry has the schema of a key or value.

    Example: odradek consume prices --to end
    """
    if follow and stop is not None:
        raise click.UsageError("--follow contradicts --to")
    if group is not None:
        _require_group_options(start, stop, numbers)
    write = _writer("json" if as_json else form, text["key_separator"], text["null_value"])
    admin = connection.admin()
    known = sorted(admin.require_topic(topic, for_records=True).partitions)
    missing = [number for number in numbers if number not in known]
    if missing:
        raise CommandError(f"{topic} has no partition {missing[0]}: it has {len(known)}, from 0")
    from odradek.cli.reading import Reading, read

    is_committed = isolation == "read_committed"
    where: dict[str, Any] = {}
    if group is None:
        chosen = {topic: numbers or known}
        where["starts"] = resolve(admin, chosen, start or BEGINNING, is_committed=is_committed)
        if stop is not None:
            where["stops"] = resolve(admin, chosen, stop, is_committed=is_committed)
    decoding = None if codecs is None else Decoding(codecs)
    reading = Reading(
        topic=topic,
        isolation=isolation,
        group=group,
        begins_at_end=start is not None and start.kind is Kind.END,
        stops_at_end=stop is not None,
        count_max=count_max,
        has_key=None if key is None else _is_key(key, decoding),
        **where,
    )
    read(connection, reading, _decoded(write, decoding), sys.stdout.buffer)


def _require_group_options(
    start: Position | None, stop: Position | None, numbers: tuple[int, ...]
) -> None:
    if numbers:
        raise click.UsageError("--partition contradicts --group, which assigns partitions itself")
    if start not in (None, BEGINNING, END):
        raise click.UsageError(
            "--from must be beginning or end with --group: odradek groups reset-offsets moves a "
            "group"
        )
    if stop not in (None, END):
        raise click.UsageError("--to must be end with --group")


def _is_key(wanted: str, decoding: Decoding | None) -> Callable[[bytes | None], bool]:
    if decoding is not None:
        return lambda key: decoding.has_key(key, wanted)
    octets = wanted.encode()
    return lambda key: key == octets


def _decoded(write: Write, decoding: Decoding | None) -> Write:
    return write if decoding is None else lambda record: write(decoding.decoded(record))


def _writer(form: str, separator: str, null: str) -> Write:
    writers: Mapping[str, Write] = {
        "value": write_value(null.encode()),
        "key-value": write_key_value(separator.encode(), null.encode()),
        "json": write_json,
    }
    if form not in writers and "%" not in form:
        raise click.UsageError(f"--format {form} is none of {', '.join(writers)}, nor a template")
    try:
        return writers.get(form) or template(form, null.encode())
    except LineError as error:
        raise click.UsageError(f"--format: {error}") from error
