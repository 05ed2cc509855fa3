"""How layers of strings become a configuration, and the trace of where each value came from.

A layer has the settings of one source: a topic's own, the broker's, a file's. The trace has each
option's value, the source of the value, and the other values in line; DescribeConfigs answers
with it.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from itertools import dropwhile
from typing import Any, Generic, TypeVar

from odradek.config.errors import ConfigError, raise_any
from odradek.config.option import Fallback, Option, hide_value, options_of
from odradek.config.values import Kind, render
from odradek.dataclass import dataclass

T = TypeVar("T")


class Source(IntEnum):
    """Where a value came from, numbered as in DescribeConfigs; the lower number wins."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    # The sources below have one layer each, so that their order means nothing.
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """Settings of one source, as text; origins say where each was written, for errors."""

    source: Source
    values: Mapping[str, str]
    origins: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Synonym:
    """One of the values in line for an option; the first in line is the one in force."""

    name: str
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True)
class Entry:
    """DescribeConfigs' answer for one option. Values of sensitive options are None."""

    name: str
    value: str | None
    source: Source
    synonyms: tuple[Synonym, ...]
    read_only: bool
    sensitive: bool
    kind: Kind
    doc: str


@dataclass(frozen=True, slots=True, eq=False)
class Families:
    """Names that DescribeConfigs lists together, each with all of them in order."""

    by_name: Mapping[str, tuple[str, ...]]

    def of(self, option: Option) -> tuple[str, ...]:
        """Return the family of an option, an empty one of most."""
        return self.by_name.get(option.name, ())


@dataclass(frozen=True, slots=True)
class Resolved(Generic[T]):
    """A configuration and where every value in it came from."""

    config: T
    entries: Mapping[str, Entry]
    warnings: tuple[str, ...] = ()


def defaults_of(specs: Iterable[Option]) -> Layer:
    """Return the layer of declared defaults, those without one left out."""
    texts = {spec.name: spec.default_text for spec in specs}
    values = {name: text for name, text in texts.items() if text is not None}
    return Layer(Source.DEFAULT, values)


def resolve(
    cls: type[T],
    layers: Iterable[Layer],
    *,
    also: Sequence[Option] = (),
    families: Families | None = None,
) -> Resolved[T]:
    """Build a config from layers, and trace it; raise one ConfigError for all bad values.

    A topic's option takes its own name from the TOPIC layer and its fallbacks' names from the
    others; within a layer the order of fallbacks decides. A broker's option takes its own name
    from any layer. `also` are options to check and trace that have no attribute.
    """
    ordered = tuple(sorted(layers, key=lambda layer: layer.source))
    defaults = tuple(layer for layer in ordered if layer.source is Source.DEFAULT)
    unset = _unset(cls, tuple(also), families, defaults)  # type: ignore[arg-type]
    written = [name for layer in ordered if layer not in defaults for name in layer.values]
    places = sorted({place for name in written for place in unset.places.get(name, ())})
    if not places:
        return unset.resolved
    found: dict[str, Any] = {}
    entries = dict(unset.resolved.entries)
    problems: list[str] = []
    for place in places:
        spec = unset.specs[place]
        try:
            value, entry = _settle(spec, families.of(spec) if families else (), ordered)
        except ConfigError as error:
            problems += error.problems
            continue
        # The options in `also` have no attribute.
        if place < unset.count:
            found[spec.attribute] = value
        if entry is not None:
            entries[spec.name] = entry
    raise_any(problems)
    if len(entries) > len(unset.resolved.entries):  # internal options show where they are set
        entries = {one.name: entries[one.name] for one in unset.specs if one.name in entries}
    return Resolved(cls(**{**unset.values, **found}), entries)


@dataclass(frozen=True, slots=True)
class _Unset:
    """A class's options, their values where nothing is set, and their places by written name."""

    specs: tuple[Option, ...]
    count: int  # of those with an attribute, which come first
    places: Mapping[str, Sequence[int]]
    values: Mapping[str, Any]
    resolved: Resolved[Any]


# Most options are set nowhere, and a broker resolves some classes for each listener and topic.
@functools.lru_cache(maxsize=128)
def _unset(
    cls: Any,
    also: tuple[Option, ...],
    families: Families | None,
    defaults: tuple[Layer, ...],
) -> _Unset:
    specs = (*options_of(cls), *also)
    count = len(specs) - len(also)
    values: dict[str, Any] = {}
    entries: dict[str, Entry] = {}
    places: dict[str, list[int]] = {}
    for place, spec in enumerate(specs):
        family = families.of(spec) if families else ()
        for name in spec.names(family):
            places.setdefault(name, []).append(place)
        value, entry = _settle(spec, family, defaults)
        if place < count:
            values[spec.attribute] = value
        if entry is not None:
            entries[spec.name] = entry
    return _Unset(specs, count, places, values, Resolved(cls(**values), entries))


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A text in line for an option, with the name and the source that it was written under."""

    written_as: Fallback
    text: str
    source: Source
    origin: str

    def in_unit(self) -> str:
        """Return the text in the unit of the option."""
        return self.written_as.convert(self.text)

    def described(self, problem: str, wanted: str) -> str:
        """Return a problem with a note of where the text was written.

        A value from a provider, whose origin names the reference, is not quoted.
        """
        name = self.written_as.name
        if "${" in self.origin:
            problem = hide_value(problem, name, self.text)
        notes = ["" if name == wanted else f"from {name}", self.origin]
        place = ", ".join(note for note in notes if note)
        return f"{problem} ({place})" if place else problem


def _settle(
    spec: Option, family: tuple[str, ...], ordered: tuple[Layer, ...]
) -> tuple[Any, Entry | None]:
    """Return the value in force and its trace; an internal option's only where it is set."""
    line = _in_line(spec, ordered)
    value: Any = spec.default
    problems: Sequence[str] = ()
    try:
        if line:
            value = spec.read(line[0].in_unit())
    except ConfigError as error:
        problems = error.problems
    raise_any(line[0].described(problem, spec.name) for problem in problems)
    entry = None
    if not spec.internal or any(one.source < Source.DEFAULT for one in line):
        entry = _entry(spec, value, _related(spec, line, family, ordered))
    return frozenset(value) if spec.is_set else value, entry


def _in_line(spec: Option, ordered: tuple[Layer, ...]) -> list[_Candidate]:
    """Return the texts that are set for an option, the one in force first."""
    own = (Fallback(spec.name),)
    line = []
    for layer in ordered:
        is_fallback = spec.broker is not None and layer.source is not Source.TOPIC
        for written_as in (spec.broker or ()) if is_fallback else own:
            text = layer.values.get(written_as.name)
            if text is not None:
                origin = layer.origins.get(written_as.name, "")
                line.append(_Candidate(written_as, text, layer.source, origin))
    return line


def _related(
    spec: Option,
    line: list[_Candidate],
    family: tuple[str, ...],
    ordered: tuple[Layer, ...],
) -> list[Synonym]:
    """Return the synonyms of an option's entry, the one in force first."""
    if not family:
        return [Synonym(one.written_as.name, one.text, one.source) for one in line]
    together = (
        Synonym(name, layer.values[name], layer.source)
        for layer in ordered
        for name in family
        if name in layer.values
    )
    # Kafka lists the family from the described name on: earlier names do not give its value.
    return list(dropwhile(lambda one: one.name != spec.name, together))


def _entry(spec: Option, value: Any, synonyms: list[Synonym]) -> Entry:
    hidden = spec.sensitive or value is None
    shown = None if hidden else render(value)
    if synonyms and synonyms[0].source is Source.TOPIC:
        synonyms[0] = dataclasses.replace(synonyms[0], value=shown)
    if spec.sensitive:
        synonyms = [dataclasses.replace(one, value=None) for one in synonyms]
    return Entry(
        name=spec.name,
        value=shown,
        source=synonyms[0].source if synonyms else Source.DEFAULT,
        synonyms=tuple(synonyms),
        read_only=spec.read_only,
        sensitive=spec.sensitive,
        kind=spec.kind,
        doc=f"{spec.doc} {spec.inert}".strip(),
    )
