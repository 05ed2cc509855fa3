"""Types of arguments and options: KEY=VALUE, and names of topics and groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from odradek.cli.completion import complete_topics

# The option of the brokers' addresses: the second name is that of Kafka's tools, the third of rpk.
SERVERS_NAMES = ("-b", "--bootstrap-servers", "--bootstrap-server", "--brokers")

_PARTITION = ("-p", "--partition")
_NUMBER = click.IntRange(min=0)

yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Show the effect, but change nothing."
)


class Pair(click.ParamType[tuple[str, str]]):
    """KEY=VALUE; the value may be empty, and may contain an equals sign."""

    name = "key=value"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        """Split the text at its first equals sign."""
        if isinstance(value, tuple):
            return value
        key, equals, rest = str(value).partition("=")
        if not equals or not key.strip():
            self.fail(f"{value!r} is not KEY=VALUE", param, ctx)
        return key.strip(), rest


class Name(click.ParamType[str]):
    """A name that is not empty: with an empty one some requests would fail without a reason."""

    name = "name"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Return the name; refuse an empty one."""
        if not value:
            self.fail("it is empty", param, ctx)
        return str(value)


def pairs_option(*names: str, help: str, **more: Any) -> Callable[..., Any]:
    """Return an option that may be repeated, each time with KEY=VALUE."""
    return click.option(
        *names, multiple=True, type=Pair(), metavar="KEY=VALUE", help=help, **more
    )


def topics_option(help: str, **more: Any) -> Callable[..., Any]:
    """Return the option for some topics: `topics`."""
    return click.option(
        "--topic",
        "topics",
        multiple=True,
        help=f"{help}; may be repeated.",
        type=Name(),
        shell_complete=complete_topics,
        **more,
    )


def partition_option(help: str, **more: Any) -> Callable[..., Any]:
    """Return the option for one partition: `partition`."""
    return click.option(*_PARTITION, "partition", type=_NUMBER, metavar="N", help=help, **more)


def partitions_option(act: str) -> Callable[..., Any]:
    """Return the option for some of the partitions: `numbers`."""
    return click.option(
        *_PARTITION,
        "numbers",
        type=_NUMBER,
        multiple=True,
        metavar="N",
        help=f"{act} only this partition; may be repeated.",
    )


def broker_option(help: str, **more: Any) -> Callable[..., Any]:
    """Return the option for a broker's number: `broker`."""
    return click.option("--broker", type=_NUMBER, metavar="ID", help=help, **more)
