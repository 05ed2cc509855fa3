"""What a cleaning leaves is what Apache Kafka's cleaner leaves, batch for batch."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from odradek.protocol.batches import Record
from odradek.protocol.compression import Codec
from odradek.storage.segment import LOG
from tests.cleaner.differences import Deliberate
from tests.cleaner.duels import Difference, Outcome, duel
from tests.cleaner.kafka_cleaner import MEMORY, KafkaCleaner, batches_in
from tests.cleaner.random_histories import (
    Batch,
    Clean,
    Configure,
    End,
    Old,
    Roll,
    Step,
    Trim,
    Wait,
    history,
    shorten,
)
from tests.cleaner.test_clean_model import new_world
from tests.cleaner.test_old_formats import fill
from tests.cleaner.worlds import EAGER, FS, TOPIC, StoredBatch, World
from tests.fuzz.seeds import FIRST_SEED, HISTORIES
from tests.storage.old_logs import write

SHORT = 180
# What a history may begin with, and the share of the histories that do.
KINDS = [
    pytest.param({}, 1.0, id="plain"),
    pytest.param({"small_maps": True}, 0.3, id="small-maps"),
    pytest.param({"old_formats": True}, 0.3, id="old-formats"),
]

# What ends with each of the differences that are listed.
SHOWS: dict[Deliberate, list[Step]] = {
    Deliberate.SHARED_BATCHES: [Old(1, ((b"k", b"v"),)), Old(1, ((b"l", None),))],
    Deliberate.EDGES_OF_WRAPPERS: [Old(1, ((b"k", b"v"), (b"k", b"w")), Codec.GZIP)],
    Deliberate.ABORTED_BEFORE_THE_START: [
        Batch(((b"k", b"v"),), (0,), producer=3),
        End(3, commit=False),
        Trim(1.0, deletes_segments=False),
        Batch(((b"gone", None),), (0,), producer=3),
        End(3, commit=True),
        Roll(),
        Clean(),
        Wait(EAGER.delete_retention_ms),
        Batch(((b"l", b"v"),), (0,), producer=3),
        End(3, commit=True),
        Roll(),
        Clean(),  # nothing is left of the transaction
        Batch(((b"m", b"v"),), (0,)),
    ],
    Deliberate.ABORTED_BEFORE_A_ROUND: [
        Configure({"index_interval_bytes": 0}),
        Batch(((b"k", b"v"),), (0,), producer=3),
        Batch(((b"old", b"v"),), (0,)),
        End(3, commit=False),
        Batch(tuple((b"%d" % at, b"v") for at in range(9)), (0,) * 9, producer=3),
        Batch(((b"old", b"v"),), (0,), producer=3),
        End(3, commit=True),
        Roll(),
        Clean(keys=8),
    ],
    Deliberate.OLD_MESSAGE_AT_THE_END: [Old(1, ((b"k", b"v"),)), Old(1, ((None, b"v"),))],
}

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.usefixtures("quiet_logs"),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def oracle() -> Iterator[KafkaCleaner]:
    with tempfile.TemporaryDirectory(dir=MEMORY) as root:
        running = KafkaCleaner(Path(root))
        yield running
        running.close()


def play(oracle: KafkaCleaner, seeds: Sequence[int], kind: dict[str, bool]) -> Outcome:
    """Play histories; fail with what is left of the first one that ends differently."""
    outcome = Outcome()
    for seed in seeds:
        steps = history(seed, **kind)
        found = duel(oracle, steps, outcome)
        if found is not None:
            pytest.fail(f"seed {seed}:\n{explained(oracle, steps)}")
    return outcome


def explained(oracle: KafkaCleaner, steps: Sequence[Step]) -> str:
    def fails(fewer: Sequence[Step]) -> Difference | None:
        return duel(oracle, fewer, Outcome())

    left = shorten(steps, lambda fewer: fails(fewer) is not None)
    return "\n".join([*map(str, left), str(fails(left))])


@pytest.mark.parametrize(("kind", "share"), KINDS)
def test_histories_end_as_kafkas_do(
    oracle: KafkaCleaner, kind: dict[str, bool], share: float
) -> None:
    count = int(SHORT * share)
    outcome = play(oracle, range(FIRST_SEED, FIRST_SEED + count), kind)
    assert outcome.cleanings > count
    assert (outcome.in_passes > count / 5) == ("small_maps" in kind)
    assert "old_formats" in kind or outcome.seen <= {
        Deliberate.ABORTED_BEFORE_THE_START,
        Deliberate.ABORTED_BEFORE_A_ROUND,
    }


@pytest.mark.interop
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("kind", "share"), KINDS)
def test_many_histories_end_as_kafkas_do(
    oracle: KafkaCleaner, kind: dict[str, bool], share: float
) -> None:
    first, count = FIRST_SEED + SHORT, int(HISTORIES * share)
    play(oracle, range(first, first + count), kind)


@pytest.mark.parametrize("deliberate", Deliberate, ids=lambda deliberate: deliberate.name)
def test_each_difference_that_is_listed_is_there(
    oracle: KafkaCleaner, deliberate: Deliberate
) -> None:
    outcome = Outcome()
    assert duel(oracle, [*SHOWS[deliberate], Roll(), Clean()], outcome) is None
    assert outcome.seen == {deliberate}


# --- what is not yet as in Kafka -------------------------------------------------------------


def test_old_tombstones_go_by_the_age_of_their_segment(oracle: KafkaCleaner) -> None:
    for seed in range(60):
        found = [
            [(r.offset, r.key, r.value) for batch in batches for r in batch.records]
            for batches in cleaned_by_both(oracle, partial(write_old_segments, seed))
        ]
        assert found[0] == found[1], f"seed {seed}"


def write_old_segments(seed: int, world: World) -> None:
    """Write segments of old messages, some clean, of ages around delete.retention.ms."""
    source = random.Random(seed)
    segments = source.randrange(1, 5)
    for _ in range(segments):
        fill(
            world,
            [
                write(
                    source.randrange(2),
                    source.choice([Codec.NONE, Codec.GZIP]),
                    [
                        Record(
                            world.log.log_end_offset + at,
                            5,
                            b"k%d" % source.randrange(12),
                            source.choice([None, b"v"]),
                        )
                    ],
                )
                for at in range(source.randrange(1, 6))
            ],
        )
    world.append([(b"new", b"v")])  # Kafka cannot do without a last batch of the new format
    world.roll()
    for segment in world.log.segments:
        apart_ms = source.choice([0, 50, 99, 100, 101, 200])  # delete.retention.ms is 100
        FS.set_modified_ms(segment.path(LOG), world.now_ms - apart_ms)
    if source.random() < 0.8:
        clean_up_to = source.randrange(world.log.active.base_offset)
        world.directory.cleaner_offsets[TOPIC, 0] = clean_up_to


def test_tombstones_get_no_horizon_beyond_the_end_of_time(oracle: KafkaCleaner) -> None:
    def write_tombstone(world: World) -> None:
        world.log.config = replace(world.log.config, delete_retention_ms=2**63 - 1)
        world.append([(b"k", b"v"), (b"k", None)])
        world.roll()

    ours, kafkas = cleaned_by_both(oracle, write_tombstone)
    assert [batch.facts for batch in ours] == [batch.facts for batch in kafkas]


def cleaned_by_both(
    oracle: KafkaCleaner, fill_world: Callable[[World], None]
) -> tuple[list[StoredBatch], list[StoredBatch]]:
    """Let both clean a log that Odradek wrote, each a copy of its own."""
    with new_world() as world:
        fill_world(world)
        checkpoint = world.directory.cleaner_offsets.get((TOPIC, 0))
        kafka = oracle.open(world.log.config, world.now_ms, world.log.directory, checkpoint)
        try:
            world.clean()
            kafka.clean(world.now_ms, None, 1 << 20)
            return batches_in(world.log.directory), batches_in(kafka.directory)
        finally:
            kafka.close()
