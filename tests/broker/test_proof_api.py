"""Verifying a topic and getting a key's latest value: a real broker, real clients, real HTTP."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer

from odradek.broker.composition import Broker
from odradek.broker.web.octets import HEADERS_MAX, SHOWN_BYTES_MAX
from odradek.broker.web.proofs import VALUE_BYTES_MAX
from odradek.cleaner.passes import clean as cleaning
from odradek.cleaner.proof.proof import Proof
from odradek.cli.main import main
from odradek.protocol.batches import Record, encode_batch
from odradek.protocol.partitioning import partition_of_key
from odradek.storage.log import Log
from odradek.storage.segment import LOG
from odradek.storage.transactions import Marker
from tests.broker.live import append, batch, create, on_uvloop, until
from tests.broker.web import get, request, serving, url

COMPACT = {"cleanup.policy": "compact"}
LARGE = {"max.message.bytes": "4000000"}


async def ask(
    broker: Broker, method: str, path: str, **query: str | int
) -> tuple[int, dict[str, Any]]:
    status, body = await request(broker, method, path, **query)
    return status, json.loads(body)


async def verified(broker: Broker, **query: str | int) -> dict[str, Any]:
    status, answer = await ask(broker, "POST", "/api/cleaner/verify", **query)
    assert status == 200, answer
    return answer


async def got(broker: Broker, **query: str | int) -> dict[str, Any]:
    status, answer = await ask(broker, "GET", "/api/get", **query)
    assert status == 200, answer
    return answer


def shown(data: bytes) -> dict[str, Any]:
    """Return what an answer shows of bytes that are text and not cut."""
    encoded = base64.b64encode(data).decode()
    return {"text": data.decode(), "base64": encoded, "size_bytes": len(data), "is_cut": False}


async def cli(broker: Broker, *arguments: str) -> Result:
    environment = {"ODRADEK_URL": url(broker), "COLUMNS": "200"}
    run = CliRunner().invoke
    return await asyncio.to_thread(run, main, list(arguments), env=environment)


def put(log: Log, *words: str, timestamp: int = 1_000) -> None:
    """Append a batch for each key:value; - is a tombstone."""
    for word in words:
        key, value = word.split(":")
        made = batch(value.encode(), timestamp=timestamp, key=key.encode())
        if value == "-":
            made = _tombstone(key.encode(), timestamp)
        append(log, made)


def _tombstone(key: bytes, timestamp: int) -> bytes:
    return encode_batch([Record(0, timestamp, key, None)])


async def produce(broker: Broker, topic: str, *words: str) -> None:
    """Write with a stock client."""
    port = broker.server.listeners[0].port

    def write() -> None:
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "linger.ms": 0})
        for word in words:
            key, value = word.split(":")
            producer.produce(topic, None if value == "-" else value, key, partition=0)
        assert producer.flush(20) == 0

    await asyncio.to_thread(write)


# --- verify -----------------------------------------------------------------------------------


@on_uvloop
async def test_a_topic_is_cleaned_and_proved(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        (log,) = (await create(broker, "prices", configs=COMPACT)).logs
        await produce(broker, "prices", "p3:10", "p5:7", "p3:11", "p6:25", "p6:-", "p5:14")
        answer = await verified(broker, topic="prices")
        (one,) = answer["partitions"]
        assert answer["is_proved"] and one["is_proved"]
        assert one["cleaned"]["end_offset"] == one["clean_offset"] == 6
        assert (one["cleaned"]["start_records"], one["cleaned"]["end_records"]) == (6, 3)
        assert one["cleaned"]["is_verified"]
        findings = {one["name"]: one["examined"] for one in one["findings"]}
        assert len(findings) == 8
        assert findings["order never changes"] == 3
        assert findings["below the cleaner's checkpoint each key has one record"] == 3
        assert [s.base_offset for s in log.segments] == [0, 6]

        # Nothing new: nothing is cleaned, and what there is is proved.
        (one,) = (await verified(broker, topic="prices"))["partitions"]
        assert one["is_proved"] and one["cleaned"] is None


@on_uvloop
async def test_transactions_are_proved_too(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        (log,) = (await create(broker, "orders", configs=COMPACT)).logs
        put(log, "a:1", "b:1")
        for producer, commit, value in ((7, False, b"aborted"), (8, True, b"committed")):
            part = batch(
                value,
                key=b"a",
                producer_id=producer,
                producer_epoch=0,
                base_sequence=0,
                transactional=True,
            )
            append(log, part)
            log.append_marker(Marker(producer, 0, 0, commit, 1_000))
        put(log, "b:2")
        (one,) = (await verified(broker, topic="orders"))["partitions"]
        assert one["is_proved"], one
        assert one["cleaned"]["end_records"] < one["cleaned"]["start_records"]
        answer = await got(broker, topic="orders", key="a")
        assert answer["value"]["text"] == "committed"


@on_uvloop
async def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        (log,) = (await create(broker, "prices", configs=COMPACT)).logs
        put(log, "a:1", "a:2")
        (one,) = (await verified(broker, topic="prices", dry_run="true"))["partitions"]
        assert one["is_proved"] and one["cleaned"] is None
        assert len(log.segments) == 1
        assert [finding["examined"] for finding in one["findings"]] == [2, 0, 0, 0]
        (plain,) = (await create(broker, "plain")).logs
        put(plain, "a:1")
        (one,) = (await verified(broker, topic="plain", dry_run="true"))["partitions"]
        assert one["is_proved"] and len(one["findings"]) == 2


@on_uvloop
async def test_a_broken_guarantee_is_named(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        (log,) = (await create(broker, "prices", configs=COMPACT)).logs
        put(log, "a:1", "b:1", "a:2")
        # As if it had been cleaned: the checkpoint is beyond records that are not clean.
        broker.partitions.home_of(log).cleaner_offsets["prices", 0] = 3
        answer = await verified(broker, topic="prices", dry_run="true")
        assert not answer["is_proved"]
        (violation,) = [
            finding["violation"]
            for finding in answer["partitions"][0]["findings"]
            if finding["violation"]
        ]
        assert violation["offset"] == 0
        assert violation["key"] == shown(b"a")
        result = await cli(broker, "cleaner", "verify", "prices", "--dry-run")
        assert result.exit_code == 1
        assert "At offset 0, key a: it has a later record at offset 2." in result.stdout


@on_uvloop
async def test_a_cleaning_whose_proof_fails_swaps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Doubtful(Proof):
        """A proof that takes a record for obsolete which is not."""

        def check(self, old: Any, new: Any) -> None:
            self._latest[b"b"] = 99
            super().check(old, new)

    monkeypatch.setattr(cleaning, "Proof", Doubtful)
    async with serving(tmp_path) as broker:
        (log,) = (await create(broker, "prices", configs=COMPACT)).logs
        put(log, "a:1", "b:1", "a:2")
        answer = await verified(broker, topic="prices")
        (one,) = answer["partitions"]
        assert not answer["is_proved"]
        assert "the proof of its cleaning failed at offset 1" in one["error"]
        (entry,) = broker.cleaner.status().quarantined
        assert entry.file is not None and entry.file.endswith(".log.cleaned")
        assert not list(log.directory.glob("*.cleaned"))
        assert (await got(broker, topic="prices", key="b"))["status"] == "found"
        assert any("prices-0 cannot be cleaned" in one for one in broker.problems())


@on_uvloop
async def test_one_partition_in_trouble_hides_no_other(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        topic = await create(broker, "prices", 2, COMPACT)
        for log in topic.logs:
            put(log, "a:1", "b:1", "a:2")
        path = topic.logs[0].active.path(LOG)
        data = bytearray(path.read_bytes())
        data[65] ^= 1
        path.write_bytes(data)
        answer = await verified(broker, topic="prices")
        bad, good = answer["partitions"]
        assert not answer["is_proved"]
        assert "is damaged at position 0" in bad["error"]
        assert good["is_proved"]
        (only,) = (await verified(broker, topic="prices", partition=1))["partitions"]
        assert only["partition"] == 1


@on_uvloop
async def test_requests_that_cannot_be_answered_say_why(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        await create(broker, "plain", 2)
        verify, get = ("POST", "/api/cleaner/verify"), ("GET", "/api/get")
        cases: list[tuple[tuple[str, str], dict[str, str | int], int, str]] = [
            (verify, {}, 400, "name the topic"),
            (verify, {"topic": "absent"}, 404, "there is no topic absent"),
            (verify, {"topic": "plain"}, 409, "is not compacted (cleanup.policy=delete)"),
            (verify, {"topic": "plain", "partition": 2}, 404, "no partition 2: it has 2"),
            (verify, {"topic": "plain", "dry_run": "perhaps"}, 400, "neither true nor"),
            (get, {"topic": "plain"}, 400, "name the key"),
            (get, {"topic": "plain", "key": "x", "key_format": "hex"}, 400, "is not hex"),
            (get, {"topic": "plain", "key": "x", "key_format": "base64"}, 400, "is not base64"),
            (get, {"topic": "plain", "key": "x", "key_format": "sms"}, 400, "key_format is"),
            (get, {"topic": "plain", "key": "x", "isolation": "none"}, 400, "isolation is"),
            (get, {"topic": "plain", "key": "x", "partition": "-1"}, 400, "is not a number"),
        ]
        for where, query, status, words in cases:
            found, answer = await ask(broker, *where, **query)
            assert (found, words in answer["error"]) == (status, True), (query, answer)


@on_uvloop
async def test_a_proof_ends_when_the_broker_stops(tmp_path: Path) -> None:
    async with serving(tmp_path, {"log.cleaner.io.max.bytes.per.second": "100"}) as broker:
        (log,) = (await create(broker, "prices", configs=COMPACT)).logs
        put(log, *(f"k{at}:1" for at in range(50)))
        asked = asyncio.ensure_future(verified(broker, topic="prices"))
        await until(lambda: list(broker.cleaner.scheduler.progress.running))
        # The broker answers others all the while.
        assert (await got(broker, topic="prices", key="k7"))["status"] == "found"
    (result,) = await asyncio.gather(asked, return_exceptions=True)
    assert isinstance(result, aiohttp.ClientError) or not result["is_proved"]


@on_uvloop
async def test_a_look_at_a_log_ends_when_nobody_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, {"log.cleaner.io.max.bytes.per.second": "100"}) as broker:
        (log,) = (await create(broker, "prices", configs=COMPACT)).logs
        put(log, *(f"k{at}:1" for at in range(200)))
        charged: list[int] = []
        charge = broker.cleaner.charge

        def note(size_bytes: int) -> float:
            charged.append(size_bytes)
            return charge(size_bytes)

        monkeypatch.setattr(broker.cleaner, "charge", note)
        asked = asyncio.ensure_future(verified(broker, topic="prices", dry_run="true"))
        await until(lambda: charged)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await until(lambda: "prices-0: it was aborted" in caplog.text)
        assert sum(charged) < log.size_bytes


# --- get --------------------------------------------------------------------------------------


@on_uvloop
async def test_the_latest_value_of_a_key(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        (log,) = (await create(broker, "prices", configs=COMPACT)).logs
        await produce(broker, "prices", "p3:10", "p5:7", "p3:11", "p6:25", "p6:-")
        answer = await got(broker, topic="prices", key="p3")
        assert (answer["status"], answer["offset"], answer["partition"]) == ("found", 2, 0)
        assert answer["value"] == shown(b"11")
        assert (await got(broker, topic="prices", key="p6"))["status"] == "deleted"
        assert (await got(broker, topic="prices", key="p9"))["status"] == "absent"
        for key, form in (("7033", "hex"), ("cDM=", "base64")):
            same = await got(broker, topic="prices", key=key, key_format=form)
            assert same["offset"] == 2
        await verified(broker, topic="prices")
        assert await got(broker, topic="prices", key="p3") == answer
        assert log.active.base_offset == 5


@on_uvloop
async def test_every_partition_is_searched_when_the_default_one_lacks_the_key(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as broker:
        topic = await create(broker, "prices", 3, COMPACT)
        usual = partition_of_key(b"a", 3)
        one, other = (number for number in range(3) if number != usual)
        put(topic.logs[one], "a:older", timestamp=1_000)
        put(topic.logs[other], "a:newer", timestamp=2_000)
        answer = await got(broker, topic="prices", key="a")
        assert (answer["value"]["text"], answer["partition"]) == ("newer", other)
        assert answer["also_in"] == [{"partition": one, "offset": 0, "timestamp_ms": 1_000}]
        assert answer["searched"] == [0, 1, 2]
        answer = await got(broker, topic="prices", key="a", partition=one)
        assert (answer["value"]["text"], answer["searched"]) == ("older", [one])
        put(topic.logs[usual], "a:usual", timestamp=500)
        answer = await got(broker, topic="prices", key="a")
        assert (answer["value"]["text"], answer["searched"]) == ("usual", [usual])


@on_uvloop
async def test_open_transactions_count_only_when_they_are_asked_for(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        (log,) = (await create(broker, "orders")).logs
        put(log, "a:1")
        part = batch(
            b"2", key=b"a", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
        )
        append(log, part)
        assert (await got(broker, topic="orders", key="a"))["value"]["text"] == "1"
        answer = await got(broker, topic="orders", key="a", isolation="read_uncommitted")
        assert answer["value"]["text"] == "2"


@on_uvloop
async def test_a_large_value_is_cut_and_the_answer_says_so(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        (log,) = (await create(broker, "prices", configs=LARGE)).logs
        text = "x" + "ä" * VALUE_BYTES_MAX
        append(log, batch(text.encode(), key=b"k"))
        value = (await got(broker, topic="prices", key="k"))["value"]
        assert (value["size_bytes"], value["is_cut"]) == (len(text.encode()), True)
        kept = base64.b64decode(value["base64"])
        assert kept == text.encode()[:VALUE_BYTES_MAX]
        # The cut goes through a character.
        assert value["text"] == kept[:-1].decode()
        value = (await got(broker, topic="prices", key="k", value_bytes=3))["value"]
        assert (value["text"], value["base64"]) == ("xä", base64.b64encode("xä".encode()).decode())
        value = (await got(broker, topic="prices", key="k", value_bytes=0))["value"]
        assert (value["text"], value["is_cut"]) == ("", True)
        status, refused = await ask(
            broker, "GET", "/api/get", topic="prices", key="k", value_bytes=VALUE_BYTES_MAX + 1
        )
        assert status == 400 and f"0 to {VALUE_BYTES_MAX}" in refused["error"]


@on_uvloop
async def test_of_many_or_large_headers_some_are_shown_and_the_rest_is_counted(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as broker:
        (log,) = (await create(broker, "prices")).logs
        large = ("n" * (SHOWN_BYTES_MAX + 1), b"v" * (SHOWN_BYTES_MAX + 2))
        headers = (large, ("null", None), *((f"h{at}", b"1") for at in range(1_000)))
        append(log, encode_batch([Record(0, 1_000, b"k", b"v", headers)]))
        for answer in (
            await got(broker, topic="prices", key="k"),
            (await get(broker, "/api/records?topic=prices"))["records"][0],
            (await get(broker, "/api/latest?topic=prices"))["records"][0],
        ):
            first, second, third, *_ = answer["headers"]
            assert first["key"] == "n" * SHOWN_BYTES_MAX
            assert (first["key_size_bytes"], first["key_is_cut"]) == (SHOWN_BYTES_MAX + 1, True)
            assert first["value"]["text"] == "v" * SHOWN_BYTES_MAX
            assert first["value"]["size_bytes"] == SHOWN_BYTES_MAX + 2 and first["value"]["is_cut"]
            assert second == {
                "key": "null", "key_size_bytes": 4, "key_is_cut": False, "value": None,
            }  # fmt: skip
            assert (third["key"], third["value"]["text"]) == ("h0", "1")
            assert len(answer["headers"]) == HEADERS_MAX
            assert answer["headers_left_out"] == len(headers) - HEADERS_MAX


# --- the command line -------------------------------------------------------------------------


@on_uvloop
async def test_the_commands(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        await create(broker, "prices", configs=COMPACT)
        await produce(broker, "prices", "p3:10", 'p5:{"a"', "p3:[1]", "p6:-")
        result = await cli(broker, "cleaner", "verify", "prices")
        assert result.exit_code == 0, result.output
        assert result.stdout.count("OK") == 8
        assert "3 of 4 records are left" in result.stdout
        told = await cli(broker, "cleaner", "verify", "prices", "--json")
        assert json.loads(told.stdout)["is_proved"]

        result = await cli(broker, "get", "prices", "p3")
        assert (result.exit_code, result.stdout) == (0, "[1]\n")
        assert "offset     2" in result.stderr
        for form, shown in (("hex", "5b315d\n"), ("base64", "WzFd\n"), ("json", "[\n  1\n]\n")):
            result = await cli(broker, "get", "prices", "p3", "--format", form)
            assert (result.exit_code, result.stdout) == (0, shown)
        result = await cli(broker, "get", "prices", "p6")
        assert (result.exit_code, result.stdout) == (1, "")
        assert "p6 was deleted from prices at" in result.stderr
        result = await cli(broker, "get", "prices", "p9")
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == "odradek: prices has no record of p9 in 1 partition\n"
        result = await cli(broker, "get", "prices", "p5", "--format", "json")
        assert result.exit_code == 1 and "the value is not JSON" in result.stderr
        result = await cli(broker, "get", "absent", "p5")
        assert result.exit_code == 1
        assert result.stderr == "odradek: there is no topic absent: there are prices\n"


@on_uvloop
async def test_the_command_says_what_is_cut_and_does_not_succeed(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        (log,) = (await create(broker, "prices", configs=LARGE)).logs
        value = b"[" + b"1," * (VALUE_BYTES_MAX // 2) + b"1]"
        headers = (("n" * 5_000, b"v" * 5_000), *((f"h{at}", b"1") for at in range(200)))
        append(log, batch(b"first"))
        append(log, encode_batch([Record(0, 1_000, b"k", value, headers)]))
        result = await cli(broker, "get", "prices", "k")
        assert result.exit_code == 1
        assert result.stdout == value[:VALUE_BYTES_MAX].decode() + "\n"
        told = f"the value is cut: these are the first 1,048,576 of its {len(value):,} bytes"
        assert told in result.stderr
        whole = "odradek consume prices --partition 0 --from 1 --count 1"
        assert whole in result.stderr
        shown = " ".join(result.stderr.split())  # a long header goes on in the next lines
        assert "101 more headers are not shown" in shown
        assert shown.count("… (5,000 bytes)") == 2
        result = await cli(broker, "get", "prices", "k", "--format", "json")
        assert (result.exit_code, result.stdout) == (1, "")
        assert whole in result.stderr and "no JSON" not in result.stderr

        address = f"127.0.0.1:{broker.server.listeners[0].port}"
        command = [sys.executable, "-m", "odradek.cli.main", *whole.split()[1:]]
        read = await asyncio.create_subprocess_exec(
            *command, "--bootstrap-servers", address, stdout=asyncio.subprocess.PIPE
        )
        printed, _ = await read.communicate()
        assert (read.returncode, printed) == (0, value + b"\n")


def test_a_broker_that_is_not_there_is_one_sentence() -> None:
    result = CliRunner().invoke(main, ["get", "t", "k", "--url", "http://127.0.0.1:1"])
    assert result.exit_code == 1
    assert result.stderr.startswith("odradek: no broker answers at http://127.0.0.1:1 (")
    assert len(result.stderr.splitlines()) == 1
