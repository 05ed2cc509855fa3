"""odradek get: prints the latest value of a key."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Mapping
from typing import Any, cast

import click

from odradek.cli.arguments import partition_option
from odradek.cli.ask import answer_or_exit, url_option
from odradek.cli.completion import complete_topics
from odradek.cli.words import cut_text, key_text, time_text
from odradek.config.printable import printable


@click.command("get")
@click.argument("topic", shell_complete=complete_topics)
@click.argument("key")
@click.option(
    "--key-format",
    type=click.Choice(["text", "hex", "base64"]),
    default="text",
    show_default=True,
    help="The encoding of KEY.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "hex", "base64"]),
    default="text",
    show_default=True,
    help="The format of the printed value.",
)
@partition_option("Search only this partition.")
@click.option(
    "--isolation",
    type=click.Choice(["read_committed", "read_uncommitted"]),
    default="read_committed",
    show_default=True,
    help="Whether records of open and aborted transactions count.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the broker's answer unchanged.")
@url_option
def get(
    topic: str,
    key: str,
    key_format: str,
    form: str,
    partition: int | None,
    isolation: str,
    as_json: bool,
    url: str,
) -> None:
    """Print the latest value of a key.

    The value goes to standard output, its partition and offset to standard error. The exit
    status is 1 when the key was deleted or never seen, or when the value has more than 1 MiB:
    then only the first 1 MiB is printed.

    The search begins in the partition that Kafka's default partitioner chooses. If the key is
    not there, all partitions are searched.

    Example: odradek get latest-product-price p3
    """
    asked = {
        "topic": topic,
        "key": key,
        "key_format": key_format,
        "partition": partition,
        "isolation": isolation,
    }
    answer = cast(dict[str, Any], answer_or_exit(url, "/api/get", asked))
    if as_json:
        click.echo(json.dumps(answer, indent=2))
    elif answer["status"] == "found":
        is_cut = answer["value"].get("is_cut", False)
        if not (is_cut and form == "json"):
            click.echo(_shown(base64.b64decode(answer["value"]["base64"]), form))
        _show_place(answer)
        if is_cut:
            click.echo(f"odradek: {printable(_cut(answer))}", err=True)
            sys.exit(1)
    else:
        click.echo(f"odradek: {printable(_absence(answer))}", err=True)
    sys.exit(0 if answer["status"] == "found" else 1)


def _shown(value: bytes, form: str) -> str | bytes:
    if form == "hex":
        return value.hex()
    if form == "base64":
        return base64.b64encode(value).decode()
    if form == "text":
        return value
    try:
        return json.dumps(json.loads(value), indent=2, ensure_ascii=False)
    except ValueError:
        click.echo("odradek: the value is not JSON: try --format text, hex or base64", err=True)
        sys.exit(1)


def _show_place(answer: Mapping[str, Any]) -> None:
    from rich.console import Console  # takes a while to load
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_row("partition", str(answer["partition"]))
    table.add_row("offset", str(answer["offset"]))
    table.add_row("timestamp", time_text(answer["timestamp_ms"]))
    for header in answer["headers"]:
        value = header["value"]
        shown = "null" if value is None else key_text(value)
        name = header["key"]
        if header.get("key_is_cut"):
            name = cut_text(name, header["key_size_bytes"])
        table.add_row("header", Text(printable(f"{name}: {shown}")))
    if left_out := answer.get("headers_left_out"):
        table.add_row("", f"{left_out:,} more headers are not shown")
    for other in answer["also_in"]:
        when = time_text(other["timestamp_ms"])
        table.add_row("older", f"partition {other['partition']} offset {other['offset']}, {when}")
    Console(stderr=True, highlight=False).print(table, style="dim")


def _cut(answer: Mapping[str, Any]) -> str:
    value = answer["value"]
    size_bytes = len(base64.b64decode(value["base64"]))
    place = f"--partition {answer['partition']} --from {answer['offset']} --count 1"
    return (
        f"the value is cut: these are the first {size_bytes:,} of its {value['size_bytes']:,} "
        f"bytes; for all of it: odradek consume {answer['topic']} {place}"
    )


def _absence(answer: Mapping[str, Any]) -> str:
    key, topic = key_text(answer["key"]), answer["topic"]
    if answer["status"] == "deleted":
        place = f"partition {answer['partition']}, offset {answer['offset']}"
        return f"{key} was deleted from {topic} at {time_text(answer['timestamp_ms'])} ({place})"
    count = len(answer["searched"])
    message = f"{topic} has no record of {key} in {count} partition{'s' if count != 1 else ''}"
    offline = ", ".join(map(str, answer["offline"]))
    return f"{message}; offline and not searched: {offline}" if offline else message
