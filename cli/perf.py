"""odradek perf: measures any Kafka under a load of records with keys."""

from __future__ import annotations

import click

from odradek.cli.lazy import LazyGroup

_COMMANDS = {
    "consume": ("odradek.cli.perf_consume:consume", "Read a topic at full speed."),
    "produce": ("odradek.cli.perf_produce:produce", "Send generated records with random keys."),
    "roundtrip": (
        "odradek.cli.perf_roundtrip:roundtrip",
        "Measure how long records take from a producer to a consumer.",
    ),
}


@click.group(cls=LazyGroup, lazy=_COMMANDS)
def perf() -> None:
    """Measure a broker under a load of records with keys."""
