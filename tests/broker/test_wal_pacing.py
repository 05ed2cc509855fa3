"""The budget of a WAL's PUTs, on a clock of whole milliseconds as uvloop's is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.wal.pacing import PutBudget, WalLimits, sealing_wait_s

_LARGE = 1_000_000


@given(st.integers(1, 50), st.integers(0, 1 << 40))
def test_a_put_in_its_turn_takes_it(puts_per_s: int, begin_ms: int) -> None:
    limits = WalLimits(puts_per_s=puts_per_s)
    puts, now_ms, count = PutBudget(limits), begin_ms, 0
    while now_ms < begin_ms + 5_000:
        now_s = now_ms / 1_000
        wait_s = sealing_wait_s(
            limits, puts, silence_s=1.0, size_bytes=_LARGE, age_s=0.0, quiet_s=0.0, under_way=0,
            now_s=now_s,
        )  # fmt: skip
        assert wait_s is not None
        if not wait_s:
            puts.take(_LARGE, now_s)
            count += 1
        now_ms += max(1, round(wait_s * 1_000))
    assert 5 * puts_per_s - 1 <= count <= 6 * puts_per_s + 1
