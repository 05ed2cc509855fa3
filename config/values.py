"""Kafka's types of configuration values: how a string becomes a value, and back.

An option's annotation names its type, such as `int64` or `tuple[str, ...]`. The rules and the
texts of errors are those of Kafka's ConfigDef, so that a client gets the error that Kafka would
send for a bad value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from enum import IntEnum
from typing import Annotated

from odradek.config.errors import ConfigError
from odradek.dataclass import dataclass

Value = bool | int | float | str | tuple[str, ...]


class Kind(IntEnum):
    """A value's type, numbered as in DescribeConfigs (KIP-569)."""

    UNKNOWN = 0  # of names that are not declared
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


int16 = Annotated[int, Kind.SHORT]
int32 = Annotated[int, Kind.INT]
int64 = Annotated[int, Kind.LONG]
class_name = Annotated[str, Kind.CLASS]
password = Annotated[str, Kind.PASSWORD]

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308

_BITS = {Kind.SHORT: 16, Kind.INT: 32, Kind.LONG: 64}
# Java's trim() removes every character up to the space; str.strip() would remove more.
_TRIMMED = "".join(map(chr, range(33)))
_SPACES = " \t\n\r\f\v"
# Texts also come from clients, so neither pattern may take more than one pass over a text.
_DOUBLE = re.compile(
    r"([+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?)[fd]?", re.ASCII | re.IGNORECASE
)
_INTEGER = re.compile(r"[+-]?\d+")
_INFINITY = re.compile(r"[+-]?Infinity")


@dataclass(frozen=True, slots=True)
class Validator:
    """A bound on a value: its text in Kafka, and a check that raises ConfigError.

    From a `unique` list repeats are dropped before the check, as in Kafka.
    """

    description: str
    check: Callable[[str, Value], None]
    unique: bool = False


def parse(kind: Kind, name: str, text: str) -> Value:
    """Read a value of the option `name`; raise ConfigError when the text is not of its type."""
    trimmed = text.strip(_TRIMMED)
    if kind in _BITS or kind is Kind.DOUBLE:
        number = _double(trimmed) if kind is Kind.DOUBLE else _integer(trimmed, _BITS[kind])
        if number is None:
            raise invalid(name, text, f"Not a number of type {kind.name}")
        return number
    if kind is Kind.BOOLEAN:
        if trimmed.lower() not in ("true", "false"):
            raise invalid(name, text, "Expected value to be either true or false")
        return trimmed.lower() == "true"
    if kind is Kind.LIST:
        return tuple(word.strip(_SPACES) for word in trimmed.split(",")) if trimmed else ()
    return trimmed


def render(value: Value | frozenset[str]) -> str:
    """Print a value as Kafka does: lists by commas, booleans in lower case, doubles as Java."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _render_double(value)
    if isinstance(value, frozenset):
        return ",".join(sorted(value))
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def invalid(name: str, value: Value, message: str) -> ConfigError:
    """Return the error that Kafka's ConfigException would be."""
    # Kafka prints a list here as Java does, with brackets.
    shown = f"[{', '.join(value)}]" if isinstance(value, tuple) else render(value)
    return ConfigError(f"Invalid value {shown} for configuration {name}: {message}")


def at_least(low: int) -> Validator:
    """Bound a number from below."""
    return Validator(f"[{low},...]", lambda name, value: _check_range(name, value, low, math.inf))


def between(low: float, high: float) -> Validator:
    """Bound a number on both sides, both ends included."""
    return Validator(
        f"[{low},...,{high}]", lambda name, value: _check_range(name, value, low, high)
    )


def between_or(low: int, high: int, special: int) -> Validator:
    """Bound a number on both sides, or allow one special value."""

    def check(name: str, value: Value) -> None:
        if value != special and not low <= _number(value) <= high:
            message = f"Value must be between {low} and {high} or equal to {special}"
            raise invalid(name, value, message)

    return Validator(f"[{low},...,{high}] or {special}", check)


def one_of(*allowed: str) -> Validator:
    """Allow a few strings, in this case."""
    return Validator(
        f"[{', '.join(allowed)}]", lambda name, value: _check_word(name, str(value), allowed)
    )


def one_of_any_case(*allowed: str) -> Validator:
    """Allow a few strings, in any case."""

    def check(name: str, value: Value) -> None:
        if str(value).upper() not in {word.upper() for word in allowed}:
            words = ", ".join(word.upper() for word in allowed)
            raise invalid(
                name, value, f"String must be one of (case insensitive): {words}"
            )

    return Validator(f"(case insensitive) [{', '.join(map(str.upper, allowed))}]", check)


def subset_of(*allowed: str, empty: bool = False) -> Validator:
    """Allow a list of some of a few words."""
    described = f"[{', '.join(allowed)}]"

    def check(name: str, value: Value) -> None:
        for word in _some_words(name, value, empty, described):
            _check_filled(name, word)
            _check_word(name, word, allowed)

    return Validator(described, check, unique=True)


def words(*, empty: bool = False) -> Validator:
    """Allow a list of any words but the empty one."""

    def check(name: str, value: Value) -> None:
        for word in _some_words(name, value, empty, "any non-empty value"):
            _check_filled(name, word)

    return Validator("", check, unique=True)


def _check_range(name: str, value: Value, low: float, high: float) -> None:
    number = _number(value)
    if number < low:
        raise invalid(name, value, f"Value must be at least {low}")
    if number > high:
        raise invalid(name, value, f"Value must be no more than {high}")


def _check_word(name: str, word: str, allowed: tuple[str, ...]) -> None:
    if word not in allowed:
        raise invalid(name, word, f"String must be one of: {', '.join(allowed)}")


def _some_words(name: str, value: Value, empty: bool, allowed: str) -> tuple[str, ...]:
    assert isinstance(value, tuple), "lists of words are declared on lists only"
    if not value and not empty:
        message = f"Configuration '{name}' must not be empty. Valid values include: {allowed}"
        raise ConfigError(message)
    return value


def _check_filled(name: str, word: str) -> None:
    if not word:
        raise ConfigError(f"Configuration '{name}' values must not be empty.")


def _number(value: Value) -> float:
    assert isinstance(value, int | float), "bounds are declared on numbers only"
    return value


def _integer(text: str, bits: int) -> int | None:
    digits = text.lstrip("+-0") or "0"
    # No type holds more than 20 digits, and int() fails on thousands of them.
    if not _INTEGER.fullmatch(text) or len(digits) > 20:
        return None
    number = -int(digits) if text[0] == "-" else int(digits)
    limit = 1 << (bits - 1)
    return number if -limit <= number < limit else None


def _double(text: str) -> float | None:
    # Java also accepts NaN, which no bound refuses, and hexadecimal; neither is useful.
    if _INFINITY.fullmatch(text):
        return float(text)
    found = _DOUBLE.fullmatch(text)
    return float(found[1]) if found else None


def _render_double(value: float) -> str:
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if math.isnan(value):
        return "NaN"
    sign = "-" if math.copysign(1, value) < 0 else ""
    if value == 0:
        return f"{sign}0.0"
    digits, exponent = _digits(value)
    if -3 <= exponent < 7:
        text = f"{Decimal(repr(abs(value))):f}"
        return sign + (text if "." in text else f"{text}.0")
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _digits(value: float) -> tuple[str, int]:
    """Return the shortest digits that read back as the value, and the first one's exponent."""
    _, digits, shift = Decimal(repr(value)).as_tuple()
    assert isinstance(shift, int), "neither infinite nor NaN"
    return "".join(map(str, digits)).rstrip("0"), len(digits) + shift - 1
