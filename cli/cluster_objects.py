"""odradek cluster objects: sums of shared topics in the object store, by the catalog."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from odradek.cli.answer import print_json
from odradek.cli.catalog import catalog_options, open_catalog
from odradek.cli.client import json_option
from odradek.cli.words import count, duration, size
from odradek.config.printable import printable

if TYPE_CHECKING:
    from odradek.broker.catalog.holdings import Holdings, OldestEntry, Sum


@click.command()
@catalog_options
@click.option("--partitions", is_flag=True, help="Show each partition.")
@json_option
def objects(
    config: Path | None, pairs: tuple[str, ...], url: str | None, partitions: bool, as_json: bool
) -> None:
    """List the segments of shared topics, their WAL and the garbage, by the catalog.

    Settings come from --config, KAFKA_… variables and --set, as for `odradek serve`. Brokers may
    be running, and the object store is not asked.

    Example: odradek cluster objects --config server.properties
    """
    from odradek.broker.catalog.holdings import read_holdings

    with open_catalog(config, pairs, url) as (engine, store):
        delay_ms = store.odradek_object_delete_delay_ms
        held = engine.read(lambda connection: read_holdings(connection, engine, delay_ms))
    if as_json:
        return print_json(_document(held, partitions))
    return _print(held, partitions)



def _rows(held: Holdings, partitions: bool) -> dict[tuple[str, int | None], dict[bool, Sum]]:
    """Return the sums of topics or partitions, by whether segments are open."""
    rows: dict[tuple[str, int | None], dict[bool, Sum]] = {}
    for (topic, partition, is_open), one in held.segments.items():
        row = rows.setdefault((topic, partition if partitions else None), {})
        row[is_open] = row[is_open] + one if is_open in row else one
    return rows


def _document(held: Holdings, partitions: bool) -> dict[str, Any]:
    return {
        "segments": [
            {
                "topic": topic,
                **({"partition": partition} if partitions else {}),
                "sealed": _sum(one.get(False)),
                "open": _sum(one.get(True)),
            }
            for (topic, partition), one in _rows(held, partitions).items()
        ],
        "wal": {
            "objects": _sum(held.objects),
            "inline": _sum(held.inline),
            "oldest": _oldest_document(held.oldest),
        },
        "garbage": {**_sum(held.garbage), "deletable_in_ms": held.deletable_in_ms},
        "garbage_in_use": _sum(held.named),
    }


def _sum(one: Sum | None) -> dict[str, int]:
    if one is None:
        return {"count": 0, "size_bytes": 0}
    return {"count": one.count, "size_bytes": one.size_bytes}


def _oldest_document(oldest: OldestEntry | None) -> dict[str, Any] | None:
    if oldest is None:
        return None
    topic, partition = oldest.needed_by or (None, None)
    return {
        "broker": oldest.node_id,
        "key": oldest.key,
        "size_bytes": oldest.size_bytes,
        "needed_by": None if topic is None else {"topic": topic, "partition": partition},
    }


def _print(held: Holdings, partitions: bool) -> None:
    from odradek.cli.tables import print_rows

    rows = _rows(held, partitions)
    titles = ["Topic", "Partition>", "Sealed>", "Size>", "Open>", "Size>"]
    cells: list[list[object]] = [
        [topic, partition, *_cells(one.get(False)), *_cells(one.get(True))]
        for (topic, partition), one in rows.items()
    ]
    if not partitions:
        del titles[1]
        for row in cells:
            del row[1]
    if rows:
        print_rows(titles, cells)
    else:
        click.echo("There are no segments.")
    click.echo()
    inline = count(held.inline.count, "inline entry", "inline entries")
    click.echo(f"WAL: {_shown(held.objects)}, {inline} ({size(held.inline.size_bytes)}).")
    if held.oldest is not None:
        click.echo(f"Its oldest entry: {_oldest_text(held.oldest)}.")
    when = ""
    if held.deletable_in_ms is not None:
        wait_ms = held.deletable_in_ms
        when = f", to be deleted {f'in {duration(wait_ms)}' if wait_ms else 'now'} at the earliest"
    click.echo(f"Garbage: {_shown(held.garbage)}{when}.")
    if held.named.count:
        click.echo(f"Garbage except for parts that are in use: {_shown(held.named)}.")


def _cells(one: Sum | None) -> tuple[int, str]:
    return (0, size(0)) if one is None else (one.count, size(one.size_bytes))


def _shown(one: Sum) -> str:
    return f"{count(one.count, 'object')} ({size(one.size_bytes)})"


def _oldest_text(oldest: OldestEntry) -> str:
    broker = "an earlier broker" if oldest.node_id is None else f"broker {oldest.node_id}"
    text = f"{oldest.key or 'inline'}, {size(oldest.size_bytes)} by {broker}"
    if oldest.needed_by is None:
        return f"{text}, which is not needed any more"
    topic, partition = oldest.needed_by
    return printable(f"{text}, which {topic}-{partition} needs")
