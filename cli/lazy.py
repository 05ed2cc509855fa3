"""A group of commands, each of which is imported only when it is used."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Mapping
from typing import Any

import click

_INTERRUPTED = 130  # 128 + SIGINT


class LazyGroup(click.Group):
    """A group that knows commands by name, place ("module:attribute") and short help.

    Its own help lists them without an import; tests/cli/test_commands.py compares the short
    helps with the commands.
    """

    def __init__(
        self,
        *args: Any,
        lazy: Mapping[str, tuple[str, str]] | None = None,
        aliases: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = dict(lazy or {})
        self.aliases = dict(aliases or {})

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, including those not imported."""
        return sorted({*super().list_commands(ctx), *self.lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, imported if necessary."""
        cmd_name = self.aliases.get(cmd_name, cmd_name)
        if cmd_name not in self.lazy:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = self.lazy[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; Ctrl-C ends it with the exit status that shells expect.

        A reader that closes the pipe early is no error.
        """
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Otherwise the interpreter flushes the rest at its exit, and prints an error.
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise click.exceptions.Exit(0) from None
        except KeyboardInterrupt:
            raise click.exceptions.Exit(_INTERRUPTED) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands into a help."""
        rows = []
        for name in self.list_commands(ctx):
            if name in self.lazy:
                rows.append((name, self.lazy[name][1]))
            elif (command := super().get_command(ctx, name)) and not command.hidden:
                rows.append((name, command.get_short_help_str(formatter.width)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)
