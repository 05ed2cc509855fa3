"""The budgets of a WAL's PUTs and commits, on a clock of whole milliseconds as uvloop's is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.wal.pacing import CommitShare, PutBudget, WalLimits, sealing_wait_s

_LARGE = 1_000_000


@given(st.integers(1, 50), st.integers(0, 1 << 40))
def test_a_put_in_its_turn_takes_it(puts_per_s: int, begin_ms: int) -> None:
    limits = WalLimits(puts_per_s=puts_per_s)
    count = count_entries(limits, _LARGE, begin_ms)
    assert 5 * puts_per_s - 1 <= count <= 6 * puts_per_s + 1


@given(st.integers(1, 400), st.integers(1, 200), st.integers(0, 1 << 40))
def test_brokers_share_the_commits_of_small_entries(
    share: int, brokers: int, begin_ms: int
) -> None:
    limits = WalLimits(commits_per_s=share * brokers)
    count = count_entries(limits, 1, begin_ms, brokers)
    assert 5 * share - 1 <= count <= 6 * share + 1


@given(st.integers(1, 400), st.integers(0, 1 << 40))
def test_a_commit_that_comes_later_than_its_turn_does_not_wait(share: int, begin_ms: int) -> None:
    limits = WalLimits(commits_per_s=share)
    commits = CommitShare(limits, lambda: 1)
    for number in range(2 * share):
        now_s = begin_ms / 1_000 + number / share
        assert commits.delay_s(now_s) < 1e-3  # an error of rounding
        commits.take(now_s)


def count_entries(limits: WalLimits, size_bytes: int, begin_ms: int, brokers: int = 1) -> int:
    """Return how many entries of a size are sealed in five seconds, as soon as they are due."""
    puts, commits = PutBudget(limits), CommitShare(limits, lambda: brokers)
    now_ms, count = begin_ms, 0
    while now_ms < begin_ms + 5_000:
        now_s = now_ms / 1_000
        wait_s = sealing_wait_s(
            limits, puts, commits, silence_s=1.0, size_bytes=size_bytes, age_s=0.0, quiet_s=0.0,
            under_way=0, now_s=now_s,
        )  # fmt: skip
        assert wait_s is not None
        if wait_s:
            now_ms += max(1, round(wait_s * 1_000))
            continue
        if size_bytes > limits.inline_bytes_max:
            puts.take(size_bytes, now_s)
            now_ms += 1
        else:
            commits.take(now_s)
        count += 1
    return count
