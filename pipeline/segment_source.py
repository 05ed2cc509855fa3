"""A Spark data source that reads Kafka's segments without a broker: files, and shared topics.

    spark.dataSource.register(SegmentsDataSource)
    spark.read.format("odradek-segments").option("path", "/var/lib/kafka").load()

    spark.read.format("odradek-segments").option("catalog", "postgresql://…")
        .option("odradek.object.store.url", "s3://bucket/prefix").option("topic", "orders").load()

Each file is one task, which decodes it with the broker's own kernels; segments of shared topics
share tasks. Every machine that runs tasks must have this package installed, and must see the
folders at the same path, or reach the object store.
pipeline/segment_selection.py has the options and filters, pipeline/segment_columns.py the columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from odradek.pipeline.errors import PipelineError
from odradek.pipeline.segment_columns import COLUMNS
from odradek.pipeline.segment_files import prune
from odradek.pipeline.segment_finding import find_segments, tasks_of
from odradek.pipeline.segment_selection import (
    LATEST,
    SegmentOptions,
    Selection,
    narrow,
    parse_options,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def read_segments(spark: SparkSession, **options: str) -> DataFrame:
    """Read segment files as a table, one row for each record; only the path is required.

    The options are those of `pipeline.segment_selection`. Raises Spark's AnalysisException, with
    the text of the PipelineError in it, when there is nothing to read.
    """
    spark.dataSource.register(SegmentsDataSource)
    return spark.read.format(SegmentsDataSource.name()).options(**options).load()


class SegmentsDataSource(DataSource):
    """Segment files as a table, one row for each record."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "odradek-segments"

    def schema(self) -> str:
        """Return the requested columns; raises PipelineError early if nothing can be read."""
        options = parse_options(self.options)
        find_segments(options, options.selection)
        return ", ".join(f"{name} {COLUMNS[name]}" for name in options.columns)

    def reader(self, schema: StructType) -> SegmentsReader:
        """Return the reader of the segments; raises PipelineError for a column that they lack."""
        options = parse_options(self.options)
        if options.starting_offsets == LATEST:
            raise PipelineError(
                "option startingOffsets=latest is for streams; a batch has startingOffset"
            )
        return SegmentsReader(options, self._columns(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a stream of shared topics; raises PipelineError as `reader`."""
        from odradek.pipeline.segment_stream import SegmentsStreamReader

        return SegmentsStreamReader(parse_options(self.options), self._columns(schema))

    @staticmethod
    def _columns(schema: StructType) -> dict[str, bool]:
        """Return the columns of a schema, and whether they may hold nulls."""
        for field in schema:
            expected = COLUMNS.get(field.name)
            if field.dataType.simpleString() != expected:
                hint = f"its type is {expected}" if expected else f"there are {', '.join(COLUMNS)}"
                raise PipelineError(
                    f"no column {field.name} of type {field.dataType.simpleString()}: {hint}"
                )
        return {field.name: field.nullable for field in schema}


class SegmentsReader(DataSourceReader):
    """Plans a task for each segment; Spark sends this object to the workers, where read() runs."""

    def __init__(self, options: SegmentOptions, nullable: dict[str, bool]) -> None:
        self._options, self._nullable = options, nullable
        self._selection = options.selection
        if _PUSHES_FILTERS:
            self.pushFilters = _Pushing(self)

    def narrow(self, filters: Iterable[Any]) -> list[Any]:
        """Apply filters to the records to read; return those that are left to Spark."""
        self._selection, left = narrow(self._selection, filters)
        return left

    def partitions(self) -> list[InputPartition]:
        """Return the tasks that read all segments that may hold records to read."""
        segments = find_segments(self._options, self._selection)
        return [InputPartition(task) for task in tasks_of(prune(segments, self._selection))]

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """Read the records of a task's segments."""
        return read_task(partition, self._selection, self._options.on_damage, self._nullable)


def read_task(
    partition: InputPartition | None,
    selection: Selection,
    on_damage: str,
    nullable: dict[str, bool],
) -> Iterator[pa.RecordBatch]:
    """Read the records of a task's segments, with columns that may hold nulls or not."""
    # When there are no tasks, Spark still runs one, without a partition.
    if partition is None or partition.value is None:
        return
    from odradek.pipeline.python_workers import forget_archives
    from odradek.pipeline.segment_arrow import arrow_schema
    from odradek.pipeline.segment_rows import read_segments

    yield from read_segments(partition.value, selection, arrow_schema(nullable), on_damage)
    forget_archives()


_PUSHES_FILTERS = hasattr(DataSourceReader, "pushFilters")


class _Pushing:
    """The reader's pushFilters; Spark calls it if spark.sql.python.filterPushdown.enabled is on.

    While that setting is off, as by default, PySpark 4.1 and later refuse to read with a reader
    whose pushFilters is not the base class's. This object passes for the base class's method.
    """

    # Static, because Spark compares the function itself, not a method of this object.
    __func__ = staticmethod(getattr(DataSourceReader, "pushFilters", lambda: None))

    def __init__(self, reader: SegmentsReader) -> None:
        self._reader = reader

    def __call__(self, filters: Iterable[Any]) -> list[Any]:
        return self._reader.narrow(filters)
