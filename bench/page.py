"""Writes docs/speed.md and its pictures from the latest figures: `python -m bench.page`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.curves import CURVES, CURVES_BY_NAME
from bench.pairs import Answer
from bench.processes import ROOT
from bench.questions import QUESTIONS
from bench.results import FIGURES, answers_of, load

PAGE = ROOT / "docs" / "speed.md"
PICTURE = ROOT / "docs" / "images" / "speed.png"
CURVES_PICTURE = ROOT / "docs" / "images" / "speed-curves.png"
_HEAD = """# Speed

Odradek's promises in comparison with Apache Kafka 4.3.1 with its default settings, and the
measured results. `python -m bench.page` writes this page from the latest figures of `make bench`.
Both brokers run in turn, each fresh and alone on one machine with the clients; each pair gives a
ratio, and the median of the ratios counts. It is above 1 where Odradek is better: more per
second, less time, less memory.

![How many times better than Kafka](images/speed.png)
"""
_CURVES_HEAD = """
## How costs grow

These curves are of Odradek alone, measured by `python -m bench.curves`. CPU time is the broker's.

![Costs](images/speed-curves.png)
"""
_PARAGRAPH_COLUMNS = 110
_TITLES = "| | Odradek | Kafka | unit | times better, median (least to most) | promised |\n"
_RULE = "|---|---:|---:|---|---:|---:|\n"


def page(saved: Mapping[str, Any]) -> str:
    """Return the page's text."""
    parts = [_HEAD, "\n## Promises\n\n" + _TITLES + _RULE]
    known = [(question, saved[name]) for name, question in QUESTIONS.items() if name in saved]
    for question, one in known:
        promised = [each for each in answers_of(question, one) if _promise(each)]
        parts += [_row(each, f"{question.name}: ") for each in promised]
    for question, one in known:
        parts.append(f"\n## {question.name}\n\n{question.title}. {_origin(one)}\n\n")
        parts.append(_paragraph(question.note))
        parts += [_TITLES, _RULE, *(_row(each) for each in answers_of(question, one))]
    return "".join(parts)


def curves_part(curves: Mapping[str, Any]) -> str:
    """Return the page's part on the growth of costs."""
    parts = [_CURVES_HEAD]
    for name, one in curves.items():
        curve, points = CURVES_BY_NAME[name], one["points"]
        titles = [title for title in points[0] if title != "size"]
        parts.append(f"\n### {curve.title}\n\n{one['taken']}, {one['machine']}.\n\n")
        parts.append(_paragraph(curve.note))
        parts.append(f"| {curve.unit} | {' | '.join(titles)} |\n")
        parts.append("|---:" * (len(titles) + 1) + "|\n")
        for point in points:
            cells = [f"{point['size']:,}", *(span([point[title]]) for title in titles)]
            parts.append(f"| {' | '.join(cells)} |\n")
    return "".join(parts)


def draw_curves(curves: Mapping[str, Any]) -> None:
    """Draw each cost against the size, both on logarithmic scales."""
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(10, 3.2 * ((len(curves) + 1) // 2)), layout="constrained")
    for at, (name, one) in enumerate(curves.items(), start=1):
        axes = picture.add_subplot((len(curves) + 1) // 2, 2, at)
        sizes = [point["size"] for point in one["points"]]
        for title in one["points"][0]:
            if title != "size":
                values = [point[title] for point in one["points"]]
                axes.plot(sizes, values, marker="o", markersize=3, label=title)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel(CURVES_BY_NAME[name].unit)
        axes.set_title(CURVES_BY_NAME[name].title, fontsize=9)
        axes.legend(fontsize=7)
        axes.grid(alpha=0.3)
    picture.savefig(CURVES_PICTURE, dpi=110)


def draw(saved: Mapping[str, Any]) -> None:
    """Draw the advantage of each figure, on a logarithmic scale."""
    from matplotlib.figure import Figure as Picture

    rows = list(_bars(saved))
    picture = Picture(figsize=(9, 0.24 * len(rows) + 1), layout="constrained")
    axes = picture.add_subplot()
    for at, (_, one) in enumerate(rows):
        least, most = min(one.advantages), max(one.advantages)
        axes.barh(at, one.advantage, color="#b5471b" if one.advantage >= 1 else "#8a8f98")
        axes.plot([least, most], [at, at], color="black", linewidth=1)
        if one.figure.at_least is not None:
            axes.plot(one.figure.at_least, at, marker="|", markersize=11, color="#1f4e79")
    axes.set_xscale("log")
    axes.set_xlim(left=0.1)  # some rounds have a ratio near zero, such as of idle memory
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [title for title, _ in rows], fontsize=8)
    axes.invert_yaxis()
    axes.margins(y=0.01)
    axes.set_xlabel("times better than Apache Kafka 4.3.1 (line: all rounds; blue: promised)")
    picture.savefig(PICTURE, dpi=110)


def _bars(saved: Mapping[str, Any]) -> Iterator[tuple[str, Answer]]:
    for name, question in QUESTIONS.items():
        if name in saved:
            for one in answers_of(question, saved[name]):
                if one.figure.is_compared:
                    yield f"{name}: {one.figure.title}", one


def _row(answer: Answer, prefix: str = "") -> str:
    figure = answer.figure
    cells = [f"{prefix}{figure.title}", span(answer.ours), span(answer.theirs), figure.unit]
    if figure.is_compared:
        least, most = min(answer.advantages), max(answer.advantages)
        cells.append(f"{answer.advantage:.2f} ({least:.2f} to {most:.2f})")
    else:
        cells.append("")
    short = " **falls short**" if answer.falls_short else ""
    return f"| {' | '.join(cells)} | {_promise(answer)}{short} |\n"


def _paragraph(note: str) -> str:
    return f"{textwrap.fill(note, _PARAGRAPH_COLUMNS)}\n\n" if note else ""


def _promise(answer: Answer) -> str:
    figure = answer.figure
    if figure.ours_at_most is not None:
        return f"at most {figure.ours_at_most:g}"
    return "" if figure.at_least is None else f"{figure.at_least:g}"


def span(values: Sequence[float]) -> str:
    """Return the least and the largest of some values in a few digits."""
    ends = (f"{one:,.3g}" if one < 1000 else f"{one:,.0f}" for one in (min(values), max(values)))
    return " to ".join(dict.fromkeys(ends))


def _origin(saved: Mapping[str, Any]) -> str:
    scale = "" if saved["scale"] == 1 else f", scale {saved['scale']:g}"
    return f"{saved['rounds']} rounds on {saved['taken']}{scale}, {saved['machine']}."


def main() -> None:
    """Write the page and its pictures."""
    saved, curves = load(FIGURES), load(CURVES)
    PAGE.write_text(page(saved) + curves_part(curves))
    draw(saved)
    draw_curves(curves)


if __name__ == "__main__":
    main()
