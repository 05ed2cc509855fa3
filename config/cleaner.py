"""The settings of the cleaner: its threads, their memory, and their pace."""

from __future__ import annotations

from odradek.config.option import option, section
from odradek.config.values import DOUBLE_MAX, at_least, int32, int64


@section
class CleanerOptions:
    """The options of the cleaner's threads, which are the broker's."""

    log_cleaner_enable: bool = option(
        "log.cleaner.enable",
        default=True,
        doc="Whether compacted topics are cleaned. Without cleaning they grow for ever.",
    )
    log_cleaner_threads: int32 = option(
        "log.cleaner.threads",
        default=1,
        valid=at_least(0),
        dynamic="cluster-wide",
        doc="How many threads clean logs.",
    )
    log_cleaner_backoff_ms: int64 = option(
        "log.cleaner.backoff.ms",
        default=15_000,
        valid=at_least(0),
        dynamic="cluster-wide",
        doc="How long a cleaner thread waits when no log needs cleaning.",
    )
    log_cleaner_dedupe_buffer_size: int64 = option(
        "log.cleaner.dedupe.buffer.size",
        default=128 * 1024 * 1024,
        dynamic="cluster-wide",
        doc="The most memory that all cleaner threads together use to index keys. They take it "
        "as needed and give it back, where Kafka takes all of it at the start.",
    )
    log_cleaner_io_buffer_size: int32 = option(
        "log.cleaner.io.buffer.size",
        default=512 * 1024,
        valid=at_least(0),
        dynamic="cluster-wide",
        doc="The size of the buffers through which all cleaner threads together read and write.",
    )
    log_cleaner_io_buffer_load_factor: float = option(
        "log.cleaner.io.buffer.load.factor",
        default=0.9,
        dynamic="cluster-wide",
        doc="How full the index of keys may get. A fuller index holds more keys and finds them "
        "more slowly.",
    )
    log_cleaner_io_max_bytes_per_second: float = option(
        "log.cleaner.io.max.bytes.per.second",
        default=DOUBLE_MAX,
        dynamic="cluster-wide",
        doc="The most bytes that all cleaner threads together read and write in a second.",
    )
    log_cleaner_verify: bool = option(
        "log.cleaner.verify",
        default=False,
        dynamic="cluster-wide",
        doc="Whether each cleaning proves, before its output replaces the log's segments, that "
        "the output has exactly the surviving records. The proof reads the log's dirty section "
        "once more, and the rewritten segments twice more, in plain Python, which is some 30 "
        "times slower. Meanwhile it keeps each key of the dirty section in memory, with 130 "
        "bytes beside it.",
    )
    odradek_cleaner_dirty_alone: bool = option(
        "odradek.cleaner.dirty.alone",
        default=True,
        dynamic="cluster-wide",
        doc="Whether a cleaning because of min.cleanable.dirty.ratio may leave the clean part of "
        "a log alone, if so little of the dirty part remains that the ratio is reached again much "
        "later. It writes less; older values in the clean part stay until the next complete "
        "cleaning, which max.compaction.lag.ms always causes. With log.cleaner.verify, or with "
        "transactions in the dirty part, cleanings are complete.",
    )
    odradek_cleaner_spill_bytes_max: int64 = option(
        "odradek.cleaner.spill.bytes.max",
        default=16 * 1024**3,
        valid=at_least(0),
        dynamic="cluster-wide",
        doc="The most bytes that all cleaner threads together write to temporary files, 20 bytes "
        "per record, when a log has more keys than log.cleaner.dedupe.buffer.size allows for. A "
        "log that needs more is cleaned in several runs.",
    )
