"""The command-line options that the pipeline's commands share, and the report of failures.

A command takes a `TopicSource` and `SessionOptions`, built here from the options. Each failure is
reported in one line (`pipeline.errors`), with Java's trace only with ``--debug``.
"""

import functools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from odradek.pipeline.errors import PipelineError, explain
from odradek.pipeline.session import SessionOptions
from odradek.pipeline.source import TopicSource

_Command = Callable[..., None]

_DEFAULT_CACHE = "~/.cache/odradek"
_CATALOG_VARIABLE = "ODRADEK_CATALOG_URL"

_BOOTSTRAP = click.option(
    "--bootstrap-servers",
    default="127.0.0.1:9092",
    show_default=True,
    envvar="ODRADEK_BOOTSTRAP_SERVERS",
    show_envvar=True,
    metavar="HOST:PORT,…",
    help="The address of the broker.",
)
_OPTION = click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set an option of Spark's Kafka source, such as kafka.security.protocol=SASL_SSL.",
)

_TOPIC_OPTIONS = (_BOOTSTRAP, click.option("--topic", required=True, help="The topic."), _OPTION)

_SOURCE_OPTIONS = (
    _BOOTSTRAP,
    click.option("--topic", help="The topic to read; separate several by commas."),
    click.option("--subscribe-pattern", metavar="REGEX", help="Read every topic that matches."),
    click.option(
        "--starting-offsets",
        default="earliest",
        show_default=True,
        metavar="OFFSETS",
        help='The offsets to start at: earliest, or JSON such as {"prices": {"0": 23}}. A stream '
        "also accepts latest, and uses this option only while it has no checkpoint.",
    ),
    click.option(
        "--fail-on-data-loss/--no-fail-on-data-loss",
        default=True,
        show_default=True,
        help="Stop when records were deleted before they were read.",
    ),
    _OPTION,
)

_PATH_HELP = (
    "A folder of log.dirs, a partition's folder or a .log file; separate several by commas."
)
_TOPIC_OPTION = click.option("--topic", help="Read only this topic; separate several by commas.")
_FILE_OPTIONS = (
    click.option("--path", required=True, metavar="FOLDER", help=_PATH_HELP),
    _TOPIC_OPTION,
)
_SEGMENT_OPTIONS = (click.option("--path", metavar="FOLDER", help=_PATH_HELP), _TOPIC_OPTION)
_SHARED_OPTIONS = (
    click.option(
        "--catalog",
        metavar="URL",
        help="Read shared topics from the object store, by this catalog (odradek.catalog.url).",
    ),
    click.option(
        "--config",
        metavar="FILE",
        help="The server.properties file of a broker, for its catalog and object store.",
    ),
    click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="A setting of the object store, as for serve: odradek.object.store.url=…",
    ),
)

_SESSION_OPTIONS = (
    click.option(
        "--master",
        help="The Spark master that runs the tasks.  [default: spark-submit's, or local[2]]",
    ),
    click.option(
        "--conf",
        multiple=True,
        metavar="NAME=VALUE",
        help="Set a Spark setting, such as spark.driver.memory=2g; an empty value unsets it.",
    ),
    click.option(
        "--cache",
        envvar="ODRADEK_CACHE",
        default=_DEFAULT_CACHE,
        show_default=True,
        metavar="FOLDER",
        help="The folder for fetched jars.",
    ),
    click.option("--debug", is_flag=True, help="Show Spark's own log, and whole traces."),
)


def segment_options(command: _Command) -> _Command:
    """Add options for segments; the command gets options of their data source, ``source``."""

    @functools.wraps(command)
    def with_segments(
        *, path: str | None, topic: str | None, shared: dict[str, str], **others: object
    ) -> None:
        # The variable alone does not decide between files and shared topics.
        if not path:
            shared = shared or catalog_of_environment()
        given = {"path": path, "topic": topic}
        command(source={name: text for name, text in given.items() if text} | shared, **others)

    return decorated(shared_options(with_segments), _SEGMENT_OPTIONS)


def shared_options(command: _Command) -> _Command:
    """Add options for shared topics; the command gets those of the data source, ``shared``."""

    @functools.wraps(command)
    def with_shared(
        *, catalog: str | None, config: str | None, settings: Sequence[str], **others: object
    ) -> None:
        shared = {"catalog": catalog, "config": config}
        given = {name: value for name, value in shared.items() if value}
        if settings:
            given = given or catalog_of_environment()
        command(shared=given | pairs("--set", settings), **others)

    return decorated(with_shared, _SHARED_OPTIONS)


def catalog_of_environment() -> dict[str, str]:
    """Return the option for the catalog that the environment names, if it does."""
    url = os.environ.get(_CATALOG_VARIABLE)
    return {} if url is None else {"catalog": url}


def file_options(command: _Command) -> _Command:
    """Add options for segment files; the command gets options of their data source, ``source``."""

    @functools.wraps(command)
    def with_files(*, path: str, topic: str | None, **others: object) -> None:
        source = {"path": path} | ({"topic": topic} if topic else {})
        command(source=source, **others)

    return decorated(with_files, _FILE_OPTIONS)


def source_options(command: _Command) -> _Command:
    """Add the options of a source; the command gets a TopicSource, ``source``."""

    @functools.wraps(command)
    def with_source(
        *,
        bootstrap_servers: str,
        topic: str | None,
        subscribe_pattern: str | None,
        starting_offsets: str,
        fail_on_data_loss: bool,
        options: Sequence[str],
        max_offsets_per_trigger: int | None = None,
        ending_offsets: str = "latest",
        **others: object,
    ) -> None:
        source = TopicSource(
            bootstrap_servers=bootstrap_servers,
            topic=topic,
            subscribe_pattern=subscribe_pattern,
            starting_offsets=starting_offsets,
            ending_offsets=ending_offsets,
            max_offsets_per_trigger=max_offsets_per_trigger,
            fail_on_data_loss=fail_on_data_loss,
            options=pairs("--option", options),
        )
        command(source=source, **others)

    return decorated(with_source, _SOURCE_OPTIONS)


def topic_options(command: _Command) -> _Command:
    """Add the options of one topic; the command gets a TopicSource, ``source``."""

    @functools.wraps(command)
    def with_topic(
        *, bootstrap_servers: str, topic: str, options: Sequence[str], **others: object
    ) -> None:
        source = TopicSource(bootstrap_servers, topic=topic, options=pairs("--option", options))
        command(source=source, **others)

    return decorated(with_topic, _TOPIC_OPTIONS)


def session_options(command: _Command) -> _Command:
    """Add the options of a Spark session; the command gets SessionOptions, ``session``."""

    @functools.wraps(command)
    def with_session(
        *, master: str | None, conf: Sequence[str], cache: str, debug: bool, **others: object
    ) -> None:
        session = SessionOptions(
            cache=Path(cache).expanduser(),
            master=master,
            settings=pairs("--conf", conf),
            debug=debug,
        )
        command(session=session, **others)

    return decorated(with_session, _SESSION_OPTIONS)


@contextmanager
def errors_in_one_line(source: TopicSource | None = None, *, debug: bool) -> Iterator[None]:
    """Turn errors of Spark, Java and the pipeline into click's one line and exit code 1."""
    try:
        yield
    except PipelineError as error:
        raise click.ClickException(str(error)) from error
    except (PySparkException, Py4JError) as error:
        if debug:
            raise
        where = source.where if source else "the broker"
        line = explain(error, where=where, what=source.what if source else "topics")
        raise click.ClickException(line) from error


def pairs(option: str, entries: Sequence[str]) -> dict[str, str]:
    """Split the values of a repeated option, each NAME=VALUE.

    Raises click's UsageError for a value in another form.
    """
    split = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not name or not equals:
            raise click.UsageError(f"{option} {entry!r} is not NAME=VALUE")
        split[name.strip()] = value
    return split


def run_command(command: click.Command, argv: Sequence[str]) -> int:
    """Run a command on arguments, print its errors in one line, and return its exit code."""
    name = f"odradek pipeline {command.name}"
    try:
        status = command.main(args=list(argv), prog_name=name, standalone_mode=False)
    except click.UsageError as error:
        text = " ".join(error.format_message().split()).removesuffix(".")
        click.echo(f"Error: {text}: see `{name} --help`", err=True)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        click.echo("Error: interrupted", err=True)
        return 1
    return status if isinstance(status, int) else 0


def decorated(command: _Command, options: Sequence[Callable[[_Command], _Command]]) -> _Command:
    """Add options to a command, in the order in which its help lists them."""
    for option in reversed(options):  # click lists the option that was applied last first
        command = option(command)
    return command
