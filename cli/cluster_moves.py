"""odradek cluster init and export: the way of metadata into a catalog, and back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import click

from odradek.cli.refusals import CommandError
from odradek.cli.words import count
from odradek.config.errors import ConfigError
from odradek.config.printable import printable

F = TypeVar("F", bound=Callable[..., None])
T = TypeVar("T")


def _catalog(command: F) -> F:
    return click.option(
        "--catalog",
        "url",
        metavar="URL",
        required=True,
        envvar="ODRADEK_CATALOG_URL",
        show_envvar=True,
        help="The database, as in odradek.catalog.url.",
    )(command)


def _directories(name: str, purpose: str) -> Callable[[F], F]:
    return click.option(
        name,
        "directories",
        metavar="DIR",
        multiple=True,
        required=True,
        type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
        help=purpose,
    )


@click.command()
@_directories("--from", "A directory of the broker's log.dirs; repeat it for each, in order.")
@_catalog
def init(directories: tuple[Path, ...], url: str) -> None:
    """Begin a cluster: move the metadata of a single broker into a new catalog.

    The broker must be stopped. Its files odradek.db* are renamed. A start of the broker with
    odradek.catalog.url does the same by itself.

    Example: odradek cluster init --from /var/lib/odradek --catalog sqlite:///var/lib/catalog.db
    """
    from odradek.broker.catalog.moving_in import has_own, is_marked, move_in
    from odradek.storage.meta_properties import META, read_properties
    from odradek.storage.real_files import RealFileSystem

    fs = RealFileSystem()
    if not has_own(fs, directories):
        if is_marked(fs, directories):
            return click.echo("The metadata of these log directories is in a catalog already.")
        raise CommandError(
            f"{directories[0]} has no metadata of a broker: a broker that is new begins the "
            "cluster by itself, with odradek.catalog.url"
        )
    meta = directories[0] / META
    node_id = read_properties(fs, meta).get("node.id", "") if fs.exists(meta) else ""
    if not node_id.isdecimal():
        raise CommandError(f"{meta} has no node.id: start the broker once without a catalog")
    metadata = _run(url, lambda: move_in(fs, directories, url, int(node_id)))
    click.echo(f"Moved {count(len(metadata.topics), 'topic')} into the catalog.")
    click.echo("Start the broker with odradek.catalog.url.")
    return None


@click.command()
@_directories("--to", "A directory of the broker's log.dirs; repeat it for each, in order.")
@_catalog
@click.option(
    "--only-here", is_flag=True, help="Leave out topics that have partitions of other brokers."
)
def export(directories: tuple[Path, ...], url: str, only_here: bool) -> None:
    """End a cluster: move the metadata of its catalog back to one broker.

    All brokers must be stopped, and all partitions be on this one. Afterwards no broker uses the
    catalog any more.

    Example: odradek cluster export --catalog sqlite:///var/lib/catalog.db --to /var/lib/odradek
    """
    from odradek.broker.catalog.moving_out import move_out
    from odradek.storage.real_files import RealFileSystem

    moved = _run(
        url, lambda: move_out(RealFileSystem(), directories, url, only_here=only_here)
    )
    topics = count(len(moved.metadata.topics), "topic")
    click.echo(f"Moved {topics} to the log directories of broker {moved.node_id}.")
    for name in moved.left_out:
        click.echo(f"Left out topic {printable(name)}, which has partitions of other brokers.")
    for path in moved.strays:
        click.echo(f"Belongs to no topic, move it away: {printable(str(path))}")
    click.echo("Start the broker without odradek.catalog.url.")


def _run(url: str, move: Callable[[], Coroutine[Any, Any, T]]) -> T:
    from odradek.broker.errors import MetadataError
    from odradek.config.catalog import check_url
    from odradek.storage.errors import StorageError

    try:
        check_url("--catalog", url)
        return asyncio.run(move())
    except (ConfigError, MetadataError, StorageError) as error:
        raise CommandError(str(error)) from error
