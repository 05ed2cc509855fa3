"""The command-line options that say what records' values are."""

import functools
from collections.abc import Callable
from pathlib import Path

import click

from pipeline.formats import Format, ValueFormat
from pipeline.options import decorated

_FORMAT_OPTIONS = (
    click.option(
        "--format",
        "format_",
        type=click.Choice([one.value for one in Format]),
        default=Format.RAW.value,
        show_default=True,
        help="What a value's bytes are.",
    ),
    click.option(
        "--schema",
        metavar="TEXT|@FILE",
        help="The values' schema: 'id BIGINT, status STRING' for json, Avro's own for avro, "
        "@FILE of a descriptor set for protobuf.",
    ),
    click.option("--message", metavar="NAME", help="The message of protobuf values."),
    click.option(
        "--skip-bytes",
        type=click.IntRange(min=0),
        default=0,
        help="Bytes before each value that are no part of it, such as Confluent's 5.",
    ),
)


def value_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of values, and it their sum as ``values``."""

    @functools.wraps(command)
    def with_values(
        *,
        format_: str,
        schema: str | None,
        message: str | None,
        skip_bytes: int,
        **others: object,
    ) -> None:
        kind = Format(format_)
        if (schema is None) != (kind is Format.RAW):
            raise click.UsageError("--schema goes with --format json, avro or protobuf")
        if (message is None) != (kind is not Format.PROTOBUF):
            raise click.UsageError("--message goes with --format protobuf")
        told = _text_or_file(schema or "", binary=kind is Format.PROTOBUF)
        command(values=ValueFormat(kind, told, message or "", skip_bytes), **others)

    return decorated(with_values, _FORMAT_OPTIONS)


def _text_or_file(given: str, *, binary: bool) -> str | bytes:
    if not given.startswith("@"):
        if binary:
            raise click.UsageError("--schema of protobuf values is @FILE, a descriptor set")
        return given
    try:
        content = Path(given[1:]).read_bytes()
        return content if binary else content.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"--schema {given}: {error}") from error
