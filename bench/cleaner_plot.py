"""Draws the cleaner benchmark's figures as SVG, a pair of bars for each, without a library."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

# The units of a row's entries in the picture.
_UNITS = {
    "mb_per_s": "MB/s of log",
    "seconds": "s",
    "runs": "runs",
    "written_mb": "MB written",
    "peak_mb": "MB of memory",
}
_COLOURS = {"Odradek": "#b5471b", "Kafka": "#8a8f98"}
_WIDTH = 860
_LABEL_WIDTH, _BAR_WIDTH, _BAR_HEIGHT = 250, 400, 15
_TITLE_HEIGHT, _PAIR_HEIGHT, _LEGEND_HEIGHT = 34, 42, 40


def draw(scenarios: Mapping[str, Any]) -> str:
    """Return the picture of bench/cleaner.py's figures: bars are to scale within each pair."""
    shapes = list(_legend())
    y = _LEGEND_HEIGHT
    for scenario in scenarios.values():
        scale = "" if scenario["scale"] == 1 else f" (scale {scenario['scale']:g})"
        shapes.append(_text(10, y + 22, scenario["title"] + scale, weight="bold"))
        y += _TITLE_HEIGHT
        for case in dict.fromkeys(row["case"] for row in scenario["rows"]):
            rows = [row for row in scenario["rows"] if row["case"] == case]
            for figure in scenario["figures"]:
                shapes += _pair(y, case, figure, rows)
                y += _PAIR_HEIGHT
    body = "\n".join(shapes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{y + 10}" '
        f'font-family="sans-serif" font-size="13">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def _legend() -> Iterator[str]:
    x = _LABEL_WIDTH
    for name, colour in _COLOURS.items():
        yield f'<rect x="{x}" y="12" width="15" height="15" fill="{colour}"/>'
        yield _text(x + 22, 24, name)
        x += 110


def _pair(y: int, case: str, figure: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a figure's two bars, each the median of its rows."""
    values = {
        name: statistics.median(row[figure] for row in rows if row["broker"] == name)
        for name in _COLOURS
    }
    longest = max(values.values()) or 1
    yield _text(_LABEL_WIDTH - 10, y + 20, case, anchor="end")
    for name, value in values.items():
        width = max(_BAR_WIDTH * value / longest, 1)
        yield (
            f'<rect x="{_LABEL_WIDTH}" y="{y}" width="{width:.1f}" height="{_BAR_HEIGHT}" '
            f'fill="{_COLOURS[name]}"/>'
        )
        digits = 0 if value >= 100 or figure == "runs" else 2 if value < 10 else 1
        label = f"{value:,.{digits}f} {_UNITS[figure]}"
        yield _text(_LABEL_WIDTH + width + 8, y + 12, label)
        y += _BAR_HEIGHT + 2


def _text(x: float, y: int, text: str, *, anchor: str = "start", weight: str = "normal") -> str:
    return (
        f'<text x="{x:.1f}" y="{y}" text-anchor="{anchor}" font-weight="{weight}" '
        f'fill="#222">{escape(text)}</text>'
    )
