"""What may be given back of a process' memory: what is in a file just so, and nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.processes import ROOT
from odradek.broker.process.code_memory import unchanged

COMPILER = "/usr/lib/python3/llvmlite/binding/libllvmlite.so"
TAIL = ("VmFlags: rd mr mw me",)


def mapping(
    start: int, rights: str, path: str, *, dirty: int = 0, anonymous: int = 0, swap: int = 0
) -> list[str]:
    """Return the lines of a mapping of 4 KiB."""
    head = f"{start:x}-{start + 4096:x} {rights} 00e51000 fe:00 1234".ljust(73) + path
    sizes = {"Rss": 4, "Private_Dirty": dirty, "Anonymous": anonymous, "Swap": swap, "SwapPss": 0}
    return [head.rstrip(), *(f"{name}: {size:>10} kB" for name, size in sizes.items()), *TAIL]


@given(
    mappings=st.lists(
        st.tuples(
            st.sampled_from(["r-xp", "r--p", "rw-p", "r--s", "---p", "rwxp"]),
            st.sampled_from([COMPILER, "/usr/lib/libc.so.6", "", "[heap]", "[vdso]"]),
            st.sampled_from([0, 0, 0, 8]),
            st.sampled_from([0, 0, 0, 8]),
            st.sampled_from([0, 0, 0, 8]),
        ),
        max_size=8,
    ),
    name=st.sampled_from(["", "libllvmlite"]),
)
def test_mappings_that_were_written_to_are_kept_even_if_swapped_out(
    mappings: list[tuple[str, str, int, int, int]], name: str
) -> None:
    lines, expected = [], []
    for at, (rights, path, dirty, anonymous, swap) in enumerate(mappings):
        start = 0x7F0000000000 + at * 4096
        lines += mapping(start, rights, path, dirty=dirty, anonymous=anonymous, swap=swap)
        is_files = path.startswith("/") and name in path
        if is_files and rights in ("r-xp", "r--p", "---p") and dirty + anonymous + swap == 0:
            expected.append((start, start + 4096))
    assert list(unchanged(lines, name)) == expected


@pytest.mark.slow
def test_code_that_was_given_back_runs_again() -> None:
    program = """
import hashlib, json, sqlite3, ssl, zlib
from odradek.broker.process.code_memory import compiler_given_back, give_code_back

def work():
    with sqlite3.connect(":memory:") as database:
        (found,) = database.execute("SELECT 6 * 7").fetchone()
    return found, hashlib.sha256(b"x").hexdigest(), json.dumps({"a": 1}), zlib.crc32(b"x")

before = work()
for _ in range(20):
    give_code_back()
    assert work() == before
with compiler_given_back():
    from numba import njit
    assert njit(lambda one: one + 1)(2) == 3
assert njit(lambda one: one + 2)(2) == 4
assert work() == before
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


@pytest.mark.slow
def test_the_compilers_code_goes_again_and_again_while_it_is_used() -> None:
    program = """
import ctypes, re
from pathlib import Path
from odradek.broker.process.code_memory import compiler_given_back
from tests.support.waiting import wait_until

PAGE = 4096
# Where the code is; what of it is resident has to be asked again.
CODE = r"([0-9a-f]+)-([0-9a-f]+) r-xp .*libllvmlite.*\\n(?:\\w+:.*\\n)*?Rss: +(\\d+) kB"

def code():
    return re.findall(CODE, Path("/proc/self/smaps").read_text())

def resident():
    return sum(int(kb) for _, _, kb in code()) * 1024

def touch():
    for start, end, _ in code():
        for at in range(int(start, 16), int(end, 16), PAGE):
            ctypes.c_byte.from_address(at).value

with compiler_given_back():
    size = sum(int(end, 16) - int(start, 16) for start, end, _ in code())
    for _ in range(3):
        touch()
        wait_until(lambda: resident() <= size // 2, "the code is given back", shown=resident)
"""
    if not Path("/proc/self/smaps").exists():
        pytest.skip("only Linux tells what is in memory")
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
