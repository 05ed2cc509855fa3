"""Settings that are resolved once for all brokers: each start of one takes 10 ms for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from odradek.config.option import Option
from odradek.config.resolution import Layer, Resolved, Source, resolve

# With the layers, so that no other object gets the id of the defaults.
_found: dict[Any, tuple[Resolved[Any], tuple[Layer, ...]]] = {}


def resolve_once(
    cls: type[Any],
    layers: Iterable[Layer],
    *,
    also: Sequence[Option] = (),
    families: Mapping[str, tuple[str, ...]] | None = None,
) -> Resolved[Any]:
    """See config.resolution.resolve, whose results do not change."""
    layers = tuple(layers)
    key = cls, id(also), tuple(map(_identity, layers))
    if key not in _found:
        _found[key] = resolve(cls, layers, also=also, families=families), layers
    return _found[key][0]


def _identity(layer: Layer) -> tuple[Any, ...]:
    if layer.source is Source.DEFAULT:  # hundreds of them, the same for all
        return layer.source, id(layer)
    return layer.source, frozenset(layer.values.items()), frozenset(layer.origins.items())
