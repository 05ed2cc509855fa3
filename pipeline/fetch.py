"""Fetch the jars of the jobs' packages ahead of time: Kafka's connector, Avro, a table format.

A session fetches them when it first starts, which needs a network and takes some seconds. An image
runs this while it is built, so that its containers start without either.
"""

import sys
from collections.abc import Sequence
from dataclasses import replace

import click

from odradek.pipeline.connector import AVRO, KAFKA
from odradek.pipeline.options import errors_in_one_line, run_command, session_options
from odradek.pipeline.session import SessionOptions, open_session
from odradek.pipeline.table_options import TABLE_FORMATS, table_format_option


@click.command("fetch")
@table_format_option
@session_options
def fetch_command(*, session: SessionOptions, table_format: str) -> None:
    """Fetch the jars that Spark needs to read Kafka, and start Spark once to prove it."""
    session = replace(session, packages=(KAFKA, TABLE_FORMATS[table_format], AVRO))
    with errors_in_one_line(debug=session.debug), open_session(session) as spark:
        # Loading the source needs its class, and so the connector.
        spark.read.format("kafka").options(
            **{"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "none"}
        ).load()
        packages = spark.conf.get("spark.jars.packages", "the jars of its own distribution")
        click.echo(f"Spark {spark.version} reads Kafka with {packages}, kept in {session.cache}")


def main(argv: Sequence[str]) -> int:
    """Run the command on its arguments and return its exit code."""
    return run_command(fetch_command, argv)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
