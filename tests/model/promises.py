"""The promises: `broken` returns the one that a state breaks.

docs/guarantees.md has them in words.
"""

from __future__ import annotations

from functools import lru_cache

from tests.model.guards import Rules
from tests.model.states import Catalog, Key, World, has_open_session, named_keys
from tests.model.writing import is_served

Truth = tuple[tuple[int, int, int], ...]


def broken(world: World, rules: Rules) -> str | None:
    """Return the promise that a state breaks, None if it keeps all of them."""
    return (
        world.problem
        or _of_truth(world.truth, world.acked)
        or _of_catalog(world.catalog, world.truth, world.removed)
        or _of_bucket(world.catalog, world.bucket)
        or _of_readers(world, rules)
    )


@lru_cache(maxsize=100_000)
def _of_truth(truth: tuple[Truth, ...], acked: tuple[int, ...]) -> str | None:
    for partition, records in enumerate(truth):
        batches = [batch for batch, _, _ in records]
        if len(set(batches)) < len(batches):
            return f"twice: partition {partition} has batches {batches}"
        if batches != sorted(batches):
            return f"order: partition {partition} has batches {batches}"
        missing = set(range(acked[partition])) - set(batches)
        if missing:
            return f"lost: batch {min(missing)} of partition {partition} was acknowledged"
        writers: dict[int, int] = {}
        for _, epoch, session in records:
            if writers.setdefault(epoch, session) != session:
                return f"epoch: two sessions write in epoch {epoch} of partition {partition}"
        epochs = [epoch for _, epoch, _ in records]
        if epochs != sorted(epochs):
            return f"epoch: partition {partition} has epochs {epochs}"
    return None


@lru_cache(maxsize=100_000)
def _of_catalog(
    catalog: Catalog, truth: tuple[Truth, ...], removed: frozenset[tuple[int, int]]
) -> str | None:
    for partition, place in enumerate(catalog.places):
        end = 0
        found: dict[int, int] = {}
        is_open = False
        for row in catalog.rows:
            if row.partition == partition:
                if is_open:
                    return f"rows: others follow an open one of partition {partition}"
                is_open = row.is_open
                if row.base != end:
                    return f"rows: those of partition {partition} do not follow each other"
                end = row.end
                found.update(row.batches)
        if end != place.stored:
            return f"rows: partition {partition} is stored up to {end}, not {place.stored}"
        for entry in catalog.entries:
            for run in entry.runs:
                if run.partition == partition:
                    for offset, batch in enumerate(run.batches, run.base):
                        if offset >= end:
                            found[offset] = batch
        problem = _of_log(partition, found, truth[partition], removed)
        if problem is not None:
            return problem
    return None


def _of_log(
    partition: int, found: dict[int, int], truth: Truth, removed: frozenset[tuple[int, int]]
) -> str | None:
    last = len(truth) - 1
    for offset, (batch, _, _) in enumerate(truth):
        is_removed = (partition, offset) in removed
        if is_removed and (offset == last or offset in found):
            word = "is removed, and the last one" if offset == last else "is back"
            return f"exchange: offset {offset} of partition {partition} {word}"
        if not is_removed and found.get(offset) != batch:
            return f"lost: offset {offset} of partition {partition} was committed"
    if found and max(found) > last:
        return f"segments: partition {partition} has records that were never committed"
    return None


@lru_cache(maxsize=100_000)
def _of_bucket(catalog: Catalog, bucket: frozenset[Key]) -> str | None:
    missing = named_keys(catalog) - bucket
    return f"objects: a row names {min(missing)}, which is not there" if missing else None


def _of_readers(world: World, rules: Rules) -> str | None:
    for number, broker in enumerate(world.brokers):
        for partition, log in enumerate(broker.logs):
            if log is None or not is_served(world, number, log, rules):
                continue
            end = log.high_watermark if rules.watermark_is_committed else log.end
            truth = world.truth[partition]
            for offset, batch in log.batches:
                if offset < end and (offset >= len(truth) or truth[offset][0] != batch):
                    return f"reads: broker {number} shows offset {offset}, which may go"
            if end < world.acked[partition]:
                return f"reads: broker {number} lacks acknowledged records"
            sealed = [row.key for row in log.rows if not row.is_open]
            gone = [key for key in sealed if key not in world.bucket]
            if gone and has_open_session(world, number):
                return f"objects: broker {number} still reads {gone[0]}, which is deleted"
    return None


def is_settled(world: World) -> bool:
    """Return whether all batches are acknowledged, and nothing is under way: a good end."""
    return (
        all(batch == len(past) for batch, past in zip(world.acked, world.truth, strict=True))
        and not world.catalog.doubt
        and all(
            one.change is None and one.cleaned is None and not one.sealed and not one.unsealed
            for one in world.brokers
        )
    )
