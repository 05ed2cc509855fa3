"""Finding Java, and saying what to install where there is none that will do."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.java import parse_version, require_java


@pytest.mark.parametrize(
    ("answer", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ('Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "11.0.2"', 11),
        ("no java here", None),
    ],
)
def test_the_major_version_is_read_from_what_java_says(answer: str, major: int | None) -> None:
    assert parse_version(answer) == major


def test_no_java_at_all_names_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="install Java 17 or 21"):
        require_java({"PATH": str(tmp_path)})


def test_a_java_home_without_java_is_named(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match=f"JAVA_HOME={tmp_path}"):
        require_java({"JAVA_HOME": str(tmp_path)})


def test_java_home_wins_over_the_path(tmp_path: Path) -> None:
    home = _fake_java(tmp_path / "home", "21.0.1")
    path = _fake_java(tmp_path / "path", "17.0.1") / "bin"
    assert require_java({"JAVA_HOME": str(home), "PATH": str(path)}) == 21
    assert require_java({"PATH": str(path)}) == 17


def test_an_old_java_is_refused_with_its_version(tmp_path: Path) -> None:
    home = _fake_java(tmp_path, "11.0.2")
    with pytest.raises(PipelineError, match="is Java 11: install Java 17 or 21"):
        require_java({"JAVA_HOME": str(home)})


def test_a_java_that_cannot_be_run_is_reported(tmp_path: Path) -> None:
    home = _fake_java(tmp_path, "17")
    (home / "bin" / "java").chmod(0o644)
    with pytest.raises(PipelineError, match="does not run"):
        require_java({"JAVA_HOME": str(home)})


def _fake_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    java.chmod(0o755)
    return home
