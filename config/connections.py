"""Limits on the number of connections and on the rate of new ones, per broker or listener."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from odradek.config.option import option, options
from odradek.config.values import INT32_MAX, at_least, int32


@options
class ConnectionConfig:
    """The limits of all listeners together, or of one (KIP-402, KIP-612)."""

    max_connections: int32 = option(
        "max.connections",
        default=INT32_MAX,
        valid=at_least(0),
        dynamic="cluster-wide",
        doc="How many connections may be open; further ones wait to be accepted. "
        "`listener.name.NAME.max.connections` sets it for one listener.",
    )
    max_connection_creation_rate: int32 = option(
        "max.connection.creation.rate",
        default=INT32_MAX,
        valid=at_least(0),
        dynamic="cluster-wide",
        doc="How many new connections are accepted per second. "
        "`listener.name.NAME.max.connection.creation.rate` sets it for one listener.",
    )


def connection_problems(_: ConnectionConfig) -> Iterator[tuple[str, Sequence[str]]]:
    """Yield nothing: these settings cannot contradict each other."""
    yield from ()
