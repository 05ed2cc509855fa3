"""A Python worker of Spark begins its next task without reading archives again."""

from __future__ import annotations

import importlib
import sys
import zipfile
from pathlib import Path

import pytest

from odradek.pipeline.python_workers import forget_archives


def test_archives_are_not_read_again_and_serve_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "modules.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("archived_one.py", "NUMBER = 1")
        made.writestr("archived_two.py", "NUMBER = 2")
    monkeypatch.syspath_prepend(str(archive))
    assert importlib.import_module("archived_one").NUMBER == 1
    assert str(archive) in sys.path_importer_cache
    forget_archives()
    importlib.invalidate_caches()  # as Spark does
    assert str(archive) not in sys.path_importer_cache
    assert importlib.import_module("archived_two").NUMBER == 2
