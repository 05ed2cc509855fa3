"""A log that lacks records keeps the largest part without a loss."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.catalog.restoring import Kept
from odradek.broker.shared.salvage import Cut, Piece, cut_log


def pieces(*sizes: int, start: int = 0) -> list[Piece]:
    """Return pieces of ten offsets each, with these bytes."""
    return [
        Piece(base, base + 10, size)
        for base, size in zip(range(start, start + 10 * len(sizes), 10), sizes, strict=True)
    ]


def test_the_end_goes_when_most_is_before_the_loss() -> None:
    cut = cut_log(0, 0, pieces(5, 5, 5, 5), [(20, 30)])
    assert cut == Cut(0, 40, Kept(0, 20))
    assert cut.given_up == [(20, 40)]


def test_the_begin_goes_when_most_is_after_the_loss() -> None:
    cut = cut_log(0, 0, pieces(5, 5, 5, 9), [(0, 10)])
    assert (cut.kept, cut.given_up) == (Kept(10, 40), [(0, 10)])


def test_both_ends_go_when_most_is_between_losses() -> None:
    cut = cut_log(0, 0, pieces(5, 5, 20, 5, 5), [(30, 40), (10, 20)])
    assert (cut.kept, cut.given_up) == (Kept(20, 30), [(0, 20), (30, 50)])


def test_of_two_equal_parts_the_later_one_stays() -> None:
    assert cut_log(0, 0, pieces(5, 5, 5), [(10, 20)]).kept == Kept(20, 30)


def test_a_log_that_lacks_everything_continues_after_its_end() -> None:
    cut = cut_log(0, 0, pieces(5, 5), [(0, 20)])
    assert (cut.kept, cut.given_up) == (Kept(20, 20), [(0, 20)])
    assert cut_log(7, 7, [], [(7, 30)]).kept == Kept(30, 30)


def test_losses_below_the_log_start_offset_cost_no_record() -> None:
    cut = cut_log(15, 30, pieces(5, 5, 5), [(0, 10)])
    assert (cut.kept, cut.given_up) == (Kept(10, 30), [])


def test_deleted_records_that_only_the_wal_has_are_no_reason_to_keep_a_part() -> None:
    cut = cut_log(20, 0, pieces(50, 50, 5, 5), [(20, 30)])
    assert (cut.kept, cut.given_up) == (Kept(30, 40), [(20, 30)])


def test_a_log_of_deleted_records_only_continues_after_them() -> None:
    """Its last segment has the producers."""
    assert cut_log(10, 10, pieces(5), [(0, 10)]) == Cut(10, 10, Kept(10, 10))
    cut = cut_log(10, 10, pieces(5, 5), [(10, 20)])
    assert (cut.kept, cut.given_up) == (Kept(20, 20), [(10, 20)])


LOSSES = st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4)), max_size=4)


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=10),
    LOSSES,
    st.integers(0, 60),
    st.integers(0, 60),
)
def test_no_larger_part_has_no_loss(
    sizes: list[int], lost: list[tuple[int, int]], start: int, stored: int
) -> None:
    """Compare with all ranges of whole pieces."""
    every = pieces(*sizes)
    losses = [(at * 10, (at + count) * 10) for at, count in lost]
    first, end = cut_log(start, stored, every, losses).kept

    def is_whole(first: int, end: int) -> bool:
        return all(after <= first or end <= at for at, after in losses)

    def size(first: int, end: int) -> int:
        return sum(
            one.size_bytes for one in every if max(first, start) < one.next_offset <= end
        )

    assert first <= end
    assert is_whole(first, end) or first == end
    edges = [0, *(one.next_offset for one in every)]
    best = max(
        (size(a, b) for a in edges for b in edges if a < b and is_whole(a, b)), default=0
    )
    assert size(first, end) == best
