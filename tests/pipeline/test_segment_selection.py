"""Options, and filters as Spark pushes them, become one selection."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.segment_columns import COLUMNS
from odradek.pipeline.segment_selection import Selection, Span, narrow, parse_options


# As in pyspark.sql.datasource of PySpark 4.1.
@dataclass(frozen=True)
class Compared:
    attribute: tuple[str, ...]
    value: Any


class EqualTo(Compared): ...


class EqualNullSafe(Compared): ...


class GreaterThan(Compared): ...


class GreaterThanOrEqual(Compared): ...


class LessThan(Compared): ...


class LessThanOrEqual(Compared): ...


class In(Compared): ...


class StringStartsWith(Compared): ...


@dataclass(frozen=True)
class IsNotNull:
    attribute: tuple[str, ...]


@dataclass(frozen=True)
class Not:
    child: Compared


HOLDS: dict[type, Callable[[Any, Any], bool]] = {
    EqualTo: lambda a, b: a == b,
    EqualNullSafe: lambda a, b: a == b,
    GreaterThan: lambda a, b: a > b,
    GreaterThanOrEqual: lambda a, b: a >= b,
    LessThan: lambda a, b: a < b,
    LessThanOrEqual: lambda a, b: a <= b,
    In: lambda a, b: a in b,
}
SMALL = st.integers(-1, 6)
EPOCH = datetime(2025, 5, 1, tzinfo=UTC)
TIMES = st.integers(0, 6000).map(lambda us: EPOCH + timedelta(microseconds=us))


def filters(column: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    compared = st.builds(
        lambda kind, value: kind((column,), value),
        st.sampled_from([kind for kind in HOLDS if kind is not In]),
        values,
    )
    among = st.lists(values, max_size=3).map(lambda chosen: In((column,), tuple(chosen)))
    return st.one_of(compared, among, st.just(IsNotNull((column,))))


FILTERS = st.one_of(
    filters("topic", st.sampled_from(["a", "b", "c"])),
    filters("partition", SMALL),
    filters("offset", SMALL),
    filters("timestamp", TIMES),
    filters("codec", st.just("none")),
)
ROWS = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["a", "b", "c"]),
        "partition": st.integers(0, 5),
        "offset": st.integers(0, 5),
        "timestamp": st.integers(0, 6).map(lambda ms: EPOCH + timedelta(milliseconds=ms)),
        "codec": st.just("none"),
    }
)


def passes(row: dict[str, Any], one: Any) -> bool:
    return isinstance(one, IsNotNull) or HOLDS[type(one)](row[one.attribute[0]], one.value)


def selects(selection: Selection, row: dict[str, Any]) -> bool:
    return (
        selection.includes_partition(row["topic"], row["partition"])
        and row["offset"] in selection.offsets
        and int(row["timestamp"].timestamp() * 1000) in selection.timestamps
    )


@given(st.lists(FILTERS, max_size=5), ROWS)
def test_a_narrowed_selection_loses_no_row_and_honours_what_it_does_not_return(
    pushed: list[Any], row: dict[str, Any]
) -> None:
    selection, left = narrow(Selection(), pushed)
    assert all(any(one is other for other in pushed) for one in left)
    passes_all = all(passes(row, one) for one in pushed)
    is_found = selects(selection, row)
    assert is_found or not passes_all
    # Spark evaluates what is left: together they are exact.
    assert (is_found and all(passes(row, one) for one in left)) == passes_all
    for one in pushed:
        if one.attribute in (("topic",), ("partition",)) and type(one) in (EqualTo, In):
            assert one not in left
        if one.attribute == ("offset",) and type(one) is not In:
            assert one not in left


@pytest.mark.parametrize(
    "odd",
    [
        Not(EqualTo(("topic",), "a")),
        StringStartsWith(("topic",), "a"),
        In(("topic",), ("a", None)),
        In(("partition",), (1, None)),
        EqualTo(("offset",), True),
        EqualTo(("offset",), 1.5),
        EqualNullSafe(("offset",), None),
        GreaterThan(("timestamp",), datetime(2025, 5, 1)),
        EqualTo(("headers", "key"), "a"),
        IsNotNull(("key",)),
        IsNotNull(("timestamp",)),
    ],
)
def test_filters_that_are_not_understood_are_left_to_spark(odd: object) -> None:
    assert narrow(Selection(), [odd]) == (Selection(), [odd])


def test_filters_narrow_what_options_have_chosen() -> None:
    given = {"path": "x", "topic": "a,b", "partition": "1,2", "startingOffset": "5"}
    selection, left = narrow(
        parse_options(given).selection,
        [In(("topic",), ("b", "c")), In(("partition",), (2, 3)), LessThan(("offset",), 9)],
    )
    assert left == []
    assert (selection.topics, selection.partitions) == (frozenset("b"), frozenset({2}))
    assert selection.offsets == Span(5, 9)


def test_options_are_known_by_their_names_in_any_case() -> None:
    options = parse_options(
        {
            "PATH": "/a, /b,",
            "Topic": "x",
            "startingoffset": "-3",
            "ENDINGTIMESTAMP": "7",
            "isolation": "READ_COMMITTED",
            "includeControl": "True",
            "ondamage": "Skip",
            "columns": "offset , topic",
        }
    )
    selection = options.selection
    assert options.paths == ("/a", "/b")
    assert (selection.offsets.start, selection.timestamps.end) == (-3, 7)
    assert selection.committed_only
    assert selection.include_control
    assert (options.on_damage, options.columns) == ("skip", ("offset", "topic"))


def test_options_that_are_not_given_select_everything() -> None:
    options = parse_options({"paths": json.dumps(["/a,b", "/c"])})
    assert options.paths == ("/a,b", "/c")
    assert options.selection == Selection()
    assert options.columns == tuple(COLUMNS)
    assert options.on_damage == "stop"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "option path is missing"),
        ({"path": " , "}, "option path is missing"),
        ({"path": "x", "startingPosition": "3"}, "option startingPosition is unknown"),
        ({"path": "x", "startingOffsets": "3"}, "none of earliest, latest"),
        ({"path": "x", "failOnDataLoss": "no"}, "option failOnDataLoss"),
        ({"path": "x", "topic": " "}, "option topic is empty"),
        ({"path": "x", "partition": "-1"}, "option partition"),
        ({"path": "x", "endingOffset": "latest"}, "option endingOffset: 'latest' is not a whole"),
        ({"path": "x", "isolation": "serializable"}, "none of read_uncommitted, read_committed"),
        ({"path": "x", "includeControl": "1"}, "option includeControl"),
        ({"path": "x", "onDamage": "ignore"}, "none of stop, skip, report"),
        ({"path": "x", "columns": "key,keys"}, "'keys' is none"),
        ({"path": "x", "columns": "key,key"}, "named twice"),
    ],
)
def test_an_option_that_cannot_be_read_is_reported_by_its_name(
    options: dict[str, str], words: str
) -> None:
    with pytest.raises(PipelineError) as error:
        parse_options(options)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
