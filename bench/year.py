"""Compute the bytes that Kafka's and Odradek's cleaners read and write in a year of updates.

    python -m bench.year                     six patterns, local topics: a few minutes
    python -m bench.year --shared            the segments that topics in an object store have
    python -m bench.year articles --cleaners kafka odradek complete tiers
    python -m bench.year articles --lag-days 1

Nothing is written: `bench/year_model.py` plays the appends of `bench/year_load.py` to the rules of
both cleaners. `tests/bench/test_year.py` holds the models against real runs of both.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bench.year_levels import Complete, LargerRuns, Tiers
from bench.year_load import DAY_MS, PATTERNS, Pattern, sealed_segments
from bench.year_model import KafkaModel, ModelLog, OwnModel, Work, play
from odradek.broker.shared.tails import SEGMENT_BYTES_MAX
from odradek.config.topic import TopicConfig

# Odradek has only the second one, and the third if it is asked to: bench/year_levels.py.
CLEANERS: Mapping[str, type[KafkaModel]] = {
    "kafka": KafkaModel,
    "odradek": OwnModel,
    "complete": Complete,
    "tiers": Tiers,
    "larger-runs": LargerRuns,
}
_SEED = 7
_MB = 1e6


@dataclass(frozen=True, slots=True)
class Year:
    """A year of one pattern with one cleaner."""

    pattern: str
    cleaner: str
    produced_bytes: int
    work: Work
    segments: int  # at the end, sealed ones: each is an object, or shares one
    log_bytes: int

    @property
    def amplification(self) -> float:
        """The bytes that the cleaner writes for each byte produced."""
        return self.work.written_bytes / self.produced_bytes


def simulate(
    name: str,
    cleaner: str,
    *,
    config: TopicConfig,
    days: int = 365,
    scale: float = 1.0,
    shared: bool = False,
) -> Year:
    """Play a pattern to a cleaner; the records there before the year are cleaned at its begin."""
    pattern: Pattern = PATTERNS[name]
    load = pattern.make(np.random.default_rng(_SEED), days, scale)
    config = replace(config, cleanup_policy=frozenset({"compact"}))
    if shared and cleaner != "kafka":  # in objects of this size
        config = replace(config, segment_bytes=min(config.segment_bytes, SEGMENT_BYTES_MAX))
    model = CLEANERS[cleaner](ModelLog(pattern.sizes, config, int(load.keys.max()) + 1))
    sealed = list(sealed_segments(load, pattern.sizes, config, days, shared=shared))
    play(model, [one for one in sealed if one[0] == 0], 0, 1)
    model.work = Work()
    year = [one for one in sealed if one[0] > 0]
    play(model, year, 1, days * DAY_MS)
    segments = model.log.segments
    return Year(
        name,
        cleaner,
        sum(segment.size_bytes for _, segment in year),
        model.work,
        len(segments),
        sum(segment.size_bytes for segment in segments),
    )


def line(year: Year) -> str:
    """Return a row of the report's table."""
    work = year.work
    cells = (
        year.pattern,
        year.cleaner,
        f"{year.produced_bytes / _MB:,.0f}",
        f"{work.read_bytes / _MB:,.0f}",
        f"{work.written_bytes / _MB:,.0f}",
        f"{year.amplification:.3f}",
        f"{work.runs:,}",
        f"{work.expiry_runs:,}",
        f"{work.new_segments:,}",
        f"{year.segments:,}",
        f"{year.log_bytes / _MB:,.0f}",
    )
    return f"| {' | '.join(cells)} |"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("patterns", nargs="*", help=f"of {', '.join(PATTERNS)}")
    parser.add_argument("--cleaners", nargs="+", choices=CLEANERS, default=["kafka", "odradek"])
    parser.add_argument("--shared", action="store_true", help="as in an object store")
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--scale", type=float, default=1.0, help="the share of keys and records")
    parser.add_argument("--ratio", type=float, default=0.5, help="min.cleanable.dirty.ratio")
    parser.add_argument("--lag-days", type=int, help="max.compaction.lag.ms, in days")
    parser.add_argument("--segment-bytes", type=int, default=1 << 30, help="segment.bytes")
    asked = parser.parse_args(arguments)
    unknown = set(asked.patterns) - set(PATTERNS)
    if unknown:
        parser.error(f"no such pattern: {', '.join(sorted(unknown))}")
    config = TopicConfig(
        min_cleanable_dirty_ratio=asked.ratio, segment_bytes=asked.segment_bytes
    )
    if asked.lag_days is not None:
        lag_ms = asked.lag_days * DAY_MS
        config = replace(config, max_compaction_lag_ms=lag_ms)
    print(
        "| pattern | cleaner | produced, MB | read, MB | written, MB | written / produced | runs "
        "| of these for tombstones | segments written | segments at the end | the log then, MB |"
    )
    print("|---|---|" + "---:|" * 9)
    for name in asked.patterns or PATTERNS:
        for cleaner in asked.cleaners:
            year = simulate(
                name, cleaner, config=config, days=asked.days, scale=asked.scale,
                shared=asked.shared,
            )  # fmt: skip
            print(line(year), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
