"""odradek doctor: one line for each thing, and what to do about it."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bench.processes import free_port
from odradek.cli.main import main
from odradek.storage.directory import CLEAN_MARKER, METADATA_DIRECTORY, LogDirectory
from odradek.storage.real_files import RealFileSystem
from tests.cli.test_one_line_errors import accepts, damage, fill
from tests.support.forking import ForkedOdradek
from tests.support.waiting import wait_until

Findings = list[dict[str, str]]


def doctor(*arguments: str, **settings: str) -> Result:
    named = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "metrics.listener": f"127.0.0.1:{free_port()}",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    pairs = [f"--set={name}={value}" for name, value in named.items()]
    environment: Mapping[str, None] = {
        name: None for name in os.environ if name.startswith(("KAFKA_", "ODRADEK_"))
    }
    return CliRunner().invoke(main, ["doctor", *pairs, *arguments], env=environment)


def found(status: int, *arguments: str, **settings: str) -> Findings:
    result = doctor(*arguments, "--json", **settings)
    assert result.exit_code == status, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    assert document["is_well"] == (status == 0)
    findings: Findings = document["findings"]
    assert all(one["advice"] for one in findings if one["state"] != "ok")
    return findings


def of(findings: Findings, subject: str) -> Findings:
    return [one for one in findings if one["subject"] == subject]


def test_all_is_well_where_a_broker_can_run(tmp_path: Path) -> None:
    result = doctor(log_dirs=str(tmp_path / "data"))
    assert result.exit_code == 0, result.output
    subjects = {line.split()[1] for line in result.output.splitlines()}
    assert {"python", "packages", "kernels", "open", "clock", "settings", "data", "port"} <= (
        subjects
    )
    assert "does not exist yet: a start creates it" in result.output
    assert not (tmp_path / "data").exists()


def test_a_bad_value_is_a_problem_and_an_unknown_name_is_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=x\nnum.io.threads=0\n")
    problems = of(found(1, "--config", str(file)), "settings")
    assert [one["state"] for one in problems] == ["problem", "problem"]
    assert "server.properties line 1" in problems[1]["text"]
    file.write_text("num.partition=3\n")
    (warning, _) = of(found(0, "--config", str(file), log_dirs=str(tmp_path)), "settings")
    assert warning["state"] == "warning" and "did you mean num.partitions" in warning["text"]


def test_data_that_a_start_would_refuse_are_problems(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "kafka" / METADATA_DIRECTORY).mkdir(parents=True)
    held = LogDirectory(RealFileSystem(), tmp_path / "held", cluster_id="c", node_id=7)
    names = [str(tmp_path / name) for name in ("file", "file/below", "kafka", "held")]
    wanted = (
        "file: File exists",
        "file/below: Not a directory",
        f"odradek adopt {names[2]}` to serve its topics",
        "is in use by another process",
    )
    for name, words in zip(names, wanted, strict=True):
        (refused,) = of(found(1, log_dirs=name), "data")
        assert refused["state"] == "problem" and words in refused["text"]
    assert refused["advice"] == f"it is process {os.getpid()}"
    held.close()
    assert of(found(0, log_dirs=names[3]), "data")[0]["state"] == "ok"
    (other,) = of(found(1, log_dirs=names[3], node_id="8"), "data")
    assert "has node.id=7, this broker has 8" in other["text"]


def test_an_unclean_stop_is_reported(tmp_path: Path) -> None:
    held = LogDirectory(RealFileSystem(), tmp_path, cluster_id="c", node_id=1)
    held.close()
    (tmp_path / "orders-0").mkdir()
    assert of(found(0, log_dirs=str(tmp_path)), "data")[0]["state"] == "ok"
    (tmp_path / CLEAN_MARKER).unlink()
    (left,) = of(found(0, log_dirs=str(tmp_path)), "data")
    assert left["state"] == "warning" and "not stopped cleanly" in left["text"]


@contextmanager
def taken() -> Iterator[int]:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        yield one.getsockname()[1]


def test_a_port_that_is_taken_is_a_problem_with_who_has_it(tmp_path: Path) -> None:
    with taken() as port, taken() as other:
        findings = of(
            found(
                1,
                log_dirs=str(tmp_path),
                listeners=f"PLAINTEXT://127.0.0.1:{port}",
                metrics_listener=f"127.0.0.1:{other}",
            ),
            "port",
        )
    assert [one["state"] for one in findings] == ["problem", "problem"]
    assert f"cannot listen on 127.0.0.1:{port}" in findings[0]["text"]
    assert f"by process {os.getpid()} (" in findings[0]["text"]


def test_a_broker_that_has_to_run_and_does_not_is_a_problem(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    (broker,) = of(found(1, "--url", url, log_dirs=str(tmp_path)), "broker")
    assert f"no broker answers at {url}" in broker["text"]


@pytest.mark.slow
def test_a_broker_that_runs_is_recognised_and_looked_after(tmp_path: Path) -> None:
    compacted = {
        "log.cleanup.policy": "compact",
        "log.cleaner.min.cleanable.ratio": "0",
        "log.roll.ms": "50",
    }
    broker = ForkedOdradek(tmp_path / "broker", {**compacted, "log.cleaner.threads": "0"})
    segment = fill(broker, broker.stop)
    # Nothing is cleaned before the damage: a clean log is not read again.
    broker.settings = {**compacted, "log.cleaner.min.compaction.lag.ms": "3600000"}
    settings = {
        "log_dirs": str(broker.data),
        "listeners": f"PLAINTEXT://127.0.0.1:{broker.port}",
        "metrics_listener": f"127.0.0.1:{broker.http_port}",
    }
    broker.start()
    try:
        wait_until(lambda: accepts(broker.http_port), "HTTP is served")
        findings = found(0, **settings)
        texts = [one["text"] for one in findings]
        assert f"{broker.data} is in use by the running broker, 1 partition" in texts
        assert f"PLAINTEXT at 127.0.0.1:{broker.port} is the running broker's" in texts
        assert f"the broker at {broker.http} is healthy" in texts
        assert "1 of 1 thread alive" in texts
    finally:
        broker.stop()
    damage(segment, 65)
    broker.settings = compacted
    broker.start()
    try:
        wait_until(lambda: "failed to clean" in broker.log_text(), "the cleaner met damage")
        wait_until(lambda: accepts(broker.http_port), "HTTP is served")
        (quarantined,) = [
            one for one in found(1, **settings)
            if one["state"] == "problem" and "is in quarantine" in one["text"]
            and one["subject"] == "cleaner"
        ]  # fmt: skip
        assert "orders-0" in quarantined["text"] and "CRC" in quarantined["text"]
        assert "odradek cleaner why orders 0" in quarantined["advice"]
    finally:
        broker.stop()
