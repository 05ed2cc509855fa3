"""How a configuration is declared: once, with its name, type, default, bounds and description.

    @options
    class TopicConfig:
        retention_ms: int64 = option(
            "retention.ms",
            default=7 * DAY_MS,
            valid=at_least(-1),
            broker=(milliseconds("log.retention.ms"), hours("log.retention.hours")),
            doc="How long the delete policy keeps a segment; -1 keeps it for ever.",
        )

The class is a frozen value that the code reads by attribute; config.resolution builds one from
strings.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar, dataclass_transform

from odradek.config.errors import ConfigError
from odradek.config.values import Kind, Validator, Value, parse, render
from odradek.dataclass import dataclass

T = TypeVar("T")

MINUTE_MS = 60 * 1000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS

Update = Literal["", "cluster-wide", "per-broker"]

_SPEC = "option"
_PLAIN_KINDS = {bool: Kind.BOOLEAN, float: Kind.DOUBLE, str: Kind.STRING}


@dataclass(frozen=True, slots=True)
class Fallback:
    """A broker option that stands in for a topic option which is not set.

    A single fallback shares the type, default and bounds of the topic option. Of several, each
    declares its own: only one can have the default that counts.
    """

    name: str
    unit_ms: int | None = None
    kind: Kind | None = None
    default: Value | None = None
    valid: Validator | None = None

    def convert(self, text: str) -> str:
        """Return the text in the topic option's unit; a negative number means no limit."""
        if self.unit_ms is None:
            return text
        number = parse(Kind.LONG, self.name, text)
        assert isinstance(number, int)
        return str(number * self.unit_ms if number >= 0 else -1)


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """One declared option. `broker` is None for a broker's own, else a topic's fallbacks.

    `dynamic` is the update mode of a running broker. `internal` options are for tests and show
    only where they are set. `inert` is the reason why an option is accepted and does nothing; it
    is empty for options that have an effect.
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
        """The name of the option in code."""
        return self.name.replace(".", "_").replace("-", "_")

    @property
    def sensitive(self) -> bool:
        """Return whether the value must never be shown."""
        return self.kind is Kind.PASSWORD

    @property
    def read_only(self) -> bool:
        """Return whether a running broker refuses to change it."""
        return self.broker is None and not self.dynamic

    @property
    def default_text(self) -> str | None:
        """The default as Kafka prints it."""
        return None if self.default is None else render(self.default)

    def names(self, family: tuple[str, ...]) -> tuple[str, ...]:
        """Return every name under which its value or its synonyms may be written."""
        return (self.name, *(fallback.name for fallback in self.broker or ()), *family)

    def read(self, text: str) -> Value:
        """Parse and check a value; raise ConfigError when it is not valid.

        The error does not quote the value of a sensitive option.
        """
        try:
            return self._read(text)
        except ConfigError as error:
            if not self.sensitive:
                raise
            problems = [hide_value(problem, self.name, text) for problem in error.problems]
        raise ConfigError(*problems)  # outside of except, or its cause has the value

    def _read(self, text: str) -> Value:
        value = parse(self.kind, self.name, text)
        if self.valid is None:
            return value
        if self.valid.unique and isinstance(value, tuple):
            value = tuple(dict.fromkeys(value))
        self.valid.check(self.name, value)
        return value


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
    """Declare an option; see Option. `broker=()` declares a topic option without a fallback."""
    if isinstance(broker, str | Fallback):
        broker = (broker,)
    fallbacks = None if broker is None else tuple(map(_fallback, broker))
    declaration = {
        "name": name, "default": default, "doc": doc, "valid": valid, "broker": fallbacks,
        "dynamic": dynamic, "internal": internal, "inert": inert,
    }  # fmt: skip
    return dataclasses.field(default=default, metadata={_SPEC: declaration})


def hide_value(problem: str, name: str, text: str) -> str:
    """Return the problem with an option's value, without the value."""
    _, _, why = problem.partition(f" for configuration {name}: ")
    if not why or text.strip() in why:
        why = "it does not fit its description in docs/configs.md"
    return f"Invalid value [hidden] for configuration {name}: {why}"


def milliseconds(name: str) -> Fallback:
    """Fall back to a broker option in milliseconds, where a negative value means no limit."""
    return Fallback(name, 1)


def minutes(name: str) -> Fallback:
    """Fall back to a broker option in minutes."""
    return Fallback(name, MINUTE_MS, Kind.INT)


def hours(name: str, *, default: int, valid: Validator | None = None) -> Fallback:
    """Fall back to a broker option in hours."""
    return Fallback(name, HOUR_MS, Kind.INT, default, valid)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(option,))
def options(cls: type[T]) -> type[T]:
    """Make a class of option() fields a frozen, slotted value, and remember its options.

    The options of its sections, which it inherits, come after its own.
    """
    inherited = (spec for base in cls.__bases__ for spec in _OPTIONS.get(base, ()))
    specs = (*_own_options(cls), *inherited)
    made = dataclasses.dataclass(frozen=True, slots=True, kw_only=True)(cls)
    _OPTIONS[made] = specs
    return made


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(option,))
def section(cls: type[T]) -> type[T]:
    """Make a class of option() fields a section of a config, which inherits it."""
    _OPTIONS[cls] = _own_options(cls)
    # Without slots, so that a config may inherit several; the config has slots for all fields.
    return dataclasses.dataclass(frozen=True, kw_only=True)(cls)


_OPTIONS: dict[type, tuple[Option, ...]] = {}


def _own_options(cls: type) -> tuple[Option, ...]:
    hints = typing.get_type_hints(cls, include_extras=True)
    specs = []
    for attribute, field in vars(cls).items():
        if isinstance(field, dataclasses.Field):
            spec = _declared(attribute, hints[attribute], field.metadata[_SPEC])
            field.repr = not spec.sensitive
            specs.append(spec)
    return tuple(specs)


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


def _fallback(name: str | Fallback) -> Fallback:
    return name if isinstance(name, Fallback) else Fallback(name)


def _as_option(spec: Option, fallback: Fallback, number: int) -> Option:
    alone = len(spec.broker or ()) == 1
    unit = {MINUTE_MS: ", in minutes", HOUR_MS: ", in hours"}.get(fallback.unit_ms or 0, "")
    return Option(
        name=fallback.name,
        kind=fallback.kind or spec.kind,
        default=spec.default if alone else fallback.default,
        doc=f"The value of {spec.name} for topics that do not set it{unit}. {spec.doc}",
        valid=spec.valid if alone else fallback.valid,
        # Of several names a running broker accepts only the first, as in Kafka.
        dynamic="" if number else "cluster-wide",
        internal=spec.internal,
        inert=spec.inert,
        is_set=spec.is_set,
    )


def _declared(attribute: str, hint: Any, declaration: Mapping[str, Any]) -> Option:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = [arm for arm in typing.get_args(hint) if arm is not type(None)]
    origin = typing.get_origin(hint)
    kind = _PLAIN_KINDS.get(hint)
    if origin is typing.Annotated:
        kind = next(one for one in hint.__metadata__ if isinstance(one, Kind))
    elif origin in (tuple, frozenset):
        kind = Kind.LIST
    if kind is None:
        raise TypeError(f"{attribute}: {hint} names no type of Kafka's; write int32 or int64")
    made = Option(kind=kind, is_set=origin is frozenset, **declaration)
    if made.attribute != attribute:
        raise TypeError(f"{attribute}: the attribute of {made.name} is {made.attribute}")
    return made
