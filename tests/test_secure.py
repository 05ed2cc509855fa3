"""What make secure looks for, it finds; and what it could not look at, it says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import secure

ROOT = secure.ROOT

pytestmark = pytest.mark.slow


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of one module, where nothing is wrong."""
    monkeypatch.setattr(secure, "ROOT", tmp_path)
    monkeypatch.setattr(secure, "CACHE", tmp_path / ".secure_cache" / "clean.json")
    monkeypatch.setattr(secure, "BASELINE", tmp_path / ".secrets.baseline")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    for name in (*secure.LOCKS, "broker/fine.py", "tests/test_fine.py", ".gitignore"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("# nothing\n")
    (tmp_path / ".gitignore").write_text(".secure_cache/\n")
    monkeypatch.setattr(secure, "_audit", lambda: json.dumps({"dependencies": [WELL]}))
    return tmp_path


WELL: dict[str, Any] = {"name": "a", "version": "1", "vulns": []}
UNKNOWN: dict[str, Any] = {"name": "c", "skip_reason": "no answer"}
HOLE: dict[str, Any] = {
    "name": "b", "version": "2", "vulns": [{"id": "PYSEC-1", "fix_versions": ["3"]}],
}  # fmt: skip


def test_where_nothing_is_wrong_nothing_is_looked_at_twice(
    repository: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert secure.main([]) == 0
    assert capsys.readouterr().out.count(": clean") == 2
    monkeypatch.setattr(secure, "_scan_some", lambda files: pytest.fail(f"scanned {files}"))
    monkeypatch.setattr(secure, "_audit", lambda: pytest.fail("audited"))
    assert secure.main([]) == 0


@pytest.mark.parametrize(("place", "found"), [("broker/bad.py", 1), ("tests/bad.py", 0)])
def test_ruff_finds_dangerous_code_of_the_product(place: str, found: int) -> None:
    command = [sys.executable, "-m", "ruff", "check", "--stdin-filename", place, "-"]
    bad = "import pickle\n\npickle.loads(b'')\n"
    run = subprocess.run(command, input=bad, cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == found
    assert run.stdout.count("S301") == found


# In two pieces, so that they are none in this file.
KEYS = {
    "AWS Access Key": "KEY = 'AKIA" + "Q3EGRIT7LX5M2VWD'",
    "Telegram Bot Token": "110201543" + ":AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsawx",
    "Artifactory Credentials": "AKC" + "q3egrit7lx5m2vwd",
    "Private Key": "-----BEGIN " + "RSA PRIVATE KEY-----",
}


@pytest.mark.parametrize("place", ["broker/keys.py", "tests/test_keys.py", "tests/keys.md"])
@pytest.mark.parametrize("kind", KEYS)
def test_a_key_is_found_wherever_it_is(
    repository: Path, capsys: pytest.CaptureFixture[str], place: str, kind: str
) -> None:
    (repository / place).write_text(f"# a line\n{KEYS[kind]}\n# another\n")
    for _ in range(2):
        assert secure.main([]) == 1
        assert f"{place}:2: {kind}" in capsys.readouterr().out
    assert secure.main(["--accept"]) == 0
    assert secure.main([]) == 0


def test_a_guessed_password_is_found_in_the_product_alone(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    guessed = "password = 'wqxPlmv" + "19oqRt'\n"
    (repository / "tests" / "test_it.py").write_text(guessed)
    assert secure.main([]) == 0
    (repository / "broker" / "it.py").write_text(guessed)
    capsys.readouterr()
    assert secure.main([]) == 1
    assert "broker/it.py:1: Secret Keyword" in capsys.readouterr().out


@pytest.mark.parametrize("others", [[WELL], [WELL, UNKNOWN]])
def test_a_package_with_a_hole_is_found(
    repository: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    others: list[dict[str, Any]],
) -> None:
    told = json.dumps({"dependencies": [*others, HOLE]})
    monkeypatch.setattr(secure, "_audit", lambda: told)
    for _ in range(2):
        assert secure.main([]) == 1
        assert "b 2: PYSEC-1, mended in 3" in capsys.readouterr().out


@pytest.mark.parametrize(
    "told", ["", json.dumps({"dependencies": [WELL, UNKNOWN]})]
)
def test_a_failed_lookup_is_reported_and_fails_when_asked_to(
    repository: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    told: str,
) -> None:
    monkeypatch.setattr(secure, "_audit", lambda: told)
    monkeypatch.delenv("SECURE_STRICT", raising=False)
    for _ in range(2):
        assert secure.main([]) == 0
        out = capsys.readouterr().out
        assert "pip-audit: NOT LOOKED AT" in out and "could not be looked up" in out
    monkeypatch.setenv("SECURE_STRICT", "1")
    assert secure.main([]) == 1
