"""odradek pipeline shows the help of each job on a machine without Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping

import pytest

from bench.processes import ROOT
from odradek.cli.main import pipeline

# Runs the command lines of the first argument, where the packages of the second are missing.
_PROGRAM = """
import json, sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in json.loads(sys.argv[2]):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
from click.testing import CliRunner
from odradek.cli.main import main

shown = {}
for line in json.loads(sys.argv[1]):
    done = CliRunner().invoke(main, line.split(), prog_name="odradek")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    shown[line] = [done.exit_code, done.output]
print(json.dumps(shown))
"""
_EXTRA = ["pyspark", "py4j", "pyarrow", "pandas", "matplotlib", "google.protobuf", "delta"]
JOBS = sorted(pipeline.commands)
HELP = [f"pipeline {job} --help" for job in JOBS]
JOB = "pipeline latest --topic prices --table prices"


def _run(lines: list[str], missing: list[str]) -> Mapping[str, tuple[int, str]]:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, json.dumps(lines), json.dumps(missing)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return {line: (status, text) for line, (status, text) in json.loads(done.stdout).items()}


@pytest.fixture(scope="module")
def without_spark() -> Mapping[str, tuple[int, str]]:
    """What the lines show without Spark; the job runs before the help and after it."""
    return _run([JOB, *HELP, JOB], _EXTRA)


def test_without_spark_each_job_shows_its_help(
    without_spark: Mapping[str, tuple[int, str]]
) -> None:
    for line in HELP:
        status, text = without_spark[line]
        assert status == 0, text
        assert text.startswith(f"Usage: odradek {line.removesuffix(' --help')} "), text
        assert "--cache" in text and "--help" in text


def test_the_help_is_the_same_with_and_without_spark(
    without_spark: Mapping[str, tuple[int, str]]
) -> None:
    pytest.importorskip("pyspark")
    assert {line: without_spark[line] for line in HELP} == _run(HELP, [])


def test_without_spark_a_job_that_runs_says_how_to_install_it(
    without_spark: Mapping[str, tuple[int, str]]
) -> None:
    assert without_spark[JOB] == (
        1, "odradek: PySpark is missing: pip install 'odradek[pipeline]'\n"
    )  # fmt: skip
