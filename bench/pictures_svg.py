"""Draws logs, curves and points as SVG, without a library, for bench/pictures.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

_INK, _QUIET, _LINE = "#222222", "#666b73", "#c9ccd1"
_COLOURS = ("#b5471b", "#2b6cb0", "#2f855a", "#8a6d1b")
_TOMBSTONE = "#f3d9cd"
_WIDTH = 860
_BOX, _BOX_HEIGHT, _SPACE = 52, 42, 6
_LEFT, _TOP = 150, 40
_STRIP_HEIGHT = 104
_KEYS_LEFT, _LETTER = 240, 6.2
_PLOT_LEFT, _PLOT_TOP, _PLOT_WIDTH, _PLOT_HEIGHT = 66, 44, 740, 250


@dataclass(frozen=True, slots=True)
class Stored:
    """A record in a segment; a tombstone has no value."""

    offset: int
    key: str
    value: str | None


@dataclass(frozen=True, slots=True)
class Strip:
    """A log at a moment: the records of its segments, and the offset up to which it is clean."""

    title: str
    segments: Sequence[Sequence[Stored]]
    clean_up_to: int = 0


@dataclass(frozen=True, slots=True)
class Curve:
    """The dirty ratio of a log, against the number of times that all keys were written again."""

    name: str
    threshold: float
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Points:
    """Bytes written for each dirty byte, against the dirty ratio of cleaning."""

    name: str
    points: Sequence[tuple[float, float]]


def draw_strips(strips: Sequence[Strip]) -> str:
    """Return logs, one below the other: an offset has the same place in all of them."""
    shapes: list[str] = []
    for number, strip in enumerate(strips):
        shapes += _strip(strip, _TOP + number * _STRIP_HEIGHT)
    count = 1 + max(r.offset for strip in strips for segment in strip.segments for r in segment)
    height = _TOP + len(strips) * _STRIP_HEIGHT
    shapes += [_text(_LEFT - 14, 24, "offset", anchor="end", colour=_QUIET)]
    shapes += [
        _text(_x(offset) + _BOX / 2, 24, str(offset), anchor="middle", colour=_QUIET)
        for offset in range(count)
    ]
    return _picture(int(_x(count)) + 20, height, shapes)


def draw_curves(curves: Sequence[Curve]) -> str:
    """Return curves, each with a line at its threshold of cleaning."""
    right = max(x for curve in curves for x, _ in curve.points)
    shapes = list(_axes("each key written again, on average", "dirty ratio"))
    shapes += _ticks(range(int(right) + 1), right, (0, 0.25, 0.5, 0.75), 0.75)
    shapes += _keys([(one.name, colour) for one, colour in zip(curves, _COLOURS, strict=False)])
    for curve, colour in zip(curves, _COLOURS, strict=False):
        y = _y(curve.threshold, 0.75)
        across = [(_PLOT_LEFT, y), (_PLOT_LEFT + _PLOT_WIDTH, y)]
        shapes.append(_stroke(across, colour, dashed=True))
        shapes.append(_stroke([(_px(x, right), _y(v, 0.75)) for x, v in curve.points], colour))
    return _picture(_WIDTH, _PLOT_TOP + _PLOT_HEIGHT + 60, shapes)


def draw_points(series: Sequence[Points]) -> str:
    """Return measured points, and the curve of a cleaner that copies the whole log each time."""
    top = 1.1 * max(value for one in series for _, value in one.points)
    top = max(top, 1.1 * max((1 - ratio) / ratio for ratio, _ in series[0].points))
    shapes = list(_axes("min.cleanable.dirty.ratio", "bytes written for each dirty byte"))
    ratios = [ratio for ratio, _ in series[0].points]
    steps = [step for step in (0, 1, 2, 4, 6, 8, 10, 12) if step <= top]
    shapes += _ticks(ratios, 0.8, steps, top)
    formula = [(r / 100, (100 - r) / r) for r in range(8, 80)]
    shown = [(_px(r, 0.8), _y(v, top)) for r, v in formula if v <= top]
    shapes.append(_stroke(shown, _QUIET, dashed=True))
    names = [(one.name, colour) for one, colour in zip(series, _COLOURS, strict=False)]
    shapes += _keys([*names, ("copying the whole log: (1 - r) / r", _QUIET)])
    for number, (one, colour) in enumerate(zip(series, _COLOURS, strict=False)):
        for ratio, value in one.points:
            x, y = _px(ratio, 0.8), _y(value, top)
            shapes.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"/>')
            side, anchor = (9, "start") if number == 0 else (-9, "end")
            shown_value = f"{value:.1f}" if value >= 1 else f"{value:.2f}"
            shapes.append(_text(x + side, y - 7, shown_value, anchor=anchor, colour=colour))
    return _picture(_WIDTH, _PLOT_TOP + _PLOT_HEIGHT + 60, shapes)


def _strip(strip: Strip, y: int) -> Iterator[str]:
    latest = {r.key: r.offset for segment in strip.segments for r in segment}
    middle = y + 24 + _BOX_HEIGHT / 2 + 5
    yield _text(_LEFT - 14, middle, strip.title, anchor="end", weight="bold")
    for number, segment in enumerate(strip.segments):
        if not segment:
            continue
        left, right = _x(segment[0].offset) - 4, _x(segment[-1].offset) + _BOX + 4
        is_active = number == len(strip.segments) - 1
        name = "active segment" if is_active else "segment"
        yield _text(left + 2, y + 10, name, colour=_QUIET, size=11)
        yield (
            f'<rect x="{left}" y="{y + 16}" width="{right - left}" height="{_BOX_HEIGHT + 16}" '
            f'rx="6" fill="none" stroke="{_QUIET}" '
            + ('stroke-dasharray="5 4"/>' if is_active else "/>")
        )
        for record in segment:
            yield from _box(record, y + 24, is_latest=latest[record.key] == record.offset)
    if strip.clean_up_to:
        x = _x(strip.clean_up_to) - _SPACE / 2
        yield _stroke([(x, y + 4), (x, y + _STRIP_HEIGHT - 20)], _COLOURS[0])
        below = y + _STRIP_HEIGHT - 16
        yield _text(x - 6, below, "clean", anchor="end", colour=_COLOURS[0], size=11)
        yield _text(x + 6, below, "dirty", colour=_COLOURS[0], size=11)


def _box(record: Stored, y: float, *, is_latest: bool) -> Iterator[str]:
    x = _x(record.offset)
    fill = _TOMBSTONE if record.value is None else "#ffffff"
    ink = _INK if is_latest else "#9aa0a8"
    yield (
        f'<rect x="{x}" y="{y}" width="{_BOX}" height="{_BOX_HEIGHT}" rx="3" fill="{fill}" '
        f'stroke="{ink if is_latest else _LINE}"/>'
    )
    weight = "bold" if is_latest else "normal"
    yield _text(x + _BOX / 2, y + 17, record.key, anchor="middle", weight=weight, colour=ink)
    value = "null" if record.value is None else record.value
    yield _text(x + _BOX / 2, y + 34, value, anchor="middle", colour=ink)


def _x(offset: int) -> float:
    return _LEFT + offset * (_BOX + 2 * _SPACE)


def _px(value: float, right: float) -> float:
    return _PLOT_LEFT + _PLOT_WIDTH * value / right


def _y(value: float, top: float) -> float:
    return _PLOT_TOP + _PLOT_HEIGHT * (1 - value / top)


def _axes(x_name: str, y_name: str) -> Iterator[str]:
    bottom = _PLOT_TOP + _PLOT_HEIGHT
    yield _stroke([(_PLOT_LEFT, bottom), (_PLOT_LEFT + _PLOT_WIDTH, bottom)], _INK)
    yield _text(_PLOT_LEFT + _PLOT_WIDTH / 2, bottom + 42, x_name, anchor="middle", colour=_QUIET)
    yield _text(10, 22, y_name, colour=_QUIET)


def _ticks(
    xs: Sequence[float], right: float, ys: Sequence[float], top: float
) -> Iterator[str]:
    for x in xs:
        place = _px(x, right)
        yield _text(place, _PLOT_TOP + _PLOT_HEIGHT + 20, f"{x:g}", anchor="middle")
    for y in ys:
        place = _y(y, top)
        yield _stroke([(_PLOT_LEFT, place), (_PLOT_LEFT + _PLOT_WIDTH, place)], _LINE)
        yield _text(_PLOT_LEFT - 10, place + 4, f"{y:g}", anchor="end")


def _keys(names: Sequence[tuple[str, str]]) -> Iterator[str]:
    x = float(_KEYS_LEFT)
    for name, colour in names:
        yield f'<rect x="{x:.1f}" y="11" width="14" height="14" rx="2" fill="{colour}"/>'
        yield _text(x + 20, 22, name, size=12)
        x += 40 + _LETTER * len(name)


def _stroke(points: Sequence[tuple[float, float]], colour: str, *, dashed: bool = False) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dash = ' stroke-dasharray="4 4"' if dashed else ""
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dash}/>'


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    weight: str = "normal",
    colour: str = _INK,
    size: int = 13,
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}" '
        f'font-size="{size}" fill="{colour}">{escape(text)}</text>'
    )


def _picture(width: int, height: int, shapes: Sequence[str]) -> str:
    body = "\n".join(shapes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif">\n'
        f'<rect width="100%" height="100%" rx="8" fill="#ffffff"/>\n{body}\n</svg>\n'
    )
