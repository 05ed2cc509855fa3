"""Any bytes end in a value or a protocol error: inputs that were kept, and inputs that are sought.

`make fuzz` seeks for FUZZ_SECONDS in all; an hour: FUZZ_SECONDS=3600 make fuzz. What is found is
left in artifacts/fuzz, and a crash as artifacts/fuzz/TARGET-crash-…: each becomes a test of its
own, named for what was wrong.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.seeds import SECONDS
from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"
CORPUS_BYTES_MAX = 200_000
FOUND = Path("artifacts/fuzz")
START_S = 300  # to instrument every decoder, on a busy machine
# What one input may take: none has a reason to.
INPUT_S_MAX = 10
MEMORY_MAX_MB = 1_024


@pytest.mark.parametrize("name", sorted(TARGETS.keys() - {"kernels"}))
def test_kept_inputs_end_well(name: str) -> None:
    inputs = sorted((CORPUS / name).iterdir())
    assert inputs
    for one in inputs:
        TARGETS[name](one.read_bytes())


@pytest.mark.slow  # compiles the kernels
def test_kept_inputs_mean_the_same_to_kernels_and_their_twins() -> None:
    for one in sorted((CORPUS / "kernels").iterdir()):
        TARGETS["kernels"](one.read_bytes())


def test_the_corpus_is_small() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(TARGETS)
    assert sum(path.stat().st_size for path in CORPUS.rglob("*")) < CORPUS_BYTES_MAX


@pytest.mark.fuzz
@pytest.mark.timeout(2 * START_S + SECONDS)
@pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None,
    reason="atheris is not there: it has no wheel for this Python",
)
@pytest.mark.parametrize("name", TARGETS)
def test_no_input_is_found_that_ends_badly(name: str) -> None:
    found = FOUND / name
    found.mkdir(parents=True, exist_ok=True)
    run = subprocess.run(
        [
            *(sys.executable, "-m", "tests.fuzz.run", name),
            f"-max_total_time={max(1, SECONDS // len(TARGETS))}",
            *("-max_len=4096", f"-timeout={INPUT_S_MAX}", f"-rss_limit_mb={MEMORY_MAX_MB}"),
            f"-artifact_prefix={FOUND / name}-",
            *(str(found), str(CORPUS / name)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-8_000:]
