"""Publish a table into a compacted topic: a record with a key for each row.

The same command continues a run that was stopped or killed; after a run that ended, it publishes
the table again. `pipeline.publishing` describes the method.
"""

import sys
from collections.abc import Sequence

import click
from pyspark.sql import SparkSession

from odradek.pipeline.admin import open_admin, require_compacted
from odradek.pipeline.keyed import Keyed
from odradek.pipeline.options import (
    errors_in_one_line,
    pairs,
    run_command,
    session_options,
    topic_options,
)
from odradek.pipeline.origin import TableSource, Tickets, origin_options
from odradek.pipeline.publishing import CHUNK_RECORDS, PublishJob, Sent, prepare, send
from odradek.pipeline.session import SessionOptions, open_session
from odradek.pipeline.source import TopicSource, require_broker
from odradek.pipeline.stopping import stop_requests


@click.command("publish")
@topic_options
@origin_options
@click.option(
    "--key", metavar="COLUMN,…", help="The key's columns.  [default: id, with --tickets]"
)
@click.option(
    "--value", metavar="COLUMN", help="Take this column as the value.  [default: the row as JSON]"
)
@click.option("--deleted-where", metavar="SQL", help="Publish these rows as tombstones.")
@click.option(
    "--delete-missing",
    is_flag=True,
    help="Publish a tombstone for each key of the topic that has no row.",
)
@click.option(
    "--work", required=True, metavar="FOLDER", help="Folder of the records that are not sent yet."
)
@click.option(
    "--records-per-second",
    type=click.IntRange(min=1),
    help="The largest number of records to send per second.",
)
@click.option(
    "--chunk-records",
    type=click.IntRange(min=1),
    default=CHUNK_RECORDS,
    show_default=True,
    help="Note progress after this many records; after a kill up to this many are sent again.",
)
@click.option("--create", is_flag=True, help="Create the topic, compacted, if it does not exist.")
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    default=8,
    show_default=True,
    help="The number of partitions of a new topic.",
)
@click.option(
    "--topic-config",
    "topic_configs",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a config of a new topic.",
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
    """Publish a table into a compacted topic, or continue a publication that was stopped."""
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
    with errors_in_one_line(source, debug=session.debug):
        require_broker(source.bootstrap_servers)
        with open_session(session) as spark:
            with open_admin(spark, source) as admin:
                if create and admin.partition_count(topic) is None:
                    admin.create(topic, partitions, configs)
                require_compacted(admin, source)
            publish(spark, job)


def publish(spark: SparkSession, job: PublishJob) -> None:
    """Run the job to its end or until a stop is requested, and print its progress."""
    publication, goes_on = prepare(spark, job)
    plan = publication.plan
    click.echo(
        f"{'continuing with' if goes_on else 'publishing'} {plan.records} records "
        f"({plan.tombstones} tombstones) to topic {plan.topic}"
    )
    with stop_requests() as asked_to_stop:
        ended = send(spark, job, publication, _Teller(), asked_to_stop)
    if not ended:
        click.echo("stopped: the same command continues from here")


def main(argv: Sequence[str]) -> int:
    """Run the command on its arguments and return its exit code."""
    return run_command(publish_command, argv)


class _Teller:
    """Prints the progress, once a second at most, and at the end."""

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
