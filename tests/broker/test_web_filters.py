"""Records that an expression chooses, over HTTP."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("cel_expr_python", reason="needs the extra console")

from odradek.broker.composition import Broker
from odradek.broker.web import records as records_routes
from odradek.broker.web.filters import DATA_BYTES_MAX, DEPTH_MAX, LENGTH_MAX, RecordFilter
from odradek.broker.web.requests import Problem
from odradek.cleaner.reading.excerpts import RecordPlace
from tests.broker.live import append, batch, create, on_uvloop
from tests.broker.web import get, request, serving

NOW_MS = 1_795_867_200_000  # 2026-11-28T12:00:00Z


def place(key: bytes | None, value: bytes | None, timestamp: int = NOW_MS) -> RecordPlace:
    """Return a record without headers at offset 5."""
    section = (key or b"") + (value or b"")
    key_length = -1 if key is None else len(key)
    value_length = -1 if value is None else len(value)
    end = len(section)
    return RecordPlace(
        section, 5, timestamp, 0, key_length, len(key or b""), value_length, -1, end
    )


def passes(text: str, key: bytes | None, value: bytes | None) -> bool | str | None:
    """Return whether a record passes, or why a filter fails."""
    one = RecordFilter(text)
    passed = one.passes(3, place(key, value))
    assert one.failed == (one.first_failure is not None)
    return passed if one.failed == 0 else one.first_failure


def refusal(text: str) -> str:
    with pytest.raises(Problem) as found:
        RecordFilter(text)
    assert found.value.status == 400
    return str(found.value)


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("value.price > 10", b"k", b'{"price": 11}'),
        ("value.price > 10", b"k", b'{"price": 10.5}'),
        ("value['a b'][1] == null", b"k", b'{"a b": [1, null]}'),
        ("value.id > 9.0e18", b"k", b'{"id": 100000000000000000000000}'),
        ("value.id == 9223372036854775807", b"k", b'{"id": 9223372036854775807}'),
        ("has(value.a) && !has(value.b)", b"k", b'{"a": null}'),
        ("'x' in value.tags", b"k", b'{"tags": ["y", "x"]}'),
        ("value.missing > 1 || offset == 5", b"k", b"{}"),
        ("value == null && key == 'k'", b"k", None),
        ("key == null && value == 'text'", None, b"text"),
        ("value == b'\\xff\\x00'", b"k", b"\xff\x00"),
        ("value == b'a\\x00b' && key == b'\\x00'", b"\x00", b"a\x00b"),
        ("value == '{\"torn'", b"k", b'{"torn'),
        ("key.startsWith('k') && partition == 3", b"k1", b""),
        ("key == '17' && value == 17", b"17", b"17"),
        ("timestamp >= timestamp('2026-11-28T12:00:00Z')", b"k", b""),
        ("timestamp.getFullYear() == 2026", b"k", b""),
    ],
)
def test_an_expression_sees_a_record(text: str, key: bytes | None, value: bytes | None) -> None:
    assert passes(text, key, value) is True
    assert passes(f"!({text})", key, value) is False


@pytest.mark.parametrize(
    ("text", "value", "reason"),
    [
        ("value.price > 10", b"{}", 'Key not found in map : "price"'),
        ("value.price > 10", b"text", "SELECT"),
        ("value.price > 10", b'{"price": "9"}', "No matching overloads"),
        ("value.price", b'{"price": 9}', "it returns 9, not true or false"),
        ("1 / size(value) > 0", b"", "divide by zero"),
        ("value.a == 'x'", b'{"a": "x\\u0000y"}', "NUL"),
        ("value == ''", b" " * (DATA_BYTES_MAX + 1), "bytes are not looked into"),
    ],
)
def test_a_record_for_which_it_fails_does_not_pass(text: str, value: bytes, reason: str) -> None:
    found = passes(text, b"k", value)
    assert isinstance(found, str) and found.startswith("partition 3 offset 5: ")
    assert reason in found


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("value.price >", "at character 14: Syntax error"),
        ("price > 10", "at character 1: undeclared reference to 'price'"),
        ("'a' + key == 1 &&", "Syntax error"),
        ("'a'", "returns string"),
        ("(" * 400 + "true" + ")" * 400, "recursion"),
        ("true" + " " * LENGTH_MAX, f"at most {LENGTH_MAX}"),
    ],
)
def test_a_wrong_expression_is_refused_with_its_reason(text: str, reason: str) -> None:
    assert reason.lower() in refusal(text).lower()


@pytest.mark.parametrize(
    "text",
    [
        "value.all(x, x > 1)",
        "value.exists(x, x > 1)",
        "value.exists_one(x, x > 1)",
        "value.map(x, x) == []",
        "value.filter(x, x > 1) == []",
        "value.matches('(a|aa)*b')",
        "matches(key, '(a|aa)*b')",
    ],
)
def test_there_are_neither_loops_nor_regular_expressions(text: str) -> None:
    assert "is not an expression" in refusal(text)


TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
)


@given(st.binary() | JSON.map(lambda data: json.dumps(data).encode()))
def test_any_record_can_be_looked_into(value: bytes) -> None:
    one = RecordFilter("value == value && key == key")
    assert one.passes(0, place(value, value)), one.first_failure


@pytest.mark.parametrize("depth", [500, 900, 5000, DATA_BYTES_MAX // 2])
def test_data_nested_deeply_does_no_harm(depth: int) -> None:
    value = b"[" * depth + b"]" * depth
    one = RecordFilter("value == value || size(value) > 0")
    assert one.passes(0, place(None, value)) or one.failed == 1


@pytest.mark.parametrize(("opened", "closed"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_data_that_is_nested_too_deeply_is_a_text(opened: bytes, closed: bytes) -> None:
    for depth, is_text in ((DEPTH_MAX, False), (DEPTH_MAX + 1, True)):
        value = opened * depth + b"1" + closed * depth
        assert passes(f"value == '{value.decode()}'", None, value) == is_text


async def fill(broker: Broker, count: int, partitions: int = 1) -> None:
    logs = (await create(broker, "prices", partitions)).logs
    for at in range(count):
        value = b'{"price": %d}' % at if at % 3 else b"text"
        append(logs[at % partitions], batch(value, key=b"k%d" % (at % 2), timestamp=1000 + at))


async def pages(broker: Broker, **query: str | int) -> tuple[list[int], list[int]]:
    """Return the timestamps of all records that pass, and the records that each page read."""
    found, read = list[int](), list[int]()
    while True:
        page = await get(broker, "/api/records", **query)
        found += [one["timestamp_ms"] for one in page["records"]]
        read.append(page["read_records"])
        if not page["before"]:
            return found, read
        query["before"] = page["before"]


@on_uvloop
async def test_pages_have_each_record_that_passes_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        await fill(broker, 60, partitions=3)
        wanted = [1000 + at for at in range(59, -1, -1) if at % 3 and at > 20 and at % 2 == 0]
        query = {"topic": "prices", "filter": "value.price > 20 && key == 'k0'"}
        assert (await pages(broker, **query))[0] == wanted
        # Smaller pages go by partitions: each has its newest first.
        assert sorted((await pages(broker, **query, limit=2))[0], reverse=True) == wanted
        assert (await pages(broker, **query, key="k0"))[0] == wanted
        assert (await pages(broker, **query, key="k1"))[0] == []
        only = [one for one in wanted if one == 1040]
        assert (await pages(broker, **query, search="40"))[0] == only


@on_uvloop
async def test_a_request_looks_at_so_many_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records_routes, "FILTERED_MAX", 10)
    async with serving(tmp_path) as broker:
        await fill(broker, 100)
        found, read = await pages(broker, topic="prices", filter="value.price == 1")
        assert found == [1001]
        assert max(read) <= 10 and sum(read) == 100


@on_uvloop
async def test_failures_are_counted_and_the_first_is_explained(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        await fill(broker, 9)
        page = await get(broker, "/api/records?topic=prices&filter=value.price > 6")
        assert [one["timestamp_ms"] for one in page["records"]] == [1008, 1007]
        assert page["filter"]["failed"] == 3
        assert page["filter"]["because"].startswith("partition 0 offset 6: ")
        assert "filter" not in await get(broker, "/api/records?topic=prices")


@on_uvloop
async def test_a_wrong_filter_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        await fill(broker, 3)
        status, body = await request(broker, "GET", "/api/records?topic=prices&filter=(")
        assert status == 400 and "at character" in json.loads(body)["error"]
        status, body = await request(broker, "GET", "/api/latest?topic=prices&filter=true")
        assert status == 400 and "filter is not a parameter" in json.loads(body)["error"]


def test_without_its_library_a_filter_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)
    with pytest.raises(Problem, match=r"pip install odradek\[console\]") as found:
        RecordFilter("true")
    assert found.value.status == 501
