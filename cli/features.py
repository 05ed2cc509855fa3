"""odradek features: shows the features of a cluster, and changes their levels (KIP-584)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from odradek.cli.answer import print_json
from odradek.cli.arguments import Pair, dry_run_option, yes_option
from odradek.cli.client import Connection, broker_options, json_option
from odradek.cli.refusals import Act, CommandError, check, did_you_mean
from odradek.config.printable import printable

if TYPE_CHECKING:
    from odradek.cli.wire.client import Wire

Levels = tuple[tuple[str, int], ...]

# Kinds of updates.
_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3
# The least version that names the kind of an update, and can only validate it.
_KIND_VERSION = 1
_LEVEL_MAX = 32_767
_TIMEOUT_MS = 25_000


class _Level(click.ParamType[tuple[str, int]]):
    """FEATURE=LEVEL."""

    name = "level"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        """Split the text, and read its number."""
        feature, text = Pair().convert(value, param, ctx)
        if not text.isdecimal() or int(text) > _LEVEL_MAX:
            self.fail(f"{text!r} is not a level, a number from 0", param, ctx)
        return feature, int(text)


_levels_argument = click.argument(
    "levels", nargs=-1, required=True, metavar="FEATURE=LEVEL...", type=_Level()
)


@click.group()
def features() -> None:
    """Show the features of a cluster, and change their levels."""


@features.command()
@json_option
@broker_options
def describe(as_json: bool, connection: Connection) -> None:
    """Show the features: the levels that a broker supports, and those in force.

    A feature with level 0 is off.

    Example: odradek features describe
    """
    with connection.wire() as wire:
        epoch, found = _found(wire)
    if as_json:
        return print_json({"epoch": epoch, "features": found})
    from odradek.cli.tables import print_rows

    print_rows(["Feature", "Level>", "Least>", "Most>"], [tuple(one.values()) for one in found])


@features.command()
@_levels_argument
@dry_run_option
@yes_option
@json_option
@broker_options
def upgrade(
    levels: Levels, dry_run: bool, yes: bool, as_json: bool, connection: Connection
) -> None:
    """Raise the levels of features.

    Some levels cannot be lowered again. Asks for confirmation, unless --yes is given.

    Example: odradek features upgrade transaction.version=2 --dry-run
    """
    _update(connection, levels, _UPGRADE, dry_run=dry_run, yes=yes, as_json=as_json)


@features.command()
@_levels_argument
@click.option("--unsafe", is_flag=True, help="Lower a level even if metadata is lost.")
@dry_run_option
@yes_option
@json_option
@broker_options
def downgrade(
    levels: Levels,
    unsafe: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    connection: Connection,
) -> None:
    """Lower the levels of features; level 0 turns a feature off.

    Asks for confirmation, unless --yes is given.

    Example: odradek features downgrade streams.version=0 --dry-run
    """
    kind = _UNSAFE_DOWNGRADE if unsafe else _SAFE_DOWNGRADE
    _update(connection, levels, kind, dry_run=dry_run, yes=yes, as_json=as_json)


def _found(wire: Wire) -> tuple[int | None, list[dict[str, Any]]]:
    """Return the epoch of the levels in force, and the features by name."""
    from odradek.cli.wire.links import api_versions_request
    from odradek.protocol.messages.api_versions import ApiVersionsResponse

    act = Act("describe features")
    answer = wire.ask(api_versions_request(), ApiVersionsResponse, act)
    check(answer.error_code, act)
    levels = {one.name: one.max_version_level for one in answer.finalized_features}
    rows = [
        {
            "feature": one.name,
            "level": levels.get(one.name, 0),
            "min_supported_level": one.min_version,
            "max_supported_level": one.max_version,
        }
        for one in sorted(answer.supported_features, key=lambda one: one.name)
    ]
    epoch = answer.finalized_features_epoch
    return (None if epoch < 0 else epoch), rows


def _update(
    connection: Connection,
    levels: Levels,
    kind: int,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    wanted = dict(levels)
    with connection.wire() as wire:
        before = {one["feature"]: one["level"] for one in _found(wire)[1]}
        for feature in wanted:
            if feature not in before:
                hint = did_you_mean(feature, before) or ": odradek features describe shows all"
                raise CommandError(f"there is no feature {feature}{hint}")
        if not (yes or dry_run):
            changes = ", ".join(f"{name} to {level}" for name, level in wanted.items())
            click.confirm(printable(f"Change the level of {changes}?"), abort=True, err=True)
        _send(wire, wanted, kind, dry_run=dry_run)
    rows = [
        {"feature": name, "before": before[name], "after": level}
        for name, level in wanted.items()
    ]
    if as_json:
        return print_json({"dry_run": dry_run, "features": rows})
    from odradek.cli.tables import print_rows

    print_rows(["Feature", "Before>", "After>"], [tuple(one.values()) for one in rows])
    if dry_run:
        click.echo("\nNothing was changed.")


def _send(wire: Wire, levels: dict[str, int], kind: int, *, dry_run: bool) -> None:
    from odradek.protocol.messages.update_features import (
        FeatureUpdateKey,
        UpdateFeaturesRequest,
        UpdateFeaturesResponse,
    )

    request = UpdateFeaturesRequest(
        timeout_ms=_TIMEOUT_MS,
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level in levels.items()
        ],
        validate_only=dry_run,
    )
    act = Act("change features", "ALTER on the cluster")
    answer = wire.repeat(
        lambda: wire.ask(request, UpdateFeaturesResponse, act, least=_KIND_VERSION),
        lambda one: [one.error_code],
    )
    check(answer.error_code, act, answer.error_message)
    for one in answer.results:
        check(one.error_code, Act(f"change feature {one.feature}", act.right), one.error_message)
