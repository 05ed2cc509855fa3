"""What bench.start measures is what a user has who installed the package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from bench import processes, start


def test_its_broker_starts_from_bytecode_whatever_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    environments: list[dict[str, str]] = []

    def popen(*_: Any, env: dict[str, str], **__: Any) -> Any:
        environments.append(env)
        return mock.Mock()

    with (
        mock.patch.object(processes, "wait_until_answering", return_value=0.1),
        monkeypatch.context() as patch,
    ):
        patch.setattr(subprocess, "Popen", popen)
        start.odradek(tmp_path / "broker").start()
    # A module of its own is compiled once, by a process with this environment.
    module = tmp_path / "a_module.py"
    module.write_text("")
    subprocess.run(
        [sys.executable, "-c", "import a_module"],
        env={**os.environ, **environments[0], "PYTHONPATH": str(tmp_path)},
        check=True,
    )
    assert list((tmp_path / "__pycache__").glob("a_module.*.pyc"))


def test_the_packages_have_bytecode_before_it_measures(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker" / "main.py").write_text("")
    start.write_bytecode(tmp_path)
    assert list(tmp_path.glob("broker/__pycache__/main.*.pyc"))
