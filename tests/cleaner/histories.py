"""Generated histories of a log: batches of all kinds, rolls, cleanings, time that passes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import strategies as st

from odradek.cleaner.rules.job import CleanerSettings
from odradek.protocol.compression import Codec
from odradek.storage.transactions import AbortedTransaction
from tests.cleaner.once import SETTINGS
from tests.cleaner.worlds import World

Pair = tuple[bytes | None, bytes | None]

# Few keys, so that they come again; of all lengths that a hash could treat differently. The last
# one is also the key of an abort marker.
KEYS = st.sampled_from(
    [None, b"", b"a", b"seven-7", b"eight-88", b"fourteen-14-14", b"x" * 70, b"\0\0\0\0"]
)
VALUES = st.one_of(st.none(), st.binary(max_size=12), st.just(b"v" * 100))
PAIRS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=6)
CODECS = st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])


@dataclass(frozen=True, slots=True)
class Data:
    """A batch of records. Producers 1 and 2 are idempotent, 3 and 4 transactional."""

    pairs: list[Pair]
    codec: Codec
    producer: int | None
    gap: int
    log_append_time: bool
    backwards_ms: int  # how much older than the one before it each record is


@dataclass(frozen=True, slots=True)
class End:
    """The end of a transaction, if the producer is in one."""

    producer: int
    commit: bool


@dataclass(frozen=True, slots=True)
class Roll:
    """A new active segment."""


@dataclass(frozen=True, slots=True)
class Clean:
    """Time passes, and the log is cleaned."""

    after_ms: int


Step = Data | End | Roll | Clean

DATA = st.builds(
    Data,
    pairs=PAIRS,
    codec=CODECS,
    producer=st.sampled_from([None, None, 1, 2, 3, 4]),
    gap=st.sampled_from([0, 0, 0, 1, 50]),
    log_append_time=st.sampled_from([False, False, True]),
    backwards_ms=st.sampled_from([0, -1, 7]),
)
STEPS: st.SearchStrategy[Step] = st.one_of(
    DATA,
    DATA,
    DATA,
    st.builds(End, producer=st.sampled_from([3, 4]), commit=st.booleans()),
    st.builds(Roll),
)
# 100 ms is delete.retention.ms: the moment at which a horizon has just passed.
CLEAN: st.SearchStrategy[Step] = st.builds(Clean, after_ms=st.sampled_from([0, 50, 100, 1000]))


@st.composite
def histories(draw: st.DrawFn) -> list[Step]:
    """Draw a history: some rounds of steps, each rolled and cleaned."""
    steps: list[Step] = []
    for _ in range(draw(st.integers(1, 4))):
        steps += draw(st.lists(STEPS, min_size=1, max_size=10))
        steps += [Roll(), draw(CLEAN)]
    return steps


HISTORIES = histories()


class Author:
    """Writes the steps of a history into a world, keeping track of producers."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.aborted: list[AbortedTransaction] = []
        self._sequences: dict[int, int] = {}
        self._open: dict[int, int] = {}  # producer -> first offset of its transaction

    def write(self, step: Data | End | Roll) -> None:
        """Carry out one step."""
        if isinstance(step, Data):
            self._data(step)
        elif isinstance(step, End):
            self._end(step)
        else:
            self.world.roll()

    def end_all(self) -> None:
        """Commit what is open: a log is only cleaned up to its last stable offset."""
        for producer in list(self._open):
            self._end(End(producer, commit=True))

    def _data(self, step: Data) -> None:
        world, producer = self.world, step.producer
        state = None
        if producer is not None:
            sequence = self._sequences.get(producer, 0)
            self._sequences[producer] = sequence + len(step.pairs)
            state = (producer, 0, sequence)
        transactional = producer is not None and producer >= 3
        stored = world.append(
            step.pairs,
            codec=step.codec,
            producer=state,
            transactional=transactional,
            log_append_time=step.log_append_time,
            gap=step.gap,
            timestamps=[world.now_ms - at * step.backwards_ms for at in range(len(step.pairs))],
        )
        if transactional and producer is not None:
            self._open.setdefault(producer, stored.header.base_offset)

    def _end(self, step: End) -> None:
        first = self._open.pop(step.producer, None)
        if first is None:
            return
        marker = self.world.append_marker(step.producer, 0, commit=step.commit)
        if not step.commit:
            offset = marker.header.base_offset
            stable = min([offset + 1, *self._open.values()])
            transaction = AbortedTransaction(first, offset, step.producer, stable)
            self.aborted.append(transaction)
            self.world.note_aborted(transaction)


def write_all(world: World, steps: Sequence[Step], how: CleanerSettings = SETTINGS) -> None:
    """Carry out a whole history, cleaning where it says so."""
    author = Author(world)
    for step in steps:
        if isinstance(step, Clean):
            author.end_all()
            world.now_ms += step.after_ms
            world.clean(how)
        else:
            author.write(step)
