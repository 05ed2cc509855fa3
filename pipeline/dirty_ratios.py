"""Compute the costs and savings of `min.cleanable.dirty.ratio` for a compacted topic's size.

A log is cleaned when more than this share of it is dirty. So it grows, from the base that
compaction leaves, by base * r / (1 - r), and a reader of everything may have to read as much in
vain. A cleaner that copies the whole log each time, as Kafka's does, copies (1 - r) / r bytes of
the base for each dirty byte.
"""

from collections.abc import Sequence

from odradek.dataclass import dataclass

RATIOS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9)

_SECONDS_A_DAY = 86_400


@dataclass(frozen=True, slots=True)
class DirtyRatio:
    """The effect of a ratio; ``days_between_runs`` is None where no rate of updates is known."""

    ratio: float
    reserve_bytes: float
    log_bytes: float
    log_records: float
    copied_per_dirty_byte: float
    days_between_runs: float | None


def dirty_ratios(
    base_bytes: float,
    base_records: float,
    updates_per_second: float | None = None,
    ratios: Sequence[float] = RATIOS,
) -> list[DirtyRatio]:
    """Return the effect of each ratio, above 0 and below 1, on a compacted topic."""
    effects = []
    for ratio in ratios:
        growth = ratio / (1 - ratio)
        days = None
        if updates_per_second:
            days = base_records * growth / updates_per_second / _SECONDS_A_DAY
        effects.append(
            DirtyRatio(
                ratio,
                base_bytes * growth,
                base_bytes * (1 + growth),
                base_records * (1 + growth),
                1 / growth,
                days,
            )
        )
    return effects
