"""Kafka's types of values: what parses, what is refused and in which words, how it prints."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.config.errors import ConfigError
from odradek.config.values import (
    Kind,
    Value,
    at_least,
    between,
    between_or,
    one_of,
    parse,
    render,
    subset_of,
    words,
)

BOUNDS = {Kind.SHORT: 2**15, Kind.INT: 2**31, Kind.LONG: 2**63}


@given(st.sampled_from(sorted(BOUNDS)), st.integers(-(2**65), 2**65))
def test_an_integer_parses_exactly_when_its_type_holds_it(kind: Kind, number: int) -> None:
    limit = BOUNDS[kind]
    if -limit <= number < limit:
        assert parse(kind, "x", f" {number}\t") == number
    else:
        with pytest.raises(ConfigError, match=f"Not a number of type {kind.name}"):
            parse(kind, "x", str(number))


@given(st.sampled_from(list(Kind)), st.text())
def test_any_text_parses_or_is_refused(kind: Kind, text: str) -> None:
    try:
        parse(kind, "x", text)
    except ConfigError as error:
        assert error.problems


def test_a_number_of_thousands_of_digits_is_refused_at_once() -> None:
    with pytest.raises(ConfigError):
        parse(Kind.LONG, "x", "1" * 100_000)
    assert parse(Kind.LONG, "x", "0" * 5_000 + "7") == 7


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "text", [" " * 300_000 + "x", "a" + " " * 300_000 + "b", "1" * 300_000 + "x"]
)
def test_a_long_text_takes_one_pass(text: str) -> None:
    assert parse(Kind.LIST, "x", text) == (text.strip(),)
    with pytest.raises(ConfigError):
        parse(Kind.DOUBLE, "x", text)
    with pytest.raises(ConfigError):
        parse(Kind.LONG, "x", text)


@given(st.floats(allow_nan=False))
def test_a_double_reads_back_from_how_it_prints(value: float) -> None:
    assert parse(Kind.DOUBLE, "x", render(value)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (123456789.125, "1.23456789125E8"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (-2.5e-5, "-2.5E-5"),
        (math.inf, "Infinity"),
    ],
)
def test_doubles_print_as_javas(value: float, text: str) -> None:
    assert render(value) == text


@pytest.mark.parametrize("text", ["NaN", "inf", "1_0", "", "0x1p3", "1,5", "\u0661.\u0665"])
def test_doubles_of_no_use_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="Not a number of type DOUBLE"):
        parse(Kind.DOUBLE, "x", text)


@given(st.lists(st.text("abc-:/ ").map(str.strip).filter(bool)))
def test_a_list_reads_back_from_how_it_prints(words: list[str]) -> None:
    assert parse(Kind.LIST, "x", render(tuple(words))) == tuple(words)


def test_a_list_loses_the_blanks_around_its_commas() -> None:
    assert parse(Kind.LIST, "x", " compact ,\tdelete ") == ("compact", "delete")
    assert parse(Kind.LIST, "x", " ") == ()
    assert parse(Kind.LIST, "x", "a,") == ("a", "")


@pytest.mark.parametrize(
    ("validator", "value", "problem"),
    [
        (at_least(-1), -2, "Invalid value -2 for configuration x: Value must be at least -1"),
        (
            between(0, 1),
            1.5,
            "Invalid value 1.5 for configuration x: Value must be no more than 1",
        ),
        (
            between_or(1, 9, -1),
            0,
            "Invalid value 0 for configuration x: Value must be between 1 and 9 or equal to -1",
        ),
        (
            one_of("a", "b"),
            "A",
            "Invalid value A for configuration x: String must be one of: a, b",
        ),
        (
            subset_of("a", "b"),
            ("a", "c"),
            "Invalid value c for configuration x: String must be one of: a, b",
        ),
        (
            subset_of("a", "b"),
            (),
            "Configuration 'x' must not be empty. Valid values include: [a, b]",
        ),
        (words(), ("a", ""), "Configuration 'x' values must not be empty."),
    ],
)
def test_a_value_out_of_bounds_is_refused_in_kafkas_words(
    validator: object, value: Value, problem: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        validator.check("x", value)  # type: ignore[attr-defined]
    assert refused.value.problems == (problem,)


@given(st.integers(), st.integers())
def test_a_lower_bound_admits_itself_and_what_is_above(low: int, value: int) -> None:
    if value >= low:
        at_least(low).check("x", value)
    else:
        with pytest.raises(ConfigError):
            at_least(low).check("x", value)
