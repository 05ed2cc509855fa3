"""How a message is declared: one typed class serves every version.

A declaration has the order of the message on the wire, top to bottom:

    @message(key=1, versions="4-18", flexible="12+")
    class FetchRequest:
        cluster_id: string | None = field("12+", tag=0, default=None)
        max_wait_ms: int32
        topics: list[FetchTopic]

Version strings follow Kafka's own grammar: "3" one version, "4-16" a range, "9+" open-ended,
"none". `| None` means nullable, in the versions that `nullable` names (all by default). A
field outside its versions is not on the wire and takes its default when decoded. Fields with
a `tag` are in the tagged section of flexible versions (KIP-482).
"""

from __future__ import annotations

import dataclasses
import sys
import types
import typing
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

from odradek.dataclass import dataclass
from odradek.protocol.wire import Primitive

T = TypeVar("T")

_INFINITY = 32767
_SPEC = "spec"


@dataclass(frozen=True, slots=True)
class Versions:
    """An inclusive range of versions; empty when first > last."""

    first: int
    last: int

    @staticmethod
    def parse(text: str) -> Versions:
        """Read Kafka's version grammar: "3", "4-16", "9+" or "none"."""
        if text == "none":
            return Versions(_INFINITY, -1)
        if text.endswith("+"):
            return Versions(int(text[:-1]), _INFINITY)
        first, _, last = text.partition("-")
        return Versions(int(first), int(last or first))

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __iter__(self) -> typing.Iterator[int]:
        return iter(range(self.first, self.last + 1))


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """The arguments of field()."""

    versions: Versions
    nullable: Versions
    tag: int | None
    default: Any


@dataclass(frozen=True, slots=True)
class Field:
    """One resolved field, with all that a codec needs."""

    name: str
    spec: FieldSpec
    primitive: Primitive | None  # of the field, or of the array's items
    struct: type | None  # likewise
    is_array: bool
    may_be_null: bool

    def is_nullable(self, version: int) -> bool:
        """Return whether the field may be null in a version."""
        return self.may_be_null and version in self.spec.nullable

    def default(self) -> Any:
        """Return the field's value where it is absent, a new one for each call."""
        if self.spec.default is not dataclasses.MISSING:
            value = self.spec.default
            return list(value) if isinstance(value, list) else value
        if self.is_array:
            return []
        if self.primitive is not None:
            return self.primitive.zero
        assert self.struct is not None
        return self.struct()


@dataclass(frozen=True, slots=True)
class MessageInfo:
    """The head of a declaration: API key (-1 for data), versions, flexible versions."""

    key: int
    versions: Versions
    flexible: Versions


def field(
    versions: str = "0+",
    *,
    nullable: str = "0+",
    tag: int | None = None,
    default: Any = dataclasses.MISSING,
) -> Any:
    """Declare a field that some versions lack, or whose default is not its type's zero."""
    spec = FieldSpec(Versions.parse(versions), Versions.parse(nullable), tag, default)
    if default is dataclasses.MISSING:
        return dataclasses.field(metadata={_SPEC: spec})  # @struct sets the type's zero
    if isinstance(default, list):
        return dataclasses.field(metadata={_SPEC: spec}, default_factory=lambda: list(default))
    return dataclasses.field(metadata={_SPEC: spec}, default=default)


_ALWAYS = FieldSpec(Versions(0, _INFINITY), Versions(0, _INFINITY), None, dataclasses.MISSING)


# field() is no field specifier for type checkers: whatever its arguments, there is a default.
@dataclass_transform(kw_only_default=True)
def struct(cls: type[T]) -> type[T]:
    """Turn a class into a slotted value for which codecs can be compiled."""
    for name, value in vars(cls).items():
        if isinstance(value, dataclasses.Field) and _has_no_default(value):
            _default_to_zero(value, cls.__annotations__[name], sys.modules[cls.__module__])
    # A dataclass compiles each method again for each class. A start loads 150 classes, for which
    # these two methods took a twentieth of its time.
    cls.__repr__ = _repr  # type: ignore[method-assign]
    cls.__eq__ = _eq  # type: ignore[method-assign]
    cls.__hash__ = None  # type: ignore[assignment]
    return dataclass(slots=True, kw_only=True, repr=False, eq=False)(cls)


@dataclass_transform(kw_only_default=True)
def message(*, versions: str, flexible: str, key: int = -1) -> Callable[[type[T]], type[T]]:
    """Declare a request, a response, or (without a key) data that Kafka stores in a log."""
    info = MessageInfo(key, Versions.parse(versions), Versions.parse(flexible))

    def declare(cls: type[T]) -> type[T]:
        made = struct(cls)
        made.__message__ = info  # type: ignore[attr-defined]
        return made

    return declare


def info_of(cls: type) -> MessageInfo:
    """Return the arguments of @message for a class."""
    info: MessageInfo = cls.__message__  # type: ignore[attr-defined]
    return info


_FIELDS: dict[type, tuple[Field, ...]] = {}


def fields_of(cls: type) -> tuple[Field, ...]:
    """Return the fields of a declared class in wire order, with their types resolved."""
    found = _FIELDS.get(cls)
    if found is None:
        hints = typing.get_type_hints(cls, include_extras=True)
        found = tuple(
            _resolve(f.name, hints[f.name], f.metadata.get(_SPEC, _ALWAYS))
            for f in dataclasses.fields(cls)
        )
        _FIELDS[cls] = found
    return found


def _repr(self: Any) -> str:
    fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
    return f"{type(self).__qualname__}({fields})"


def _eq(self: Any, other: Any) -> bool:
    if other.__class__ is not self.__class__:
        return NotImplemented  # type: ignore[no-any-return]
    return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)


def _has_no_default(made: dataclasses.Field[Any]) -> bool:
    return made.default is dataclasses.MISSING and made.default_factory is dataclasses.MISSING


def _default_to_zero(made: dataclasses.Field[Any], annotation: str, module: Any) -> None:
    """Give a field its type's zero: [], a primitive's zero, or a struct of defaults."""
    name = annotation.removesuffix("| None").strip()
    if name.startswith("list["):
        made.default_factory = list
        return
    hint = getattr(module, name)
    if typing.get_origin(hint) is typing.Annotated:
        made.default = hint.__metadata__[0].zero
    else:
        made.default_factory = hint


def _resolve(name: str, hint: Any, spec: FieldSpec) -> Field:
    may_be_null = False
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        arms = [arm for arm in typing.get_args(hint) if arm is not type(None)]
        may_be_null = len(arms) < len(typing.get_args(hint))
        assert len(arms) == 1, f"{name}: only X | None is a wire type"
        hint = arms[0]
    is_array = typing.get_origin(hint) is list
    if is_array:
        (hint,) = typing.get_args(hint)
    primitive = None
    if typing.get_origin(hint) is typing.Annotated:
        primitive = next(m for m in hint.__metadata__ if isinstance(m, Primitive))
    return Field(name, spec, primitive, None if primitive else hint, is_array, may_be_null)
