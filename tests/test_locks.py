"""Installed packages are those of the lock files, to the last byte."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import secure
from tests.recipes import expand, variables

ROOT = Path(__file__).parent.parent
LOCKS = sorted(path.name for path in ROOT.glob("*.lock"))
MAKEFILE = (ROOT / "Makefile").read_text()
# Where something is installed, without the backslashes at the ends of lines.
SCRIPTS = {
    name: (ROOT / name).read_text().replace("\\\n", " ")
    for name in ("Makefile", "Dockerfile", ".ci/run")
}
_FROM_LOCK = re.compile(r"-r ([\w.-]+\.lock)")
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")


def requirements(lock: str) -> Iterator[tuple[str, str]]:
    """Yield each requirement of a lock file, and what follows it."""
    text = (ROOT / lock).read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if line and not line.lstrip().startswith("#"):
            pinned, *options = line.split()
            yield pinned, " ".join(options)


def installs(name: str) -> Iterator[str]:
    """Yield the commands of a script that install something, its variables expanded."""
    text = SCRIPTS[name]
    known = variables(text)
    for line in text.splitlines():
        if not re.match(r"\w+ :?=|\s*#", line):
            line = expand(line, known)
            if "pip install" in line:
                yield from line.split("||")


def test_there_are_locks() -> None:
    assert {"requirements.lock", "requirements-build.lock", "requirements-dev.lock"} <= set(LOCKS)
    assert set(LOCKS) == set(secure.LOCKS)


@pytest.mark.parametrize("lock", LOCKS)
def test_every_requirement_is_pinned_and_hashed(lock: str) -> None:
    found = dict(requirements(lock))
    assert found
    for pinned, options in found.items():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[^=\s]+", pinned), pinned
        assert options and not _HASH.sub("", options).strip(), pinned


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_index_and_no_host(lock: str) -> None:
    text = (ROOT / lock).read_text()
    assert "://" not in text and not re.search(r"^\s*-(?!-hash=)", text, re.M)


def test_locks_agree_on_what_they_share() -> None:
    # They are installed one after the other, and none is to undo what another has done.
    versions: dict[str, set[str]] = {}
    for lock in LOCKS:
        for pinned, _ in requirements(lock):
            name, _, version = pinned.partition("==")
            versions.setdefault(name, set()).add(version)
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_install_checks_hashes_or_fetches_nothing(name: str) -> None:
    for command in installs(name):
        from_locks = _FROM_LOCK.findall(command)
        if "pip install" not in command:
            assert re.match(r'\s*echo "', command), command
        elif from_locks:
            assert "--require-hashes" in command and set(from_locks) <= set(LOCKS), command
        else:
            assert "--no-deps" in command and "--no-build-isolation" in command, command


def test_every_lock_is_installed_and_nothing_else_is_looked_for() -> None:
    commands = [command for name in SCRIPTS for command in installs(name)]
    assert {lock for one in commands for lock in _FROM_LOCK.findall(one)} == set(LOCKS)
    assert not re.search(r"pip install[^\n]*--(upgrade|index-url|extra-index-url)", MAKEFILE)


def test_make_lock_makes_each_lock_with_hashes() -> None:
    recipe = re.search(r"^lock:.*\n((?:\t.*\n)+)", SCRIPTS["Makefile"], re.M)
    assert recipe is not None
    compile_locks = variables(SCRIPTS["Makefile"])["COMPILE"]
    assert "--generate-hashes" in compile_locks and "--no-emit-index-url" in compile_locks
    lines = recipe[1].strip().splitlines()
    assert all("$(COMPILE)" in line for line in lines)
    assert {one for line in lines for one in re.findall(r"-o (\S+)", line)} == set(LOCKS)
