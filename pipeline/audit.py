"""Prove on a live topic that its cleaner keeps the guarantees of compaction.

Two readings of the topic, or a table of it and a reading, are compared (`pipeline.guarantees`).
The topic may be written and cleaned meanwhile. Each breach is reported with its partition, offset
and key, and the exit status is 1.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import click
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from odradek.dataclass import dataclass
from odradek.pipeline.checkpoint import ending_offsets
from odradek.pipeline.connector import KAFKA
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.formats import PACKAGES, ValueFormat
from odradek.pipeline.guarantees import (
    Check,
    by_key,
    by_key_of_table,
    by_offset,
    in_order,
    key_checks,
    last_of_keys,
    offset_checks,
    order_check,
    table_check,
)
from odradek.pipeline.kept_table import KeptTable
from odradek.pipeline.options import (
    errors_in_one_line,
    run_command,
    session_options,
    shared_options,
    topic_options,
)
from odradek.pipeline.reading import (
    BrokerTopic,
    Readable,
    Reading,
    digest,
    is_there,
    load,
    take,
    value_bytes,
)
from odradek.pipeline.session import SessionOptions, open_session
from odradek.pipeline.shared_reading import SharedTopic
from odradek.pipeline.source import TopicSource, require_broker
from odradek.pipeline.table_options import table_options
from odradek.pipeline.text import show_bytes
from odradek.pipeline.values import value_options

_EXAMPLES = 10


@dataclass(frozen=True, slots=True)
class Breach:
    """A record that breaks a guarantee."""

    partition: int
    offset: int
    key: str
    what: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a check: the number of rows checked, of breaches, and some of the breaches."""

    name: str
    checked: int
    breaches: int
    examples: Sequence[Breach]


@dataclass(frozen=True, slots=True)
class Report:
    """An audit of a topic: times in milliseconds since 1970, counts of records."""

    topic: str
    against: str
    first_at_ms: int
    second_at_ms: int
    first_records: int
    second_records: int
    cleaned_between: int
    verdicts: Sequence[Verdict]

    @property
    def held(self) -> bool:
        """Return whether every guarantee held."""
        return not any(verdict.breaches for verdict in self.verdicts)


def compare(spark: SparkSession, topic: str, first: str, second: str, examples: int) -> Report:
    """Compare two readings of a topic, in their folders."""
    earlier, before = load(spark, first, topic)
    later, after = load(spark, second, topic)
    offsets = by_offset(before, after, earlier, later).persist()
    try:
        verdicts = [
            *_judge(by_key(last_of_keys(before), after, later), key_checks(later), examples),
            *_judge(in_order(after), [order_check()], examples),
            *_judge(offsets, offset_checks(offsets, later), examples),
        ]
        first_records, second_records, cleaned = offsets.agg(
            f.count("digest_before"),
            f.count("digest"),
            f.count_if(f.col("digest_before").isNotNull() & f.col("digest").isNull()),
        ).collect()[0]
    finally:
        offsets.unpersist()
    times = (earlier.at_ms, later.at_ms)
    return Report(topic, first, *times, first_records, second_records, cleaned, verdicts)


@dataclass(frozen=True, slots=True)
class Kept:
    """A table after a batch, and the end offsets of the batch by partition of the topic."""

    table: str
    rows: DataFrame
    ends: Mapping[int, int]


def find_kept(spark: SparkSession, topic: str, table: KeptTable, checkpoint: str) -> Kept:
    """Find the rows that a job has written for a topic so far.

    Raises PipelineError where there are none.
    """
    progress, rows = table.read_kept(spark)
    ends = ending_offsets(spark, checkpoint, progress.batch_id).get(topic)
    if ends is None:
        raise PipelineError(
            f"{table.name} is of other topics than {topic}: name one of its topics"
        )
    return Kept(table.name, rows.where(f.col("topic") == topic), ends)


def compare_table(
    spark: SparkSession, topic: str, kept: Kept, second: str, examples: int
) -> Report:
    """Compare a table of a topic with a reading that was taken later."""
    later, after = load(spark, second, topic)
    earlier = replace(later, ends=kept.ends)
    last = kept.rows.select(
        "partition",
        "key",
        "offset",
        f.lit(False).alias("is_tombstone"),
        f.unix_millis("timestamp").alias("timestamp_ms"),
        digest(value_bytes(kept.rows)).alias("digest"),
    )
    verdicts = [
        *_judge(by_key_of_table(last, after, earlier), [table_check()], examples),
        *_judge(by_key(last, after, later), key_checks(later, with_tombstones=False), examples),
        *_judge(in_order(after), [order_check()], examples),
    ]
    times, counts = (earlier.at_ms, later.at_ms), (last.count(), after.count())
    return Report(topic, kept.table, *times, *counts, 0, verdicts)


def lines_of(report: Report) -> Iterator[str]:
    """Yield the lines of a report for a person."""
    first, second = (
        time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ms / 1000))
        for ms in (report.first_at_ms, report.second_at_ms)
    )
    yield (
        f"topic {report.topic}: {report.first_records} records at {first}, "
        f"{report.second_records} at {second}; {report.cleaned_between} were cleaned in between"
    )
    for verdict in report.verdicts:
        word = "BROKEN" if verdict.breaches else "held"
        yield f"{word:<8}{verdict.name:<44}{verdict.checked:>12} checked"
        for breach in verdict.examples:
            place = f"{report.topic}-{breach.partition} offset {breach.offset}"
            yield f"          {place} key {breach.key}: {breach.what}"
        if verdict.breaches > len(verdict.examples):
            yield f"          and {verdict.breaches - len(verdict.examples)} more"


def as_json(report: Report) -> str:
    """Return a report as JSON."""
    return json.dumps({"held": report.held, **asdict(report)}, indent=2)


@click.command("audit")
@topic_options
@shared_options
@click.option(
    "--against",
    metavar="FOLDER",
    help="Compare with the reading in this folder; if there is none yet, take one and exit.",
)
@click.option(
    "--wait-seconds",
    type=click.IntRange(min=0),
    help="Take two readings, this many seconds apart.",
)
@click.option(
    "--table",
    metavar="FOLDER|NAME",
    help="Compare with the Delta table in this folder, or the Iceberg table NAMESPACE.TABLE.",
)
@click.option(
    "--checkpoint",
    metavar="FOLDER",
    help="Folder of the progress of the table's job.  [default for delta: TABLE/_checkpoint]",
)
@table_options
@value_options
@click.option(
    "--work",
    metavar="FOLDER",
    help="Folder for temporary readings; on a cluster all machines must see it.",
)
@click.option("--report", "report_file", metavar="FILE", help="Write the report as JSON.")
@click.option(
    "--examples",
    type=click.IntRange(min=1),
    default=_EXAMPLES,
    show_default=True,
    help="Show at most this many records that break a guarantee.",
)
@session_options
def audit_command(
    *,
    source: TopicSource,
    shared: dict[str, str],
    session: SessionOptions,
    against: str | None,
    wait_seconds: int | None,
    table: KeptTable | None,
    checkpoint: str,
    values: ValueFormat,
    work: str | None,
    report_file: str | None,
    examples: int,
) -> None:
    """Prove that a topic's cleaner keeps the guarantees of compaction."""
    if [against, wait_seconds, table].count(None) != 2:
        raise click.UsageError("give one of --against, --wait-seconds and --table")
    topic = str(source.topic)
    readable: Readable = SharedTopic(topic, shared) if shared else BrokerTopic(source)
    packages = (KAFKA, *(table.packages if table else ()), *PACKAGES[values.format])
    session = replace(session, packages=packages)
    with errors_in_one_line(source, debug=session.debug):
        if not shared:
            require_broker(source.bootstrap_servers)
        with open_session(session) as spark, tempfile.TemporaryDirectory() as scratch:
            folder = (work or scratch).rstrip("/")
            if table:
                kept = find_kept(spark, topic, table, checkpoint)
                take(spark, readable, f"{folder}/second", values)
                report = compare_table(spark, topic, kept, f"{folder}/second", examples)
            else:
                first = (against or f"{folder}/first").rstrip("/")
                if not against or not is_there(spark, first):
                    reading = take(spark, readable, first, values)
                    click.echo(f"took a reading of topic {topic}: {sum_of(reading)} offsets")
                    if against:
                        click.echo("after a cleaning, run the same command again to compare")
                        return
                    time.sleep(wait_seconds or 0)
                take(spark, readable, f"{folder}/second", values)
                report = compare(spark, topic, first, f"{folder}/second", examples)
    for line in lines_of(report):
        click.echo(line)
    if report_file:
        Path(report_file).write_text(as_json(report) + "\n", "utf-8")
    if not report.held:
        sys.exit(1)


def main(argv: Sequence[str]) -> int:
    """Run the command on its arguments and return its exit code."""
    return run_command(audit_command, argv)


def sum_of(reading: Reading) -> int:
    """Return the number of offsets that a reading covers."""
    return sum(reading.ends.values()) - sum(reading.starts.values())


def _judge(rows: DataFrame, checks: Sequence[Check], examples: int) -> list[Verdict]:
    """Apply checks to the same rows, and count for all of them in one pass."""
    breaks = [check.applies & check.what.isNotNull() for check in checks]
    columns = [f.count_if(check.applies) for check in checks] + [f.count_if(one) for one in breaks]
    rows = rows.persist()
    try:
        counts = rows.agg(*columns).collect()[0]
        return [
            Verdict(
                check.name,
                counts[number],
                counts[len(checks) + number],
                _examples(rows.where(breaks[number]), check, examples)
                if counts[len(checks) + number]
                else [],
            )
            for number, check in enumerate(checks)
        ]
    finally:
        rows.unpersist()


def _examples(breaches: DataFrame, check: Check, count: int) -> list[Breach]:
    first = breaches.orderBy("partition", "offset").limit(count).withColumn("what", check.what)
    named = check.explained(first).orderBy("partition", "offset")
    return [
        Breach(row[0], row[1], show_bytes(row[2]), row[3])
        for row in named.select("partition", "offset", _key(named), "what").collect()
    ]


def _key(rows: DataFrame) -> Column:
    """Return the key of a row of any join: the key before where there is none now."""
    return f.coalesce("key", "key_before") if "key_before" in rows.columns else f.col("key")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
