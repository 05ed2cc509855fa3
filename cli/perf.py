"""odradek perf: measures any Kafka under a load of records with keys."""

from __future__ import annotations

import click

from cli.lazy import LazyGroup

_COMMANDS = {
    "consume": ("cli.perf_consume:consume", "Read a topic at full speed."),
    "produce": ("cli.perf_produce:produce", "Send generated records with random keys."),
    "roundtrip": (
        "cli.perf_roundtrip:roundtrip",
        "Measure how long records take from a producer to a consumer.",
    ),
}


@click.group(cls=LazyGroup, lazy=_COMMANDS)
def perf() -> None:
    """Measure a broker under a load of records with keys."""
