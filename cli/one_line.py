"""Errors of the command line in one line: the mistake, and the remedy."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import click

from odradek.cli.lazy import LazyGroup
from odradek.config.printable import printable

# A group that was named without a command shows its help (click 8.2 and later).
_ASKS_FOR_HELP = getattr(click.exceptions, "NoArgsIsHelpError", ())


class OneLineGroup(LazyGroup):
    """A group of commands that reports usage errors in one line, as all other errors."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command; standing alone, end the process with the command's exit status."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, False, **extra)
        try:
            status = super().main(args, prog_name, complete_var, False, **extra)
        except _ASKS_FOR_HELP as error:
            error.show()
            sys.exit(error.exit_code)
        except click.ClickException as error:
            click.echo(f"odradek: {one_line(error)}", err=True)
            sys.exit(error.exit_code)
        except click.Abort:
            click.echo("odradek: interrupted", err=True)
            sys.exit(1)
        sys.exit(status if isinstance(status, int) else 0)


def one_line(error: click.ClickException) -> str:
    """Return the error of a command, and the command that shows its options."""
    text = printable(" ".join(error.format_message().split()).removesuffix("."))
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"{text}: see `{context.command_path} --help`" if context else text
