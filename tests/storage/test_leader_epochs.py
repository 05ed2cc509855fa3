"""Which epoch wrote which offsets, as Kafka's LeaderEpochFileCache answers it."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.storage.epochs import FILE_NAME, LeaderEpochs
from odradek.storage.errors import CorruptFile
from tests.simulation.crashfs import CrashFileSystem

ROOT = Path("/")

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["assign", "truncate_end", "truncate_start"]), st.integers(0, 50)
    ),
    max_size=25,
)


def loaded(fs: CrashFileSystem) -> LeaderEpochs:
    epochs = LeaderEpochs(fs, ROOT)
    epochs.load()
    return epochs


@given(actions=ACTIONS)
def test_entries_grow_and_are_kept_in_the_file(actions: list[tuple[str, int]]) -> None:
    fs = CrashFileSystem()
    epochs = LeaderEpochs(fs, ROOT)
    # Of each offset, the epoch that wrote it: what a log would remember.
    start, end, epoch, wrote = 0, 0, -1, {}
    for action, number in actions:
        if action == "assign":
            epoch = epochs.latest + 1
            epochs.assign(epoch, end)
            for offset in range(end, end + number):
                wrote[offset] = epoch
            end += number
        elif action == "truncate_end":
            end = min(end, max(number, start))
            epochs.truncate_end(end)
            wrote = {offset: by for offset, by in wrote.items() if offset < end}
        else:
            start = max(start, min(number, end))
            epochs.truncate_start(start)
        entries = epochs.entries
        assert list(entries) == sorted(entries)
        assert len({first for _, first in entries}) == len(entries)
        assert loaded(fs).entries == entries
        for offset in range(start, end):
            assert epochs.epoch_of(offset) == wrote[offset]


def test_the_file_to_the_byte() -> None:
    fs = CrashFileSystem()
    epochs = LeaderEpochs(fs, ROOT)
    epochs.assign(0, 0)
    epochs.assign(3, 1042)
    epochs.assign(3, 2000)  # it has begun already
    epochs.assign(1, 3000)  # and what is older never begins again
    assert fs.read_bytes(ROOT / FILE_NAME) == b"0\n2\n0 0\n3 1042\n"


def test_a_log_that_starts_where_an_epoch_does_forgets_those_before() -> None:
    """LeaderEpochFileCache.truncateFromStart."""
    fs = CrashFileSystem()
    epochs = LeaderEpochs(fs, ROOT)
    for epoch, start in ((0, 0), (1, 23), (2, 30)):
        epochs.assign(epoch, start)
    epochs.truncate_start(23)
    assert loaded(fs).entries == ((1, 23), (2, 30))


def test_an_epoch_that_wrote_nothing_gives_way() -> None:
    epochs = LeaderEpochs(CrashFileSystem(), ROOT)
    epochs.assign(0, 0)
    epochs.assign(1, 10)
    epochs.assign(2, 10)
    assert epochs.entries == ((0, 0), (2, 10))


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (-1, (-1, -1)),
        (0, (0, 5)),  # older than any known: where the first known one begins
        (2, (2, 20)),
        (3, (2, 20)),  # never was: the one before it
        (4, (4, 30)),
        (7, (7, 99)),  # the latest ends with the log
        (8, (-1, -1)),
    ],
)
def test_where_an_epoch_ends(asked: int, answer: tuple[int, int]) -> None:
    epochs = LeaderEpochs(CrashFileSystem(), ROOT)
    for epoch, start in ((2, 5), (4, 20), (7, 30)):
        epochs.assign(epoch, start)
    assert epochs.end_offset(asked, 99) == answer


def test_without_epochs_nothing_is_known() -> None:
    epochs = LeaderEpochs(CrashFileSystem(), ROOT)
    assert epochs.end_offset(0, 10) == (-1, -1)
    assert epochs.epoch_of(3) == -1
    assert epochs.latest == -1


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("1\n0\n", 1),
        ("0\n2\n0 0\n", 2),
        ("0\n1\n0\n", 3),
        ("0\n2\n1 0\n0 5\n", 4),
        ("0\n2\n1 5\n2 5\n", 4),
        ("0\n1\n-1 0\n", 3),
        ("0\n1\n0 0 0\n", 3),
    ],
)
def test_a_damaged_file_is_named_with_the_line(text: str, line: int) -> None:
    fs = CrashFileSystem()
    fs.write_bytes(ROOT / FILE_NAME, text.encode())
    with pytest.raises(CorruptFile) as damaged:
        loaded(fs)
    assert (damaged.value.path, damaged.value.position) == (ROOT / FILE_NAME, line)
