"""How a configuration is declared: once, with its name, type, default, bounds and a sentence.

    @options
    class TopicConfig:
        retention_ms: int64 = option(
            "retention.ms",
            default=7 * DAY_MS,
            valid=at_least(-1),
            broker=(milliseconds("log.retention.ms"), hours("log.retention.hours")),
            doc="How long the delete policy keeps a segment; -1 keeps it for ever.",
        )

The class is a frozen value that the code reads by attribute. resolve() makes one out of layers
of strings (a topic's own settings, the broker's, a file's) and keeps the trace: for each option
its value, where that came from and what else was in line. The trace is what DescribeConfigs
answers.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import dropwhile
from typing import Any, Generic, Literal, TypeVar, dataclass_transform

from config.errors import ConfigError, raise_any
from config.values import Kind, Validator, Value, parse, render

T = TypeVar("T")

MINUTE_MS = 60 * 1000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

Update = Literal["", "cluster-wide", "per-broker"]

_SPEC = "option"
_PLAIN_KINDS = {bool: Kind.BOOLEAN, float: Kind.DOUBLE, str: Kind.STRING}


class Source(IntEnum):
    """Where a value came from, numbered as in DescribeConfigs; the lower number wins."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    # Of these there is one layer only, so that their order says nothing.
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(frozen=True, slots=True)
class Layer:
    """Settings of one source, as text; origins say where each was written, for errors."""

    source: Source
    values: Mapping[str, str]
    origins: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fallback:
    """A broker option that stands in for a topic option which is not set.

    The only fallback of an option shares its type, default and bounds. Of several, each says
    its own: only one can have the default that counts.
    """

    name: str
    unit_ms: int | None = None
    kind: Kind | None = None
    default: Value | None = None
    valid: Validator | None = None

    def convert(self, text: str) -> str:
        """Return the text in the topic option's unit; below zero means without limit."""
        if self.unit_ms is None:
            return text
        number = parse(Kind.LONG, self.name, text)
        assert isinstance(number, int)
        return str(number * self.unit_ms if number >= 0 else -1)


@dataclass(frozen=True, slots=True)
class Option:
    """One declared option. `broker` is None for a broker's own, else a topic's fallbacks.

    `dynamic` says how a running broker may be told a new value. `internal` options are for
    tests and show only where they are set. `inert` says why an option is accepted and does
    nothing; it is empty for those that do something.
    """

    name: str
    kind: Kind
    default: Value | frozenset[str] | None
    doc: str
    valid: Validator | None = None
    broker: tuple[Fallback, ...] | None = None
    dynamic: Update = ""
    internal: bool = False
    inert: str = ""
    is_set: bool = False

    @property
    def attribute(self) -> str:
        """The name that code knows it by."""
        return self.name.replace(".", "_").replace("-", "_")

    @property
    def sensitive(self) -> bool:
        """Tell whether the value must never be shown."""
        return self.kind is Kind.PASSWORD

    @property
    def read_only(self) -> bool:
        """Tell whether a running broker refuses to change it."""
        return self.broker is None and not self.dynamic

    @property
    def default_text(self) -> str | None:
        """The default as Kafka prints it."""
        return None if self.default is None else render(self.default)

    def read(self, text: str) -> Value:
        """Parse and check a value; raise ConfigError when it is not a valid one."""
        value = parse(self.kind, self.name, text)
        if self.valid is None:
            return value
        if self.valid.unique and isinstance(value, tuple):
            value = tuple(dict.fromkeys(value))
        self.valid.check(self.name, value)
        return value


@dataclass(frozen=True, slots=True)
class Synonym:
    """One of the values in line for an option; the first in line is the one in force."""

    name: str
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True)
class Entry:
    """What DescribeConfigs says of one option. Values of sensitive ones are None."""

    name: str
    value: str | None
    source: Source
    synonyms: tuple[Synonym, ...]
    read_only: bool
    sensitive: bool
    kind: Kind
    doc: str


@dataclass(frozen=True, slots=True)
class Resolved(Generic[T]):
    """A configuration and where every value in it came from."""

    config: T
    entries: Mapping[str, Entry]
    warnings: tuple[str, ...] = ()


def option(
    name: str,
    *,
    default: Any,
    doc: str,
    valid: Validator | None = None,
    broker: str | Fallback | Sequence[str | Fallback] | None = None,
    dynamic: Update = "",
    internal: bool = False,
    inert: str = "",
) -> Any:
    """Declare an option; see Option. `broker=()` is a topic option that has no fallback."""
    if isinstance(broker, str | Fallback):
        broker = (broker,)
    fallbacks = None if broker is None else tuple(map(_fallback, broker))
    told = {
        "name": name, "default": default, "doc": doc, "valid": valid, "broker": fallbacks,
        "dynamic": dynamic, "internal": internal, "inert": inert,
    }  # fmt: skip
    return dataclasses.field(default=default, metadata={_SPEC: told})


def milliseconds(name: str) -> Fallback:
    """Fall back to a broker option in milliseconds, of which any below zero is no limit."""
    return Fallback(name, 1)


def minutes(name: str) -> Fallback:
    """Fall back to a broker option in minutes."""
    return Fallback(name, MINUTE_MS, Kind.INT)


def hours(name: str, *, default: int, valid: Validator | None = None) -> Fallback:
    """Fall back to a broker option in hours."""
    return Fallback(name, HOUR_MS, Kind.INT, default, valid)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(option,))
def options(cls: type[T]) -> type[T]:
    """Make a class of option() fields a frozen, slotted value, and remember its options."""
    hints = typing.get_type_hints(cls, include_extras=True)
    specs = []
    for attribute, field in vars(cls).items():
        if isinstance(field, dataclasses.Field):
            spec = _declared(attribute, hints[attribute], field.metadata[_SPEC])
            field.repr = not spec.sensitive
            specs.append(spec)
    made = dataclass(frozen=True, slots=True, kw_only=True)(cls)
    _OPTIONS[made] = tuple(specs)
    return made


_OPTIONS: dict[type, tuple[Option, ...]] = {}


def options_of(cls: type) -> tuple[Option, ...]:
    """Return the options of a class that @options declared, in the order of declaration."""
    return _OPTIONS[cls]


def fallbacks_of(cls: type) -> tuple[Option, ...]:
    """Return the broker options that a topic's options fall back to, as options themselves."""
    return tuple(
        _as_option(spec, fallback, number)
        for spec in options_of(cls)
        for number, fallback in enumerate(spec.broker or ())
    )


def values_of(config: object) -> dict[str, str]:
    """Return the values that differ from the declared defaults, as text by option name."""
    return {
        spec.name: render(value)
        for spec in options_of(type(config))
        if (value := getattr(config, spec.attribute)) != spec.default and value is not None
    }


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
    families: Mapping[str, tuple[str, ...]] | None = None,
) -> Resolved[T]:
    """Make a config out of layers, and trace it; raise one ConfigError for all bad values.

    A topic's option takes its own name from the TOPIC layer and its fallbacks' names from the
    others; within a layer the order of fallbacks decides. A broker's option takes its own name
    from any layer. `also` are options to check and trace that have no attribute. `families`
    are names that DescribeConfigs lists together, each mapped to all of them in order.
    """
    ordered = sorted(layers, key=lambda layer: layer.source)
    fields: dict[str, Any] = {}
    entries: dict[str, Entry] = {}
    problems: list[str] = []
    declared = options_of(cls)
    for spec in (*declared, *also):
        line = _in_line(spec, ordered)
        value: Any = spec.default
        try:
            if line:
                value = spec.read(line[0].in_unit())
        except ConfigError as error:
            problems += [f"{problem}{line[0].where(spec.name)}" for problem in error.problems]
        fields[spec.attribute] = frozenset(value) if spec.is_set else value
        if not spec.internal or any(one.source < Source.DEFAULT for one in line):
            family = families.get(spec.name) if families else None
            entries[spec.name] = _entry(spec, value, _related(spec, line, family, ordered))
    raise_any(problems)
    # Cut to the declared ones, since `also` options have no attribute to go to.
    attributes = {spec.attribute: fields[spec.attribute] for spec in declared}
    return Resolved(cls(**attributes), entries)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A text in line for an option: under which name it was written, in which source."""

    written_as: Fallback
    text: str
    source: Source
    origin: str

    def in_unit(self) -> str:
        """Return the text in the unit of the option that it is in line for."""
        return self.written_as.convert(self.text)

    def where(self, wanted: str) -> str:
        """Return a note of where the text was written, for the end of an error."""
        name = self.written_as.name
        notes = ["" if name == wanted else f"from {name}", self.origin]
        told = ", ".join(note for note in notes if note)
        return f" ({told})" if told else ""


def _in_line(spec: Option, ordered: list[Layer]) -> list[_Candidate]:
    """Return what is set for an option, the one in force first."""
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
    family: tuple[str, ...] | None,
    ordered: list[Layer],
) -> list[Synonym]:
    """Return the synonyms of an option's entry, the one in force first."""
    if family is None:
        return [Synonym(one.written_as.name, one.text, one.source) for one in line]
    together = (
        Synonym(name, layer.values[name], layer.source)
        for layer in ordered
        for name in family
        if name in layer.values
    )
    # Kafka lists the family from the described name on: what precedes it is not its value.
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


def _fallback(name: str | Fallback) -> Fallback:
    return name if isinstance(name, Fallback) else Fallback(name)


def _as_option(spec: Option, fallback: Fallback, number: int) -> Option:
    alone = len(spec.broker or ()) == 1
    unit = {MINUTE_MS: ", in minutes", HOUR_MS: ", in hours"}.get(fallback.unit_ms or 0, "")
    return Option(
        name=fallback.name,
        kind=fallback.kind or spec.kind,
        default=spec.default if alone else fallback.default,
        doc=f"What stands in for {spec.name} where a topic does not set it{unit}. {spec.doc}",
        valid=spec.valid if alone else fallback.valid,
        # A running broker is told the first name of several only, as in Kafka.
        dynamic="" if number else "cluster-wide",
        internal=spec.internal,
        inert=spec.inert,
        is_set=spec.is_set,
    )


def _declared(attribute: str, hint: Any, told: Mapping[str, Any]) -> Option:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = [arm for arm in typing.get_args(hint) if arm is not type(None)]
    origin = typing.get_origin(hint)
    kind = _PLAIN_KINDS.get(hint)
    if origin is typing.Annotated:
        kind = next(one for one in hint.__metadata__ if isinstance(one, Kind))
    elif origin in (tuple, frozenset):
        kind = Kind.LIST
    if kind is None:
        raise TypeError(f"{attribute}: {hint} names no type of Kafka's; say int32 or int64")
    made = Option(kind=kind, is_set=origin is frozenset, **told)
    if made.attribute != attribute:
        raise TypeError(f"{attribute}: the attribute of {made.name} is {made.attribute}")
    return made
