"""The cleaner over HTTP: a whole broker answers, and what it says is what it does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from odradek.broker.composition import Broker
from odradek.broker.observability.exposition.snapshot import take_snapshot
from odradek.storage.log import Log
from odradek.storage.segment import LOG
from tests.broker.live import append, batch, counting_turns, create, live, on_uvloop, until
from tests.broker.test_metrics import parse, value
from tests.broker.web import SETTINGS, get, post, request

LAZY = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}


async def fill(
    broker: Broker, topic: str, configs: Mapping[str, str] = LAZY, partitions: int = 1
) -> Log:
    """Create a topic whose first partition has six records of two keys in a sealed segment."""
    log = (await create(broker, topic, partitions, configs)).partitions[0]
    assert isinstance(log, Log)
    for at in range(3):
        append(log, batch(b"v%d" % at, key=b"a"), batch(b"v%d" % at, key=b"b"))
    log.roll(1_000)
    return log


@on_uvloop
async def test_a_run_does_what_the_plan_said(tmp_path: Path) -> None:
    async with live(tmp_path, SETTINGS) as broker:
        log = await fill(broker, "prices")
        before = log.size_bytes
        (plan,) = (await get(broker, "/api/cleaner/plan?topic=prices"))["plans"]
        assert plan["verdict"] == "NOT" and plan["cleanable_bytes"] == before
        assert (plan["first_dirty_offset"], plan["first_uncleanable_offset"]) == (0, 6)
        exact = plan["exact"]
        assert exact["map_keys"] == 2 and exact["removed_records"] == 4
        assert exact["end_bytes"] <= plan["at_most"]["written_bytes"]
        assert exact["indexed_bytes"] + exact["read_bytes"] <= plan["at_most"]["read_bytes"]
        assert exact["map_keys"] <= plan["at_most"]["records"]
        assert log.size_bytes == before
        (outcome,) = (await post(broker, "/api/cleaner/run?topic=prices"))["outcomes"]
        assert (outcome["outcome"], outcome["topic"]) == ("CLEANED", "prices")
        for name in ("map_keys", "removed_records", "end_bytes", "reclaimed_bytes"):
            assert outcome["result"][name] == exact[name]
        assert log.size_bytes == before - exact["reclaimed_bytes"]
        (after,) = (await get(broker, "/api/cleaner/plan?topic=prices"))["plans"]
        assert (after["exact"], after["exact_missing"]) == (None, "NOTHING")


@on_uvloop
async def test_a_plan_of_all_topics_has_bounds_and_names_what_it_leaves_out(
    tmp_path: Path,
) -> None:
    async with live(tmp_path, SETTINGS) as broker:
        await fill(broker, "prices", partitions=2)
        await fill(broker, "clicks", {"cleanup.policy": "delete"})
        plan = await get(broker, "/api/cleaner/plan")
        assert [(one["topic"], one["partition"]) for one in plan["plans"]] == [("prices", 0)]
        assert plan["nothing_to_clean"] == 1
        assert {one["exact_missing"] for one in plan["plans"]} == {"NOT_ASKED"}
        exact = await get(broker, "/api/cleaner/plan?exact=true")
        assert exact["plans"][0]["exact"]["map_keys"] == 2
        other = await get(broker, "/api/cleaner/plan?topic=clicks")
        assert (other["plans"], other["not_compacted"]) == ([], 1)


@on_uvloop
async def test_why_follows_the_settings(tmp_path: Path) -> None:
    async with live(tmp_path, SETTINGS) as broker:
        log = await fill(broker, "prices", {**LAZY, "min.compaction.lag.ms": "60000"})
        path = "/api/cleaner/why?topic=prices&partition=0"
        assert (await get(broker, path))["verdict"] == "NOT"
        now_ms = broker.clock.now_ms()
        append(log, batch(b"new", timestamp=now_ms, key=b"a"), now_ms=now_ms)
        log.roll(now_ms)
        found = await get(broker, path)
        (limit,) = [one for one in found["conditions"] if one["name"] == "min.compaction.lag.ms"]
        assert not limit["is_met"] and limit["value"] == 6
        assert 0 < limit["met_at_ms"] - found["now_ms"] <= 60_000


@on_uvloop
async def test_a_dirty_log_is_next_until_it_is_cleaned(tmp_path: Path) -> None:
    async with live(tmp_path, SETTINGS) as broker:
        await fill(broker, "prices", {"cleanup.policy": "compact"})
        broker.cleaner.pause("prices", 0)
        path = "/api/cleaner/why?topic=prices&partition=0"
        found = await get(broker, path)
        assert found["verdict"] == "NOT" and "paused" in found["sentence"]
        refused = (await post(broker, "/api/cleaner/run?topic=prices"))["outcomes"][0]
        assert refused["outcome"] == "REFUSED"
        await broker.cleaner.lease("prices", 0, "a-job")
        broker.cleaner.resume("prices", 0)
        found = await get(broker, path)
        assert found["verdict"] == "NOT"
        assert "the job a-job of odradek pipeline clean cleans it" in found["sentence"]
        refused = (await post(broker, "/api/cleaner/run?topic=prices"))["outcomes"][0]
        assert refused["outcome"] == "REFUSED" and "a-job" in refused["because"]
        broker.cleaner.end_lease("prices", 0)
        await until(lambda: broker.cleaner.status().last_results)
        assert (await get(broker, path))["verdict"] == "NOT"
        (run,) = (await get(broker, "/api/cleaner/history?topic=prices&partition=0"))["runs"]
        assert run["result"]["reason"] == "DIRTY"


@on_uvloop
async def test_history_outlives_a_restart(tmp_path: Path) -> None:
    path = "/api/cleaner/history?topic=prices&partition=0"
    async with live(tmp_path, SETTINGS) as broker:
        await fill(broker, "prices")
        await post(broker, "/api/cleaner/run?topic=prices")
        before = (await get(broker, path))["runs"]
        assert [run["outcome"] for run in before] == ["CLEANED"]
    async with live(tmp_path, SETTINGS) as broker:
        await until(lambda: broker.cleaner.scheduler.runs.is_loaded)
        assert (await get(broker, path))["runs"] == before


@on_uvloop
async def test_a_failure_is_shown_everywhere(tmp_path: Path) -> None:
    async with live(tmp_path, SETTINGS) as broker:
        log = await fill(broker, "prices")
        file = log.segments[0].path(LOG)
        with file.open("r+b") as opened:
            opened.seek(70)
            opened.write(b"\xff")
        (outcome,) = (await post(broker, "/api/cleaner/run?topic=prices"))["outcomes"]
        assert outcome["outcome"] == "FAILED" and "CRC" in outcome["because"]
        (entry,) = (await get(broker, "/api/cleaner"))["quarantined"]
        assert (entry["topic"], entry["file"]) == ("prices", str(file))
        (run,) = (await get(broker, "/api/cleaner/history?topic=prices&partition=0"))["runs"]
        assert run["outcome"] == "FAILED" and run["failure"]["file"] == str(file)
        why = await get(broker, "/api/cleaner/why?topic=prices&partition=0")
        (quarantine,) = [one for one in why["conditions"] if one["name"] == "quarantine"]
        assert quarantine["met_at_ms"] == entry["retry_at_ms"]
        (plan,) = (await get(broker, "/api/cleaner/plan?topic=prices"))["plans"]
        assert plan["exact_missing"] == "FAILED"
        families = parse((await request(broker, "GET", "/metrics"))[1])
        one = {"topic": "prices", "partition": "0"}
        (sample,) = families["odradek_cleaner_uncleanable"].samples
        assert one.items() <= sample.labels.items() and sample.value == 1
        assert value(families, "odradek_cleaner_failures", **one) == 1
        (sample,) = families["kafka_log_logcleanermanager_uncleanable_bytes"].samples
        assert sample.value == log.segments[0].size_bytes


@on_uvloop
async def test_the_state_has_threads_settings_and_what_is_next(tmp_path: Path) -> None:
    settings = {**SETTINGS, "log.cleaner.enable": "false"}
    async with live(tmp_path, settings) as broker:
        await fill(broker, "prices", {"cleanup.policy": "compact"})
        state = await get(broker, "/api/cleaner")
        assert state["threads"] == {"wanted": 0, "alive": 0, "died": 0, "last_death": None}
        assert state["settings"]["log.cleaner.enable"] is False
        assert [(one["topic"], one["reason"]) for one in state["next"]] == [("prices", "DIRTY")]
        (outcome,) = (await post(broker, "/api/cleaner/run?topic=prices"))["outcomes"]
        assert outcome["outcome"] == "REFUSED" and "log.cleaner.enable" in outcome["because"]
        why = await get(broker, "/api/cleaner/why?topic=prices&partition=0")
        assert why["verdict"] == "NOT" and "switched off" in why["sentence"]


@on_uvloop
async def test_a_client_that_does_not_wait_is_answered_at_once(tmp_path: Path) -> None:
    async with live(tmp_path, SETTINGS) as broker:
        await fill(broker, "prices", partitions=2)
        status, body = await request(broker, "POST", "/api/cleaner/run?topic=prices&wait=false")
        assert status == 202
        assert [one["partition"] for one in json.loads(body)["asked"]] == [0, 1]
        await until(lambda: broker.cleaner.status().last_results)


@pytest.mark.parametrize(
    ("method", "path", "status", "says"),
    [
        ("GET", "plan?topic=nowhere", 404, "there is no topic nowhere: there are prices"),
        ("GET", "why?topic=prices&partition=1", 404, "has no partition 1: it has 1"),
        ("GET", "why?topic=prices", 400, "name the topic and the partition"),
        ("GET", "why?topic=prices&partition=-1", 400, "partition=-1 is not a number"),
        ("GET", "why?topic=prices&partition=x", 400, "partition=x is not a number"),
        ("GET", "history?topic=prices&partition=99999999999", 400, "is not a number"),
        ("GET", "plan?topics=prices", 400, "topics is not a parameter: use topic"),
        ("GET", "plan?topic=a&topic=b", 400, "topic is repeated"),
        ("GET", "plan?partition=0", 400, "name the topic of the partition"),
        ("GET", "plan?exact=perhaps", 400, "neither true nor false"),
        ("POST", "run", 400, "name the topic"),
        ("POST", "run?topic=prices&wait=perhaps", 400, "neither true nor false"),
    ],
)
def test_the_answer_to_a_bad_request_says_how_to_correct_it(
    tmp_path: Path, method: str, path: str, status: int, says: str
) -> None:
    @on_uvloop
    async def test() -> None:
        async with live(tmp_path, SETTINGS) as broker:
            await create(broker, "prices", 1, LAZY)
            found, body = await request(broker, method, f"/api/cleaner/{path}")
            assert found == status
            assert says in json.loads(body)["error"]
            assert not broker.cleaner.scheduler.asked.waiting

    test()


@on_uvloop
async def test_another_site_cannot_have_a_browser_clean(tmp_path: Path) -> None:
    async with live(tmp_path, SETTINGS) as broker:
        log = await fill(broker, "prices")
        host = "{}:{}".format(*broker.http.sockets[0].getsockname())
        path = "/api/cleaner/run?topic=prices"
        for origin in ("https://evil.example", "null", f"http://{host}.evil.example", "http://"):
            status, body = await request(broker, "POST", path, {"Origin": origin})
            assert status == 403 and "error" in json.loads(body)
        assert len(log.segments) == 2 and not broker.cleaner.scheduler.runs.runs(log)
        own = await request(broker, "POST", path, {"Origin": f"http://{host}"})
        assert own[0] == 200
        assert (await request(broker, "GET", path))[0] == 405


@on_uvloop
async def test_metrics_tell_of_each_compacted_partition(tmp_path: Path) -> None:
    async with live(tmp_path, SETTINGS) as broker:
        log = await fill(broker, "prices")
        await fill(broker, "clicks", {"cleanup.policy": "delete"})
        one = {"topic": "prices", "partition": "0"}
        families = parse((await request(broker, "GET", "/metrics"))[1])
        assert value(families, "odradek_cleaner_dirty_bytes", **one) == log.size_bytes
        assert value(families, "odradek_cleaner_dirty_ratio", **one) == 1.0
        assert value(families, "odradek_cleaner_runs", **one) == 0
        assert families["odradek_cleaner_last_run_duration_seconds"].samples == []
        before = broker.clock.now_ms() / 1000
        (outcome,) = (await post(broker, "/api/cleaner/run?topic=prices"))["outcomes"]
        families = parse((await request(broker, "GET", "/metrics"))[1])
        assert value(families, "odradek_cleaner_dirty_bytes", **one) == 0
        assert value(families, "odradek_cleaner_runs", **one) == 1
        assert value(families, "odradek_cleaner_clean_bytes", **one) == log.size_bytes
        result = outcome["result"]
        read_bytes = result["indexed_bytes"] + result["read_bytes"]
        assert value(families, "odradek_cleaner_read_bytes") == read_bytes > 0
        assert value(families, "odradek_cleaner_written_bytes") == result["written_bytes"] > 0
        gone = result["reclaimed_bytes"]
        assert value(families, "odradek_cleaner_reclaimed_bytes", **one) == gone > 0
        assert value(families, "odradek_cleaner_last_run_timestamp_seconds", **one) >= before
        for family in families.values():
            assert not any(s.labels.get("topic") == "clicks" for s in family.samples
                           if family.name.startswith("odradek_cleaner"))  # fmt: skip


@on_uvloop
async def test_metrics_say_when_a_log_will_be_due(tmp_path: Path) -> None:
    async with live(tmp_path, SETTINGS) as broker:
        lag_ms = 3_600_000
        log = await fill(broker, "prices", {**LAZY, "max.compaction.lag.ms": str(lag_ms)})
        broker.cleaner.wake()
        await until(lambda: broker.cleaner.status().last_results)  # records of 1970 are overdue
        now_ms = broker.clock.now_ms()
        append(log, batch(b"v", timestamp=now_ms, key=b"a"), now_ms=now_ms)
        log.roll(now_ms)
        families = parse((await request(broker, "GET", "/metrics"))[1])
        one = {"topic": "prices", "partition": "0"}
        due = value(families, "odradek_cleaner_due_timestamp_seconds", **one)
        assert due == (now_ms + lag_ms + 1) / 1000


@pytest.mark.slow
@on_uvloop
async def test_a_snapshot_lets_others_go_first(tmp_path: Path) -> None:
    async with live(tmp_path, SETTINGS) as broker:
        await create(broker, "many", 350, LAZY)
        async with counting_turns() as turns:
            snapshot = await take_snapshot(broker)
        assert len(snapshot.cleaner.logs) == 350
        assert turns() >= 3
