"""The answers of workers merged into one: rows, bounds, sums, metrics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from odradek.broker.web.records import SHOWN_BYTES_MAX
from odradek.broker.web.united import merged_records, merging
from odradek.broker.web.united.merged_metrics import merge_metrics
from odradek.broker.web.united.merging import Answers, Json
from odradek.broker.web.united.table import ENDS, ROUTES
from tests.broker.live import on_uvloop
from tests.broker.web import serving


@on_uvloop
async def test_each_route_has_a_decision(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        assert broker.http.server is not None
        routes = {
            (one.method, one.resource.canonical)
            for one in broker.http.server._runner.app.router.routes()
            if one.method != "HEAD" and one.resource is not None
        }
    assert routes | {("GET", ENDS)} == set(ROUTES)


# --- records ----------------------------------------------------------------------------------


def record(partition: int, offset: int, at_ms: int, value: str = "v") -> Json:
    return {
        "partition": partition,
        "offset": offset,
        "timestamp_ms": at_ms,
        "key": {"text": "k"},
        "value": {"text": value},
        "headers": [],
    }


def page(*rows: Json, before: str = "", problems: Any = ()) -> Json:
    return {
        "topic": "t",
        "records": list(rows),
        "before": before,
        "read_bytes": 10,
        "read_records": 5,
        "problems": list(problems),
    }


def test_records_are_the_newest_of_all_and_the_others_are_left_to_the_next_page() -> None:
    one = page(record(0, 9, 90), record(0, 8, 50), record(0, 7, 40), before="0:3")
    other = page(record(1, 5, 80), record(1, 4, 30))
    merged = merged_records.records(Answers({1: one, 2: other}, {"limit": "3"}))
    assert [row["timestamp_ms"] for row in merged["records"]] == [90, 80, 50]
    assert merged["before"] == "0:8,1:5"
    assert merged["read_bytes"] == 20


def test_records_of_all_have_the_bytes_of_one_answer() -> None:
    large = "x" * (SHOWN_BYTES_MAX // 4)
    pages = {at: page(*(record(at, 9 - n, 9 - n, large) for n in range(4))) for at in (1, 2)}
    merged = merged_records.records(Answers(pages))
    assert len(merged["records"]) == 4
    assert merged["before"] == "1:8,2:8"


def test_failures_of_a_filter_are_added_up() -> None:
    failed = {"failed": 2, "because": "partition 1 offset 3: it returns 4, not true or false"}
    passed = {"failed": 0, "because": None}
    pages = {1: page() | {"filter": passed}, 2: page() | {"filter": failed}}
    merged = merged_records.records(Answers(pages))
    assert merged["filter"] == failed and merged["read_records"] == 10
    assert "filter" not in merged_records.records(Answers({1: page()}))


def test_partitions_of_a_worker_that_is_away_are_named() -> None:
    shared = {"partition": 3, "because": "no broker leads it"}
    pages = {1: page(problems=[shared]), 2: page(problems=[shared])}
    answers = Answers(pages, absent={7: "Connection refused"}, leaders={0: 7, 1: 2})
    problems = merged_records.records(answers)["problems"]
    assert [one["partition"] for one in problems] == [0, 3]
    assert problems[0]["because"] == "its leader, broker 7, does not answer"


# --- samples ----------------------------------------------------------------------------------


def load(now_ms: int, *rows: tuple[int, float, float | None]) -> Json:
    names = ("at_ms", "requests", "request_p50_ms", "request_p99_ms")
    values = [(at, count, p, p) for at, count, p in rows]
    columns = {name: [row[at] for row in values] for at, name in enumerate(names)}
    return {"now_ms": now_ms, "kept_max": 900, "columns": columns}


def test_samples_of_a_second_are_added_up() -> None:
    one = load(14_000, (10_200, 10, 1.0), (11_999, 20, 1.0), (13_001, 30, None))
    other = load(14_100, (10_700, 1, 4.0), (11_700, 1, 4.0), (12_700, 1, 4.0), (13_700, 1, 4.0))
    merged = merged_records.samples(Answers({1: one, 2: other}))["columns"]
    # The first worker took none within 12 s; the sample before it counts. 13 s is not over.
    assert merged["at_ms"] == [11_000, 12_000]
    assert merged["requests"] == [21, 21]
    assert merged["request_p99_ms"] == [4.0, 4.0]
    assert merged["request_p50_ms"] == [pytest.approx(24 / 21, abs=0.001)] * 2


def test_later_samples_follow_without_a_gap() -> None:
    rows = [(1_000 * at + 500, 5.0, None) for at in range(10, 40)]
    seen: list[int] = []
    for now_ms in (15_100, 15_400, 18_000, 18_900, 27_000):
        since_ms = seen[-1] if seen else 0
        asked_ms = merged_records.samples_since(since_ms)
        kept = [row for row in rows if asked_ms < row[0] <= now_ms]
        answers = Answers({1: load(now_ms, *kept)}, {"since_ms": str(since_ms)})
        seen += merged_records.samples(answers)["columns"]["at_ms"]
    assert seen == [1_000 * at for at in range(11, 26)]


# --- lists ------------------------------------------------------------------------------------


def topic_row(partitions: int, offline: int, remote: int, **values: Any) -> Json:
    return {
        "name": "t",
        "partitions": partitions,
        "offline_partitions": offline,
        "remote_partitions": remote,
        "bytes": {"clean": 5, "dirty": 1},
        "offsets": 10,
        "dirty_ratio": None,
        "due_ms": None,
        "running": 0,
        "quarantined": 1,
        **values,
    }


def test_a_topic_has_the_partitions_of_all() -> None:
    rows = {
        1: topic_row(6, 1, 4, dirty_ratio=0.5, due_ms=7),
        2: topic_row(6, 0, 4, dirty_ratio=0.25),
    }
    answers = Answers({one: {"now_ms": one, "topics": [row]} for one, row in rows.items()})
    merged = merging.topics(answers)
    assert merged["now_ms"] == 2 and "problems" not in merged
    (row,) = merged["topics"]
    assert (row["partitions"], row["offline_partitions"], row["remote_partitions"]) == (6, 1, 2)
    assert row["bytes"] == {"clean": 10, "dirty": 2} and row["quarantined"] == 2
    assert (row["dirty_ratio"], row["due_ms"]) == (0.5, 7)


def test_problems_name_their_broker() -> None:
    answers = Answers({2: {"problems": ["b"]}, 1: {"problems": ["a"]}}, absent={3: "no route"})
    assert merging.health(answers) == {
        "status": "failing",
        "problems": [
            "broker 1: a",
            "broker 2: b",
            "broker 3 does not answer over HTTP, see its log: no route",
        ],
    }


def test_each_worker_has_a_queue_of_its_own() -> None:
    def state(*names: str) -> Json:
        return {
            "now_ms": 1,
            "threads": {"wanted": 1, "alive": 1, "died": 0, "last_death": None},
            "last_choice": {"at_ms": 5, "max_dirty_ratio": 0.5, "cleanable_count": 2},
            "next": [{"topic": name} for name in names],
            **{name: [] for name in ("running", "asked", "later", "quarantined", "unreadable")},
        }

    merged = merging.cleaner(Answers({1: state("a", "b", "c"), 2: state("x")}))
    assert [one["topic"] for one in merged["next"]] == ["a", "x", "b", "c"]
    assert merged["threads"]["wanted"] == 2
    assert merged["last_choice"] == {"at_ms": 5, "max_dirty_ratio": 0.5, "cleanable_count": 4}


# --- metrics ----------------------------------------------------------------------------------


def test_metrics_have_each_family_once() -> None:
    one = b'# HELP a_total the {a}\n# TYPE a_total counter\na_total{t="}\\" x"} 1.0\na_total 2.0\n'
    other = b"# HELP b its b\n# TYPE b gauge\nb 5.0\n" + one.replace(b"2.0", b"3.0")
    text = merge_metrics({1: one, 2: other}).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert text.count("# HELP") == text.count("# TYPE") == 2
    shown = [(sample.labels, sample.value) for sample in families["a"].samples]
    assert shown == [
        ({"broker": "1", "t": '}" x'}, 1.0),
        ({"broker": "1"}, 2.0),
        ({"broker": "2", "t": '}" x'}, 1.0),
        ({"broker": "2"}, 3.0),
    ]
    assert [sample.labels for sample in families["b"].samples] == [{"broker": "2"}]
