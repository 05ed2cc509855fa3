"""The unit for systemd: what systemd itself says of it, and that the command is as it is."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from odradek.cli.main import main

UNIT = Path(__file__).parent.parent / "packaging" / "systemd" / "odradek.service"
TEXT = UNIT.read_text()


def setting(name: str) -> str:
    [found] = re.findall(rf"^{name}=(.*)$", TEXT, re.M)
    return str(found)


def test_the_command_of_the_unit_is_one_that_there_is() -> None:
    program, name, *arguments = shlex.split(setting("ExecStart"))
    assert Path(program).name == "odradek"
    command = main.get_command(click.Context(main), name)
    assert command is not None
    options = {option for one in command.params for option in one.opts}
    assert {one for one in arguments if one.startswith("--")} <= options


def test_the_data_and_the_cache_lie_where_the_unit_may_write() -> None:
    assert setting("ProtectSystem") == "strict"
    assert f"log.dirs=/var/lib/{setting('StateDirectory')}" in setting("ExecStart")
    assert setting("Environment") == f"NUMBA_CACHE_DIR=/var/cache/{setting('CacheDirectory')}"


def test_systemd_finds_nothing_wrong(tmp_path: Path) -> None:
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("there is no systemd-analyze here")
    program = tmp_path / "odradek"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / UNIT.name
    unit.write_text(TEXT.replace("/usr/local/bin/odradek", str(program)))
    done = subprocess.run([tool, "verify", str(unit)], capture_output=True, text=True, timeout=60)
    ours = [line for line in done.stderr.splitlines() if "odradek" in line]
    assert not ours, done.stderr
