"""Our dataclasses behave as Python's, but for what a frozen one does to assignments."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import re
import subprocess
import sys
import typing
from collections.abc import Callable
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from odradek.dataclass import dataclass

Decorator = Callable[..., Any]
VALUES = st.one_of(st.integers(0, 2), st.just(float("nan")), st.just([]))
OPTIONS = st.fixed_dictionaries(
    {},
    optional={name: st.booleans() for name in ("eq", "repr", "frozen", "slots", "kw_only")}
    | {"order": st.just(True)},
).filter(lambda options: options.get("eq", True) or not options.get("order"))
FLAGS = st.fixed_dictionaries(
    {}, optional={name: st.booleans() for name in ("init", "repr", "compare", "kw_only")}
)
DEFAULTS: dict[str, dict[str, Any]] = {
    "none": {},
    "value": {"default": 1},
    "factory": {"default_factory": int},
}
FIELDS = st.lists(
    st.tuples(st.sampled_from(sorted(DEFAULTS)), FLAGS).filter(
        lambda drawn: drawn[0] == "factory" or drawn[1].get("init", True)
    ),
    max_size=4,
)
METHODS = st.sets(st.sampled_from(["__eq__", "__hash__", "__repr__", "__post_init__"]), max_size=2)


@dataclass(frozen=True, slots=True)
class Sample:
    """A class that pickle finds by its name."""

    name: str
    numbers: list[int]


def _outcome(ask: Callable[[], Any]) -> tuple[str, Any]:
    try:
        result = ask()
        is_class = isinstance(result, type)
        return "is", result if is_class else re.sub("at 0x[0-9a-f]+", "at a place", repr(result))
    except Exception as error:
        return type(error).__name__, str(error)


def _body(fields: list[tuple[str, dict[str, bool]]], methods: set[str], prefix: str) -> Any:
    own: dict[str, Any] = {
        "__eq__": lambda self, other: True,
        "__hash__": lambda self: 7,
        "__repr__": lambda self: "own",
        "__post_init__": lambda self: seen.append(self.__class__),
    }
    seen: list[type] = []
    body: dict[str, Any] = {name: own[name] for name in sorted(methods)}
    body["__annotations__"] = {f"{prefix}{at}": "int" for at in range(len(fields))}
    for at, (default, flags) in enumerate(fields):
        body[f"{prefix}{at}"] = dataclasses.field(**flags, **DEFAULTS[default])
    return {**body, "__doc__": "Made.", "seen": seen}


def _made(decorate: Decorator, draws: list[Any], values: list[Any]) -> list[tuple[str, Any]]:
    """Return what the classes of one decorator say for themselves."""
    outcomes = []
    base: type = object
    for level, (options, fields, methods) in enumerate(draws):
        body = _body(fields, methods, "ab"[level])
        made = _outcome(lambda base=base, body=body: type("Made", (base,), body))  # type: ignore[misc]
        done = _outcome(lambda made=made, options=options: decorate(**options)(made[1]))  # type: ignore[misc]
        if done[0] != "is":
            return [*outcomes, done]
        base = done[1]
    cls: Any = base

    def fresh() -> Any:
        return cls(*values)

    names = [one.name for one in dataclasses.fields(cls)]
    by_name = dict(zip(names, values, strict=False))
    for ask in (
        lambda: repr(fresh()),
        lambda: repr(cls(**by_name)),
        lambda: fresh() == fresh(),
        lambda: fresh() != fresh(),
        lambda: fresh() == 1,
        lambda: fresh() < fresh(),
        lambda: len({hash(one) for one in [fresh(), fresh()]}),
        lambda: repr(dataclasses.replace(fresh())),
        lambda: dataclasses.asdict(fresh()),
        lambda: repr(copy.copy(fresh())),
        lambda: cls.__match_args__,
        lambda: hasattr(cls, "__slots__"),
        lambda: cls(*values, 1, 2, 3, 4, 5, 6, 7, 8, 9),
        lambda: cls(unknown=1),
        lambda: len(cls.seen),
        lambda: str(inspect.signature(cls)),
        lambda: typing.get_type_hints(cls.__init__),
    ):
        outcomes.append(_outcome(ask))
    return outcomes


@given(
    draws=st.lists(st.tuples(OPTIONS, FIELDS, METHODS), min_size=1, max_size=2),
    values=st.lists(VALUES, max_size=8),
)
def test_a_class_behaves_as_pythons(draws: list[Any], values: list[Any]) -> None:
    # A frozen class must have frozen bases: this is the type checker's business here.
    frozen = draws[0][0].get("frozen", False)
    draws = [({**options, "frozen": frozen}, *rest) for options, *rest in draws]
    expected = _made(dataclasses.dataclass, draws, values)
    assume(len(expected) > 1)  # a class that Python refuses is the type checker's business, too
    assert _made(dataclass, draws, values) == expected


def test_objects_can_be_copied_between_processes() -> None:
    sample = Sample("a", [1])
    assert pickle.loads(pickle.dumps(sample)) == sample
    assert copy.deepcopy(sample).numbers is not sample.numbers


def test_its_parameters_are_known_before_the_first_object() -> None:
    @dataclass
    class Made:
        """Made."""

        name: str
        number: int = 3

    assert str(inspect.signature(Made)) == "(name: 'str', number: 'int' = 3) -> None"
    assert typing.get_type_hints(Made.__init__) == {
        "name": str, "number": int, "return": type(None)
    }  # fmt: skip


def test_no_method_is_compiled_before_the_first_object() -> None:
    code = (
        "import builtins, dataclasses\n"
        "from odradek.dataclass import dataclass\n"
        "compiled, run = [], exec\n"
        "builtins.exec = lambda text, *rest: compiled.append(text) or run(text, *rest)\n"
        "@dataclass(frozen=True, slots=True)\n"
        "class Made:\n"
        "    'Made.'\n"
        "    name: str\n"
        "methods = [sum('(self' in text for text in compiled)]\n"
        "Made('first')\n"
        "print(methods, sum('(self' in text for text in compiled))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[0] 1\n"
