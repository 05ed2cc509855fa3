"""The log as JSON: an object a line, with the fields of each message."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.processes import ROOT, OdradekProcess
from odradek.broker.process.logs import JsonFormatter, TextFormatter
from odradek.storage.errors import CorruptFile
from tests.conftest import StartBroker
from tests.support.forking import ForkedOdradek


def told(template: str, *arguments: object, exc_info: Any = None) -> dict[str, Any]:
    record = logging.LogRecord(
        "odradek.broker.topics", logging.INFO, "topics.py", 1, template, arguments, exc_info
    )
    line = JsonFormatter().format(record)
    assert "\n" not in line
    found: dict[str, Any] = json.loads(line)
    at = datetime.fromisoformat(found.pop("time"))
    assert at.timestamp() == pytest.approx(record.created, abs=0.001)
    assert at.utcoffset() is not None and found.pop("logger") == "odradek.broker.topics"
    return found


def fields(template: str, *arguments: object) -> dict[str, Any]:
    found = told(template, *arguments)
    assert found.pop("message") == template % arguments
    assert found.pop("level") == "INFO"
    return found


def test_fields_are_those_of_the_message_with_their_types() -> None:
    assert fields(
        "rolled segment topic=%s partition=%d base=%d because=%r", "a", 0, 42, "it is full"
    ) == {"topic": "a", "partition": 0, "base": 42, "because": "it is full"}
    assert fields("refused peer=%s:%d reason=it has max.connections.per.ip=%d", "::1", 9, 5) == {
        "peer": "::1:9", "max.connections.per.ip": 5,
    }  # fmt: skip
    assert fields("loaded %s partition=%d %s", "groups", 3, "x=1") == {"partition": 3}
    assert fields("done 100%% of log=%s-%d at_s=%.1f", "a", 0, 0.5) == {
        "log": "a-0", "at_s": 0.5,
    }  # fmt: skip
    assert fields("a value=%s that is none", None) == {"value": None}
    assert fields("stopped") == {}


def test_damage_names_its_place() -> None:
    damage = CorruptFile(Path("/data/0.log"), 42, "the CRC is wrong", offset=7)
    found = fields("found damage: %s", damage)
    assert found == {"file": "/data/0.log", "position": 42, "offset": 7}


def test_a_field_does_not_hide_what_every_line_has() -> None:
    assert told("changed level=%s", "DEBUG")["level"] == "INFO"
    assert told("changed level=%s", "DEBUG")["level_"] == "DEBUG"


def test_an_exception_is_a_string_with_its_trace() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        found = told("ended by a bug", exc_info=sys.exc_info())
    assert found["exception"].startswith("Traceback (most recent call last)")
    assert found["exception"].endswith("ValueError: two\nlines")


# --- as text ----------------------------------------------------------------------------------


def text(template: str, *arguments: object, exc_info: Any = None) -> str:
    record = logging.LogRecord("odradek.web", logging.INFO, "", 1, template, arguments, exc_info)
    return TextFormatter().format(record)


def test_nobody_writes_lines_of_his_own() -> None:
    forged = "/x\n2026-11-23 07:00:00,000 INFO    odradek.web: all is well"
    line = text("refused a wrong token path=%s", forged)
    assert line.splitlines() == [line]
    assert line.endswith("path=/x\\n2026-11-23 07:00:00,000 INFO    odradek.web: all is well")
    told = text("name=%s", "\x1b]0;x\x07 \r \x85 \u2028 \u202e \x9b \udc80 é 猫")
    assert told.isprintable()
    assert told.endswith(r"name=\x1b]0;x\x07 \r \x85 \u2028 \u202e \x9b \udc80 é 猫")


def test_a_traceback_stays_as_it_is() -> None:
    try:
        raise ValueError("no number")
    except ValueError:
        lines = text("failed client=%s", "a\nb", exc_info=sys.exc_info()).splitlines()
    assert lines[0].endswith(r"failed client=a\nb")
    assert lines[1] == "Traceback (most recent call last):" and len(lines) > 3
    assert lines[-1] == "ValueError: no number"


def test_a_report_of_our_own_may_have_lines() -> None:
    record = logging.LogRecord("odradek.cleaner", logging.INFO, "", 1, "a\n\tb", (), None)
    record.is_multiline = True
    assert TextFormatter().format(record).endswith("a\n\tb")


# --- as a process -----------------------------------------------------------------------------


def lines_of(broker: OdradekProcess) -> list[dict[str, Any]]:
    """Return what a broker has written, to standard output and error alike."""
    return [json.loads(line) for line in broker.log_text().splitlines()]


@pytest.mark.slow
def test_all_that_a_broker_writes_is_json(tmp_path: Path) -> None:
    from confluent_kafka import Producer

    broker = ForkedOdradek(
        tmp_path / "broker",
        {"num.partition": "3"},
        {"ODRADEK_LOG_FORMAT": "json"},
        log_level="DEBUG",
    )
    broker.start()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    producer.produce("orders", b"value")
    producer.flush()
    broker.kill()
    segment = broker.data / "orders-0" / f"{0:020}.log"
    segment.write_bytes(segment.read_bytes() + b"torn")
    broker.start()
    broker.stop()
    lines = lines_of(broker)
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)
    announced = [line for line in lines if "accepts connections" in line["message"]][-1]
    assert announced["listeners"] == [broker.bootstrap] and announced["data"] == [str(broker.data)]
    [created] = [line for line in lines if line["message"].startswith("created topic")]
    assert (created["topic"], created["partitions"]) == ("orders", 1)
    assert created["logger"] == "odradek.broker.topics.registry" and created["level"] == "INFO"
    [cut] = [line for line in lines if line["message"].startswith("cut a tail")]
    assert (cut["file"], cut["bytes"]) == (str(segment), 4) and cut["level"] == "WARNING"


@pytest.mark.slow
def test_so_is_why_a_start_has_failed(start_broker: StartBroker, tmp_path: Path) -> None:
    running = start_broker()
    other = ForkedOdradek(
        tmp_path / "other", environment={"ODRADEK_LOG_FORMAT": "json"}, port=running.port
    )
    with pytest.raises(RuntimeError):
        other.start()
        assert other.process is not None
        other.process.wait(20)
        raise RuntimeError
    [line] = lines_of(other)
    assert line["level"] == "ERROR" and "Address already in use" in line["message"]


@given(st.lists(st.floats(0, 4e9)), st.integers(0, 3))
def test_the_time_is_as_logging_writes_it(moments: list[float], repeats: int) -> None:
    formatter, of_python = TextFormatter(), logging.Formatter()
    for created in (one for one in moments for _ in range(repeats)):
        record = logging.makeLogRecord({"created": created, "msecs": created % 1 * 1000})
        assert formatter.formatTime(record) == of_python.formatTime(record)


@pytest.mark.slow
def test_text_stays_as_it_was(start_broker: StartBroker) -> None:
    broker = start_broker()
    assert re.search(
        r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} INFO    odradek\.broker\.network\.server: "
        r"listening "
        rf"name=PLAINTEXT address={broker.bootstrap}$",
        broker.log_text(),
        re.M,
    )


def test_debug_is_of_the_broker_and_not_of_its_compiler() -> None:
    """Compiling the kernels would be told in 15,000 lines."""
    program = (
        "import logging\nfrom odradek.broker.process.logs import TEXT, set_up\n"
        "set_up('DEBUG', TEXT)\n"
        "for name in ('odradek.one', 'numba.core.ssa'):\n"
        "    logging.getLogger(name).debug('small')\n"
        "    logging.getLogger(name).warning('large')\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    found = re.findall(r"(\w+) +([\w.]+): \w+$", ran.stderr, re.M)
    assert found == [
        ("DEBUG", "odradek.one"), ("WARNING", "odradek.one"), ("WARNING", "numba.core.ssa")
    ]  # fmt: skip
