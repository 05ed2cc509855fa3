"""odradek cleaner: what a person sees, and what a script gets."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bench.processes import ROOT
from odradek.broker.composition import Broker
from odradek.cli import words
from odradek.cli.main import main
from odradek.storage.log import Log
from odradek.storage.segment import LOG
from tests.broker.cleaning import alter_topic
from tests.broker.live import append, batch, client, create, live, on_uvloop, until
from tests.broker.test_cleaner_routes import LAZY, fill
from tests.broker.test_shared_costs import put_more, taken_over
from tests.broker.web import SETTINGS
from tests.cli.answering import answering
from tests.support.forking import ForkedOdradek
from tests.support.waiting import last_answer

HOUR_MS = 3_600_000


async def cleaner(broker: Broker, *arguments: str, env: Mapping[str, str] | None = None) -> Result:
    """Run a command against a broker of this process, in a thread."""
    host, port = broker.http.sockets[0].getsockname()
    environment = {"ODRADEK_URL": f"http://{host}:{port}", "COLUMNS": "80", **(env or {})}
    runner = CliRunner()
    loop = asyncio.get_running_loop()
    return await loop.run_in_executor(
        None, lambda: runner.invoke(main, ["cleaner", *arguments], env=environment)
    )


async def shown(broker: Broker, *arguments: str) -> str:
    """Return what a command prints; it is fit for a terminal of 80 columns, and for a pipe."""
    result = await cleaner(broker, *arguments)
    assert result.exit_code == 0, result.output
    assert "\x1b" not in result.output
    for line in result.output.splitlines():
        assert line == line.rstrip()
    return result.output


@on_uvloop
async def test_the_way_of_a_cleaning_from_plan_to_history(tmp_path: Path) -> None:
    async with live(tmp_path, SETTINGS) as broker:
        await fill(broker, "prices")
        await fill(broker, "clicks", {"cleanup.policy": "delete"})
        table = await shown(broker, "plan")
        assert re.search(r"^prices-0 +not yet +100%", table, re.M) and "clicks" not in table
        plan = await shown(broker, "plan", "prices")
        assert "offsets 0 to 5" in plan and "2 in a map of" in plan and "4 of 6 records" in plan
        assert "Requests" not in plan
        why = await shown(broker, "why", "prices", "0")
        assert re.search(r"no +min\.cleanable\.dirty\.ratio +100\.0% of it is dirty", why)
        assert "object store" not in why
        run = await shown(broker, "run", "prices")
        assert "prices-0  was cleaned in" in run and "records gone: 4 of 6 records" in run
        history = await shown(broker, "history", "prices", "0")
        assert re.search(r"ago +asked for +6 .* 4 ", history)
        assert "object store" not in run + history
        assert "There is nothing to clean in 1 compacted log." in await shown(broker, "plan")
        assert "there was nothing to clean" in await shown(broker, "run", "prices")
        assert "clicks is not compacted" in await shown(broker, "plan", "clicks")


@on_uvloop
async def test_a_run_of_the_dirty_part_alone_is_shown(tmp_path: Path) -> None:
    async with live(tmp_path, {**SETTINGS, "log.cleaner.backoff.ms": "50"}) as broker:
        log = (await create(broker, "prices", 1, LAZY)).partitions[0]
        assert isinstance(log, Log)
        now_ms = broker.clock.now_ms()
        for at in range(40):
            append(log, batch(b"old" * 100, timestamp=now_ms, key=b"%d" % at), now_ms=now_ms)
        log.roll(now_ms)
        await shown(broker, "run", "prices")
        for _ in range(100):
            append(log, batch(b"new" * 100, timestamp=now_ms, key=b"7"), now_ms=now_ms)
        log.roll(now_ms)
        async with client(broker) as there:
            await alter_topic(there, "prices", {"min.cleanable.dirty.ratio": "0.5"})
        await until(lambda: len(broker.cleaner.scheduler.runs.runs(log)) > 1)
        history = await shown(broker, "history", "prices", "0")
        assert re.search(r"ago +dirty, alone +40 .* 99 ", history)
        why = await shown(broker, "why", "prices", "0")
        assert re.search(r"no +min\.cleanable\.dirty\.ratio", why)


@on_uvloop
async def test_json_is_what_the_broker_answers(tmp_path: Path) -> None:
    async with live(tmp_path, SETTINGS) as broker:
        await fill(broker, "prices")
        plan = json.loads(await shown(broker, "plan", "prices", "--json", "--estimate"))
        assert plan["plans"][0]["exact_missing"] == "NOT_ASKED"
        why = json.loads(await shown(broker, "why", "prices", "0", "--json"))
        assert why["verdict"] == "NOT"
        run = json.loads(await shown(broker, "run", "prices", "--json"))
        assert run["outcomes"][0]["outcome"] == "CLEANED"
        assert "will be cleaned next" in await shown(broker, "run", "prices", "--no-wait")
        history = json.loads(await shown(broker, "history", "prices", "0", "--json"))
        assert history["runs"][0]["result"] == run["outcomes"][0]["result"]


@on_uvloop
async def test_a_condition_is_shown_with_the_time_at_which_it_is_met(tmp_path: Path) -> None:
    async with live(tmp_path, SETTINGS) as broker:
        configs = {**LAZY, "min.compaction.lag.ms": str(HOUR_MS)}
        log = (await create(broker, "carts", 1, configs)).partitions[0]
        now_ms = broker.clock.now_ms()
        append(log, batch(b"v", timestamp=now_ms, key=b"a"), now_ms=now_ms)  # type: ignore[arg-type]
        log.roll(now_ms)  # type: ignore[union-attr]
        why = await shown(broker, "why", "carts", "0")
        assert re.search(r"held +min\.compaction\.lag\.ms", why)
        assert re.search(r"in 1 h\b|in 59 min", why.replace("\n", " "))


@on_uvloop
async def test_a_cleaning_that_fails_fails_the_command_and_is_in_the_history(
    tmp_path: Path,
) -> None:
    async with live(tmp_path, SETTINGS) as broker:
        log = await fill(broker, "prices")
        with log.segments[0].path(LOG).open("r+b") as opened:
            opened.seek(70)
            opened.write(b"\xff")
        result = await cleaner(broker, "run", "prices")
        assert result.exit_code == 1 and "CRC" in result.output
        history = await shown(broker, "history", "prices", "0")
        assert re.search(r"ago +failed", history) and "CRC" in history
        assert "tried again in" in history


@on_uvloop
async def test_a_broker_that_says_no_is_quoted_in_one_line(tmp_path: Path) -> None:
    async with live(tmp_path, SETTINGS) as broker:
        await create(broker, "prices", 1, LAZY)
        result = await cleaner(broker, "why", "nowhere", "0")
        assert result.exit_code == 1
        assert result.output == "odradek: there is no topic nowhere: there are prices\n"


def plain(*arguments: str, url: str) -> Result:
    return CliRunner().invoke(main, ["cleaner", *arguments, "--url", url])


def test_a_broker_that_is_not_there_gives_one_clear_line() -> None:
    with socket.socket() as taken:  # bound, not listening: nobody answers
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        for command in (["plan"], ["why", "a", "0"], ["run", "a"], ["history", "a", "0"]):
            result = plain(*command, url=url)
            assert result.exit_code == 1
            assert result.output.count("\n") == 1
            assert f"no broker answers at {url} (Connection refused)" in result.output


@pytest.mark.parametrize(
    ("answer", "status", "says"),
    [
        (b"<html>", 200, "is not Odradek's"),
        (b"[1]", 200, "is not Odradek's"),
        (b"<html>", 500, "answered 500"),
        (b'{"detail": 1}', 404, "answered 404"),
    ],
)
def test_another_server_is_recognised(answer: bytes, status: int, says: str) -> None:
    with answering(answer, status) as url:
        result = plain("plan", url=url)
        assert result.exit_code == 1 and says in result.output and "\n" in result.output


@pytest.mark.parametrize(
    "url", ["nonsense", "ftp://127.0.0.1", "http://", "http://[", "file:///etc/passwd"]
)
def test_an_address_that_is_none_gives_one_clear_line(url: str) -> None:
    result = plain("plan", url=url)
    assert result.exit_code == 1 and result.output.startswith("odradek: ")
    assert result.output.count("\n") == 1


def test_sizes_durations_and_moments_are_as_people_say_them() -> None:
    sizes = {0: "0 B", 999: "999 B", 1_000: "1.0 kB", 1_560_000: "1.6 MB"}
    assert {size: words.size(size) for size in sizes} == sizes
    spans = {0: "0 ms", 999: "999 ms", 1_500: "1.5 s", 59_999: "60.0 s", 60_000: "1 min",
             3_600_000: "1 h", 3_661_000: "1 h 1 min", 90_000_000: "1 d 1 h"}  # fmt: skip
    assert {span: words.duration(span) for span in spans} == spans
    assert words.distance(5_000, 0) == "in 5.0 s"
    assert words.distance(0, 5_000) == "5.0 s ago"
    assert words.moment(2**63 - 1, 0) == "never"
    assert words.count(1, "key") == "1 key" and words.count(2_000, "key") == "2,000 keys"


def test_money_is_shown_as_far_as_it_matters() -> None:
    sums = {0.0: "$0.00", 0.000021: "$0.000021", 0.0000123: "$0.000012", 0.00999: "$0.0100",
            0.01: "$0.01", 1234.5: "$1,234.50", None: "unknown"}  # fmt: skip
    assert {dollars: words.money(dollars) for dollars in sums} == sums


@on_uvloop
async def test_a_shared_topic_has_levels_requests_and_costs(tmp_path: Path) -> None:
    async with taken_over(tmp_path) as broker:
        plan = await shown(broker, "plan", "t", "--estimate")
        estimate = " ".join(plan.split())
        assert re.search(
            r"Requests at most \d+ PUTs? with 14\.4 MB of records, at most \d+ GETs of [\d.]+ MB; "
            r"at most \$0\.\d+: cached blocks cost nothing", estimate
        )  # fmt: skip
        why = await shown(broker, "why", "t", "0")
        assert re.search(r"L0 +WAL +0 B that are in no segment yet\n", why)
        assert re.search(r"L1 +dirty +2 segments in 2 objects, 14\.4 MB\n", why)
        assert re.search(r"L2 +clean +0 segments in 0 objects, 0 B\n", why)
        run = await shown(broker, "run", "t")
        costs = r"\d PUTs? of [\d.]+ MB, \d+ GETs of 14\.\d MB, \$0\.0012"
        assert re.search(f"at the object store: {costs}\n", run)
        history = await shown(broker, "history", "t", "0")
        row = r".* ago +\d +[\d.]+ MB +\d+ +14\.\d MB +\$0\.0012\n"
        assert re.search(rf"At the object store\nEnded .* Costs\n{row}", history)
        await put_more(broker)
        verified = (await cleaner(broker, "verify", "t")).output
        assert re.search(r"The cleaning at the object store: 1 PUT of ", verified)
        assert re.search(r"The proof at the object store: 0 PUTs of 0 B, \d+ GETs? of ", verified)
        level = await shown(broker, "why", "t", "0")
        assert re.search(r"L2 +clean +[12] segments? in ", level)


@pytest.mark.slow
def test_the_command_asks_a_broker_that_runs_as_a_process(tmp_path: Path) -> None:
    from bench.processes import free_port

    port = free_port()
    broker = ForkedOdradek(tmp_path / "broker", {"metrics.listener": f"127.0.0.1:{port}"})
    broker.start()
    environment = {
        **os.environ,
        "ODRADEK_URL": f"http://127.0.0.1:{port}",
        "PYTHONPATH": str(ROOT),
        "http_proxy": "http://127.0.0.1:9",
    }
    command = [sys.executable, "-m", "odradek.cli.main", "cleaner"]

    def run(*arguments: str) -> Any:
        return subprocess.run(
            [*command, *arguments], env=environment, capture_output=True, text=True, timeout=60
        )

    try:
        # HTTP comes after Kafka's listeners.
        found = last_answer(lambda: run("plan"), lambda found: not found.returncode)
        assert found.returncode == 0, found.stderr
        assert found.stdout == "There is nothing to clean in 0 compacted logs.\n"
        refused = run("run", "nowhere")
        assert refused.returncode == 1 and not refused.stdout
        assert refused.stderr.startswith("odradek: there is no topic nowhere")
    finally:
        broker.stop()
