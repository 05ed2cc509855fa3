"""Merges the answers of workers about lists and sums into one of the same form: pure.

Rows are joined, in the order and with the bounds of the form; counts are added up. A worker
without an answer is named in `problems`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from odradek.dataclass import dataclass

# An answer, or a row of it: parsed JSON, whose form only the routes know.
Json = dict[str, Any]

_SHOWN_MAX = 20
_RUNS_MAX = 200


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of workers: this worker's own one first, then by node id."""

    by_id: Mapping[int, Json]
    query: Mapping[str, str] = field(default_factory=dict)
    # Why other workers have not answered, by node id.
    absent: Mapping[int, str] = field(default_factory=dict)
    # The brokers that lead the partitions of the topic in question.
    leaders: Mapping[int, int] = field(default_factory=dict)
    # The answers to a second request, which some forms need.
    beside: Mapping[int, Json] = field(default_factory=dict)

    @property
    def all(self) -> list[Json]:
        """The answers."""
        return list(self.by_id.values())

    @property
    def first(self) -> Json:
        """The answer of this worker, if it has one."""
        return self.all[0]

    def joined(self, name: str) -> list[Json]:
        """Return the rows of all answers."""
        return [row for one in self.all for row in one[name]]

    def sum(self, name: str) -> int:
        """Return the sum of a count."""
        return sum(one[name] for one in self.all)

    def now(self) -> Json:
        """Return the time of the latest answer."""
        return {"now_ms": max(one["now_ms"] for one in self.all)}

    def away(self) -> list[str]:
        """Return a sentence for each worker without an answer."""
        return [
            f"broker {node_id} does not answer over HTTP, see its log: {why}"
            for node_id, why in sorted(self.absent.items())
        ]

    def problems(self) -> Json:
        """Return the member of an answer that names workers without one, if there are any."""
        return {"problems": self.away()} if self.absent else {}


Merge = Callable[[Answers], Json]


def problems(answers: Answers) -> list[str]:
    """Return the problems of all workers, each with the broker's number."""
    found = [
        f"broker {node_id}: {one}"
        for node_id, answer in sorted(answers.by_id.items())
        for one in answer["problems"]
    ]
    return [*found, *answers.away()]


def health(answers: Answers) -> Json:
    """Merge /health."""
    found = problems(answers)
    return {"status": "failing" if found else "ok", "problems": found}


def broker(answers: Answers) -> Json:
    """Merge /api/broker, and the ticks of /api/events."""
    every = answers.all
    merged = {
        **answers.first,
        **answers.now(),
        "topics": max(one["topics"] for one in every),
        "running": answers.joined("running"),
        "problems": problems(answers),
    }
    for name in ("partitions", "connections", "quarantined", "runs_ended"):
        merged[name] = answers.sum(name)
    if "listeners" in merged:
        ordered = sorted(answers.by_id.items())
        merged["listeners"] = [text for _, one in ordered for text in one["listeners"]]
        merged["started_ms"] = min(one["started_ms"] for one in every)
    return merged


# --- topics -----------------------------------------------------------------------------------


def topics(answers: Answers) -> Json:
    """Merge /api/topics."""
    rows: dict[str, list[Json]] = {}
    for row in answers.joined("topics"):
        rows.setdefault(row["name"], []).append(row)
    merged = [_topic(rows[name]) for name in sorted(rows)]
    return {**answers.now(), "topics": merged, **answers.problems()}


def topic(answers: Answers) -> Json:
    """Merge /api/topic."""
    rows = sorted(answers.joined("partition_rows"), key=lambda row: row["partition"])
    return {
        **answers.first,
        **answers.now(),
        **_topic(answers.all),
        "partition_rows": rows,
        **answers.problems(),
    }


def _topic(rows: Sequence[Json]) -> Json:
    count = max(row["partitions"] for row in rows)
    offline = sum(row["offline_partitions"] for row in rows)
    led = sum(row["partitions"] - row["remote_partitions"] for row in rows)
    names = {name for row in rows for name in row["bytes"]}
    return {
        **{name: rows[0][name] for name in rows[0] if name in _OF_TOPIC},
        "partitions": count,
        "offline_partitions": offline,
        "remote_partitions": max(count - led, 0),
        "bytes": {
            name: sum(row["bytes"].get(name, 0) for row in rows)
            for name in rows[0]["bytes"] | dict.fromkeys(names)
        },
        "offsets": sum(row["offsets"] for row in rows),
        "dirty_ratio": _among(max, rows, "dirty_ratio"),
        "due_ms": _among(min, rows, "due_ms"),
        "running": sum(row["running"] for row in rows),
        "quarantined": sum(row["quarantined"] for row in rows),
    }


_OF_TOPIC = (
    "name", "is_internal", "partitions", "offline_partitions", "remote_partitions",
    "cleanup_policy", "bytes", "offsets", "dirty_ratio", "min_cleanable_dirty_ratio", "due_ms",
    "running", "quarantined",
)  # fmt: skip


def _among(choose: Callable[..., Any], rows: Iterable[Json], name: str) -> Any:
    return choose((row[name] for row in rows if row[name] is not None), default=None)


# --- the cleaner ------------------------------------------------------------------------------


def cleaner(answers: Answers) -> Json:
    """Merge /api/cleaner: each worker has threads and a queue of its own."""
    every = answers.all
    threads, choices = ([one[name] for one in every] for name in ("threads", "last_choice"))
    deaths = [one["last_death"] for one in threads if one["last_death"] is not None]
    later = sorted(answers.joined("later"), key=lambda row: row["due_ms"])
    return {
        **answers.first,
        **answers.now(),
        "threads": {
            **{name: sum(one[name] for one in threads) for name in ("wanted", "alive", "died")},
            "last_death": deaths[0] if deaths else None,
        },
        "last_choice": {
            name: (sum if name.endswith("_count") else max)(one[name] for one in choices)
            for name in choices[0]
        },
        "running": answers.joined("running"),
        "asked": answers.joined("asked"),
        "next": _in_turn([one["next"] for one in every])[:_SHOWN_MAX],
        "later": later[:_SHOWN_MAX],
        "quarantined": answers.joined("quarantined"),
        "unreadable": answers.joined("unreadable"),
        **answers.problems(),
    }


def _in_turn(queues: Sequence[Sequence[Json]]) -> list[Json]:
    """Return the firsts of all queues, then the seconds, and so on."""
    longest = max(map(len, queues), default=0)
    return [queue[at] for at in range(longest) for queue in queues if at < len(queue)]


def plan(answers: Answers) -> Json:
    """Merge /api/cleaner/plan."""
    never = float("inf")

    def order(row: Json) -> tuple[float, float, str, int]:
        place, due_ms = row["queue_position"], row["due_ms"]
        return (
            never if place is None else place,
            never if due_ms is None else due_ms,
            row["topic"],
            row["partition"],
        )

    return {
        **answers.first,
        **answers.now(),
        "plans": sorted(answers.joined("plans"), key=order),
        "nothing_to_clean": answers.sum("nothing_to_clean"),
        "not_compacted": answers.sum("not_compacted"),
        "unreadable": answers.joined("unreadable"),
    }


def run(answers: Answers) -> Json:
    """Merge the answers to POST /api/cleaner/run."""
    name = "outcomes" if "outcomes" in answers.first else "asked"
    return {name: sorted(answers.joined(name), key=lambda row: row["partition"])}


def runs(answers: Answers) -> Json:
    """Merge /api/cleaner/runs."""
    return {
        **answers.now(),
        "is_loaded": all(one["is_loaded"] for one in answers.all),
        "runs": heapq.nlargest(_RUNS_MAX, answers.joined("runs"), key=lambda row: row["at_ms"]),
        **answers.problems(),
    }


def verify(answers: Answers) -> Json:
    """Merge the answers to POST /api/cleaner/verify."""
    rows = by_partition(answers.joined("partitions"))
    return {
        "topic": answers.first["topic"],
        "is_proved": all(one["is_proved"] for one in answers.all),
        "partitions": rows,
    }


def by_partition(rows: Iterable[Json]) -> list[Json]:
    """Return one row a partition: all workers report one without a leader."""
    found: dict[int, Json] = {}
    for row in rows:
        found.setdefault(row["partition"], row)
    return [found[number] for number in sorted(found)]
