"""The page draws the events around the first problem, each of them legible."""

from __future__ import annotations

import random
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from tests.histories.checks.checker import check
from tests.histories.checks.problem import Problem
from tests.histories.damages import DAMAGES, Damage
from tests.histories.drawing import draw
from tests.histories.history import Append, History, Outcome, Read
from tests.histories.lanes import EVENTS_MAX, find_window
from tests.histories.report import first_of, write_page
from tests.histories.test_damages import drawn

_SEEDS_MAX = 100
_LENGTH = 150
Box = tuple[float, float, float, float]


def damaged(damage: Damage) -> tuple[History, list[Problem]]:
    """Return a history that was damaged, and its problems."""
    for seed in range(_SEEDS_MAX):
        history = drawn(seed, _LENGTH)
        if damage(history, random.Random(seed)) is not None:
            return history, check(history)
    raise AssertionError("nothing to damage")


class Page(HTMLParser):
    """The elements of a page: its addresses, the texts of concerned bars and rows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.unclosed: list[str] = []
        self.rows: list[str] = []
        self._is_row = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the addresses, and the rows concerned."""
        named = dict(attrs)
        self.addresses += [v or "" for name, v in attrs if name in ("src", "href", "action")]
        if tag != "meta":
            self.unclosed.append(tag)
        if tag == "tr":
            self._is_row = named.get("class") == "concerned"
            self.rows += [""] if self._is_row else []

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Pass over an element without contents."""

    def handle_endtag(self, tag: str) -> None:
        """Check that elements end in their order."""
        assert self.unclosed.pop() == tag

    def handle_data(self, data: str) -> None:
        """Note the texts of the rows concerned."""
        if self._is_row and self.rows:
            self.rows[-1] += f"{data} "


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: one.__name__)
def test_the_page_shows_the_events_of_the_problem(damage: Damage) -> None:
    history, problems = damaged(damage)
    text = write_page(history, problems)
    page, first = Page(text), first_of(problems)
    assert not page.addresses and "url(" not in text and "@import" not in text
    assert page.unclosed == []
    rows = " ".join(page.rows)
    for event in first.events:
        if isinstance(event, Read):
            assert event.value in rows
        if isinstance(event, Append):
            assert event.values[0] in rows
    assert all(str(offset) in rows for offset in first.offsets)
    assert text.count(' concerned"') > 1  # one is in the legend


def boxes(svg: str) -> list[Box]:
    """Return the places of the bars with their labels, and of the lines of time."""
    found = []
    for one in ElementTree.fromstring(svg).iter():
        if one.get("class") == "box":
            x, y, width, height = (float(one.get(k, 0)) for k in ("x", "y", "width", "height"))
            found.append((x, y, x + width, y + height))
    return found


def texts(svg: str) -> list[tuple[float, float, str]]:
    name = "{http://www.w3.org/2000/svg}text"
    return [
        (float(one.get("x", 0)), float(one.get("y", 0)), one.text or "")
        for one in ElementTree.fromstring(svg).iter(name)
    ]


@pytest.mark.parametrize("damage", list(DAMAGES)[::4], ids=lambda one: one.__name__)
def test_no_bar_covers_another(damage: Damage) -> None:
    history, problems = damaged(damage)
    first = first_of(problems)
    window = find_window(history, first)
    drawing = draw(window, first.at)
    root = ElementTree.fromstring(drawing.lanes)
    width, height = (float(root.get(name, 0)) for name in ("width", "height"))
    placed = boxes(drawing.lanes)
    assert len(placed) == len(window.bars) > 20
    for at, (x, y, end_x, end_y) in enumerate(placed):
        assert 0 <= x < end_x <= width and 0 <= y < end_y <= height
        for other in placed[at + 1 :]:
            is_beside = end_x < other[0] or other[2] < x or end_y < other[1] or other[3] < y
            assert is_beside, (placed[at], other)
    for x, y, text in texts(drawing.lanes):
        if y > 20:  # a label is in its box; times are above
            inside = (one for one in placed if one[0] < x < one[2] and one[1] < y < one[3])
            assert any(x + len(text) * 6.6 <= one[2] for one in inside), text
    lanes = {one.lane for one in window.bars}
    assert {text for _, _, text in texts(drawing.names)} == lanes


def test_the_events_around_a_problem_are_bounded() -> None:
    values = [f"i-{at}" for at in range(3_000)]
    place = ("data", 0)
    history = History()
    for at, value in enumerate(values):
        append = history.add(Append("i", place, (value,), offset=at))
        history.end(append, Outcome.DONE)
    reads = [Read("r", place, at, 0, value, True) for at, value in enumerate(values)]
    history.final = history.final_committed = {
        place: [history.add(one) for one in reads if one.value != "i-1500"]
    }
    history.reads = []
    (lost,) = check(history)
    window = find_window(history, lost)
    labels = [one.label for one in window.bars]
    assert len(labels) == EVENTS_MAX
    assert labels.index("i-1500→1500") in range(EVENTS_MAX // 2 - 3, EVENTS_MAX // 2 + 3)
    assert [one.label for one in window.bars if one.is_concerned] == ["i-1500→1500"]
    assert len(write_page(history, [lost])) < 200_000


def test_texts_of_a_history_are_no_markup() -> None:
    place = ("<b>", 0)
    append = Append("<i>", place, ("<i>-0",), offset=0, outcome=Outcome.DONE, at=1)
    history = History(appends=[append])
    history.final = history.final_committed = {place: []}
    text = write_page(history, check(history))
    assert "&lt;i&gt;-0" in text and "<i>" not in text and "<b>" not in text


def test_a_problem_without_events_has_a_page() -> None:
    history = drawn(1)
    history.troubles.append("stuck: the final reads: a transaction stays open")
    text = write_page(history, check(history))
    assert "a transaction stays open" in text
    assert Page(text).unclosed == []


def test_a_sound_history_has_a_page() -> None:
    text = write_page(History(), check(History()))
    assert "No problem" in text
