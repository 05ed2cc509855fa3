"""The odradek command."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from cli import VERSION


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="odradek")
def main() -> None:
    """Odradek: a Kafka-compatible broker that keeps its logs wound tight."""


@main.command()
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A server.properties file, as Kafka's.",
)
@click.option(
    "--set", "pairs", multiple=True, metavar="KEY=VALUE", help="A setting; wins over the file."
)
@click.option(
    "--log-level",
    default="INFO",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
    help="What is written to standard error.",
)
def serve(config: Path | None, pairs: tuple[str, ...], log_level: str) -> None:
    """Run the broker.

    Settings come from --config, then from KAFKA_… environment variables as Kafka's images read
    them, then from --set; the last one wins.

    Example: odradek serve --set log.dirs=/var/lib/odradek --set num.partitions=3
    """
    from broker.main import StartError, run

    try:
        run(config, dict(os.environ), pairs, log_level.upper(), VERSION)
    except StartError as error:
        click.echo(f"odradek: {error}", err=True)
        sys.exit(1)


@main.group()
def pipeline() -> None:
    """Spark jobs over compacted topics."""


@pipeline.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def latest(arguments: tuple[str, ...]) -> None:
    """Keep the latest value of each key of a topic as a table."""
    from pipeline.latest import main as run_latest

    sys.exit(run_latest(list(arguments)))


if __name__ == "__main__":
    main()
