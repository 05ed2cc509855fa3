"""Questions that are put to both brokers in turn, and the figures of the answers.

    round 1    fresh Odradek, then fresh Kafka      a ratio of each figure
    round 2    fresh Kafka, then fresh Odradek      a ratio of each figure
    …          the median of the ratios counts; the least and the largest are shown with it

The machine's speed changes from minute to minute: a single figure means little, a pair of figures
taken one after the other means more. The second one finds memory that the machine has just
used, which a virtual machine gets sooner than new memory, so the order changes.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.processes import KafkaProcess, OdradekProcess

Broker = OdradekProcess | KafkaProcess
Values = Mapping[str, float]
"""Figures by their titles."""

BROKERS: Mapping[str, type[OdradekProcess] | type[KafkaProcess]] = {
    "Odradek": OdradekProcess,
    "Kafka": KafkaProcess,
}
# An empty value unsets it: with a value each start would compile modules without bytecode again.
_AS_INSTALLED = {"PYTHONDONTWRITEBYTECODE": ""}


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value of a broker, and Odradek's promise about it."""

    title: str
    unit: str
    more_is_better: bool = True
    at_least: float | None = None  # the promised advantage
    ours_at_most: float | None = None  # or the promised bound of Odradek's own value

    @property
    def is_compared(self) -> bool:
        """Return whether the two brokers' values are compared."""
        return self.ours_at_most is None

    def advantage(self, ours: float, theirs: float) -> float:
        """Return by which factor our value is better; below 1 it is worse."""
        better, worse = (ours, theirs) if self.more_is_better else (theirs, ours)
        return better / worse if worse else float("inf")


@dataclass(frozen=True, slots=True)
class Question:
    """A load, and the figures that it measures."""

    name: str  # on the command line
    title: str
    figures: Sequence[Figure]
    # Gets a fresh, running broker, and the factor by which to scale the load.
    ask: Callable[[Broker, float], Values]
    settings: Mapping[str, str] = field(default_factory=dict)
    # Gets the broker before it starts.
    prepare: Callable[[Broker], None] = lambda _: None
    starts_itself: bool = False
    note: str = ""  # an explanation of the figures for readers


@dataclass(frozen=True, slots=True)
class Answer:
    """A figure of all rounds."""

    figure: Figure
    ours: Sequence[float]
    theirs: Sequence[float]

    @property
    def advantages(self) -> Sequence[float]:
        """The advantage in each round."""
        pairs = zip(self.ours, self.theirs, strict=True)
        return [self.figure.advantage(*pair) for pair in pairs]

    @property
    def advantage(self) -> float:
        """The advantage that counts."""
        return statistics.median(self.advantages)

    @property
    def falls_short(self) -> bool:
        """Return whether the result is worse than the promise."""
        least, most = self.figure.at_least, self.figure.ours_at_most
        return (least is not None and self.advantage < least) or (
            most is not None and statistics.median(self.ours) > most
        )


def put(question: Question, rounds: int, scale: float) -> list[Answer]:
    """Put a question to both brokers in each of some rounds."""
    values: dict[str, list[Values]] = {name: [] for name in BROKERS}
    order = list(BROKERS)
    for _ in range(rounds):
        for name in order:
            values[name].append(put_once(question, name, scale))
        order.reverse()
    return [
        Answer(figure, *([one[figure.title] for one in found] for found in values.values()))
        for figure in question.figures
    ]


def put_once(question: Question, broker_name: str, scale: float) -> Values:
    """Put a question to one fresh broker; return all figures, each a positive number."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        broker = make(broker_name, Path(folder) / "broker", question.settings)
        question.prepare(broker)
        if not question.starts_itself:
            broker.start()
        try:
            values = question.ask(broker, scale)
        finally:
            broker.stop()
    titles = {figure.title for figure in question.figures}
    assert set(values) == titles, (question.name, titles ^ set(values))
    assert all(value > 0 for value in values.values()), (question.name, values)
    return values


def make(broker_name: str, folder: Path, settings: Mapping[str, str]) -> Broker:
    """Return a broker that is not started yet; Odradek starts as an installed package does."""
    broker = BROKERS[broker_name](folder, dict(settings))
    if isinstance(broker, OdradekProcess):
        broker.environment = _AS_INSTALLED
    return broker


def summary(name: str, ratios: Sequence[float]) -> str:
    """Return the line that ends a run of pairs."""
    median = statistics.median(ratios)
    return f"  {name}: median {median:.2f}, from {min(ratios):.2f} to {max(ratios):.2f}"


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that a share of all values does not exceed."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
