"""The protocol of a cluster with shared topics, as actions: see docs/guarantees.md."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tests.model.explorer import Actions, Exploration, explore
from tests.model.guards import Rules
from tests.model.promises import broken, is_settled
from tests.model.sessions import Sessions
from tests.model.states import Bounds, World, first_world
from tests.model.storing import Storing
from tests.model.writing import Writing


def actions_of(bounds: Bounds, rules: Rules) -> Actions[World]:
    """Return all actions by name."""
    parts: Sequence[object] = (
        Sessions(bounds, rules), Writing(bounds, rules), Storing(bounds, rules),
    )  # fmt: skip
    return {
        name: getattr(part, name)
        for part in parts
        for name, one in vars(type(part)).items()
        if callable(one) and not name.startswith("_")
    }


def run(
    bounds: Bounds, rules: Rules | None = None, *, states_max: int = 10_000_000
) -> Exploration[World]:
    """Explore a world of some bounds; without `rules` all guards are in force.

    Raises TooManyStates.
    """
    rules = Rules() if rules is None else rules

    def is_good(world: World) -> bool:
        return is_settled(world) and set(world.acked) == {bounds.records}

    return explore(
        first_world(bounds),
        actions_of(bounds, rules),
        partial(broken, rules=rules),
        is_good,
        states_max=states_max,
    )
