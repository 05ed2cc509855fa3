"""Summarize segment files, of a backup or of a disk, without a broker.

    topic   partition  segments  batches  records  tombstones     bytes  first  last  …  codecs
    orders          0         3      412     5021          17  10485760      0  5874  …  lz4, none

Reads every batch and checks its CRC. Bytes are those of the files. Records of aborted
transactions count; markers count as batches only. Damage is reported after the table, and makes
the exit code 1.

This command uses the data source `pipeline.segment_source`, which answers other questions, too.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

import click
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from odradek.pipeline.options import (
    errors_in_one_line,
    run_command,
    segment_options,
    session_options,
)
from odradek.pipeline.segment_finding import find_segments
from odradek.pipeline.segment_selection import REPORT, parse_options
from odradek.pipeline.segment_source import read_segments
from odradek.pipeline.session import SessionOptions, open_session
from odradek.pipeline.text import lay_out

_HEADINGS = (
    "topic", "partition", "segments", "batches", "records", "tombstones", "bytes",
    "first offset", "last offset", "first timestamp", "last timestamp", "codecs",
)  # fmt: skip
_TEXTS = ("topic", "first timestamp", "last timestamp", "codecs")
_COLUMNS = (
    "topic", "partition", "offset", "timestamp", "value_size_bytes", "codec", "control",
    "segment", "position", "damage",
)  # fmt: skip
_NOTHING = "-"


def summarize(records: DataFrame) -> DataFrame:
    """Return a row for each partition: totals of its batches and records, and its damage."""
    is_record = f.col("damage").isNull() & ~f.col("control")
    of_record = {
        name: f.when(is_record, f.col(name)) for name in ("offset", "timestamp", "codec")
    }
    # A timestamp before 1970 means none: old messages may lack it.
    time = f.when(of_record["timestamp"] >= f.timestamp_millis(f.lit(0)), f.col("timestamp"))
    batches = records.groupBy("topic", "partition", "segment", "position", "damage").agg(
        f.count_if(is_record).alias("records"),
        f.count_if(is_record & f.col("value_size_bytes").isNull()).alias("tombstones"),
        f.min(of_record["offset"]).alias("first_offset"),
        f.max(of_record["offset"]).alias("last_offset"),
        f.min(time).alias("first_time"),
        f.max(time).alias("last_time"),
        f.first(of_record["codec"]).alias("codec"),
        f.first("offset").alias("offset"),
    )
    damage = f.struct("segment", "position", "offset", "damage")
    return batches.groupBy("topic", "partition").agg(
        f.count_if(f.col("damage").isNull()).alias("batches"),
        f.sum("records").alias("records"),
        f.sum("tombstones").alias("tombstones"),
        f.min("first_offset").alias("first_offset"),
        f.max("last_offset").alias("last_offset"),
        _as_text(f.min("first_time")).alias("first_time"),
        _as_text(f.max("last_time")).alias("last_time"),
        f.sort_array(f.collect_set("codec")).alias("codecs"),
        f.sort_array(f.collect_list(f.when(f.col("damage").isNotNull(), damage))).alias("damage"),
    )


def describe(spark: SparkSession, options: dict[str, str]) -> tuple[list[str], list[str]]:
    """Read segments; return the lines of a table of partitions, and a line for each damage."""
    parsed = parse_options(options)
    files: dict[tuple[str, int], list[int]] = defaultdict(list)
    for segment in find_segments(parsed, parsed.selection):
        files[segment.topic, segment.partition].append(segment.size_bytes)
    records = read_segments(
        spark, includeControl="true", onDamage=REPORT, columns=",".join(_COLUMNS), **options
    )
    rows = {(row["topic"], row["partition"]): row for row in summarize(records).collect()}
    damage = [
        f"{place['segment']} is damaged at position {place['position']}, "
        f"offset {place['offset']}: {place['damage']}"
        for _, row in sorted(rows.items())
        for place in row["damage"]
    ]
    cells = [_cells(name, sizes, rows.get(name)) for name, sizes in sorted(files.items())]
    return list(lay_out([_HEADINGS, *cells], left=_TEXTS)), damage


@click.command("segments")
@segment_options
@session_options
def segments_command(*, source: dict[str, str], session: SessionOptions) -> None:
    """Summarize segment files: batches, records, bytes, offsets, times, codecs, damage."""
    with errors_in_one_line(debug=session.debug):
        parsed = parse_options(source)
        find_segments(parsed, parsed.selection)  # before Java starts, which takes some seconds
        with open_session(replace(session, packages=())) as spark:
            lines, damage = describe(spark, source)
    for line in lines:
        click.echo(line)
    for line in damage:
        click.echo(line, err=True)
    if damage:
        sys.exit(1)


def main(argv: Sequence[str]) -> int:
    """Run the command on its arguments and return its exit code."""
    return run_command(segments_command, argv)


def _cells(partition: tuple[str, int], sizes: Iterable[int], row: Row | None) -> list[str]:
    sizes = list(sizes)
    found = row.asDict() if row else {}
    numbers = [found.get(name) or 0 for name in ("batches", "records", "tombstones")]
    ends = ("first_offset", "last_offset", "first_time", "last_time")
    edges = [_NOTHING if found.get(name) is None else str(found[name]) for name in ends]
    codecs = ", ".join(found.get("codecs") or ()) or _NOTHING
    counts = [str(number) for number in (len(sizes), *numbers, sum(sizes))]
    return [partition[0], str(partition[1]), *counts, *edges, codecs]


def _as_text(time: Column) -> Column:
    return f.date_format(time, "yyyy-MM-dd HH:mm:ss.SSS")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
