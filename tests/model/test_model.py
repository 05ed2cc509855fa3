"""The protocol of shared topics, explored exhaustively within bounds.

`python -m tests.model --brokers 3 --records 3` explores a world of other bounds.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.language import ROOT
from tests.model.__main__ import main
from tests.model.explorer import TooManyStates, explore
from tests.model.guards import ASSUMPTIONS, GUARDS, Rules, without
from tests.model.protocol import actions_of, run
from tests.model.scenarios import BREAK, BREAK_TOO, HOLD
from tests.model.states import Bounds

PAGE = ROOT / "docs" / "guarantees.md"
# Fewer would mean that a part of the protocol is not played any more.
_STATES_MIN = 2_000


# The actions that each trouble or work has to bring.
_BROUGHT = {
    "crashes": {"crash", "join", "expel", "read_rows", "read_wal"},
    "expiries": {"end_lease", "renew", "expel", "notice", "read_rows", "read_wal"},
    "late": {"upload", "arrive"},
    "slow": {"hurry", "arrive", "discard"},
    "handovers": {"give_up", "hand_over"},
    "stores": {"store", "change_rows"},
    "cleanings": {"clean", "exchange", "change_rows"},
    "has_jobs": {"give_back"},
    "has_orphans": {"find_orphan"},
    "rollbacks": {"roll_back"},
}
_ALWAYS = {"produce", "seal", "commit", "acknowledge"}
_TOGETHER = {
    ("handovers", "lost"): {"resolve", "learn"},
    ("stores", "has_garbage"): {"trim"},
    ("cleanings", "has_garbage"): {"pass_delay", "look_for_garbage", "delete"},
}


def brought(bounds: Bounds) -> set[str]:
    """Return the actions that a world must have, or its exploration shows nothing."""
    given = {name for name, value in bounds._asdict().items() if value}
    found = set(_ALWAYS)
    found.update(*(_BROUGHT[name] for name in given & _BROUGHT.keys()))
    found.update(*(names for pair, names in _TOGETHER.items() if given.issuperset(pair)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", HOLD)
def test_all_promises_hold_in_all_states(name: str) -> None:
    found = run(HOLD[name])
    print(f"states={found.states} steps={found.taken.total()} depth={found.depth}")
    assert found.violation is None, f"\n{found.violation}"
    assert found.states > _STATES_MIN
    assert found.taken.keys() >= brought(HOLD[name])


def test_the_worlds_have_all_actions_together() -> None:
    every = set().union(*map(brought, [*HOLD.values(), BREAK["catalog_keeps_commits"]]))
    assert every == actions_of(Bounds(), Rules()).keys()


@pytest.mark.parametrize("name", GUARDS)
def test_a_mistake_is_found(name: str) -> None:
    print(_broken(name))


@pytest.mark.parametrize("name", ASSUMPTIONS)
def test_the_model_needs_its_assumptions(name: str) -> None:
    print(_broken(name))


@pytest.mark.parametrize(("name", "bounds", "problem"), BREAK_TOO)
def test_a_mistake_has_other_ends(name: str, bounds: Bounds, problem: str) -> None:
    found = run(bounds)
    assert found.violation is None, f"\n{found.violation}"
    violation = run(bounds, without(name)).violation
    print(f"{name}: {violation}")
    assert violation is not None
    assert violation.problem.startswith(problem)


def _broken(name: str) -> str:
    """Return the shortest trace to a broken promise without a guard."""
    violation = run(BREAK[name], without(name)).violation
    assert violation is not None, "nothing is found"
    return f"{name}: {violation}"


def test_each_guard_has_its_place_in_the_code() -> None:
    assert {*GUARDS, *ASSUMPTIONS} == {*Rules._fields} == {*BREAK}
    places = [place for one in GUARDS.values() for place in one.places]
    missing = [place for place in places if not _is_defined(place)]
    assert not missing


def _is_defined(place: str) -> bool:
    """Return whether a function exists, by "module:Class.function"."""
    module, _, names = place.partition(":")
    path = ROOT.joinpath(*module.split(".")[1:]).with_suffix(".py")
    return names in _functions(ast.parse(path.read_text()), "")


def _functions(node: ast.AST, prefix: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{child.name}"


def test_the_page_of_guarantees_names_promises_and_tests_that_exist() -> None:
    lines = [line.split("|") for line in PAGE.read_text().splitlines()]
    rows = [row for row in lines if len(row) > 4 and row[1].strip().isdigit()]
    assert [int(row[1]) for row in rows] == list(range(1, len(rows) + 1))
    sources = "".join(
        (ROOT / "tests/model" / name).read_text() for name in ("promises.py", "writing.py")
    )
    words = {word for row in rows for word in re.findall(r"`(\w+)`", row[3])}
    assert {word for word in words - {"stuck"} if f'"{word}: ' not in sources} == set()
    for path, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE.read_text()):
        functions = set(_functions(ast.parse((ROOT / path).read_text()), ""))
        assert not name or name in functions, f"{path} has no {name}"


# --- the explorer --------------------------------------------------------------------------------


def test_the_trace_is_a_shortest_one() -> None:
    actions = {
        "one": lambda at: [(f"{at}+1", at + 1)] if at < 20 else [],
        "ten": lambda at: [(f"{at}+10", at + 10)] if at < 20 else [],
    }
    found = explore(0, actions, lambda at: "there" if at == 12 else None, lambda at: True)
    assert found.violation is not None
    assert sorted(found.violation.trace, key=len) == found.violation.trace
    assert len(found.violation.trace) == 3
    assert str(found.violation).startswith("there, after 3 steps:\n  1  ")


def test_a_state_without_a_way_to_a_good_end_is_found() -> None:
    actions = {
        "on": lambda at: [("on", at + 1)] if at in (0, 1) else [],
        "off": lambda at: [("off", 10)] if at == 1 else [],
        "round": lambda at: [("round", 21 - at)] if at in (10, 11) else [],
    }
    found = explore(0, actions, lambda at: None, lambda at: at == 2)
    assert found.states == 5
    assert found.violation is not None
    assert found.violation.trace == ["on", "off"]
    assert explore(0, actions, lambda at: None, lambda at: at in (2, 11)).violation is None


@pytest.mark.parametrize(
    ("options", "status", "line"),
    [
        (["--records", "1", "--crashes", "1"], 0, "no promise is broken"),
        (["--crashes", "1", "--without", "acks_after_commit"], 1, "lost: batch 0"),
        (["--states-max", "100"], 2, "there are more than 100 states"),
    ],
)
def test_the_command_explores_a_world_of_other_bounds(
    options: list[str], status: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(options) == status
    assert line in capsys.readouterr().out


def test_too_many_states_are_refused() -> None:
    actions = {"on": lambda at: [("on", at + 1)]}
    with pytest.raises(TooManyStates):
        explore(0, actions, lambda at: None, lambda at: False, states_max=100)
