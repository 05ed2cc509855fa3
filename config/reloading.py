"""How static settings that changed while the broker runs take effect.

A setting that clients could change, too (its update mode in docs/configs.md), takes effect at
once; any other keeps the value that the broker was started with until it is started again. The
same holds for a listener's own settings. config.providers is different: it has already given
the values that were just read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

from odradek.config.effective import BROKER_OPTION
from odradek.config.per_listener import base_name
from odradek.config.providers import is_of_providers
from odradek.config.resolution import Entry, Layer
from odradek.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Reloading:
    """The settings that come into force, and the names that changed or need a restart."""

    layer: Layer
    changed: tuple[str, ...]
    awaiting_restart: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """An option whose value in force has changed; None stands for no value."""

    name: str
    old: str | None
    new: str | None


def plan_reload(started: Layer, read: Layer) -> Reloading:
    """Decide which of the settings just read replace those in force."""
    values, origins = dict(started.values), dict(started.origins)
    changed, awaiting = [], []
    for name in sorted(started.values.keys() | read.values.keys()):
        if started.values.get(name) == read.values.get(name):
            continue
        option = BROKER_OPTION.get(base_name(name))
        if option is not None and option.read_only and not is_of_providers(name):
            awaiting.append(name)
            continue
        changed.append(name)
        for target, source in ((values, read.values), (origins, read.origins)):
            target.pop(name, None)
            if name in source:
                target[name] = source[name]
    layer = dataclasses.replace(started, values=values, origins=origins)
    return Reloading(layer, tuple(changed), tuple(awaiting))


def differences(old: Mapping[str, Entry], new: Mapping[str, Entry]) -> Iterator[Difference]:
    """Yield the options whose values in force differ, sorted by name.

    A secret never differs here: its value is in no entry.
    """
    for name in sorted(old.keys() & new.keys()):
        before, after = old[name], new[name]
        if before.value != after.value:
            yield Difference(name, before.value, after.value)
