"""Merges records, keys, groups and samples of workers: pure."""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Sequence
from typing import Any

from odradek.broker.counters.lag import lag_between
from odradek.broker.web.records import RECORDS_DEFAULT, count_shown
from odradek.broker.web.united.merging import Answers, Json, by_partition

_SECOND_MS = 1_000
# The time after which all workers have a sample of a second.
_SETTLED_MS = 1_500
# A sample of a second comes at most this long before its end, and counts until the next one.
_HELD_MS = 2_000


def records(answers: Answers) -> Json:
    """Merge /api/records and /api/latest: the newest records, and the places of the next page."""
    limit = int(answers.query.get("limit", RECORDS_DEFAULT))
    before: dict[int, int] = {}
    for one in answers.all:
        before |= _places(one["before"])
    # By time; those of a partition stay in the order of their offsets, as in one answer.
    found = list(
        heapq.merge(
            *(one["records"] for one in answers.all),
            key=lambda row: row["timestamp_ms"],
            reverse=True,
        )
    )
    shown = found[: count_shown(map(_shown_bytes, found), limit)]
    for row in found[len(shown) :]:
        number = row["partition"]
        before[number] = max(before.get(number, 0), row["offset"] + 1)
    away = [
        {"partition": number, "because": f"its leader, broker {leader}, does not answer"}
        for number, leader in answers.leaders.items()
        if leader in answers.absent
    ]
    filters = [one["filter"] for one in answers.all if "filter" in one]
    return {
        "topic": answers.first["topic"],
        "records": shown,
        "before": ",".join(f"{number}:{offset}" for number, offset in sorted(before.items())),
        "read_bytes": answers.sum("read_bytes"),
        "read_records": answers.sum("read_records"),
        "problems": by_partition([*answers.joined("problems"), *away]),
        **({"filter": _filters(filters)} if filters else {}),
    }


def _filters(parts: Sequence[Json]) -> Json:
    reasons = (one["because"] for one in parts if one["because"] is not None)
    return {"failed": sum(one["failed"] for one in parts), "because": next(reasons, None)}


def _places(text: str) -> dict[int, int]:
    pairs = (part.split(":") for part in text.split(",") if part)
    return {int(number): int(offset) for number, offset in pairs}


def _shown_bytes(row: Json) -> int:
    parts = [row["key"], row["value"], *(one["value"] for one in row["headers"])]
    keys = sum(len(one["key"].encode()) for one in row["headers"])
    return keys + sum(_bytes(part) for part in parts if part is not None)


def _bytes(part: Json) -> int:
    return len(part["text"].encode()) if "text" in part else len(part["hex"]) // 2


def latest_of_key(answers: Answers) -> Json:
    """Merge /api/get: the record with the latest timestamp counts."""
    found = [one for one in answers.all if one["status"] != "absent"]
    found.sort(key=lambda one: one["timestamp_ms"], reverse=True)
    best = found[0] if found else answers.first
    others = [{name: one[name] for name in _PLACE} for one in found[1:]]
    others += [place for one in found for place in one["also_in"]]
    return {
        **best,
        "searched": sorted(number for one in answers.all for number in one["searched"]),
        "offline": sorted({number for one in answers.all for number in one["offline"]}),
        "also_in": sorted(others, key=lambda one: one["timestamp_ms"], reverse=True),
    }


_PLACE = ("partition", "offset", "timestamp_ms")


# --- groups -----------------------------------------------------------------------------------


def groups(answers: Answers) -> Json:
    """Merge /api/groups; the ends of partitions come from their leaders."""
    ends = _Ends(answers)
    rows = sorted(answers.joined("groups"), key=lambda row: row["group"])
    for row in rows:
        lags = [ends.lag(*one) for one in row.pop("unknown")]
        row["lag"] = _sum([row["lag"], *lags])
    return {"groups": rows, **answers.problems()}


def group(answers: Answers) -> Json:
    """Merge /api/group: its coordinator knows the offsets, the leaders know the ends."""
    ends, merged = _Ends(answers), answers.first
    for row in merged["partition_rows"]:
        complete = row.pop("complete")
        if row["end_offset"] is None:
            row["end_offset"] = ends.end(row["topic"], row["partition"])
            if row["offset"] is not None:
                row["lag"] = ends.lag(row["topic"], row["partition"], row["offset"], complete)
    merged["lag"] = _sum([row["lag"] for row in merged["partition_rows"]])
    return {**merged, **answers.problems()}


class _Ends:
    """The log start offsets and last stable offsets of all partitions."""

    def __init__(self, answers: Answers) -> None:
        self._ends: dict[tuple[str, int], tuple[int, int]] = {
            (topic, number): (start, stable)
            for one in answers.beside.values()
            for topic, rows in one["ends"].items()
            for number, start, stable in rows
        }

    def end(self, topic: str, number: int) -> int | None:
        found = self._ends.get((topic, number))
        return None if found is None else found[1]

    def lag(self, topic: str, number: int, offset: int, complete: int) -> int | None:
        """Return the lag without records that are complete, None if the end is unknown."""
        found = self._ends.get((topic, number))
        return None if found is None else max(lag_between(*found, offset) - complete, 0)


def _sum(lags: list[int | None]) -> int | None:
    known = [one for one in lags if one is not None]
    return sum(known) if known else None


# --- samples ----------------------------------------------------------------------------------


def samples_since(since_ms: int) -> int:
    """Return the moment since which workers are asked for samples."""
    return max(since_ms - _HELD_MS, 0)


def samples(answers: Answers) -> Json:
    """Merge /api/samples: a row for each full second, from the last sample of each worker.

    Rates are added up. The median is the mean of the workers' ones, weighted by their requests;
    the 99th percentile is the highest one, which it does not exceed.
    """
    since_ms = int(answers.query.get("since_ms") or 0)
    now_ms = answers.now()["now_ms"]
    tables = [one["columns"] for one in answers.all if one["columns"]["at_ms"]]
    names = list(answers.first["columns"])
    kept_max = answers.first["kept_max"]
    first_ms = min((one["at_ms"][0] for one in tables), default=now_ms)
    begin = max(since_ms, first_ms, now_ms - kept_max * _SECOND_MS) // _SECOND_MS + 1
    columns: dict[str, list[float | None]] = {name: [] for name in names}
    for second in range(begin, (now_ms - _SETTLED_MS) // _SECOND_MS + 1):
        at_ms = second * _SECOND_MS
        rows = [row for table in tables if (row := _sample(table, at_ms)) is not None]
        for name in names if rows else ():
            columns[name].append(at_ms if name == "at_ms" else _together(name, rows))
    return {"now_ms": now_ms, "kept_max": kept_max, "columns": columns, **answers.problems()}


def _sample(table: Json, at_ms: int) -> Json | None:
    """Return the last sample before the end of a second, None if it is too old."""
    at = bisect.bisect_left(table["at_ms"], at_ms + _SECOND_MS) - 1
    if at < 0 or table["at_ms"][at] < at_ms + _SECOND_MS - _HELD_MS:
        return None
    return {name: values[at] for name, values in table.items()}


def _together(name: str, rows: list[Json]) -> Any:
    known = [row for row in rows if row[name] is not None]
    if name.endswith("_p99_ms"):
        return max((row[name] for row in known), default=None)
    if name.endswith("_p50_ms"):
        weights = [row["requests"] or 1 for row in known]
        total = sum(row[name] * weight for row, weight in zip(known, weights, strict=True))
        return round(total / sum(weights), 3) if known else None
    return round(sum(row[name] for row in known), 1)
