"""The cleaner's benchmark: it reads both cleaners' reports, and runs at a small scale."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest

from bench.cleaner import main
from bench.cleaner_load import TOPIC
from bench.cleaner_report import runs, total
from odradek.cleaner.passes.stats import CleanResult, report
from odradek.cleaner.rules.policy import Reason

_MB = 1 << 20
# As Apache Kafka 4.3.1 wrote it.
_KAFKAS = f"""\
[2026-11-21 22:11:09,012] INFO Cleaner 0: Cleaning LogSegment(baseOffset=0) (org.Cleaner)
[2026-11-21 22:11:09,538] INFO \n\
\tLog cleaner thread 0 cleaned log {TOPIC}-0 (dirty section = [0, 133000])
\t1,216.0 MB of log processed in 0.6 seconds (2,027.8 MB/sec).
\tIndexed 1,216.0 MB in 0.4 seconds (44.1 Mb/sec, 62.9% of total time)
\tBuffer utilization: 0.3%
\tCleaned 1,216.0 MB in 0.2 seconds (75.0 Mb/sec, 37.1% of total time)
\tStart size: 1,216.0 MB (133,000 messages)
\tEnd size: 1.8 MB (14,998 messages)
\t88.7% size reduction (88.7% fewer messages)
 (org.apache.kafka.storage.internals.log.LogCleaner)
"""


def _result(**known: object) -> CleanResult:
    facts = {field.name: 1 for field in fields(CleanResult)} | {
        "reason": Reason.DIRTY, "store": None
    }  # fmt: skip
    return CleanResult(**{**facts, **known})  # type: ignore[arg-type]


def test_it_reads_kafkas_report() -> None:
    (run,) = runs(_KAFKAS)
    assert (run.end_offset, run.log_mb, run.written_mb, run.end_records) == (
        133_000, 1216.0, 1.8, 14_998,
    )  # fmt: skip
    assert run.seconds == pytest.approx(1216.0 / 2027.8)
    assert run.segments_written is None


def test_it_reads_our_report_of_several_runs() -> None:
    results = [
        _result(
            topic=TOPIC, partition=0, end_offset=end, start_bytes=2000 * _MB, total_ms=end,
            written_bytes=3 * _MB, end_bytes=900 * _MB, spilled_bytes=5 * _MB,
            segments_written=6, segments_kept=7, end_records=12_345,
        )
        for end in (1500, 2500)
    ]
    log = "".join(f"INFO cleaner: {report(result, 0)}\nINFO more\n" for result in results)
    other = report(_result(topic="other", partition=0, end_offset=9), 0)
    found = runs(other + "\n" + log)
    assert [run.end_offset for run in found] == [1500, 2500]
    added = total(found)
    assert added.seconds == pytest.approx(4.0, rel=1e-3)
    assert (added.written_mb, added.spilled_mb) == (6, 10)
    assert (added.segments_written, added.segments_kept) == (12, 14)
    assert added.end_records == 12_345


def test_a_report_that_is_not_all_there_yet_is_left_out() -> None:
    assert runs(_KAFKAS[: _KAFKAS.index(" messages)\n (org")]) == []


@pytest.mark.interop
@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_it_measures_both_brokers(tmp_path: Path) -> None:
    assert main(["c", "d", "--scale", "0.002", "--artifacts", str(tmp_path)]) == 0
    saved = json.loads((tmp_path / "bench-cleaner.json").read_text())
    # Updates take the place of other records: all keys stay, once each.
    assert {row["end_records"] for row in saved["c"]["rows"]} == {20_000}
    for name, count in (("c", 6), ("d-lz4", 2), ("d-zstd", 2)):
        rows = saved[name]["rows"]
        assert len(rows) == count
        assert {row["broker"] for row in rows} == {"Odradek", "Kafka"}
        for row in rows:
            assert row["runs"] == 1
            assert row["log_mb"] > 0
            assert row["seconds"] > 0
            assert row["peak_mb"] > 10
    assert (tmp_path / "bench-cleaner.svg").read_text().count("1 % anywhere") == 2
