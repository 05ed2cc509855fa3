"""The command-line options for the format of records' values."""

import functools
from collections.abc import Callable
from pathlib import Path

import click

from odradek.pipeline.formats import Format, ValueFormat
from odradek.pipeline.options import decorated

_FORMAT_OPTIONS = (
    click.option(
        "--format",
        "format_",
        type=click.Choice([one.value for one in Format]),
        default=Format.RAW.value,
        show_default=True,
        help="The format of a value's bytes.",
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
        help="The number of bytes before each value that are not part of it, such as Confluent's "
        "5.",
    ),
)


def value_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of values; the command gets a ValueFormat, ``values``."""

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
            raise click.UsageError("--format json, avro or protobuf needs --schema, raw has none")
        if (message is None) != (kind is not Format.PROTOBUF):
            raise click.UsageError("--format protobuf needs --message, other formats have none")
        text = _text_or_file(schema or "", binary=kind is Format.PROTOBUF)
        command(values=ValueFormat(kind, text, message or "", skip_bytes), **others)

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
