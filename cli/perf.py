"""odradek perf: puts keyed load on any Kafka, and measures."""

from __future__ import annotations

import click

from cli.lazy import LazyGroup

_COMMANDS = {
    "consume": ("cli.perf_consume:consume", "Read a topic as fast as it goes."),
    "produce": ("cli.perf_produce:produce", "Send made records with drawn keys to a topic."),
    "roundtrip": (
        "cli.perf_roundtrip:roundtrip",
        "Measure how long records take from a producer to a consumer.",
    ),
}


@click.group(cls=LazyGroup, lazy=_COMMANDS)
def perf() -> None:
    """Put keyed load on a broker, and measure."""
