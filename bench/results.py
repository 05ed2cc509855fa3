"""Stores the latest answers as JSON, with the date and the machine of each measurement.

    figures.json    {"produce": {"taken": …, "machine": …, "rounds": …, "scale": …,
                                 "figures": {"100 B": {"unit": …, "ours": […], "theirs": […]}}}}
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.pairs import Answer, Question
from bench.processes import ROOT

FIGURES = ROOT / "bench" / "figures.json"


def save(
    question: Question, answers: Sequence[Answer], rounds: int, scale: float, path: Path = FIGURES
) -> None:
    """Store a question's answers in place of its earlier ones."""
    figures = {
        one.figure.title: {
            "unit": one.figure.unit,
            "ours": [_short(value) for value in one.ours],
            "theirs": [_short(value) for value in one.theirs],
        }
        for one in answers
    }
    keep(path, question.name, {"rounds": rounds, "scale": scale, "figures": figures})


def keep(path: Path, name: str, found: Mapping[str, Any]) -> None:
    """Store results under a name in place of the earlier ones, with date and machine."""
    taken = {"taken": datetime.now(UTC).strftime("%Y-%m-%d"), "machine": machine()}
    known = {**load(path), name: {**taken, **found}}
    path.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n")


def load(path: Path) -> Mapping[str, Any]:
    """Return the stored results; {} without a file."""
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def answers_of(question: Question, saved: Mapping[str, Any]) -> list[Answer]:
    """Return a question's stored answers; figures without one are left out."""
    return [
        Answer(figure, one["ours"], one["theirs"])
        for figure in question.figures
        if (one := saved["figures"].get(figure.title)) is not None
    ]


def machine() -> str:
    """Return a description of this machine in one line."""
    memory_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{os.cpu_count()} cores of {_processor()}, {memory_gb:.0f} GB, "
        f"Python {platform.python_version()}, Java {_java()}"
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _java() -> str:
    answer = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True)
    return answer.stderr.split('"')[1]


def _short(value: float) -> float:
    """Round a value to its significant digits."""
    return float(f"{value:.4g}")
