"""Python's dataclasses at a tenth of their cost at the start.

`dataclasses.dataclass` compiles four or more methods of each class when its module is loaded. A
broker loads 400 such classes, and uses a fifth of them in its life: more than half of the time of
its imports was spent on that. Here `__init__` is compiled when the first object is made, and the
other methods are shared by all classes. `field`, `fields`, `replace` and `asdict` are Python's.

`frozen` is what the type checker enforces, and an object has a hash. At run time it costs nothing:
Python's frozen classes take four times as long to make an object.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls: type | None = None, /, **options: bool) -> Any:
        """Make a class a dataclass, with the options of Python's decorator.

        Comparisons by order are compiled at once. `unsafe_hash`, InitVar, and a default value of
        a field with `init=False` are not supported.
        """

        def decorate(cls: type) -> Any:
            return _with_methods(cls, **options)

        return decorate if cls is None else decorate(cls)


__all__ = ["dataclass"]


def _with_methods(
    cls: Any,
    *,
    eq: bool = True,
    frozen: bool = False,
    init: bool = True,
    repr: bool = True,
    order: bool = False,
    **options: bool,
) -> Any:
    # A class that has `__eq__` of its own, and no `__hash__`, has None there.
    own = {name for name, value in vars(cls).items() if value is not None}
    made = dataclasses.dataclass(cls, init=False, repr=False, eq=order, order=order, **options)
    methods: dict[str, Any] = {}
    if init:
        methods["__init__"] = _FirstInit(made)
    if repr:
        methods["__repr__"] = _show(made)
    if eq:
        methods["__eq__"], by_values = _compare(made)
        methods["__hash__"] = by_values if frozen else None
    for name, method in methods.items():
        if name not in own:
            setattr(made, name, method)
    return made


class _FirstInit:
    """Compiles `__init__` when it is first called or looked at, and leaves it in its own place."""

    __slots__ = ("_cls",)

    def __init__(self, cls: Any) -> None:
        self._cls = cls

    def __get__(self, instance: object, owner: type) -> Any:
        cls = self._cls
        specs = [(one.name, one.type, _copy(one)) for one in dataclasses.fields(cls)]
        names = {"__module__": cls.__module__}  # where the types of the fields are found
        if hasattr(cls, "__post_init__"):
            names["__post_init__"] = cls.__post_init__
        made: Any = dataclasses.make_dataclass(
            cls.__name__, specs, namespace=names, repr=False, eq=False
        )
        compiled = made.__init__
        compiled.__qualname__ = f"{cls.__qualname__}.__init__"
        cls.__init__ = compiled
        return compiled if instance is None else compiled.__get__(instance)


def _copy(one: dataclasses.Field[Any]) -> Any:
    return dataclasses.field(
        init=one.init,
        kw_only=one.kw_only,
        default=one.default,
        default_factory=one.default_factory,
    )


def _show(cls: Any) -> Callable[..., str]:
    @recursive_repr()
    def __repr__(self: object) -> str:
        names = (one.name for one in dataclasses.fields(cls) if one.repr)
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({shown})"

    return __repr__


def _compare(cls: Any) -> tuple[Callable[..., Any], Callable[..., int]]:
    """Return `__eq__` and `__hash__` by the values of the fields that are compared."""
    names = [one.name for one in dataclasses.fields(cls) if one.compare]
    # Two names make a tuple, which takes an object as equal to itself.
    values = attrgetter(*(names if len(names) > 1 else names * 2)) if names else _no_values

    def __eq__(self: object, other: object) -> Any:
        if other.__class__ is self.__class__:
            return values(self) == values(other)
        return NotImplemented

    def __hash__(self: object) -> int:
        return hash(values(self))

    return __eq__, __hash__


def _no_values(_: object) -> tuple[()]:
    return ()
