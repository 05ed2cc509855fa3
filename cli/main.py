"""The odradek command."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from pathlib import Path

import click

from odradek.cli import VERSION
from odradek.cli.arguments import SERVERS_NAMES
from odradek.cli.completion import complete_configs
from odradek.cli.one_line import OneLineGroup

# The module and attribute of each command, and the first sentence of its help.
_COMMANDS = {
    "acls": ("odradek.cli.acls:acls", "List, create and delete access control lists."),
    "cleaner": (
        "odradek.cli.cleaner:cleaner",
        "Inspect a running broker's log cleaner, or start a cleaning.",
    ),
    "cluster": (
        "odradek.cli.cluster:cluster",
        "Show the brokers of a cluster, move partitions between them; begin or end a cluster.",
    ),
    "completion": (
        "odradek.cli.completion:completion",
        "Print the script that completes commands, topics, groups and settings in a shell.",
    ),
    "configs": (
        "odradek.cli.configs:configs",
        "Describe and change settings of topics, brokers, groups.",
    ),
    "consume": ("odradek.cli.consume:consume", "Print the records of a topic."),
    "doctor": (
        "odradek.cli.doctor:doctor",
        "Check that a broker can run here, and that a running one is healthy.",
    ),
    "dump-log": (
        "odradek.cli.dump_log:dump_log",
        "Print the contents of segments, indexes, snapshots and checkpoints.",
    ),
    "features": (
        "odradek.cli.features:features",
        "Show the features of a cluster, and change their levels.",
    ),
    "get": ("odradek.cli.get:get", "Print the latest value of a key."),
    "groups": ("odradek.cli.groups:groups", "List, describe, delete and reset consumer groups."),
    "init": (
        "odradek.cli.init:init",
        "Write the files to start with: settings, a unit of systemd, a compose file.",
    ),
    "logdirs": (
        "odradek.cli.logdirs:logdirs",
        "Show the log directories of brokers, and move replicas between them.",
    ),
    "perf": ("odradek.cli.perf:perf", "Measure a broker under a load of records with keys."),
    "produce": ("odradek.cli.produce:produce", "Send lines as records to a topic."),
    "profile": (
        "odradek.cli.profile:profile",
        "Name clusters, and choose the one that commands go to.",
    ),
    "quotas": (
        "odradek.cli.quotas:quotas",
        "List, set and delete quotas of users, clients and addresses.",
    ),
    "records": ("odradek.cli.trimming:records", "Delete the first records of partitions."),
    "share-groups": (
        "odradek.cli.share_groups:share_groups",
        "List, describe, delete and reset share groups.",
    ),
    "topics": ("odradek.cli.topics:topics", "List, describe, create, alter and delete topics."),
    "transactions": (
        "odradek.cli.transactions:transactions",
        "List and describe transactions, find and abort hanging ones.",
    ),
    "users": ("odradek.cli.users:users", "List, create and delete users that log in by SCRAM."),
}

# Names by which users of other tools may call them.
_ALIASES = {
    one[:-1]: one
    for one in (
        "acls", "configs", "features", "groups", "logdirs", "quotas", "share-groups", "topics",
        "transactions", "users",
    )
}  # fmt: skip


@click.group(
    cls=OneLineGroup,
    lazy=_COMMANDS,
    aliases=_ALIASES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    *SERVERS_NAMES,
    "bootstrap_servers",
    metavar="HOST:PORT,…",
    help="The addresses of the brokers, for any command.",
)
@click.option("--profile", metavar="NAME", help="The profile that the command uses.")
@click.version_option(VERSION, prog_name="odradek")
def main(bootstrap_servers: str | None, profile: str | None) -> None:
    """Odradek: a Kafka-compatible broker that keeps its logs wound tight."""


@main.command()
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A server.properties file, as Kafka reads it.",
)
@click.option(
    "--set",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=complete_configs,
    help="A setting; wins over the file.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    help="The number of brokers on this machine, each a process: odradek.workers.",
)
@click.option(
    "--log-level",
    default="INFO",
    type=click.Choice(["DEBUG", "INFO", "WARNING", "ERROR"], case_sensitive=False),
    help="The lowest level that is logged to standard error.",
)
@click.option(
    "--log-format",
    default="text",
    envvar="ODRADEK_LOG_FORMAT",
    type=click.Choice(["text", "json"]),
    show_default=True,
    show_envvar=True,
    help="Lines of text, or a JSON object a line.",
)
def serve(
    config: Path | None,
    pairs: tuple[str, ...],
    workers: int | None,
    log_level: str,
    log_format: str,
) -> None:
    """Run the broker.

    Settings come from --config, then from KAFKA_… environment variables as Kafka's images read
    them, then from --set; the last one wins.

    Example: odradek serve --set log.dirs=/var/lib/odradek --set num.partitions=3
    """
    gc.disable()  # imports leave no garbage; the broker enables gc again once it is loaded
    if workers is not None:
        pairs = (*pairs, f"odradek.workers={workers}")
    from odradek.broker.main import run
    from odradek.broker.serve import StartError, StopError, say

    status = 0
    try:
        run(config, dict(os.environ), pairs, log_level.upper(), VERSION, log_format)
    except (StartError, StopError) as error:
        say(str(error), log_format)
        status = 1
    # All is closed. A thread may still be compiling a kernel, which takes a while: a normal exit
    # of the interpreter would wait for that thread, or crash it.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


@main.command()
@click.argument(
    "directories",
    nargs=-1,
    required=True,
    metavar="DIR...",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
)
@click.option(
    "--metadata-dir",
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    help="Kafka's metadata.log.dir, when it is not one of the DIRs.",
)
@click.option(
    "--without-metadata",
    is_flag=True,
    help="Adopt without Kafka's metadata: topics keep their ids, but get no settings.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Leave out topics and settings that cannot be adopted, and adopt the rest.",
)
@click.option("--dry-run", is_flag=True, help="Show the plan, but change nothing.")
def adopt(
    directories: tuple[Path, ...],
    metadata_dir: Path | None,
    without_metadata: bool,
    force: bool,
    dry_run: bool,
) -> None:
    """Take over the data of an Apache Kafka broker, in place.

    Name every directory of Kafka's log.dirs, in the same order. Kafka must be stopped. Topics
    with their ids and settings, dynamic settings of the broker, SCRAM credentials, ACLs and
    committed offsets are taken over; the output lists all that is left behind. Kafka's files stay
    unchanged.

    Example: odradek adopt /var/lib/kafka
    """
    from odradek.broker.adoption.adopt import Source
    from odradek.cli.adopt import adopt as run

    source = Source(tuple(dict.fromkeys(directories)), metadata_dir, without_metadata)
    sys.exit(run(source, force=force, dry_run=dry_run))


@main.group()
def pipeline() -> None:
    """Run Spark jobs over compacted topics."""


def _job(name: str, purpose: str) -> None:
    """Add a job whose own parser reads the rest of the line; PySpark is imported when it runs."""

    @pipeline.command(
        name,
        help=purpose,
        context_settings={"ignore_unknown_options": True, "help_option_names": []},
        add_help_option=False,
    )
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def run_job(arguments: tuple[str, ...]) -> None:
        module_name = f"odradek.pipeline.{name}"
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            from odradek.cli.without_spark import PACKAGES, import_for_help

            if (error.name or "").partition(".")[0] not in PACKAGES:
                raise
            if "--help" in arguments:
                sys.exit(import_for_help(module_name).main(["--help"]))
            click.echo("odradek: PySpark is missing: pip install 'odradek[pipeline]'", err=True)
            sys.exit(1)
        sys.exit(module.main(list(arguments)))


_job("publish", "Publish a table into a compacted topic.")
_job("materialize", "Keep the latest value of each key as a Delta Lake or Iceberg table.")
_job("audit", "Prove that a cleaner keeps the guarantees of compaction.")
_job("latest", "Keep the latest value of each key of a topic as a table.")
_job("read", "Print a topic, or the rows of a table, as Spark reads them.")
_job("clean", "Clean shared topics on the bucket, beside their brokers.")
_job("segments", "Summarize segment files, without a broker.")
_job("plan", "Plan the cleaning of topics from their segment files.")
_job("fetch", "Fetch the jars that Spark needs, ahead of time.")


if __name__ == "__main__":
    main()
