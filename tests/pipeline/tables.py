"""A kept table of each format, and of each catalog that Iceberg has on one machine."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from odradek.pipeline.connector import Package
from odradek.pipeline.delta_table import DeltaTable
from odradek.pipeline.iceberg_table import IcebergCatalog, IcebergTable
from odradek.pipeline.kept_table import KeptTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SQLITE = Package({(4, 0, 0): "org.xerial:sqlite-jdbc:3.50.3.0"}, "org.sqlite.JDBC")

# A catalog in a database differs from one of folders in its commits alone.
KINDS = ["delta", "hadoop", pytest.param("jdbc", marks=pytest.mark.interop)]


def kept_table(kind: str, folder: Path) -> KeptTable:
    """Return the one table of a kind in a folder: delta, or Iceberg's catalog hadoop or jdbc."""
    if kind == "delta":
        return DeltaTable(f"{folder}/table")
    folder.mkdir(parents=True, exist_ok=True)
    # A session knows a catalog by its name, and keeps what it knows.
    name = "c" + hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:12]
    uri = f"jdbc:sqlite:{folder}/catalog.db" if kind == "jdbc" else None
    return IcebergTable(IcebergCatalog(name, uri, f"{folder}/warehouse"), "sales.eu.tickets")


def sql_name(table: KeptTable, spark: SparkSession) -> str:
    """Return the name by which SQL of a user knows a table."""
    if isinstance(table, IcebergTable):
        table.catalog.connect(spark)
        return f"{table.catalog.name}.{table.name}"
    return f"delta.`{table.name}`"


def table_arguments(table: KeptTable) -> list[str]:
    """Return the arguments of a command that name a table."""
    arguments = ["--table", table.name]
    if isinstance(table, IcebergTable):
        catalog = table.catalog
        arguments += ["--table-format", "iceberg", "--iceberg-catalog-name", catalog.name]
        arguments += ["--warehouse", str(catalog.warehouse)]
        if catalog.uri is not None:
            arguments += ["--iceberg-catalog", catalog.uri]
            arguments += ["--conf", f"spark.jars.packages={SQLITE.coordinates('4.0.0')}"]
    return arguments
