"""odradek init: the files to start with."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import click

from odradek.cli.refusals import CommandError

# The parts by name are in cli.starting_files, whose import a help does not wait for.
_NAMES = ("settings", "systemd", "compose", "alerts", "dashboards", "helm", "docs")


def _parts(
    context: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[str, ...]:
    """Return the names of parts that commas separate; raises BadParameter for one that is none."""
    names = tuple(one.strip() for one in value.split(",")) if value is not None else ()
    for one in names:
        if one not in _NAMES:
            raise click.BadParameter(f"{one!r} is no part: choose of {', '.join(_NAMES)}")
    return names


@click.command("init")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=".")
@click.option("--with", "more", callback=_parts, metavar="PART,…", help="Write these parts, too.")
@click.option("--only", callback=_parts, metavar="PART,…", help="Write these parts alone.")
@click.option("--force", is_flag=True, help="Replace files that are there.")
def init(folder: Path, more: tuple[str, ...], only: tuple[str, ...], force: bool) -> None:
    """Write the files to start with: settings, a unit of systemd, a compose file.

    FOLDER is the present one by default, and is created when it is not there. No file is
    replaced without --force: if one is there, nothing is written.

    \b
    settings    server.properties: the settings that people change, each with its meaning
                and its default; `odradek serve --config` takes it as it is
    systemd     odradek.service: a unit; the comments at its top say how to install it
    compose     docker-compose.yml: the image with the settings in server.properties
    alerts      alerts/: rules for Prometheus
    dashboards  dashboards/: a dashboard for Grafana
    helm        helm/odradek/: a chart of Helm for Kubernetes
    docs        docs/: the documentation

    The first three are written without any option.

    Example: odradek init broker --with alerts,dashboards
    """
    from odradek.cli.starting_files import STARTING, starting_files

    if only and more:
        raise click.UsageError("--only writes no other parts: leave out --with or --only")
    parts = tuple(dict.fromkeys(only or (*STARTING, *more)))
    try:
        files = starting_files(folder, parts, Path(sys.argv[0]).absolute())
    except ValueError as error:
        raise CommandError(str(error)) from error
    _check_absent(files, force)
    for path, content in files.items():
        _write(path, content, force)
        click.echo(f"{path}: written")
    if "settings" in parts:
        settings = folder / "server.properties"
        click.echo(f"To check the settings: odradek doctor --config {settings}")
        click.echo(f"To start a broker:     odradek serve --config {settings}")


def _check_absent(files: Mapping[Path, bytes], force: bool) -> None:
    there = [str(path) for path in files if path.exists() or path.is_symlink()]
    if there and not force:
        rest = f" (and {len(there) - 1} more)" if len(there) > 1 else ""
        raise CommandError(
            f"{there[0]}{rest} is there, and nothing was written: --force replaces it, or "
            "choose another FOLDER"
        )


def _write(path: Path, content: bytes, force: bool) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # "x" fails for a file that another program has created meanwhile.
        with path.open("wb" if force else "xb") as file:
            file.write(content)
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from error
