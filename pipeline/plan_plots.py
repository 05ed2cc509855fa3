"""Draw the plan of each topic's cleaning as a picture."""

from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.pipeline.dirty_ratios import DirtyRatio, dirty_ratios
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.plan_text import TopicPlan
from odradek.pipeline.text import show_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GB = 1e9
_CURVE = [step / 100 for step in range(1, 96)]
_KAFKA_COLOUR, _OWN_COLOUR = "tab:gray", "tab:green"


def draw(plan: TopicPlan, folder: str) -> Path:
    """Draw a topic's plan into a folder, as TOPIC.png, and return the file.

    Raises PipelineError where nothing can be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.5), layout="constrained")
    runs, log = figure.subplots(1, 2)
    figure.suptitle(
        f"{plan.topic}: {plan.total('keys'):,} keys, "
        f"{100 * plan.garbage_ratio:.1f}% of {plan.total('size_bytes') / _GB:.3g} GB is garbage"
    )
    _draw_runs(runs, plan)
    _draw_ratios(log, plan)
    path = Path(folder) / f"{plan.topic}.png"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=110)
    except OSError as error:
        raise PipelineError(
            f"{path} cannot be written ({error.strerror}): choose another --plots"
        ) from None
    return path


def _draw_runs(axes: "Axes", plan: TopicPlan) -> None:
    """Draw the bytes read and written from run to run."""
    kafka = [
        run.indexed_bytes + run.read_bytes + run.written_bytes
        for one in plan.partitions
        for run in one.kafka
    ]
    own = [
        one.odradek.indexed_bytes
        + one.odradek.read_bytes
        + one.odradek.written_bytes
        + 2 * one.odradek.spilled_bytes
        for one in plan.partitions
        if one.odradek
    ]
    for name, amounts, colour in (
        (f"Kafka: {show_count(len(kafka), 'run')}", kafka, _KAFKA_COLOUR),
        (f"Odradek: {show_count(len(own), 'run')}", own, _OWN_COLOUR),
    ):
        total = [0.0, *accumulate(amounts)]
        axes.plot(
            range(len(total)), [amount / _GB for amount in total], marker=".", color=colour,
            label=name,
        )  # fmt: skip
    axes.set(title="Bytes read and written", xlabel="runs", ylabel="GB", ylim=(0, None))
    axes.legend()


def _draw_ratios(axes: "Axes", plan: TopicPlan) -> None:
    """Draw the size of the log, and the bytes copied, by the dirty ratio."""
    curve: Sequence[DirtyRatio] = dirty_ratios(
        plan.total("live_bytes"), plan.total("keys"), ratios=_CURVE
    )
    sizes = [one.log_bytes / _GB for one in curve]
    axes.plot(_CURVE, sizes, color="tab:blue", label="log at most, GB")
    axes.axhline(plan.total("live_bytes") / _GB, color="tab:blue", linestyle=":", label="base, GB")
    axes.set(
        title="min.cleanable.dirty.ratio", xlabel="ratio", ylabel="GB",
        ylim=(0, 5 * sizes[0] or 1),
    )  # fmt: skip
    copied = axes.twinx()
    copied.plot(
        _CURVE, [one.copied_per_dirty_byte for one in curve], color="tab:red",
        label="copied for a dirty byte",
    )  # fmt: skip
    copied.set(ylabel="bytes", yscale="log")
    axes.legend(loc="upper left")
    copied.legend(loc="upper right")
