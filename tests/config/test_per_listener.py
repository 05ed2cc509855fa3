"""Settings of one listener go above those of the whole broker."""

from __future__ import annotations

import pytest

from odradek.config.per_listener import ListenerName, base_name, layers_of, split_name
from odradek.config.resolution import Layer, Source


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("listener.name.inner.ssl.client.auth", ("inner", "", "ssl.client.auth")),
        ("listener.name.a-b.plain.sasl.jaas.config", ("a-b", "plain", "sasl.jaas.config")),
        ("listener.name.x.scram-sha-256.y", ("x", "scram-sha-256", "y")),
    ],
)
def test_a_setting_of_a_listener_is_recognized_by_its_prefix(
    name: str, parts: tuple[str, str, str]
) -> None:
    assert split_name(name) == ListenerName(*parts)
    assert base_name(name) == parts[2]


def test_other_names_are_as_they_are() -> None:
    assert split_name("listener.security.protocol.map") is None
    assert base_name("ssl.client.auth") == "ssl.client.auth"


def _value(layers: list[Layer], listener: str, mechanism: str = "") -> str | None:
    for layer in sorted(layers_of(layers, listener, mechanism), key=lambda one: one.source):
        if "a.b" in layer.values:
            return layer.values["a.b"]
    return None


def test_the_nearest_wins() -> None:
    prefixed = {
        "listener.name.inner.a.b": "of the listener",
        "listener.name.inner.plain.a.b": "of the mechanism",
    }
    static = Layer(Source.STATIC_BROKER, {"a.b": "static", **prefixed})
    dynamic = Layer(Source.DYNAMIC_BROKER, {"a.b": "dynamic"})
    assert _value([static, dynamic], "OUTER") == "dynamic"
    # A prefixed one wins over one without, whatever their layers.
    assert _value([static, dynamic], "INNER") == "of the listener"
    assert _value([static, dynamic], "INNER", "plain") == "of the mechanism"
    changed = Layer(Source.DYNAMIC_BROKER, {"listener.name.inner.a.b": "changed"})
    assert _value([static, changed], "INNER") == "changed"
