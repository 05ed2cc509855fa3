"""Plants mistakes, one at a time, and counts those that the tests find: `make mutants`.

    python -m tests.mutants -m MARKS [--count 60] [--seed 1] [--tests FOLDER]

A mutant is a copy of the sources in which one operator or number is another. The same seed gives
the same mutants of the same sources. A mutant is killed when a test with the marks fails or takes
too long: first the tests of its package run, then all. Those that survive are printed with their
places: either a test is missing, or the change makes no difference. `--tests` takes the tests of
another checkout, to compare two states of them on the same mutants.
"""

from __future__ import annotations

import argparse
import ast
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from bench.processes import ROOT
from tests.packages import PACKAGES

COPIED = ("odradek", *PACKAGES, "bench", "tests", "docs", "packaging", ".ci")
TIMEOUT_S = 900

_COMPARED = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
    "is": "is not", "is not": "is", "in": "not in", "not in": "in",
}  # fmt: skip
_JOINED = {"and": "or", "or": "and", "+": "-", "-": "+", "//": "*", "%": "//"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A place in a source file, and the text that stands there instead."""

    path: Path
    start: int
    end: int
    text: str
    line: int

    def write(self, root: Path) -> None:
        """Write the changed file in a copy of the sources."""
        data = (ROOT / self.path).read_bytes()
        changed = data[: self.start] + self.text.encode() + data[self.end :]
        (root / self.path).write_bytes(changed)

    def __str__(self) -> str:
        data = (ROOT / self.path).read_bytes()
        old = data[self.start : self.end].decode().strip()
        return f"{self.path}:{self.line}: {old} -> {self.text.strip()}"


def mutants(path: Path) -> Iterator[Mutant]:
    """Iterate over the mutants of a source file, which is relative to the repository."""
    data = (ROOT / path).read_bytes()
    begins = [0]
    for line in data.splitlines(keepends=True):
        begins.append(begins[-1] + len(line))

    def found(line: int, first: int, last: int, text: str) -> Mutant:
        return Mutant(path, first, last, text, line)

    def span(node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        first = begins[node.lineno - 1] + node.col_offset
        return first, begins[node.end_lineno - 1] + node.end_col_offset

    for node in _run_nodes(ast.parse(data)):
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            between = span(node.left)[1], span(node.comparators[0])[0]
            changed = _replaced(data[slice(*between)].decode(), _COMPARED)
        elif isinstance(node, ast.BoolOp):
            between = span(node.values[0])[1], span(node.values[1])[0]
            changed = _replaced(data[slice(*between)].decode(), _JOINED)
        elif isinstance(node, ast.BinOp):
            between = span(node.left)[1], span(node.right)[0]
            changed = _replaced(data[slice(*between)].decode(), _JOINED)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            between, changed = (span(node)[0], span(node.operand)[0]), ""
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            between, changed = span(node), str(not node.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, int):
            between, changed = span(node), str(node.value + 1)
        else:
            continue
        if changed is not None:
            yield found(node.lineno, *between, changed)


def _run_nodes(tree: ast.AST) -> Iterator[ast.expr]:
    """Iterate over the expressions that run, without annotations and what only types need."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        if isinstance(node, ast.AnnAssign):
            yield from _run_nodes(ast.Expression(node.value)) if node.value else ()
        elif not isinstance(node, ast.arg | ast.JoinedStr):
            if isinstance(node, ast.expr):
                yield node
            yield from _run_nodes(node)


def _replaced(operator: str, table: dict[str, str]) -> str | None:
    """Return the text between two operands with another operator; None where there is none."""
    words = " ".join(re.findall(r"[a-z]+|[^\s\w()]+", operator))
    if words not in table or "#" in operator:
        return None
    return re.sub(re.escape(words).replace(r"\ ", r"\s+"), table[words], operator, count=1)


def draw(count: int, seed: int) -> list[Mutant]:
    """Draw mutants: of each package about the same number."""
    random = Random(seed)
    drawn = []
    for number, package in enumerate(PACKAGES):
        paths = sorted((ROOT / package).rglob("*.py"))
        all_of_it = [one for path in paths for one in mutants(path.relative_to(ROOT))]
        share = count // len(PACKAGES) + (number < count % len(PACKAGES))
        drawn += random.sample(all_of_it, share)
    return drawn


def verdict(mutant: Mutant, folder: Path, marks: str) -> str:
    """Run the tests with some marks on a mutant; return the first that failed, or nothing."""
    mutant.write(folder)
    try:
        own = f"tests/{mutant.path.parts[0]}"
        return failure(folder, own, marks) or failure(folder, "tests", marks)
    finally:
        shutil.copy(ROOT / mutant.path, folder / mutant.path)


def failure(folder: Path, tests: str, marks: str) -> str:
    """Run the tests of a folder with some marks; return the first that failed, or nothing."""
    command = [
        *(sys.executable, "-m", "pytest", "-x", "-n", "2", "-p", "no:cacheprovider"),
        *("--hypothesis-profile", "quick", "-m", marks, tests),
    ]
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        return f"{tests} took more than {TIMEOUT_S} s"
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.M)
    if not done.returncode:
        return ""
    return failed[1] if failed else f"pytest ended with {done.returncode}: {done.stdout[-500:]}"


def main() -> None:
    """Print each mutant with its verdict, and the sums."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("-m", dest="marks", required=True, help="as pytest takes them")
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tests", type=Path, default=ROOT / "tests")
    options = parser.parse_args()
    drawn = draw(options.count, options.seed)
    survived = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for one in COPIED:
            source = options.tests if one == "tests" else ROOT / one
            shutil.copytree(source, folder / one, symlinks=True)
        for path in (one for one in ROOT.iterdir() if one.is_file()):
            shutil.copy(path, folder / path.name)
        if broken := failure(folder, "tests", options.marks):
            sys.exit(f"without a mutant, {broken} fails")
        for mutant in drawn:
            test = verdict(mutant, folder, options.marks)
            survived += not test
            print(f"{'killed' if test else 'SURVIVED':8} {mutant}  {test}", flush=True)
    print(f"{len(drawn) - survived} of {len(drawn)} killed, seed {options.seed}")


if __name__ == "__main__":
    main()
