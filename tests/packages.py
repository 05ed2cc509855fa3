"""The packages of the product: those that the folder of the installed name has links to."""

from __future__ import annotations

from bench.processes import ROOT

PACKAGES = tuple(sorted(path.name for path in (ROOT / "odradek").iterdir() if path.is_symlink()))
