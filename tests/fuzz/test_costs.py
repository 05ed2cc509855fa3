"""What bytes cost is bounded by how many they are: inputs that were kept, and others.

`make fuzz` seeks for FUZZ_SECONDS in all, by changing what has cost the most so far, and by the
coverage of code. What costs too much is shown, and kept in artifacts/fuzz.
"""

from __future__ import annotations

import hashlib
import importlib.util
import subprocess
import sys
from collections import deque
from pathlib import Path

import pytest

from tests.fuzz import costs
from tests.fuzz.costs import COSTS, Search, cost_of, search_for, seeds
from tests.fuzz.seeds import FIRST_SEED, SECONDS

FOUND = Path("artifacts/fuzz")
START_S = 300  # to instrument every decoder, on a busy machine
INPUT_S_MAX = 60
MEMORY_MAX_MB = 1_024


@pytest.mark.parametrize("name", COSTS)
def test_kept_inputs_cost_little(name: str) -> None:
    inputs = seeds(name)
    assert inputs
    for data in inputs:
        COSTS[name](data)  # loads what loads late
    found = [cost_of(COSTS[name], data) for data in inputs]
    assert not [str(cost) for cost in found if not cost.is_bounded]


@pytest.mark.slow
def test_a_search_finds_what_takes_the_square_of_some_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # So that it does not take long to be out of bounds.
    monkeypatch.setattr(costs, "TIME_S", 0.005)
    monkeypatch.setattr(costs, "TIME_S_PER_BYTE", 1e-6)

    def square(data: bytes) -> None:
        deque(range(data.count(b"a") ** 2 // 2), maxlen=0)

    search = Search(square, [b"abc", b"bbb"])
    search.run(lambda: search.count >= 20_000)
    (found,) = search.unbounded()
    assert found.data.count(b"a") > 100


def test_a_search_finds_what_takes_memory() -> None:
    def large(data: bytes) -> None:
        bytes(data.count(b"a") * 100_000)
        for _ in data:
            pass

    search = Search(large, [b"abc", b"bbb"])
    search.run(lambda: search.count >= 20_000)
    assert search.unbounded()


@pytest.mark.fuzz
@pytest.mark.timeout(120 + SECONDS)
@pytest.mark.parametrize("name", COSTS)
def test_no_input_is_found_that_costs_too_much(name: str) -> None:
    found = search_for(name, max(1, SECONDS // 2 // len(COSTS)), FIRST_SEED)
    print(f"{name}: {found.count} inputs; the dearest: {found.worst}")
    for cost in found.unbounded():
        FOUND.mkdir(parents=True, exist_ok=True)
        digest = hashlib.sha256(cost.data).hexdigest()[:16]
        (FOUND / f"costs-{name}-{digest}").write_bytes(cost.data)
    assert not [str(cost) for cost in found.unbounded()]


@pytest.mark.fuzz
@pytest.mark.timeout(2 * START_S + SECONDS)
@pytest.mark.skipif(
    importlib.util.find_spec("atheris") is None,
    reason="atheris is not there: it has no wheel for this Python",
)
def test_no_input_that_reaches_new_code_costs_too_much(tmp_path: Path) -> None:
    for at, name in enumerate(COSTS):
        for number, data in enumerate(seeds(name)[:20]):
            (tmp_path / f"{name}-{number}").write_bytes(bytes([at]) + data)
    found = FOUND / "costs"
    found.mkdir(parents=True, exist_ok=True)
    run = subprocess.run(
        [
            *(sys.executable, "-m", "tests.fuzz.run", "costs"),
            f"-max_total_time={max(1, SECONDS // 8)}",
            *("-max_len=8192", f"-timeout={INPUT_S_MAX}", f"-rss_limit_mb={MEMORY_MAX_MB}"),
            f"-artifact_prefix={FOUND}/costs-",
            *(str(found), str(tmp_path)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-8_000:]
