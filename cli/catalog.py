"""The catalog and the object store of a broker's settings, for commands that use them directly."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from odradek.cli.completion import complete_configs
from odradek.cli.refusals import CommandError

if TYPE_CHECKING:
    from odradek.broker.catalog.engines import Engine
    from odradek.broker.shared.bucket import Bucket
    from odradek.config.object_store import ObjectStoreConfig
    from odradek.config.resolution import Layer

F = TypeVar("F", bound=Callable[..., None])

set_option = click.option(
    "--set",
    "pairs",
    multiple=True,
    metavar="KEY=VALUE",
    shell_complete=complete_configs,
    help="A setting, as for serve.",
)


def catalog_options(command: F) -> F:
    """Add the options that give the settings of a broker."""
    for option in (
        click.option(
            "--catalog",
            "url",
            metavar="URL",
            envvar="ODRADEK_CATALOG_URL",
            show_envvar=True,
            help="The database, as in odradek.catalog.url; wins over the file.",
        ),
        set_option,
        click.option(
            "--config",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="The server.properties file of a broker.",
        ),
    ):
        command = option(command)
    return command


@contextmanager
def open_catalog(
    config: Path | None, pairs: tuple[str, ...], url: str | None
) -> Iterator[tuple[Engine, ObjectStoreConfig]]:
    """Open the catalog of a broker's settings; return the settings of its object store, too."""
    from odradek.broker.catalog.engines import open_engine
    from odradek.broker.catalog.schema import require_current
    from odradek.broker.errors import MetadataError
    from odradek.broker.wal.entries import DamagedEntry
    from odradek.config.effective import resolve_apart
    from odradek.config.errors import ConfigError
    from odradek.config.layers import static_layer
    from odradek.config.object_store import ObjectStoreConfig
    from odradek.storage.objects.store import ObjectStoreError

    try:
        static = static_layer(config, dict(os.environ), pairs)
        engine = open_engine(_url(static, url))
        try:
            engine.read(lambda connection: require_current(engine, connection))
            yield engine, resolve_apart(ObjectStoreConfig, [static])
        finally:
            engine.close()
    except (ConfigError, MetadataError, ObjectStoreError, DamagedEntry) as error:
        raise CommandError(str(error)) from error


@contextmanager
def open_bucket(
    config: Path | None, pairs: tuple[str, ...], url: str | None
) -> Iterator[tuple[Engine, Bucket]]:
    """Open the catalog and the object store of a broker's settings."""
    from odradek.broker.shared.bucket import Bucket
    from odradek.config.object_store import URL

    with open_catalog(config, pairs, url) as (engine, store):
        if not store.odradek_object_store_url:
            raise CommandError(f"give {URL}, as the brokers have it, with --config or --set")
        bucket = Bucket(store)
        try:
            yield engine, bucket
        finally:
            asyncio.run(bucket.close())


def _url(static: Layer, url: str | None) -> str:
    """Return the address of a catalog that is there. Raises ConfigError."""
    from odradek.config.catalog import URL, CatalogConfig, check_url, require_file
    from odradek.config.effective import resolve_apart, resolve_broker
    from odradek.config.errors import ConfigError
    from odradek.config.workers import has_had_workers, with_catalog

    if url:
        check_url("--catalog", url)
    else:
        directories = resolve_broker([static]).config.data_directories
        if has_had_workers(directories):
            static = with_catalog(static, Path(directories[0]))
        url = resolve_apart(CatalogConfig, [static]).odradek_catalog_url
    if not url:
        raise ConfigError(f"give {URL}, as the brokers have it, with --config, --set or --catalog")
    require_file(url)
    return url
