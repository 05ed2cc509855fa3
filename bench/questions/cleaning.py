"""How fast is a compacted topic cleaned, and do clients notice it?"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from bench.cleaner_brokers import clean_stages
from bench.cleaner_latency import measure, quantile_us
from bench.cleaner_load import Load, write_log
from bench.pairs import Broker, Figure, Question, Values
from odradek.broker.process.warm_up import warm_up
from odradek.protocol.compression import Codec

_SEGMENT_BYTES = 64 << 20
_RECORDS, _KEYS = 2_660_000, 300_000
_VALUE_BYTES = 100
_CODECS = {"keyed": Codec.NONE, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}
_SETTINGS = {"log.cleaner.threads": "1", "log.cleaner.backoff.ms": "1000"}


def _ask_cleaner(broker: Broker, scale: float) -> Values:
    """Clean logs of the same bytes; the figures are from the cleaner's own report."""
    values = {}
    kept = set()
    for title, codec in _CODECS.items():
        keys = np.random.default_rng(7).integers(0, int(_KEYS * scale), int(_RECORDS * scale))
        load = Load([keys], _VALUE_BYTES, _SEGMENT_BYTES, codec)
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            written = write_log(load, Path(folder) / "log")
            fresh = type(broker)(Path(folder) / "broker", broker.settings)
            (stage,) = clean_stages(fresh, load, written)
        values[title] = stage.total.log_mb / max(stage.total.seconds, 1e-3)
        kept.add(stage.total.end_records)
    assert len(kept) == 1, kept
    return values


def _compile(broker: Broker) -> None:
    """Compile the kernels, as the first start of an installed package does, before measuring."""
    warm_up()


def _ask_latency(broker: Broker, scale: float) -> Values:
    # A smaller log is cleaned too quickly to measure round trips meanwhile.
    records = max(int(_RECORDS * scale), _RECORDS // 10)
    trips = measure(broker, 1, records, max(int(_KEYS * scale), _KEYS // 10))
    quiet_us, cleaning_us = (quantile_us(one, 0.99) for one in (trips.quiet, trips.cleaning))
    return {
        "round trip p99, no cleaning": quiet_us,
        "round trip p99, while cleaning": cleaning_us,
        "the second by the first": cleaning_us / quiet_us,
    }


CLEANING = Question(
    "cleaning",
    f"{_RECORDS:,} records of {_VALUE_BYTES} B over {_KEYS:,} keys, one thread, by its own report",
    [
        Figure("keyed", "MB/s", at_least=5.0),
        Figure("lz4", "MB/s"),
        Figure("zstd", "MB/s"),
    ],
    _ask_cleaner,
    _SETTINGS,
    prepare=_compile,
    starts_itself=True,
)

CLEANING_LATENCY = Question(
    "cleaning-latency",
    "Round trips of 100 B, acks=1, one after the other, while a log as above is cleaned",
    [
        Figure("round trip p99, no cleaning", "µs", more_is_better=False),
        Figure("round trip p99, while cleaning", "µs", more_is_better=False),
        Figure("the second by the first", "times", more_is_better=False, ours_at_most=2.0),
    ],
    _ask_latency,
    {"log.cleaner.backoff.ms": "100"},
    prepare=_compile,
    note="The cleaner's thread is the third that wants one of two cores. Beside a process that "
    "only keeps a core busy, at the cleaner's niceness, the p99 was 1.5 to 2.3 ms with Odradek, "
    "and 3.0 to 3.6 ms with Kafka.",
)
