"""Settings of one listener, or of one SASL mechanism there, which override the broker's.

    listener.name.internal.ssl.client.auth=required
    listener.name.external.scram-sha-256.sasl.server.callback.handler.class=...

The listener's name is in lower case. As in Kafka (AbstractConfig.valuesWithPrefixOverride) such
a setting overrides one without the prefix, no matter which layers the two come from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from odradek.config.resolution import Layer, Source
from odradek.dataclass import dataclass

PREFIX = "listener.name."
MECHANISMS = ("gssapi", "plain", "scram-sha-256", "scram-sha-512", "oauthbearer")


@dataclass(frozen=True, slots=True)
class ListenerName:
    """The parts of a setting's name; the mechanism is "" where it has none."""

    listener: str
    mechanism: str
    option: str


def split_name(name: str) -> ListenerName | None:
    """Return the parts of a listener's setting; None for any other name."""
    if not name.startswith(PREFIX):
        return None
    listener, _, rest = name.removeprefix(PREFIX).partition(".")
    mechanism, _, option = rest.partition(".")
    if mechanism in MECHANISMS:
        return ListenerName(listener, mechanism, option)
    return ListenerName(listener, "", rest)


def base_name(name: str) -> str:
    """Return the name of the option that a setting is for, without a listener's prefix."""
    parts = split_name(name)
    return name if parts is None else parts.option


def layers_of(layers: Iterable[Layer], listener: str, mechanism: str = "") -> Sequence[Layer]:
    """Return the layers as one listener sees them: its own settings on top of all others."""
    ordered = sorted(layers, key=lambda layer: layer.source)
    values: dict[str, str] = {}
    origins: dict[str, str] = {}
    for wanted in dict.fromkeys(("", mechanism)):
        for layer in reversed(ordered):
            for name, value in layer.values.items():
                parts = split_name(name)
                if parts is None or (parts.listener, parts.mechanism) != (
                    listener.lower(),
                    wanted,
                ):
                    continue
                values[parts.option] = value
                origins[parts.option] = ", ".join(
                    word for word in (f"as {name}", layer.origins.get(name)) if word
                )
    # TOPIC is the source that comes before all others.
    return [Layer(Source.TOPIC, values, origins), *ordered]
