"""Keep the latest value of every key of a topic as a table, continuously.

This is the purpose of a compacted topic, seen from the other end: the broker's cleaner drops
records that a later one with the same key has replaced; this job drops them from a table at once.

    topic, in order of offset            table
    p3:10  p5:7  p3:11  p6:25  p6:12     p3:11  p6:12  p5:17
    p5:14  p7:9  p5:17  p7:(tombstone)

A record replaces the table's row of its key when its offset is higher; a tombstone, a record
without a value, deletes the row. A key is a key of its partition, as it is for the cleaner: Kafka
orders records only within one. A record without a key replaces nothing and is left out.

Each micro-batch becomes one new snapshot of the table (see `pipeline.table`), so that readers see
all of a batch or nothing, and a job that was killed anywhere continues from its checkpoint with
each record counted once.
"""

import sys
from collections.abc import Callable, Sequence

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from odradek.dataclass import dataclass
from odradek.pipeline.checkpoint import checkpoint_progress, require_match
from odradek.pipeline.options import (
    errors_in_one_line,
    run_command,
    session_options,
    source_options,
)
from odradek.pipeline.per_key import latest_per_key
from odradek.pipeline.session import SessionOptions, open_session
from odradek.pipeline.source import (
    TopicSource,
    read_stream,
    require_broker,
    stream_options,
)
from odradek.pipeline.stopping import stop_requests
from odradek.pipeline.table import (
    Snapshot,
    newest_snapshot,
    read_snapshot,
    read_table,
    remove_snapshots,
    write_snapshot,
)

# The local property in which code inside a batch finds the id of its query.
_QUERY_ID = "sql.streaming.queryId"


@dataclass(frozen=True, slots=True)
class LatestJob:
    """A source, a table to keep, and the job's progress.

    With ``available_now`` the job ends at the offsets that the topic has when it starts;
    otherwise it starts a batch every ``interval_seconds``. ``keep_snapshots`` includes the newest.
    """

    source: TopicSource
    table: str
    checkpoint: str
    available_now: bool = False
    interval_seconds: int = 10
    keep_snapshots: int = 2


def merge(table: DataFrame, records: DataFrame) -> DataFrame:
    """Return the table with later records applied: a row for each key that is not deleted.

    ``records`` must be the next ones in the topic. Splitting a topic into such batches anywhere
    and merging them one by one gives `latest_per_key` of the whole.
    """
    return latest_per_key(table.unionByName(records))


def apply_batch(job: LatestJob, records: DataFrame, batch_id: int, query_id: str) -> bool:
    """Commit the table with one more batch in it; return False if the batch was in it already."""
    spark = records.sparkSession
    newest = newest_snapshot(spark, job.table)
    if newest is not None and newest.batch_id >= batch_id:
        return False
    snapshot = Snapshot(batch_id, query_id)
    write_snapshot(merge(read_snapshot(spark, job.table, newest), records), job.table, snapshot)
    remove_snapshots(spark, job.table, snapshot, job.keep_snapshots - 1)
    return True


def start(
    spark: SparkSession, job: LatestJob, committed: Callable[[int, int], None]
) -> StreamingQuery:
    """Start the job; ``committed`` gets each batch's number and the table's count of keys.

    Raises PipelineError where the table and the checkpoint do not belong together.
    """
    newest = newest_snapshot(spark, job.table)
    progress = checkpoint_progress(spark, job.checkpoint)
    held = None if newest is None else newest.progress
    require_match(held, progress, job.table, job.checkpoint)

    def apply(records: DataFrame, batch_id: int) -> None:
        session = records.sparkSession
        query_id = str(session.sparkContext.getLocalProperty(_QUERY_ID))
        if apply_batch(job, records, batch_id, query_id):
            # The footers of the files just written hold the count: no data is read.
            committed(batch_id, read_table(session, job.table).count())

    writer = read_stream(spark, job.source).writeStream.foreachBatch(apply)
    writer = writer.option("checkpointLocation", job.checkpoint).queryName("latest")
    if job.available_now:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{job.interval_seconds} seconds")
    return writer.start()


def wait(query: StreamingQuery) -> None:
    """Wait until a query ends; an interrupt or SIGTERM stops it, which is no failure."""
    with stop_requests() as asked:
        while not query.awaitTermination(1):
            if asked.is_set():
                query.stop()


@click.command("latest")
@source_options
@click.option(
    "--max-offsets-per-trigger", type=int, help="Read at most this many offsets a batch."
)
@click.option("--table", required=True, metavar="FOLDER", help="Folder of the table.")
@click.option(
    "--checkpoint",
    metavar="FOLDER",
    help="Folder of the job's progress; belongs to the table.  [default: TABLE/_checkpoint]",
)
@click.option("--available-now", is_flag=True, help="Read the topic's present records, then exit.")
@click.option(
    "--interval-seconds",
    type=click.IntRange(min=0),
    default=10,
    show_default=True,
    help="Start a batch this often; 0 starts the next at once.",
)
@click.option(
    "--keep-snapshots",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Number of versions of the table to keep, for readers that still use an old one.",
)
@session_options
def latest_command(
    *,
    source: TopicSource,
    session: SessionOptions,
    table: str,
    checkpoint: str | None,
    available_now: bool,
    interval_seconds: int,
    keep_snapshots: int,
) -> None:
    """Keep the latest value of every key of a topic as a table of Parquet files."""
    job = LatestJob(
        source=source,
        table=table.rstrip("/"),
        checkpoint=(checkpoint or f"{table.rstrip('/')}/_checkpoint"),
        available_now=available_now,
        interval_seconds=interval_seconds,
        keep_snapshots=keep_snapshots,
    )
    with errors_in_one_line(source, debug=session.debug):
        stream_options(source)  # before Java starts, which takes some seconds
        require_broker(source.bootstrap_servers)
        with open_session(session) as spark:
            wait(start(spark, job, _report))
            newest = newest_snapshot(spark, job.table)
            click.echo(
                f"{job.table}: {read_table(spark, job.table).count()} keys after batch "
                f"{newest.batch_id}"
                if newest
                else f"{job.table}: no batch yet of {source.what}"
            )


def main(argv: Sequence[str]) -> int:
    """Run the command on its arguments and return its exit code."""
    return run_command(latest_command, argv)


def _report(batch_id: int, keys: int) -> None:
    click.echo(f"committed batch={batch_id} keys={keys}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
