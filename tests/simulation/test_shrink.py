"""A failing history becomes a smaller one that fails for the same reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.cluster.left import Left
from tests.simulation.cluster.run import Survey, run
from tests.simulation.mistakes.coordinators import let_former_members_commit
from tests.simulation.shrink import Shrinking, describe

pytestmark = pytest.mark.usefixtures("quiet_logs")

_SEED = 4
_SHORT = 23


def test_a_failing_history_is_shrunk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    let_former_members_commit(monkeypatch)
    shrinking = Shrinking(run, _SEED)
    assert shrinking.kinds >= {"fenced"}
    troubles, loads = len(shrinking.survey.troubles), len(shrinking.survey.loads)
    left = shrinking.smallest()
    survey = run(_SEED, tmp_path, left)
    assert any(one.startswith("fenced: ") for one in survey.problems)
    assert left.share < 1
    assert len(_troubles(survey)) < troubles / 2
    assert "member" not in left.loads
    assert len(left.loads) > loads / 2
    assert repr(left) in describe(survey, left)


def test_the_rest_has_the_same_draws(tmp_path: Path) -> None:
    """What is not left out is the same, up to the moment at which something is missing."""
    surveys = []
    for number, left in enumerate((Left(), Left(troubles=frozenset({1})))):
        path = tmp_path / str(number)
        path.mkdir()
        surveys.append(run(_SHORT, path, left))
    whole, part = surveys
    assert whole.troubles == part.troubles
    first = [_troubles(one)[:1] for one in surveys]
    assert first[0] == first[1]
    assert len(_troubles(part)) == len(_troubles(whole)) - 1


def _troubles(survey: Survey) -> list[str]:
    return [one.name for one in survey.history.disruptions]


def test_a_history_without_a_problem_is_not_shrunk() -> None:
    def fine(seed: int, path: Path, left: Left = Left()) -> Survey:  # noqa: B008
        return Survey()

    with pytest.raises(ValueError, match="seed=7 has no problem"):
        Shrinking(fine, 7).smallest()
