"""Keep an Apache Iceberg table with one row for each key of a topic (`pipeline.kept_table`).

The table's property ``odradek.query`` names the streaming query that wrote it, and the summary of
each snapshot names the query and the batch. Iceberg writes a snapshot's summary and its data in
one commit.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from py4j.java_gateway import JavaObject
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql import types as t

from odradek.dataclass import dataclass
from odradek.pipeline.checkpoint import Progress
from odradek.pipeline.connector import ICEBERG, Package
from odradek.pipeline.errors import PipelineError
from odradek.pipeline.files import qualify
from odradek.pipeline.kept_table import (
    DELETES,
    IDENTITY,
    INSERTS,
    QUERY,
    UPDATES,
    Merged,
    delete_statement,
    merge_statement,
    require_columns,
)

_BATCH = "odradek.batch"
# The prefix of a session's settings that Iceberg writes into the summary of each snapshot.
_SUMMARY = "spark.sql.iceberg.snapshot-property"
_KEY = ["topic", "partition", "key"]


@dataclass(frozen=True, slots=True)
class IcebergCatalog:
    """A catalog of Iceberg's, and its name in Spark's settings.

    ``uri`` is that of a REST catalog, or of a database (``jdbc:…``). With a ``warehouse`` alone,
    its folders are the catalog (Hadoop's). Settings of the session, ``spark.sql.catalog.NAME.…``,
    win over these, and can describe a catalog by themselves.
    """

    name: str = "odradek"
    uri: str | None = None
    warehouse: str | None = None

    def connect(self, spark: SparkSession) -> None:
        """Make the catalog known to a session.

        Raises PipelineError where nothing describes it.
        """
        prefix = f"spark.sql.catalog.{self.name}"
        settings = {
            prefix: "org.apache.iceberg.spark.SparkCatalog",
            # A stream's session and the one that started it see each other's commits at once.
            f"{prefix}.cache-enabled": "false",
        }
        if spark.conf.get(f"{prefix}.catalog-impl", None) is None:
            kind = spark.conf.get(f"{prefix}.type", None) or self._kind()
            if kind is None:
                raise PipelineError(
                    f"nothing describes the Iceberg catalog {self.name}: give --warehouse, or "
                    f"--iceberg-catalog, or --conf {prefix}.type=… with the type's properties"
                )
            settings[f"{prefix}.type"] = kind
            is_path = kind in ("hadoop", "jdbc") and "://" not in (self.warehouse or "://")
            if is_path and self.warehouse is not None:
                # The table keeps this path, which has to be right from any folder.
                settings[f"{prefix}.warehouse"] = qualify(spark, self.warehouse)
        given = {"uri": self.uri, "warehouse": self.warehouse}
        given_settings = {f"{prefix}.{name}": value for name, value in given.items() if value}
        for name, value in (given_settings | settings).items():
            if spark.conf.get(name, None) is None:
                spark.conf.set(name, value)

    def _kind(self) -> str | None:
        if self.uri is not None:
            return "jdbc" if self.uri.startswith("jdbc:") else "rest"
        return None if self.warehouse is None else "hadoop"


@dataclass(frozen=True, slots=True)
class IcebergTable:
    """An Apache Iceberg table; its name is ``namespace.table`` in a catalog."""

    catalog: IcebergCatalog
    name: str

    @property
    def packages(self) -> Sequence[Package]:
        """Return Iceberg's package."""
        return (ICEBERG,)

    def is_there(self, spark: SparkSession) -> bool:
        """Return whether the catalog has the table."""
        return bool(spark.catalog.tableExists(self._connected(spark)))

    def read(self, spark: SparkSession) -> DataFrame:
        """Read the table as it is now.

        Raises PipelineError where there is none.
        """
        if not self.is_there(spark):
            raise PipelineError(
                f"the Iceberg catalog {self.catalog.name} has no table {self.name}: run odradek "
                "pipeline materialize first"
            )
        return spark.table(self._quoted)

    def read_kept(self, spark: SparkSession) -> tuple[Progress, DataFrame]:
        """Read the table as it was after its last batch, even while a job writes to it.

        Raises PipelineError where there is no table, or no batch of a job in it.
        """
        self.read(spark)
        for snapshot_id, progress in _noted(self._load(spark)):
            if progress.batch_id >= 0:
                reader = spark.read.option("snapshot-id", str(snapshot_id))
                return progress, reader.table(self._quoted)
        raise PipelineError(f"{self.name} holds no batch of odradek pipeline materialize")

    def progress(self, spark: SparkSession) -> Progress | None:
        """Read the query that wrote the table, and its last batch in the table."""
        if not self.is_there(spark):
            return None
        table = self._load(spark)
        query_id = str(table.properties().get(QUERY) or "")
        ours = (progress for _, progress in _noted(table) if progress.query_id == query_id)
        return next(ours, Progress(query_id, -1))

    def create(self, rows: DataFrame, progress: Progress, properties: Mapping[str, str]) -> None:
        """Create the table, empty, for rows like these; it belongs to a query."""
        spark = rows.sparkSession
        self.catalog.connect(spark)
        parts = self.name.split(".")
        for depth in range(1, len(parts)):
            namespace = _quote(self.catalog.name, *parts[:depth])
            spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
        writer = _storable(rows).drop("is_tombstone").limit(0).writeTo(self._quoted)
        writer = writer.using("iceberg")
        for name, value in {**properties, QUERY: progress.query_id}.items():
            writer = writer.tableProperty(name, value)
        with _noting(spark, progress):
            writer.create()

    def merge(self, rows: DataFrame, progress: Progress) -> Merged:
        """Apply the last records of keys to the table, and note their batch, in one commit.

        Raises PipelineError where the columns are not the table's.
        """
        spark = rows.sparkSession
        rows = _storable(rows)
        held = spark.table(self._connected(spark))
        require_columns(self.name, held, rows.drop("is_tombstone"))
        merged = _count_effects(held, rows)
        if merged == Merged(0, 0, 0):
            self.note_batch(spark, progress)  # a MERGE would write the matched files again
        else:
            statement = merge_statement(self._quoted, rows)
            with _noting(spark, progress):
                spark.sql(statement)
        return merged

    def note_batch(self, spark: SparkSession, progress: Progress) -> None:
        """Note a batch with nothing to merge."""
        append = self._load(spark).newFastAppend()
        for name, value in _summary_of(progress).items():
            append = append.set(name, value)
        append.commit()

    def delete_missing(self, keys: DataFrame) -> int:
        """Delete the rows whose key is not among these, and return their number."""
        spark = keys.sparkSession
        held = spark.table(self._connected(spark))
        keys = keys.select(*_KEY).distinct().persist()
        try:
            deleted: int = held.join(keys, _KEY, "left_anti").count()
            if deleted:
                spark.sql(delete_statement(self._quoted, keys))
            return deleted
        finally:
            keys.unpersist()

    @property
    def _quoted(self) -> str:
        return _quote(self.catalog.name, *self.name.split("."))

    def _connected(self, spark: SparkSession) -> str:
        """Return the table's quoted name in a session that knows its catalog."""
        self.catalog.connect(spark)
        return self._quoted

    def _load(self, spark: SparkSession) -> JavaObject:
        """Return Iceberg's own object for the table as it is now."""
        assert spark._jvm is not None, "a session that is not running"
        loader = spark._jvm.org.apache.iceberg.spark.Spark3Util
        return loader.loadIcebergTable(spark._jsparkSession, self._connected(spark))


def _count_effects(held: DataFrame, rows: DataFrame) -> Merged:
    """Count the effects of a MERGE of rows.

    Spark 4.0 has no counts, and those of a snapshot's summary include rows that were only copied
    to another file.
    """
    pairs = rows.alias("s").join(held.select(*_KEY, "offset").alias("t"), f.expr(IDENTITY), "left")
    is_new = f.col("t.offset").isNull()
    counts = pairs.agg(
        f.count_if(is_new & f.expr(INSERTS)),
        f.count_if(~is_new & f.expr(UPDATES)),
        f.count_if(~is_new & f.expr(DELETES)),
    ).collect()[0]
    return Merged(*counts)


def _noted(table: JavaObject) -> Iterator[tuple[int, Progress]]:
    """Iterate over the snapshots that name a batch, from the current one back: id and batch."""
    snapshot = table.currentSnapshot()
    while snapshot is not None:
        summary = snapshot.summary()
        query_id, batch_id = summary.get(QUERY), summary.get(_BATCH)
        if query_id is not None and batch_id is not None:
            yield snapshot.snapshotId(), Progress(str(query_id), int(batch_id))
        parent_id = snapshot.parentId()
        snapshot = None if parent_id is None else table.snapshot(parent_id)


@contextmanager
def _noting(spark: SparkSession, progress: Progress) -> Iterator[None]:
    """Have the commits of a session name a batch."""
    settings = {f"{_SUMMARY}.{name}": value for name, value in _summary_of(progress).items()}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            spark.conf.unset(name)


def _summary_of(progress: Progress) -> dict[str, str]:
    return {QUERY: progress.query_id, _BATCH: str(progress.batch_id)}


def _storable(rows: DataFrame) -> DataFrame:
    """Return rows with types that Iceberg has: its smallest integer is of 32 bits."""
    kinds = {field.name: _storable_type(field.dataType) for field in rows.schema}
    return rows.select(*(f.col(name).cast(kind).alias(name) for name, kind in kinds.items()))


def _storable_type(kind: t.DataType) -> t.DataType:
    match kind:
        case t.ByteType() | t.ShortType():
            return t.IntegerType()
        case t.ArrayType():
            return t.ArrayType(_storable_type(kind.elementType), kind.containsNull)
        case t.MapType():
            key, value = _storable_type(kind.keyType), _storable_type(kind.valueType)
            return t.MapType(key, value, kind.valueContainsNull)
        case t.StructType():
            fields = [(one.name, _storable_type(one.dataType), one.nullable) for one in kind]
            return t.StructType([t.StructField(*field) for field in fields])
        case _:
            return kind


def _quote(*parts: str) -> str:
    return ".".join(f"`{part.replace('`', '``')}`" for part in parts)
