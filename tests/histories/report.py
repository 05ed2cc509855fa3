"""A page about the problems of a history: one file of HTML, which loads nothing else.

It lists the problems, and draws the events around the first one: the one that could be seen
first.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from html import escape

from tests.histories.checks.problem import Problem
from tests.histories.drawing import draw
from tests.histories.history import History, Outcome, Place, Read
from tests.histories.lanes import Bar, Window, find_window

_LISTED_MAX = 200
_AROUND = 3
_NONE = "-"
_LEGEND = (
    ("done", "answered without an error"),
    ("undone", "refused, or aborted"),
    ("unknown", "never answered: it may have taken effect at any time"),
    ("led", "a broker leads"),
    ("done trouble", "a trouble made by the test"),
    ("done concerned", "the problem concerns it"),
)

_STYLE = """
:root { color-scheme: light dark; --text:#1d2330; --faint:#5d6675; --page:#fff; --lane:#f3f5f8;
  --line:#d5dae2; --done:#cfe3f7; --done-line:#3f7db8; --undone:#e4e4e4; --undone-line:#8b8b8b;
  --unknown:#fbe7b8; --unknown-line:#b98412; --led:#dcefdc; --led-line:#4d9a57; --bad:#c6211c;
  --trouble:#ecdcf6; --trouble-line:#8a52b3; --band:#8a52b31a; --marked:#fdeceb; }
@media (prefers-color-scheme: dark) { :root { --text:#e4e8ef; --faint:#99a3b3; --page:#14171d;
  --lane:#1b2028; --line:#333b47; --done:#1f3c58; --done-line:#6aa7de; --undone:#333;
  --undone-line:#8f8f8f; --unknown:#4f3d10; --unknown-line:#dba93c; --led:#1d3d23;
  --led-line:#63b36e; --bad:#ff7a70; --trouble:#402552; --trouble-line:#bb86e0;
  --band:#bb86e026; --marked:#40201f; } }
* { box-sizing: border-box; }
body { margin:0 auto; padding:1.5rem; max-width:90rem; color:var(--text); background:var(--page);
  font:15px/1.5 system-ui, sans-serif; }
h1 { font-size:1.4rem; margin:0 0 .3rem; } h2 { font-size:1.1rem; margin:1.8rem 0 .5rem; }
p.faint, .faint { color:var(--faint); } .kind { color:var(--bad); font-weight:600; }
ol.problems { max-height:18rem; overflow:auto; padding-left:2.5rem; margin:.3rem 0; }
.drawing { display:flex; border:1px solid var(--line); border-radius:6px; overflow:hidden; }
.drawing .names { flex:none; border-right:1px solid var(--line); }
.drawing .lanes { overflow-x:auto; flex:auto; min-width:0; }
svg { display:block; font:11px ui-monospace, Menlo, Consolas, monospace; }
svg text { fill:var(--text); } svg .time { fill:var(--faint); }
.lane0 { fill:var(--lane); } .lane1 { fill:var(--page); } .band { fill:var(--band); }
.tick { stroke:var(--line); } .gap { stroke:var(--faint); stroke-dasharray:1 4; }
.found { stroke:var(--bad); stroke-width:2; }
.bar .box { fill:var(--done); stroke:var(--done-line); stroke-width:.6; }
.bar .span { fill:var(--done-line); }
.bar.undone .box { fill:var(--undone); stroke:var(--undone-line); stroke-dasharray:2 2; }
.bar.undone .span { fill:var(--undone-line); }
.bar.unknown .box { fill:var(--unknown); stroke:var(--unknown-line); }
.bar.unknown .span { fill:var(--unknown-line); }
.bar .open { fill:none; stroke:var(--unknown-line); stroke-width:2; }
.bar.led .box { fill:var(--led); stroke:var(--led-line); }
.bar.led .span { fill:var(--led-line); }
.bar.trouble .box { fill:var(--trouble); stroke:var(--trouble-line); }
.bar.trouble .span { fill:var(--trouble-line); } .bar.far { opacity:.45; }
.bar.concerned .box { stroke:var(--bad); stroke-width:2.5; }
.bar.concerned .span { fill:var(--bad); } .bar.concerned text { font-weight:700; }
.legend { display:flex; flex-wrap:wrap; gap:.3rem 1.4rem; padding:0; margin:.7rem 0;
  list-style:none; font-size:13px; } .legend svg { display:inline; vertical-align:-3px; }
.table { overflow-x:auto; } table { border-collapse:collapse; font-size:13px; width:100%; }
th, td { text-align:left; padding:.2rem .7rem .2rem 0; border-bottom:1px solid var(--line);
  vertical-align:top; } th { color:var(--faint); font-weight:500; }
td.number, th.number { text-align:right; font-variant-numeric:tabular-nums; white-space:nowrap; }
tr.concerned { background:var(--marked); } tr.concerned td:first-child {
  box-shadow:inset 3px 0 var(--bad); padding-left:.5rem; } td:first-child { padding-left:.5rem; }
"""

# The drawing is wider than the page: it begins at the problem.
_SCRIPT = (
    "const d=document.querySelector('.lanes');"
    "if(d)d.scrollLeft=d.dataset.focus-d.clientWidth*0.7;"
)


def write_page(history: History, problems: Sequence[Problem]) -> str:
    """Return the page."""
    kinds = Counter(one.kind or "other" for one in problems)
    title = {0: "No problem", 1: "1 problem"}.get(len(problems), f"{len(problems)} problems")
    body = [f"<h1>{title}</h1>", f'<p class="faint">{_summary(history)}</p>']
    if problems:
        counts = ", ".join(f"{kind}: {count}" for kind, count in kinds.most_common())
        rows = [f"<li>{_sentence(one)}</li>" for one in problems[:_LISTED_MAX]]
        body += [f"<p>{escape(counts)}</p>", f'<ol class="problems">{"".join(rows)}</ol>']
        if len(problems) > _LISTED_MAX:
            body.append(f"<p>The first {_LISTED_MAX} are listed.</p>")
        body += _draw_first(history, first_of(problems))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{title} in a history</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(body)}<script>{_SCRIPT}</script></body></html>\n"
    )


def first_of(problems: Sequence[Problem]) -> Problem:
    """Return the problem that could be seen first, or the first without a moment."""
    dated = [one for one in problems if one.at]
    return min(dated, key=lambda one: one.at) if dated else problems[0]


def _sentence(one: Problem) -> str:
    return f'<span class="kind">{escape(one.kind)}</span> {escape(one.sentence)}'


def _summary(history: History) -> str:
    answered = sum(one.outcome is Outcome.DONE for one in history.appends)
    records = sum(len(one.values) for one in history.appends)
    return (
        f"{len(history.appends)} batches with {records} records, {answered} of them acknowledged; "
        f"{len(history.transactions)} transactions; {len(history.reads)} records read; "
        f"{len(history.disruptions)} troubles; "
        f"{len(history.final)} partitions read in the end"
    )


def _draw_first(history: History, problem: Problem) -> list[str]:
    window = find_window(history, problem)
    drawn = draw(window, problem.at)
    legend = "".join(
        f'<li><svg width="24" height="16"><g class="bar {name}"><rect class="box" x="2" y="2" '
        f'width="20" height="12" rx="2"/></g></svg> {escape(text)}</li>'
        for name, text in _LEGEND
    )
    return [
        "<h2>The first problem</h2>",
        f"<p>{_sentence(problem)}</p>",
        f'<ul class="legend">{legend}'
        '<li class="faint">dark base: from the beginning to the end</li>'
        '<li class="faint">pale: another partition</li>'
        '<li class="faint">dotted: events left out</li></ul>',
        f'<div class="drawing"><div class="names">{drawn.names}</div>'
        f'<div class="lanes" tabindex="0" data-focus="{drawn.focus_x}">{drawn.lanes}</div></div>',
        *_offsets(history, problem),
        f"<h2>The {len(window.bars)} events of the drawing</h2>",
        _table(window),
    ]


def _table(window: Window) -> str:
    has_times = any(one.time_s for one in window.bars)
    rows = []
    for one in window.bars:
        cells = [
            f'<td class="number">{one.time_s:.3f}</td>' if has_times else "",
            f'<td class="number">{one.begin}</td>',
            f'<td class="number">{_NONE if one.end is None else one.end}</td>',
            *(f"<td>{escape(text)}</td>" for text in (one.lane, one.kind, _where(one))),
            f"<td>{escape(one.detail)}</td>",
            f"<td>{'' if one.outcome == 'led' else one.outcome}</td>",
        ]
        mark = ' class="concerned"' if one.is_concerned else ""
        rows.append(f"<tr{mark}>{''.join(cells)}</tr>")
    time = '<th class="number">s</th>' if has_times else ""
    head = (
        f'{time}<th class="number">begin</th><th class="number">end</th><th>by</th><th>event</th>'
        "<th>partition</th><th>details</th><th>outcome</th>"
    )
    return f'<div class="table"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _where(bar: Bar) -> str:
    return f"{bar.place[0]}/{bar.place[1]}" if bar.place else ""


def _offsets(history: History, problem: Problem) -> list[str]:
    """Return a table of the offsets concerned and their neighbours, by each witness."""
    place, wanted = problem.place, {one for one in problem.offsets if one >= 0}
    near = {one + step for one in wanted for step in range(-_AROUND, _AROUND + 1)}
    if place is None or not near:
        return []
    sent, read = _sent(history, place, near), _read(history, place, near)
    final = {one.offset: one.value for one in history.final.get(place, ())}
    committed = {one.offset: one.value for one in history.final_committed.get(place, ())}
    rows = []
    for offset in sorted(one for one in near if one >= 0):
        texts = (
            ", ".join(sent[offset]),
            "; ".join(f"{value} by {', '.join(some)}" for value, some in read[offset].items()),
            final.get(offset, _NONE),
            committed.get(offset, _NONE),
        )
        if offset in wanted or any(one not in ("", _NONE) for one in texts):
            mark = ' class="concerned"' if offset in wanted else ""
            cells = "".join(f"<td>{escape(one)}</td>" for one in texts)
            rows.append(f'<tr{mark}><td class="number">{offset}</td>{cells}</tr>')
    head = (
        '<th class="number">offset</th><th>answered to producers</th><th>read</th>'
        "<th>in the end</th><th>committed in the end</th>"
    )
    return [
        f"<h2>The offsets of {escape(place[0])}/{place[1]}</h2>",
        f'<div class="table"><table><tr>{head}</tr>{"".join(rows)}</table></div>',
    ]


def _sent(history: History, place: Place, near: set[int]) -> defaultdict[int, list[str]]:
    found: defaultdict[int, list[str]] = defaultdict(list)
    for one in history.appends:
        if one.place == place and one.offset >= 0:
            for offset, value in enumerate(one.values, one.offset):
                if offset in near:
                    dead = " (tombstone)" if value in one.tombstones else ""
                    found[offset].append(value + dead)
    return found


def _read(
    history: History, place: Place, near: set[int]
) -> defaultdict[int, dict[str, list[str]]]:
    """Return the values that readers have met, with the readers, by offset."""
    last: set[int] = set()
    for some in (history.final, history.final_committed):
        last |= {id(one) for one in some.get(place, ())}
    found: defaultdict[int, dict[str, list[str]]] = defaultdict(dict)

    def note(one: Read) -> None:
        readers = found[one.offset].setdefault(one.value, [])
        if one.reader not in readers:
            readers.append(one.reader)

    for one in history.reads:
        if one.place == place and one.offset in near and id(one) not in last:
            note(one)
    return found
