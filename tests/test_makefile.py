"""Every target of the Makefile works first, alone, on a fresh clone."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.dev_environment import make_environment
from tests.recipes import expand, variables

ROOT = Path(__file__).parent.parent
MAKEFILE = (ROOT / "Makefile").read_text().replace("\\\n", " ")
VARIABLES = variables(MAKEFILE)
# Commands of the environment that recipes run, and the stamp of the step that installs each.
STAMPS = {
    r"\$\(BIN\)/(ruff|mypy|mkdocs|pip-compile)\b": "$(READY_DEV)",
    r"\$\(BIN\)/python -m (pytest|tests\.|bench\.(?!cluster)|build|twine)": "$(READY_DEV)",
    r"\$\(BIN\)/python -m bench\.(demo|spark|run|curves|page)\b": "$(READY_SPARK)",
    r"\$\(BIN\)/python -m (odradek\.|bench\.cluster)": "$(READY)",
    r"\$\(BIN\)/python -m docs\.": "$(READY)",
    r"\$\(BIN\)/odradek\b": "$(READY)",
    r"\$\(BIN\)/python -m (uv|pip)\b": "$(BIN)/python",
    r"\$\(BIN\)/python$": "$(READY)",  # what a script of the recipe builds with
}


def rules() -> dict[str, tuple[list[str], str]]:
    """Return the prerequisites and the recipe of each target, variables as they are written."""
    found = {}
    pattern = re.compile(r"^([^\s:#=.][^\n:=]*):(?!=)([^\n=]*)\n((?:\t[^\n]*\n)*)", re.M)
    for targets, needs, recipe in pattern.findall(MAKEFILE):
        for target in targets.split():
            found[target] = needs.split(), expand(recipe, VARIABLES)
    return found


def reached(target: str) -> set[str]:
    """Return all that is made before a target, in any number of steps."""
    known = rules()
    waiting, found = [target], set()
    while waiting:
        needs, recipe = known.get(waiting.pop(), ([], ""))
        for names in re.findall(r"\$\(MAKE\) (.*)", recipe):
            needs = [*needs, *names.split()]
        waiting += set(needs) - found
        found |= set(needs)
    return found


def phony() -> list[str]:
    return re.findall(r"^\.PHONY: (.*)$", MAKEFILE, re.M)[0].split()


@pytest.mark.parametrize("is_optimized", [True, False])
@pytest.mark.parametrize("is_usable", [True, False])
def test_the_systems_python_takes_the_place_of_a_slow_one(
    tmp_path: Path, is_optimized: bool, is_usable: bool
) -> None:
    for name, is_good in (("python3", is_optimized), ("system", is_usable)):
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {int(not is_good)}\n")
        (tmp_path / name).chmod(0o755)
    system = str(tmp_path / "system")
    chosen = subprocess.run(
        [ROOT / "packaging/choose-python.sh", system],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    assert chosen == (system if is_usable and not is_optimized else "python3")


def test_the_rules_are_those_that_make_knows() -> None:
    assert set(phony()) <= set(rules())
    for target in phony():
        # A prerequisite that nothing makes, or a variable without a value, fails here.
        run = subprocess.run(
            ["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("target", sorted(rules()))
def test_the_commands_of_a_target_are_installed_before_it_runs(target: str) -> None:
    _, recipe = rules()[target]
    before = reached(target) | {target}
    used = re.findall(r"\$\(BIN\)/[^\s;&|]+(?: -m [^\s;&|]+)?", recipe)
    for command in used:
        stamps = [stamp for pattern, stamp in STAMPS.items() if re.match(pattern, command)]
        assert stamps, f"say in STAMPS what installs {command}"
        assert set(stamps) <= before, f"{command} of {target} needs {stamps}"


@pytest.mark.slow
@pytest.mark.timeout(900)  # half a minute each; much more where others use the machine
@pytest.mark.parametrize(
    "command",
    [["mypy", *VARIABLES["PACKAGES"].split(), "bench"],
     ["pytest", "--collect-only", *shlex.split(VARIABLES["FAST"])]],
    ids=["types", "tests"],
)  # fmt: skip
def test_make_check_needs_no_more_than_the_development_packages(
    tmp_path: Path, command: list[str]
) -> None:
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", ROOT, clone], check=True)
    # Changes that are not committed yet count, too.
    changed = subprocess.run(
        ["git", "diff", "--binary", "HEAD"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    if changed:
        subprocess.run(["git", "apply"], cwd=clone, input=changed, check=True)
    python = make_environment(tmp_path / "venv", clone / "requirements-dev.lock")
    lacks = subprocess.run([python, "-c", "import pyspark"], capture_output=True, check=False)
    assert lacks.returncode != 0
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-m", *command],
        cwd=clone, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr
