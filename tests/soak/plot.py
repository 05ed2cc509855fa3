"""Draws the samples of a soak: a plot of each quantity."""

from __future__ import annotations

from pathlib import Path

from tests.soak.sampling import Samples

_COLUMNS = 3
_MINUTE_S = 60


def draw(samples: Samples, path: Path) -> None:
    """Write the plots in the format that the name of the file says."""
    from matplotlib.figure import Figure

    rows = -(-len(samples) // _COLUMNS)
    picture = Figure(figsize=(14, 2.8 * rows), layout="constrained")
    for at, (quantity, owners) in enumerate(samples.items(), start=1):
        axes = picture.add_subplot(rows, _COLUMNS, at)
        for owner, points in owners.items():
            minutes = [second / _MINUTE_S for second, _ in points]
            axes.plot(minutes, [value for _, value in points], linewidth=0.9, label=owner)
        axes.set_ylim(bottom=0)
        axes.set_title(quantity.title, fontsize=10)
        axes.set_xlabel("minutes", fontsize=8)
        axes.legend(fontsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.savefig(path, dpi=110)
