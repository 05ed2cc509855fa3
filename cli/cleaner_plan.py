"""Shows a plan: a table of all logs with something to clean, or all about one topic."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from odradek.cli import words
from odradek.cli.answers import Plan, PlanAnswer, Result, StoreUse
from odradek.cli.cleaner_runs import REASONS, records_gone
from odradek.cli.tables import new_table, print_table

# A topic of more partitions is shown as a table.
_IN_FULL_MAX = 4


def show_plan(answer: PlanAnswer, topic: str | None) -> None:
    """Print a plan."""
    console = Console(highlight=False)
    plans, now_ms = answer["plans"], answer["now_ms"]
    if topic is not None and not plans and answer["not_compacted"]:
        console.print(f"{topic} is not compacted: its cleanup.policy lacks compact.")
    elif topic is not None and len(plans) <= _IN_FULL_MAX:
        for at, one in enumerate(plans):
            if at:
                console.print()
            _show_one(console, one, now_ms)
    else:
        _show_all(console, plans, answer)
    for lost in answer["unreadable"]:
        line = Text(f"{lost['topic']}-{lost['partition']} cannot be read: {lost['because']}")
        console.print(line, style="red", soft_wrap=True)


def _show_all(console: Console, plans: Sequence[Plan], answer: PlanAnswer) -> None:
    now_ms, rest = answer["now_ms"], answer["nothing_to_clean"]
    if not plans:
        console.print(f"There is nothing to clean in {words.count(rest, 'compacted log')}.")
        return
    table = new_table()
    table.add_column("Log", no_wrap=True)
    table.add_column("When")
    for title in ("Ratio", "Clean", "Dirty", "Held back"):
        table.add_column(title, justify="right", no_wrap=True)
    gain = "Gives back" if answer["is_exact"] else "Reads"
    table.add_column(gain, justify="right", no_wrap=True)
    for one in plans:
        table.add_row(
            Text(f"{one['topic']}-{one['partition']}"),
            _when(one, now_ms),
            f"{100 * one['dirty_ratio']:.0f}%",
            words.size(one["clean_bytes"]),
            words.size(one["cleanable_bytes"]),
            words.size(one["uncleanable_bytes"]),
            _gain(one) if answer["is_exact"] else _reads(one),
        )
    print_table(console, table)
    if rest:
        console.print(f"\n{words.count(rest, 'more compacted log')} with nothing to clean.")
    if not answer["is_exact"]:
        console.print("\nName a topic, or use --exact, to see how much would be given back.")


def _when(one: Plan, now_ms: int) -> str:
    if one["verdict"] == "RUNNING":
        return "being cleaned"
    if one["verdict"] == "NOW":
        return f"now, {REASONS.get(one['reason'] or '', '')}"
    if one["due_ms"] is not None:
        return words.distance(one["due_ms"], now_ms)
    return "not yet"


def _gain(one: Plan) -> str:
    exact = one["exact"]
    if exact is None:
        return "-" if one["exact_missing"] == "NOTHING" else "?"
    return words.size(exact["reclaimed_bytes"])


def _reads(one: Plan) -> str:
    read_bytes = one["at_most"]["read_bytes"]
    return f"up to {words.size(read_bytes)}" if read_bytes else "-"


def _show_one(console: Console, one: Plan, now_ms: int) -> None:
    name = Text(f"{one['topic']}-{one['partition']}", style="bold")
    console.print(name + Text(f"  {one['sentence']}", style="not bold"), soft_wrap=True)
    table = new_table(has_header=False)
    table.add_column(no_wrap=True, style="dim")
    table.add_column()
    table.add_row("  When", _due(one, now_ms))
    first, end = one["first_dirty_offset"], one["first_uncleanable_offset"]
    spans = f"offsets {first:,} to {end - 1:,}" if first < end else "nothing"
    ends = one["log_end_offset"]
    table.add_row("  Range", f"{spans}, up to {one['bound_is']}; the log ends at {ends:,}")
    table.add_row(
        "  Bytes",
        f"{words.size(one['clean_bytes'])} clean, {words.size(one['cleanable_bytes'])} dirty "
        f"({100 * one['dirty_ratio']:.0f}%), {words.size(one['uncleanable_bytes'])} held back",
    )
    exact = one["exact"]
    for title, text in _exact(exact) if exact is not None else _at_most(one):
        table.add_row(f"  {title}", text)
    store = one["at_most"].get("store")
    if store is not None and one["exact_missing"] != "NOTHING":
        table.add_row("  Requests", _requests(store, is_exact=exact is not None))
    print_table(console, table)


def _requests(store: StoreUse, *, is_exact: bool) -> str:
    sent, received = words.size(store["sent_bytes"]), words.size(store["received_bytes"])
    puts, gets = words.count(store["puts"], "PUT"), words.count(store["gets"], "GET")
    return (
        f"{'' if is_exact else 'at most '}{puts} with {sent} of records, at most {gets} of "
        f"{received}; at most {words.money(store['dollars'])}: cached blocks cost nothing"
    )


def _due(one: Plan, now_ms: int) -> str:
    if one["verdict"] == "NOW":
        place = one["queue_position"] or 1
        return "next" if place == 1 else f"after {words.count(place - 1, 'other log')}"
    if one["verdict"] == "RUNNING":
        return "now"
    if one["due_ms"] is None:
        return "not before something changes"
    return words.moment(one["due_ms"], now_ms)


def _exact(result: Result) -> list[tuple[str, str]]:
    spilled = "nothing is spilled"
    if result["spilled_bytes"]:
        parts = words.count(result["spill_count"], "part")
        spilled = f"{words.size(result['spilled_bytes'])} spilled in {parts}"
    written = f"{words.count(result['segments_written'], 'segment')} written"
    map_size = words.size(result["map_bytes"])
    return [
        ("Keys", f"{result['map_keys']:,} in a map of {map_size}; {spilled}"),
        (
            "Work",
            f"reads {words.size(result['indexed_bytes'] + result['read_bytes'])}, writes "
            f"{words.size(result['written_bytes'])}; {written}, {result['segments_kept']:,} kept",
        ),
        (
            "Gives back",
            f"{words.size(result['reclaimed_bytes'])}: {records_gone(result)}",
        ),
    ]


def _at_most(one: Plan) -> list[tuple[str, str]]:
    if one["exact_missing"] == "NOTHING":
        return []
    most = one["at_most"]
    spills = "; more would be spilled" if most["may_spill"] else ""
    map_size = words.size(most["map_bytes"])
    return [
        ("Keys", f"at most {most['records']:,} in a map of {map_size}{spills}"),
        (
            "Work",
            f"reads at most {words.size(most['read_bytes'])}, writes at most "
            f"{words.size(most['written_bytes'])}",
        ),
        ("Gives back", f"unknown: {one['exact_missing_because']}"),
    ]
