"""Runs the tests of a project in a folder, as pytest runs them with odradek installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from bench.processes import ROOT


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of a project, with the plugin as an installation registers it."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("KAFKA_", "PYTEST_"))}
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider"]
    # By its module alone: where odradek is installed, it would be registered twice.
    command += ["-p", "no:odradek", "-p", "odradek.testing.plugin"]
    command += ["--rootdir", str(folder), *options, str(folder)]
    return subprocess.run(
        command,
        env={**environment, "PYTHONPATH": str(ROOT)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
    )
