"""Shows why a log is cleaned or not, condition by condition."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from odradek.cli import words
from odradek.cli.answers import Condition, Levels, WhyAnswer
from odradek.cli.tables import new_table, print_table

_TITLES = {
    "NEEDED": "All of these are needed",
    "REASON": "One of these is reason enough",
    "LIMIT": "These hold a part of the log back",
}
_STYLES = {"NOW": "bold green", "RUNNING": "bold green", "LATER": "bold yellow", "NOT": "bold"}


def show_why(answer: WhyAnswer) -> None:
    """Print every condition."""
    console = Console(highlight=False)
    now_ms, due_ms = answer["now_ms"], answer["due_ms"]
    name = f"{answer['topic']}-{answer['partition']}"
    console.print(
        Text(name, style=_STYLES.get(answer["verdict"], "bold"))
        + Text(f"  {answer['sentence']}", style="not bold"),
        soft_wrap=True,
    )
    if answer["verdict"] == "NOW" and (answer["queue_position"] or 1) > 1:
        others = words.count((answer["queue_position"] or 1) - 1, "other log")
        console.print(f"after {others}")
    if answer["verdict"] == "LATER" and due_ms is not None:
        console.print(f"at {words.moment(due_ms, now_ms)}")
    for kind, title in _TITLES.items():
        found = [one for one in answer["conditions"] if one["kind"] == kind]
        if found:
            console.print(f"\n[bold]{title}[/]")
            print_table(console, _table(found, now_ms, is_limit=kind == "LIMIT"))
    levels = answer.get("levels")
    if levels is not None:
        console.print("\n[bold]Its records are in the object store[/]")
        print_table(console, _levels(levels))


def _table(conditions: list[Condition], now_ms: int, *, is_limit: bool) -> Table:
    table = new_table(has_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    for one in conditions:
        table.add_row(
            _mark(one, is_limit=is_limit), Text(one["name"]), Text(_meaning(one, now_ms))
        )
    return table


def _levels(levels: Levels) -> Table:
    table = new_table(has_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column()
    wal_bytes = words.size(levels["wal"]["bytes"])
    table.add_row("  L0", "WAL", f"{wal_bytes} that are in no segment yet")
    for name, title, level in (
        ("L1", "dirty", levels["dirty"]), ("L2", "clean", levels["clean"])
    ):  # fmt: skip
        segments = words.count(level["segments"], "segment")
        objects = words.count(level["objects"], "object")
        table.add_row(f"  {name}", title, f"{segments} in {objects}, {words.size(level['bytes'])}")
    return table


def _mark(one: Condition, *, is_limit: bool) -> Text:
    if is_limit:
        return Text("  free", style="green") if one["is_met"] else Text("  held", style="yellow")
    return Text("  yes", style="green") if one["is_met"] else Text("  no", style="yellow")


def _meaning(one: Condition, now_ms: int) -> str:
    at_ms = one["met_at_ms"]
    if at_ms is None:
        return one["text"]
    preposition = "until" if one["kind"] == "LIMIT" else "at"
    return f"{one['text']}; {preposition} {words.moment(at_ms, now_ms)}"
