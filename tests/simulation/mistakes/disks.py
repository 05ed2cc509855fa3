"""Mistakes that a simulation has to find."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.simulation.crashfs import CrashFileSystem


def sync_no_log(patch: pytest.MonkeyPatch) -> None:
    """A disk lies about the records that it has."""
    honest = CrashFileSystem.sync

    def sync(fs: CrashFileSystem, path: Path, node: Any) -> None:
        if path.suffix != ".log":
            honest(fs, path, node)

    patch.setattr(CrashFileSystem, "sync", sync)
