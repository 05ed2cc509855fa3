"""How well do the log cleaners clean? Odradek's and Apache Kafka's, one thread each.

    python -m bench.cleaner [a] [b] [c] [d] [e] [--scale F] [--rounds N]

    a   2,660,000 records of 100 B over 300,000 keys: speed
    b   400,000 keys, once each, and a map for a tenth of them: bytes written for nothing
    c   10,000,000 keys, all clean except one in a hundred: bytes written, time
    d   the records of a, in batches compressed by lz4 and by zstd
    e   20,000,000 keys, once each, and a map for a quarter of them: memory, runs, temporary files

Both get the same log, to the byte, each in a fresh process, and each cleaner reports its own
figures. `--scale` multiplies all counts; `--rounds` is for a, the others run once.
Writes bench-cleaner.json and a picture of its contents, bench-cleaner.svg, into artifacts/.
Needs Java and Kafka's jars (`make kafka`).
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from bench.cleaner_brokers import Cleaned, clean_stages
from bench.cleaner_load import Load, Numbers, write_log
from bench.cleaner_plot import draw
from bench.pairs import BROKERS, summary
from bench.processes import ROOT, lacks_kafka
from odradek.broker.process.warm_up import warm_up
from odradek.protocol.compression import Codec

_MB = 1 << 20
_BUFFER = "log.cleaner.dedupe.buffer.size"
# Kafka's minimum: one thread's buffer must be larger than 1 MiB.
_BUFFER_MIN = _MB + 1
_SETTINGS = {"log.cleaner.threads": "1", "log.cleaner.backoff.ms": "1000"}

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One log, and the names of its cleanings."""

    title: str
    cases: Sequence[str]  # a name for each stage of the log
    load: Callable[[float], Load]
    figures: Sequence[str]  # the rows' entries that the picture shows
    settings: Mapping[str, str] = field(default_factory=dict)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the requested scenarios, and print a table of each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("scenarios", nargs="*", help="a b c d e; all by default")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="folder for temporary logs, some 10 GB")
    parser.add_argument("--artifacts", type=Path, default=ROOT / "artifacts")
    given = parser.parse_args(arguments)
    names = given.scenarios or sorted({name[0] for name in SCENARIOS})
    chosen = [name for name in SCENARIOS if name[0] in names]
    if lacks_kafka():
        return 1
    warm_up()  # compiles the kernels, so that no figure includes it
    for name in chosen:
        rounds = given.rounds if name == "a" else 1
        rows = run(SCENARIOS[name], given.scale, rounds, given.folder)
        save(given.artifacts, name, given.scale, rows)
    return 0


def run(scenario: Scenario, scale: float, rounds: int, folder: Path | None) -> list[Row]:
    """Clean a scenario's log by both brokers, and print a row for each cleaning."""
    print(f"{scenario.title}" + (f", scale {scale:g}" if scale != 1 else ""))
    rows = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            rows += _run_once(scenario, scenario.load(scale), Path(temporary))
    for case in scenario.cases:
        ours, theirs = (
            [row for row in rows if row["case"] == case and row["broker"] == broker]
            for broker in BROKERS
        )
        ratios = [t["seconds"] / o["seconds"] for o, t in zip(ours, theirs, strict=True)]
        print(summary(f"{case}: Kafka's seconds / Odradek's", ratios))
    return rows


def _run_once(scenario: Scenario, load: Load, folder: Path) -> list[Row]:
    written = write_log(load, folder / "log")
    print(f"  {'':22} {'':8} {'runs':>4} {'log MB':>8} {'seconds':>8} {'MB/s':>7} "
          f"{'written MB':>10} {'temp MB':>8} {'peak MB':>8} {'grown':>6}")  # fmt: skip
    rows = []
    for name, kind in BROKERS.items():
        broker = kind(folder / name, {**_SETTINGS, **scenario.settings})
        stages = clean_stages(broker, load, written)
        for case, stage in zip(scenario.cases, stages, strict=True):
            rows.append(_row(case, name, stage))
            _print_row(rows[-1])
    # The same records are left, or else the figures cannot be compared.
    for case in scenario.cases:
        assert len({row["end_records"] for row in rows if row["case"] == case}) == 1, rows
    return rows


def _row(case: str, broker: str, stage: Cleaned) -> Row:
    total = stage.total
    return {
        "case": case,
        "broker": broker,
        "runs": stage.run_count,
        "log_mb": total.log_mb,
        "seconds": max(total.seconds, 0.001),
        "mb_per_s": total.log_mb / max(total.seconds, 0.001),
        "written_mb": total.written_mb,
        "spilled_mb": total.spilled_mb,
        "peak_mb": stage.peak_bytes / _MB,
        "grown_mb": max(stage.peak_bytes - stage.before_bytes, 0) / _MB,
        "segments_written": total.segments_written,
        "segments_kept": total.segments_kept,
        "end_records": total.end_records,
    }


def _print_row(row: Row) -> None:
    print(f"  {row['case']:22} {row['broker']:8} {row['runs']:4} {row['log_mb']:8,.1f} "
          f"{row['seconds']:8.2f} {row['mb_per_s']:7.1f} {row['written_mb']:10,.1f} "
          f"{row['spilled_mb']:8,.1f} {row['peak_mb']:8,.0f} {row['grown_mb']:6,.0f}",
          flush=True)  # fmt: skip


def save(folder: Path, name: str, scale: float, rows: Sequence[Row]) -> None:
    """Write a scenario's rows into the artifacts, in place of its earlier rows."""
    path = folder / "bench-cleaner.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    known[name] = {
        "title": SCENARIOS[name].title,
        "figures": SCENARIOS[name].figures,
        "scale": scale,
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
        "rows": rows,
    }
    known = dict(sorted(known.items()))
    folder.mkdir(exist_ok=True)
    path.write_text(json.dumps(known, indent=1) + "\n")
    path.with_suffix(".svg").write_text(draw(known))


def _once(count: float) -> Numbers:
    return np.arange(int(count), dtype=np.int64)


def _any_of(keys: float, count: float) -> Numbers:
    return np.random.default_rng(7).integers(0, int(keys), int(count))


def _keyed(codec: Codec) -> Callable[[float], Load]:
    return lambda scale: Load([_any_of(300_000 * scale, 2_660_000 * scale)], 100, 64 * _MB, codec)


def _updated(scale: float) -> Load:
    keys, updates = 10_000_000 * scale, 100_000 * scale
    together = int(keys / 2) + _once(updates)
    anywhere = np.random.default_rng(7).choice(int(keys), int(updates), replace=False)
    return Load([_once(keys), together, anywhere], 100, 64 * _MB)


SCENARIOS = {
    "a": Scenario(
        "a: 2,660,000 records of 100 B over 300,000 keys",
        ["keyed"],
        _keyed(Codec.NONE),
        ["mb_per_s"],
    ),
    "b": Scenario(
        "b: 400,000 keys of 480 B, once each, and a map of 1 MiB",
        ["unique, small map"],
        lambda scale: Load([_once(400_000 * scale)], 480, 16 * _MB),
        ["runs", "written_mb"],
        {_BUFFER: str(_BUFFER_MIN)},
    ),
    "c": Scenario(
        "c: 10,000,000 keys of 100 B, then 1 % of them again",
        ["all keys", "1 % side by side", "1 % anywhere"],
        _updated,
        ["seconds", "written_mb"],
        {_BUFFER: str(512 * _MB)},
    ),
    "d-lz4": Scenario("d: the records of a by lz4", ["lz4"], _keyed(Codec.LZ4), ["mb_per_s"]),
    "d-zstd": Scenario("d: the records of a by zstd", ["zstd"], _keyed(Codec.ZSTD), ["mb_per_s"]),
    "e": Scenario(
        "e: 20,000,000 keys of 50 B, once each, and a map of 128 MiB",
        ["unique, large"],
        lambda scale: Load([_once(20_000_000 * scale)], 50, 64 * _MB),
        ["runs", "seconds", "peak_mb"],
        {_BUFFER: str(128 * _MB)},
    ),
}

if __name__ == "__main__":
    sys.exit(main())
