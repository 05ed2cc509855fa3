"""odradek features, on Odradek and on Apache Kafka."""

from __future__ import annotations

import re

import pytest

from tests.cli.commands import Commands
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow
FEATURE = "streams.version"


def _levels(commands: Commands) -> dict[str, int]:
    found = commands.document("features", "describe")["features"]
    return {one["feature"]: one["level"] for one in found}


def test_features_are_described(commands: Commands) -> None:
    described = commands.document("features", "describe")
    assert described["epoch"] >= 0
    found = {one["feature"]: one for one in described["features"]}
    assert found[FEATURE] == {
        "feature": FEATURE, "level": 1, "min_supported_level": 0, "max_supported_level": 1,
    }  # fmt: skip
    assert found["metadata.version"]["level"] > 1
    shown = commands.shown("feature", "describe")
    assert re.search(rf"^{re.escape(FEATURE)} +1 +0 +1$", shown, re.M)


def test_a_level_is_lowered_and_raised(commands: Commands) -> None:
    down, up = ("features", "downgrade", f"{FEATURE}=0"), ("features", "upgrade", f"{FEATURE}=1")
    assert commands.shown(*down, "--dry-run").endswith("Nothing was changed.\n")
    result = commands.run(*down, text="n\n")
    assert f"Change the level of {FEATURE} to 0?" in result.stderr
    assert _levels(commands)[FEATURE] == 1
    assert commands.document(*down, "--yes") == {
        "dry_run": False,
        "features": [{"feature": FEATURE, "before": 1, "after": 0}],
    }
    wait_until(lambda: _levels(commands)[FEATURE] == 0, "it is lowered")
    refused = commands.refusal("features", "upgrade", f"{FEATURE}=9", "--yes")
    assert refused.endswith("only supports versions 0-1 (INVALID_UPDATE_VERSION)")
    commands.shown(*up, "--yes")
    wait_until(lambda: _levels(commands)[FEATURE] == 1, "it is raised")


def test_mistakes_get_one_line(commands: Commands) -> None:
    line = commands.refusal("features", "upgrade", "stream.version=1", "--yes")
    words = "odradek: there is no feature stream.version: did you mean streams.version"
    assert line.startswith(words)
    result = Commands("127.0.0.1:1").run("features", "upgrade", f"{FEATURE}=high")
    assert result.exit_code == 2 and "is not a level" in result.output
