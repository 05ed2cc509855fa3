"""Publish a table into a compacted topic: a record a row, keyed, and once more whenever it is run.

A run that was stopped or killed goes on where it was when the same command is given again; a run
after one that ended publishes the table again. `pipeline.publishing` says how.
"""

import sys
from collections.abc import Sequence

import click
from pyspark.sql import SparkSession

from pipeline.admin import open_admin, require_compacted
from pipeline.keyed import Keyed
from pipeline.options import (
    pairs,
    run_command,
    session_options,
    told_in_one_line,
    topic_options,
)
from pipeline.origin import TableSource, Tickets, origin_options
from pipeline.publishing import CHUNK_RECORDS, PublishJob, Sent, prepare, send
from pipeline.session import SessionOptions, open_session
from pipeline.source import TopicSource, require_broker
from pipeline.stopping import stop_requests


@click.command("publish")
@topic_options
@origin_options
@click.option(
    "--key", metavar="COLUMN,…", help="The key's columns.  [default: id, where tickets are made]"
)
@click.option(
    "--value", metavar="COLUMN", help="Take this column as the value.  [default: the row as JSON]"
)
@click.option("--deleted-where", metavar="SQL", help="Publish these rows as tombstones.")
@click.option(
    "--delete-missing", is_flag=True, help="Publish a tombstone for each key that has no row."
)
@click.option(
    "--work", required=True, metavar="FOLDER", help="Where to keep what is still to be sent."
)
@click.option("--records-per-second", type=click.IntRange(min=1), help="Send no faster.")
@click.option(
    "--chunk-records",
    type=click.IntRange(min=1),
    default=CHUNK_RECORDS,
    show_default=True,
    help="Note progress after so many records; a run that was killed sends up to so many again.",
)
@click.option("--create", is_flag=True, help="Create the topic if it does not exist, compacted.")
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help="Partitions of a topic that is created.",
)
@click.option(
    "--topic-config",
    "topic_configs",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a config of a topic that is created.",
)
@session_options
def publish_command(
    *,
    source: TopicSource,
    session: SessionOptions,
    origin: TableSource | Tickets,
    key: str | None,
    value: str | None,
    deleted_where: str | None,
    delete_missing: bool,
    work: str,
    records_per_second: int | None,
    chunk_records: int,
    create: bool,
    partitions: int,
    topic_configs: Sequence[str],
) -> None:
    """Publish a table into a compacted topic, or go on with a publication that was stopped."""
    if key is None and isinstance(origin, TableSource):
        raise click.UsageError("name the key's columns with --key")
    if delete_missing and isinstance(origin, TableSource) and origin.where:
        raise click.UsageError("--delete-missing needs the whole table: leave out --where")
    job = PublishJob(
        source=source,
        origin=origin,
        keyed=Keyed((key or "id").split(","), value, deleted_where),
        work=work.rstrip("/"),
        delete_missing=delete_missing,
        records_per_second=records_per_second,
        chunk_records=chunk_records,
    )
    configs = {"cleanup.policy": "compact"} | pairs("--topic-config", topic_configs)
    topic = str(source.topic)
    with told_in_one_line(source, debug=session.debug):
        require_broker(source.bootstrap_servers)
        with open_session(session) as spark:
            with open_admin(spark, source) as admin:
                if create and admin.partition_count(topic) is None:
                    admin.create(topic, partitions, configs)
                require_compacted(admin, source)
            publish(spark, job)


def publish(spark: SparkSession, job: PublishJob) -> None:
    """Run the job to its end or until it is asked to stop, and tell how far it comes."""
    publication, goes_on = prepare(spark, job)
    plan = publication.plan
    click.echo(
        f"{'going on with' if goes_on else 'publishing'} {plan.records} records "
        f"({plan.tombstones} tombstones) to topic {plan.topic}"
    )
    with stop_requests() as asked_to_stop:
        ended = send(spark, job, publication, _Teller(), asked_to_stop)
    if not ended:
        click.echo("stopped: the same command goes on from here")


def main(argv: Sequence[str]) -> int:
    """Run the command on its arguments and return its exit code."""
    return run_command(publish_command, argv)


class _Teller:
    """Tells of progress once a second at most, and of the end."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, sent: Sent) -> None:
        if sent.seconds < self._next and sent.records_in_all < sent.records_planned:
            return
        self._next = sent.seconds + 1
        share = 100 * sent.records_in_all / sent.records_planned
        rate = sent.records / sent.seconds
        click.echo(
            f"published {sent.records_in_all} of {sent.records_planned} records "
            f"({share:.1f} %), {rate:.0f} a second"
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
