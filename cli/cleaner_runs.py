"""Shows cleanings that have ended: those just requested, and the last ones of a log."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from odradek.cli import words
from odradek.cli.answers import HistoryAnswer, Result, Run, RunAnswer
from odradek.cli.tables import new_table, print_table

_STYLES = {"CLEANED": "bold green", "NOTHING": "bold"}
# The reason for a cleaning, in a word (cleaner.rules.policy.Reason).
REASONS = {
    "OVERDUE": "overdue", "DIRTY": "dirty", "EXPIRED": "expired", "ASKED": "asked for",
    "RETRY": "retry",
}  # fmt: skip


def show_outcomes(answer: RunAnswer) -> None:
    """Print the outcomes of the requested cleanings."""
    console = Console(highlight=False)
    for asked in answer.get("asked", []):
        console.print(f"{asked['topic']}-{asked['partition']} will be cleaned next.", markup=False)
    for one in answer.get("outcomes", []):
        name = f"{one['topic']}-{one['partition']}"
        result = one["result"]
        outcome = one["sentence"] if result is None else _gain(result)
        console.print(
            Text(name, style=_STYLES.get(one["outcome"], "bold red"))
            + Text(f"  {outcome}", style="not bold"),
            soft_wrap=True,
        )
        if result is not None:
            for line in _details(result):
                console.print(f"  {line}", style="dim", soft_wrap=True)


def show_history(answer: HistoryAnswer) -> None:
    """Print the last runs, the newest last."""
    console = Console(highlight=False)
    name = f"{answer['topic']}-{answer['partition']}"
    runs, now_ms = answer["runs"], answer["now_ms"]
    if not runs:
        console.print(f"{name} has not been cleaned yet.", markup=False)
        return
    table = new_table()
    table.add_column("Ended")
    table.add_column("Because")
    for title in ("Clean up to", "Before", "After", "Records gone", "Took"):
        table.add_column(title, justify="right", no_wrap=True)
    for one in runs:
        table.add_row(*_row(one, now_ms), style=None if one["outcome"] == "CLEANED" else "red")
    print_table(console, table)
    if any(one["outcome"] == "CLEANED" and one["result"].get("store") for one in runs):
        console.print("\n[bold]At the object store[/]")
        print_table(console, _requests(runs, now_ms))
    failed = [one for one in runs if one["outcome"] == "FAILED"]
    for at, one in enumerate(failed):
        if not at:
            console.print()
        _show_failure(console, one, now_ms)
    entry = answer.get("quarantined")
    if entry is not None:
        console.print(f"\nIt is in quarantine: {_next_try(entry['due_ms'], now_ms)}.")


def _next_try(due_ms: int | None, now_ms: int) -> str:
    if due_ms is None:
        return "it is not tried again as things are"
    if due_ms <= now_ms:
        return "it is tried again as soon as a thread is free"
    return f"it is tried again {words.distance(due_ms, now_ms)}"


def _row(one: Run, now_ms: int) -> list[str]:
    ended = words.distance(one["at_ms"], now_ms)
    if one["outcome"] != "CLEANED":
        return [ended, "failed"]
    result = one["result"]
    return [
        ended,
        REASONS.get(result["reason"], result["reason"])
        + (", alone" if result.get("is_alone") else ""),
        f"{result['end_offset']:,}",
        words.size(result["start_bytes"]),
        words.size(result["end_bytes"]),
        f"{result['removed_records']:,}",
        words.duration(result["total_ms"]),
    ]


def _requests(runs: Sequence[Run], now_ms: int) -> Table:
    """Return the requests of the runs that have noted them."""
    table = new_table()
    table.add_column("Ended")
    for title in ("PUTs", "Sent", "GETs", "Received", "Costs"):
        table.add_column(title, justify="right", no_wrap=True)
    for one in runs:
        store = one["result"].get("store") if one["outcome"] == "CLEANED" else None
        if store is not None:
            table.add_row(
                words.distance(one["at_ms"], now_ms),
                f"{store['puts']:,}",
                words.size(store["sent_bytes"]),
                f"{store['gets']:,}",
                words.size(store["received_bytes"]),
                words.money(store["dollars"]),
            )
    return table


def _show_failure(console: Console, one: Run, now_ms: int) -> None:
    failure = one["failure"]
    line = Text(f"{words.distance(one['at_ms'], now_ms)}: {failure['exception']}")
    console.print(line, soft_wrap=True)


def _gain(result: Result) -> str:
    share = 100 * result["reclaimed_bytes"] / max(result["start_bytes"], 1)
    before, after = words.size(result["start_bytes"]), words.size(result["end_bytes"])
    took = words.duration(result["total_ms"])
    return f"was cleaned in {took}: {before} became {after} ({share:.1f}% less)"


def records_gone(result: Result) -> str:
    """Return the number of records that go or went, and how many of them are special ones."""
    kinds = [
        words.count(number, *nouns)
        for number, *nouns in (
            (result["expired_tombstones"], "expired tombstone"),
            (result["removed_markers"], "marker"),
            (result["removed_aborted_batches"], "aborted batch", "aborted batches"),
            (result["invalid_records"], "record without a key", "records without a key"),
        )
        if number
    ]
    among = f", among them {', '.join(kinds)}" if kinds else ""
    of = words.count(result["start_records"], "record")
    return f"{result['removed_records']:,} of {of}{among}"


def _details(result: Result) -> list[str]:
    keys = words.count(result["map_keys"], "key")
    written = words.count(result["segments_written"], "segment")
    lines = [
        f"offsets {result['first_dirty_offset']:,} to {result['end_offset'] - 1:,} were dirty, "
        f"with {keys}",
        f"records gone: {records_gone(result)}",
        f"{written} written with {words.size(result['written_bytes'])}, "
        f"{result['segments_kept']:,} kept as they were",
    ]
    if result["spilled_bytes"]:
        lines.append(f"{words.size(result['spilled_bytes'])} were spilled to temporary files")
    store = result.get("store")
    if store is not None:
        lines.append(f"at the object store: {words.requests(store)}")
    return lines
