"""Runs commands as a person does, and as a script does."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from click.testing import CliRunner, Result

from bench.processes import ROOT
from odradek.cli.client import ENVIRONMENT
from odradek.cli.main import main
from odradek.cli.profiles import FILE_VARIABLE

_numbers = itertools.count()


def fresh(name: str) -> str:
    """Return a name of a topic or group that no other test has."""
    return f"{name}-{next(_numbers)}"


@dataclass
class Commands:
    """Runs `odradek` against a broker."""

    bootstrap: str

    @property
    def environment(self) -> dict[str, str]:
        """What a command finds in its environment."""
        return {ENVIRONMENT: self.bootstrap, FILE_VARIABLE: os.devnull, "COLUMNS": "80"}

    def run(self, *arguments: str, text: str | bytes | None = None) -> Result:
        """Run a command to its end; what it tells is without traces, and fit for a pipe."""
        result = CliRunner().invoke(main, list(arguments), input=text, env=self.environment)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert "\x1b" not in result.output and "Traceback" not in result.output
        return result

    def shown(self, *arguments: str, text: str | bytes | None = None) -> str:
        """Return what a command prints, which goes well."""
        result = self.run(*arguments, text=text)
        assert result.exit_code == 0, result.output
        return result.stdout

    def document(self, *arguments: str, text: str | bytes | None = None) -> Any:
        """Return the JSON that a command prints."""
        return json.loads(self.shown(*arguments, "--json", text=text))

    def refusal(self, *arguments: str, text: str | bytes | None = None) -> str:
        """Return the one line that says why a command went wrong."""
        result = self.run(*arguments, text=text)
        assert result.exit_code == 1, result.output
        (line,) = result.stderr.splitlines()
        assert line.startswith("odradek: ")
        return line

    def start(self, *arguments: str, **kwargs: Any) -> subprocess.Popen[bytes]:
        """Start a command as a process."""
        environment = {**os.environ, **self.environment, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "odradek.cli.main", *arguments]
        return subprocess.Popen(command, env=environment, cwd=ROOT, **kwargs)


def filled(commands: Commands, prefix: str) -> str:
    """Create a topic of two partitions with five records each; return its name."""
    name = fresh(prefix)
    commands.shown("topics", "create", name, "--partitions", "2")
    lines = "".join(f'{{"partition": {at % 2}, "value": "{at}"}}\n' for at in range(10))
    commands.shown("produce", name, "--format", "json", text=lines)
    return name
