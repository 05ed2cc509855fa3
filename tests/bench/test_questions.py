"""Each benchmark runs, and counts right: a thousandth of its load, and no look at the clock."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from bench import curves, page, results, run
from bench.pairs import Answer, Figure, put_once
from bench.processes import kafka_libs
from bench.questions import QUESTIONS

_SCALE = 0.001
needs_kafka = [
    pytest.mark.kafka,
    pytest.mark.skipif(kafka_libs() is None, reason="Kafka's tools are not there: `make kafka`"),
]
LESS = Figure("p99", "ms", more_is_better=False, at_least=2.0)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs_kafka, id=name) for name in QUESTIONS]
)
def test_a_question_is_answered(name: str) -> None:
    # put_once() sees that each figure is there, and a positive number.
    put_once(QUESTIONS[name], "Odradek", _SCALE)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=needs_kafka, id=name) for name in ("round-trips", "groups")],
)
def test_kafka_answers_as_well(name: str) -> None:
    put_once(QUESTIONS[name], "Kafka", _SCALE)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=needs_kafka, id=name) for name in curves.CURVES_BY_NAME]
)
def test_a_curve_has_a_point_for_each_size(name: str) -> None:
    curve = curves.CURVES_BY_NAME[name]
    smallest = sorted(curve.sizes)[:2]
    points = list(curve.measure(smallest))
    assert len(points) == len(smallest)
    assert all(value > 0 for point in points for value in point.values())


def test_each_question_has_distinct_titles() -> None:
    for question in QUESTIONS.values():
        titles = [figure.title for figure in question.figures]
        assert len(set(titles)) == len(titles)


def test_an_advantage_is_above_one_where_ours_is_better() -> None:
    assert LESS.advantage(ours=1.0, theirs=3.0) == 3.0
    assert dataclasses.replace(LESS, more_is_better=True).advantage(ours=1.0, theirs=4.0) == 0.25


def test_the_median_of_the_pairs_counts() -> None:
    answer = Answer(LESS, ours=[1.0, 1.0, 1.0], theirs=[9.0, 1.5, 1.8])
    assert answer.advantage == 1.8
    assert answer.falls_short
    assert not Answer(LESS, ours=[1.0, 1.0, 1.0], theirs=[1.0, 2.0, 9.0]).falls_short


def test_a_bound_of_our_own_is_no_comparison() -> None:
    bound = Figure("times", "times", more_is_better=False, ours_at_most=2.0)
    assert not bound.is_compared
    assert Answer(bound, ours=[1.9], theirs=[1.0]).falls_short is False
    assert Answer(bound, ours=[2.1], theirs=[9.0]).falls_short is True


def test_answers_are_saved_and_shown(tmp_path: Path) -> None:
    question = QUESTIONS["round-trips"]
    answers = [Answer(figure, [12.3456], [24.69]) for figure in question.figures]
    file = tmp_path / "figures.json"
    results.save(question, answers, 1, 0.5, file)
    text = page.page(results.load(file))
    assert f"| round-trips: {question.figures[0].title} | 12.3 | 24.7 | µs | 2.00" in text
    assert "scale 0.5" in text
    assert "**falls short**" in text  # of five times at p99


@pytest.mark.skipif(not results.FIGURES.exists(), reason="nothing was measured yet")
def test_the_page_is_made_of_the_latest_figures() -> None:
    text = page.page(results.load(results.FIGURES))
    text += page.curves_part(results.load(curves.CURVES))
    assert page.PAGE.read_text() == text, "run `python -m bench.page`"
    assert set(json.loads(results.FIGURES.read_text())) == set(QUESTIONS)


def test_an_unknown_question_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run.main(["speed"])
    assert "no such question: speed" in capsys.readouterr().err
