"""Prints an audit's findings: the guarantees that a topic keeps, and the broken ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from odradek.cli.words import key_text, requests, size
from odradek.config.printable import printable

_ONE_OF = {
    "batches": "batch",
    "entries": "entry",
    "records": "record",
    "tombstones": "tombstone",
}


def show(topic: str, partitions: Iterable[Mapping[str, Any]]) -> None:
    """Print the findings for each partition."""
    console = Console(highlight=False)
    for one in partitions:
        _show(console, topic, one)


def _show(console: Console, topic: str, one: Mapping[str, Any]) -> None:
    name = f"[bold]{_escaped(topic)}-{one['partition']}[/]"
    if "error" in one:
        console.print(f"{name}  [red]not proved:[/] {_escaped(one['error'])}\n", soft_wrap=True)
        return
    span = f"offsets {one['start_offset']:,} to {one['end_offset']:,}"
    extent = f"{span}, clean up to {one['clean_offset']:,}, {size(one['size_bytes'])}"
    console.print(f"{name}  {extent}", soft_wrap=True)
    console.print(f"  {_cleaned(one['cleaned'])}", soft_wrap=True)
    for text in _requests(one):
        console.print(f"  {text}", soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("Guarantee", overflow="fold")
    table.add_column("Examined", justify="right")
    table.add_column("")
    for finding in one["findings"]:
        table.add_row(
            Text(printable(finding["name"])),
            Text(_counted(finding["examined"], finding["of"])),
            Text("broken", "bold red") if finding["violation"] else Text("OK", "green"),
        )
    console.print(Padding(table, (0, 0, 0, 2)))
    for finding in one["findings"]:
        if finding["violation"]:
            console.print(f"\n  [bold red]Broken:[/] {_escaped(finding['name'])}", soft_wrap=True)
            console.print(f"  {_escaped(_violation(finding['violation']))}", soft_wrap=True)
    console.print()


def _cleaned(run: Mapping[str, Any] | None) -> str:
    if run is None:
        return "Nothing was cleaned."
    dirty = f"the dirty section was {run['first_dirty_offset']:,} to {run['end_offset']:,}"
    records = f"{run['end_records']:,} of {run['start_records']:,} records"
    sizes = f"{size(run['end_bytes'])} of {size(run['start_bytes'])}"
    return f"Cleaned in {run['total_ms'] / 1000:,.1f} s: {records} are left, {sizes}; {dirty}."


def _requests(one: Mapping[str, Any]) -> Iterator[str]:
    """Return the requests to the object store; older brokers, and local topics, have none."""
    cleaning, proof = (one["cleaned"] or {}).get("store"), one.get("store")
    if cleaning is not None:
        yield f"The cleaning at the object store: {requests(cleaning)}."
    if proof is not None:
        yield f"The proof at the object store: {requests(proof)}."


def _counted(count: int, things: str) -> str:
    return f"{count:,} {_ONE_OF[things] if count == 1 else things}"


def _violation(violation: Mapping[str, Any]) -> str:
    key = violation["key"]
    named = "" if key is None else f", key {key_text(key)}"
    return f"At offset {violation['offset']}{named}: {violation['text']}."


def _escaped(text: str) -> str:
    return escape(printable(text))
