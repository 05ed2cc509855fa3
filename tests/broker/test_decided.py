"""Which records of an internal topic count when producers commit offsets in transactions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.decided import KeyValue, decided
from protocol.batches import BatchHeader, Record, encode_batch, read_header
from protocol.control import encode_end_txn_marker

Batch = tuple[BatchHeader, memoryview]
# (producer or -1, key, value), or (producer, whether it commits)
Step = tuple[int, bytes, bytes | None] | tuple[int, bool]


def batches(steps: list[Step]) -> list[Batch]:
    """Encode steps as they would lie in a log, an offset each."""
    made = []
    for offset, step in enumerate(steps):
        if len(step) == 2:
            batch = encode_end_txn_marker(
                commit=step[1],
                timestamp=0,
                producer_id=step[0],
                producer_epoch=0,
                coordinator_epoch=0,
                base_offset=offset,
            )
        else:
            producer_id, key, value = step
            batch = encode_batch(
                [Record(offset, 0, key, value)],
                base_offset=offset,
                producer_id=producer_id,
                producer_epoch=min(producer_id, 0),
                transactional=producer_id >= 0,
            )
        made.append((read_header(batch), memoryview(batch)))
    return made


def of(steps: list[Step]) -> list[KeyValue]:
    return list(decided(batches(steps), "log"))


def test_records_of_a_transaction_count_once_it_is_committed() -> None:
    steps: list[Step] = [(1, b"a", b"1"), (-1, b"b", b"2"), (2, b"c", b"3"), (2, False), (1, True)]
    assert of(steps) == [(b"b", b"2"), (b"a", b"1")]


def test_those_of_an_open_transaction_do_not_count() -> None:
    assert of([(1, b"a", b"1"), (2, b"a", b"2"), (2, True)]) == [(b"a", b"2")]


def test_a_plain_commit_that_came_later_takes_precedence() -> None:
    assert of([(1, b"a", b"1"), (-1, b"a", b"2"), (1, True)]) == [(b"a", b"2")]
    assert of([(-1, b"a", b"2"), (1, b"a", b"1"), (1, True)])[-1] == (b"a", b"1")


def test_a_tombstone_takes_back_what_is_pending() -> None:
    assert of([(1, b"a", b"1"), (-1, b"a", None), (1, True)]) == [(b"a", None)]


STEPS: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.sampled_from([-1, 1, 2]), st.sampled_from([b"a", b"b"]), st.binary(max_size=2)),
    st.tuples(st.sampled_from([1, 2]), st.booleans()),
)


@given(st.lists(STEPS, max_size=30))
def test_of_each_key_the_last_one_that_was_committed_remains(steps: list[Step]) -> None:
    latest: dict[bytes, tuple[int, bytes | None]] = {}
    for offset, step in enumerate(steps):
        if len(step) == 2:
            continue
        fate = next((s[1] for s in steps[offset:] if len(s) == 2 and s[0] == step[0]), False)
        if step[0] < 0 or fate:
            latest[step[1]] = offset, step[2]
    assert dict(of(steps)) == {key: value for key, (_, value) in latest.items()}
