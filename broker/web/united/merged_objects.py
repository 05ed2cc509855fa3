"""Merges the numbers of workers about the object store that they have in common: pure."""

from __future__ import annotations

from typing import Any

from odradek.broker.web.united.merging import Answers, Json


def objects(answers: Answers) -> Json:
    """Merge /api/objects: numbers are added up; one worker has the sizes for all."""
    every = [one for one in answers.all if one["store"] is not None]
    if not every:
        return {**answers.first, **answers.now(), **answers.problems()}
    stored = [one["stored"] for one in every if one["stored"] is not None]
    return {
        **_sum(every),
        **answers.now(),
        "store": {"url": every[0]["store"]["url"], "trouble": _trouble(every)},
        "stored": stored[0] if stored else None,
        **answers.problems(),
    }


def _sum(values: list[Any]) -> Any:
    """Add up numbers, and the numbers in objects by their names."""
    if not isinstance(values[0], dict):
        return sum(values) if isinstance(values[0], int | float) else values[0]
    names = {name: None for one in values for name in one if name not in ("store", "stored")}
    return {name: _sum([one[name] for one in values if name in one]) for name in names}


def _trouble(every: list[Json]) -> Json | None:
    """Return the trouble of the worker that has had no answer for longest, else the last one."""
    found = [one["store"]["trouble"] for one in every if one["store"]["trouble"] is not None]

    def gravity(one: Json) -> tuple[bool, int]:
        since_ms = one["failing_since_ms"]
        return (True, -since_ms) if since_ms is not None else (False, one["at_ms"])

    return max(found, key=gravity, default=None)
