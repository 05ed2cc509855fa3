"""Records as lines: JSON says all of a record; other lines are read, or refused with a reason."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from odradek.cli.records import (
    Consumed,
    Line,
    LineError,
    read_json,
    split_line,
    template,
    write_json,
    write_key_value,
    write_value,
)
from tests.cli.drawing import RECORDS

ONE = Consumed("prices", 2, 42, 1_700, "create_time", b"p3", b"11", (("a", b"b"), ("c", None)))
NONE = Consumed("prices", 0, 0, -1, "none", None, None, ())


@given(RECORDS, st.integers(0, 1 << 40))
@example(Line("\x85\u2028\u2029".encode(), None), 0)
def test_json_that_is_consumed_can_be_produced_again(line: Line, timestamp_ms: int) -> None:
    written = write_json(
        Consumed("t", 3, 7, timestamp_ms, "create_time", line.key, line.value, line.headers)
    )
    assert written.endswith(b"\n") and len(written.decode().splitlines()) == 1
    assert read_json(written) == Line(line.key, line.value, line.headers, 3, timestamp_ms)


@given(st.binary())
def test_any_line_is_a_record_or_refused(line: bytes) -> None:
    try:
        read_json(line)
    except LineError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"valeu": "1"}', "'valeu' is none of headers, key,"),
        ('{"value": {"price": 11}}', "value is not a text"),
        ('{"key": "a", "key_base64": "YQ=="}', "both"),
        ('{"value_base64": "a"}', "not base64"),
        ('{"key": "\\ud800"}', "surrogate"),
        ('{"headers": "a"}', "headers are a list"),
        ('{"headers": [{"value": "a"}]}', "the key of a header is not a text"),
        ('{"headers": {"a\\u0000b": "c"}}', "NUL"),
        ('{"partition": -1}', "partition is not a number"),
        ('{"timestamp_ms": true}', "timestamp_ms is not a number"),
    ],
)
def test_a_wrong_object_is_refused_with_the_reason(line: str, message: str) -> None:
    with pytest.raises(LineError, match=message):
        read_json(line.encode())


def test_headers_may_be_an_object() -> None:
    assert read_json(b'{"headers": {"a": "b", "c": null}}').headers == ONE.headers


def test_a_key_ends_at_the_first_separator() -> None:
    assert split_line(b"p3:1:1", b":", None) == Line(b"p3", b"1:1")
    assert split_line(b"p3:1:1", None, None) == Line(None, b"p3:1:1")
    assert split_line(b":", b":", None) == Line(b"", b"")
    with pytest.raises(LineError, match="no tab after a key"):
        split_line(b"p3 11", b"\t", None)


def test_the_word_for_null_is_a_null_and_an_empty_value_is_not() -> None:
    assert split_line(b"p3:NULL", b":", b"NULL") == Line(b"p3", None)
    assert split_line(b"", None, b"NULL") == Line(None, b"")
    assert split_line(b"p3:", b":", b"") == Line(b"p3", None)


def test_a_template_has_all_that_kcats_has() -> None:
    fill = template(r"%t %p %o %T %k=%v %s [%K %S] %h 100%% \\\t|\n", b"NULL")
    assert fill(ONE) == b"prices 2 42 1700 p3=11 11 [2 2] a=b,c=NULL 100% \\\t|\n"
    assert fill(NONE) == b"prices 0 0 -1 NULL=NULL NULL [-1 -1]  100% \\\t|\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [("%q", "%q is none of"), ("%k %", "single %"), (r"%k\q", r"\\q is not an escape")],
)
def test_a_wrong_template_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(LineError, match=message):
        template(text, b"")


def test_lines_of_values_and_keys_have_what_stands_for_null() -> None:
    assert [write_value(b"-")(one) for one in (ONE, NONE)] == [b"11\n", b"-\n"]
    write = write_key_value(b": ", b"-")
    assert [write(one) for one in (ONE, NONE)] == [b"p3: 11\n", b"-: -\n"]


def test_text_stays_text_in_json() -> None:
    written = json.loads(write_json(Consumed("t", 0, 0, 0, "none", "é".encode(), b"\xff", ())))
    assert written["key"] == "é" and written["value_base64"] == "/w=="
    assert "key_base64" not in written and "value" not in written
