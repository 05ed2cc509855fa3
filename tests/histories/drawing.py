"""A drawing of bars in lanes, as SVG; the names of the lanes are beside it, and stay.

The x axis has a column for each moment at which a drawn event begins or ends: an hour without
one takes no room. A dotted line shows where events were left out.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from dataclasses import dataclass
from html import escape

from tests.histories.lanes import Bar, Window

_STEP, _ROW, _BAR, _PAD = 16, 23, 18, 8
_TOP = 26
_CHARACTER = 6.7
_SPAN = 3
_TICK_EACH = 96
_LABEL_EACH = 600
_ORDER = ("all brokers", "broker", "admin", "log starts", "deletions", "group")


@dataclass(frozen=True, slots=True)
class Drawing:
    """The names of the lanes, and their contents, of the same height; the column to show first."""

    names: str
    lanes: str
    focus_x: int


@dataclass(frozen=True, slots=True)
class _Placed:
    bar: Bar
    x: float
    end_x: float
    # Of the bar, or of its label if that is longer.
    room_x: float
    row: int


class _Axis:
    """The moments of the bars, from left to right."""

    def __init__(self, window: Window) -> None:
        self.moments = window.moments()
        self.width = (len(self.moments) + 1) * _STEP + 2 * _PAD
        self._time_of: dict[int, float] = {}
        for one in window.bars:
            self._time_of.setdefault(one.begin, one.time_s)
            if one.end is not None and one.end_s:
                self._time_of.setdefault(one.end, one.end_s)

    def x(self, moment: int) -> float:
        """Return the place of a moment."""
        return _PAD + bisect.bisect_left(self.moments, moment) * _STEP

    def label(self, at: int) -> str:
        """Return the time of a column, or its moment if no clock has run."""
        moment = self.moments[at]
        time_s = self._time_of.get(moment, 0.0)
        return f"{time_s:.3f} s" if time_s else f"{moment}"


def draw(window: Window, problem_at: int) -> Drawing:
    """Draw bars."""
    axis = _Axis(window)
    by_lane: defaultdict[str, list[Bar]] = defaultdict(list)
    for one in window.bars:
        by_lane[one.lane].append(one)
    width, y = axis.width, float(_TOP)
    names, shades, parts = [], [], []
    for number, lane in enumerate(sorted(by_lane, key=_rank)):
        placed = _place(by_lane[lane], axis)
        height = (max(one.row for one in placed) + 1) * _ROW + _PAD
        width = max(width, max(int(one.room_x) for one in placed) + _PAD)
        shades.append((number % 2, y, height))
        names.append(f'<text x="4" y="{y + 17:g}">{escape(lane)}</text>')
        parts += [_draw_bar(one, y + _PAD / 2) for one in placed]
        y += height
    back = [
        f'<rect class="lane{odd}" x="0" y="{top:g}" width="{{}}" height="{high:g}"/>'
        for odd, top, high in shades
    ]
    troubles = _draw_troubles(window, axis, y)
    lines = _draw_ticks(axis, y) + _draw_gaps(window, axis, y)
    if problem_at:
        x = axis.x(problem_at) + _STEP - 2
        lines.append(f'<line class="found" x1="{x}" x2="{x}" y1="{_TOP - 8}" y2="{y:g}"/>')
    names_width = int(max(len(one) for one in by_lane) * _CHARACTER) + 12
    return Drawing(
        _svg(names_width, y, [one.format(names_width) for one in back] + names),
        _svg(width, y, [one.format(width) for one in back] + troubles + lines + parts),
        int(axis.x(problem_at)) if problem_at else width,
    )


def _svg(width: int, height: float, parts: list[str]) -> str:
    size = f'width="{width}" height="{height + 4:g}" viewBox="0 0 {width} {height + 4:g}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img">{"".join(parts)}</svg>'


def _rank(lane: str) -> tuple[int, str]:
    kind = next((at for at, one in enumerate(_ORDER) if lane.startswith(one)), len(_ORDER))
    return kind, lane


def _place(bars: list[Bar], axis: _Axis) -> list[_Placed]:
    """Give each bar a row in which neither it nor its label meets another one."""
    ends: list[float] = []
    placed = []
    for bar in bars:
        x = axis.x(bar.begin)
        end_x = axis.x(bar.end) + _STEP - 4 if bar.end is not None else x + 3 * _STEP
        room_x = max(end_x, x + len(bar.label) * _CHARACTER + 8)
        row = next((at for at, end in enumerate(ends) if end <= x), len(ends))
        ends[row : row + 1] = [room_x + 3]
        placed.append(_Placed(bar, x, end_x, room_x, row))
    return placed


def _draw_bar(one: _Placed, top: float) -> str:
    bar, y = one.bar, top + one.row * _ROW
    title = f"{bar.kind}, {bar.lane}: {bar.detail} ({bar.outcome})"
    marks = f"bar {bar.outcome}{' trouble' if bar.kind == 'trouble' else ''}"
    marks += " concerned" if bar.is_concerned else " far" if bar.is_far else ""
    open_end = ""
    if bar.end is None:
        base = y + _BAR - _SPAN / 2
        open_end = (
            f'<path class="open" d="M{one.end_x:g} {base:g} l3 -2 l3 4 l3 -4 l3 4"/>'
        )
    labels = [
        f'<text x="{x + 4:g}" y="{y + 12:g}">{escape(bar.label)}</text>'
        for x in range(int(one.x), max(int(one.end_x) - _LABEL_EACH, int(one.x) + 1), _LABEL_EACH)
    ]
    return (
        f'<g class="{marks}"><title>{escape(title)}</title>'
        f'<rect class="box" x="{one.x:g}" y="{y:g}" width="{one.room_x - one.x:g}" '
        f'height="{_BAR}" rx="2"/>'
        f'<rect class="span" x="{one.x:g}" y="{y + _BAR - _SPAN:g}" '
        f'width="{one.end_x - one.x:g}" height="{_SPAN}"/>'
        f'{open_end}{"".join(labels)}</g>'
    )


def _draw_troubles(window: Window, axis: _Axis, height: float) -> list[str]:
    found = []
    for one in window.bars:
        if one.kind == "trouble":
            x = axis.x(one.begin)
            width = axis.x(one.end) - x + _STEP if one.end is not None else axis.width - x
            found.append(
                f'<rect class="band" x="{x:g}" y="{_TOP}" width="{width:g}" '
                f'height="{height - _TOP:g}"/>'
            )
    return found


def _draw_ticks(axis: _Axis, height: float) -> list[str]:
    found = []
    each = _TICK_EACH // _STEP
    for at in range(0, len(axis.moments), each):
        x = _PAD + at * _STEP
        found.append(f'<line class="tick" x1="{x}" x2="{x}" y1="{_TOP - 6}" y2="{height:g}"/>')
        found.append(f'<text class="time" x="{x}" y="13">{axis.label(at)}</text>')
    return found


def _draw_gaps(window: Window, axis: _Axis, height: float) -> list[str]:
    found = []
    for at, (before, after) in enumerate(zip(axis.moments, axis.moments[1:], strict=False), 1):
        first = bisect.bisect_right(window.left_out, before)
        count = bisect.bisect_left(window.left_out, after) - first
        if count:
            x = _PAD + at * _STEP - 3
            found.append(
                f'<line class="gap" x1="{x}" x2="{x}" y1="{_TOP - 6}" y2="{height:g}">'
                f"<title>{count} events left out</title></line>"
            )
    return found
