"""The command-line options for the format of a kept table, and Iceberg's catalogs."""

import functools
from collections.abc import Callable

import click

from odradek.pipeline.connector import DELTA, ICEBERG
from odradek.pipeline.delta_table import DeltaTable
from odradek.pipeline.iceberg_table import IcebergCatalog, IcebergTable
from odradek.pipeline.kept_table import KeptTable
from odradek.pipeline.options import decorated

# The packages of the table formats.
TABLE_FORMATS = {"delta": DELTA, "iceberg": ICEBERG}

table_format_option = click.option(
    "--table-format",
    type=click.Choice(list(TABLE_FORMATS)),
    default="delta",
    show_default=True,
    help="The format of the table.",
)

_TABLE_OPTIONS = (
    table_format_option,
    click.option(
        "--warehouse",
        metavar="FOLDER|NAME",
        help="The folder of Iceberg's tables, which is their catalog if no other is given, or "
        "the warehouse's name in a REST catalog.",
    ),
    click.option(
        "--iceberg-catalog",
        metavar="URI",
        help="Iceberg's catalog: https://… of a REST catalog, or jdbc:… of a database.",
    ),
    click.option(
        "--iceberg-catalog-name",
        default=IcebergCatalog().name,
        show_default=True,
        metavar="NAME",
        help="The catalog's name in a database, and in Spark's settings: any property of it is "
        "--conf spark.sql.catalog.NAME.PROPERTY=VALUE.",
    ),
)


def table_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a table's format; the command gets ``table`` and ``checkpoint``.

    These take the place of the texts of --table and --checkpoint, which the command defines:
    ``table`` is a KeptTable, or None without --table.
    """

    @functools.wraps(command)
    def with_table(
        *,
        table: str | None,
        checkpoint: str | None,
        table_format: str,
        warehouse: str | None,
        iceberg_catalog: str | None,
        iceberg_catalog_name: str,
        **others: object,
    ) -> None:
        kept: KeptTable | None = None
        if table_format == "delta":
            if warehouse or iceberg_catalog:
                raise click.UsageError(
                    "--warehouse and --iceberg-catalog need --table-format iceberg"
                )
            if table is not None:
                kept = DeltaTable(table.rstrip("/"))
                checkpoint = checkpoint or f"{kept.name}/_checkpoint"
        elif table is not None:
            if not checkpoint:
                raise click.UsageError("--table-format iceberg needs --checkpoint")
            if "." not in table or not all(table.split(".")):
                raise click.UsageError(f"--table {table!r} is not NAMESPACE.TABLE")
            catalog = IcebergCatalog(iceberg_catalog_name, iceberg_catalog, warehouse)
            kept = IcebergTable(catalog, table)
        command(table=kept, checkpoint=checkpoint or "", **others)

    return decorated(with_table, _TABLE_OPTIONS)
