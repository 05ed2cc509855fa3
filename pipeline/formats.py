"""Read the values of records: bytes as they are, or JSON, Avro or Protobuf by a schema.

Spark's own functions do the reading (``from_json``, ``from_avro``, ``from_protobuf``). A value
that does not fit the schema is never dropped or emptied in silence: it is told apart.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from pipeline.connector import AVRO, PROTOBUF, Package
from pipeline.errors import PipelineError

# Not a name that a schema of the user's has.
_CORRUPT = "_odradek_corrupt"


class Format(StrEnum):
    """What a value's bytes are."""

    RAW = "raw"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"


PACKAGES: dict[Format, tuple[Package, ...]] = {
    Format.RAW: (),
    Format.JSON: (),
    Format.AVRO: (AVRO,),
    Format.PROTOBUF: (PROTOBUF,),
}


@dataclass(frozen=True, slots=True)
class ValueFormat:
    """How to read values.

    ``schema`` is Spark's own, as in ``id BIGINT, status STRING``, for JSON; Avro's, in JSON, for
    Avro; a descriptor set, as ``protoc --descriptor_set_out`` writes it, for Protobuf, with the
    name of the ``message``. ``skipped_bytes`` stand before each value and are no part of it, such
    as the 5 with which Confluent's serializers name a schema.
    """

    format: Format = Format.RAW
    schema: str | bytes = ""
    message: str = ""
    skipped_bytes: int = 0


def read_values(records: DataFrame, values: ValueFormat) -> DataFrame:
    """Replace the column ``value`` by what it says, and add ``mismatched``.

    ``mismatched`` holds the bytes of a value that does not fit the schema, whose ``value`` is then
    null, and is null for all others. Raises PipelineError for a schema that cannot be one.
    """
    data = f.col("value")
    if values.skipped_bytes:
        data = f.substring(data, values.skipped_bytes + 1, 2**31 - 1)
    if values.format is Format.RAW:
        return records.withColumns({"mismatched": f.lit(None).cast("binary"), "value": data})
    read = _READERS[values.format](data, values)
    parsed = records.withColumn("_read", read)
    fits = f.col("_read").isNotNull()
    if values.format is Format.JSON:
        fits &= f.col(f"_read.{_CORRUPT}").isNull()
        # The column of what is corrupt is not the user's.
        told = f.col("_read").dropFields(_CORRUPT)
    else:
        told = f.col("_read")
    is_mismatched = f.col("value").isNotNull() & ~fits
    return parsed.withColumns(
        {"mismatched": f.when(is_mismatched, f.col("value")), "value": f.when(fits, told)}
    ).drop("_read")


def _read_json(data: Column, values: ValueFormat) -> Column:
    try:
        schema = t.StructType.fromDDL(str(values.schema))
    except PySparkException as error:
        raise PipelineError(
            f"--schema {values.schema!r} is no schema of Spark's: write it as in "
            "'id BIGINT, status STRING'"
        ) from error
    assert isinstance(schema, t.StructType), "what a list of columns says"
    fields = t.StructType([*schema.fields, t.StructField(_CORRUPT, t.StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return f.from_json(data.cast("string"), fields, options)


def _read_avro(data: Column, values: ValueFormat) -> Column:
    from pyspark.sql.avro.functions import from_avro

    return from_avro(data, str(values.schema), {"mode": "PERMISSIVE"})


def _read_protobuf(data: Column, values: ValueFormat) -> Column:
    from pyspark.sql.protobuf.functions import from_protobuf

    schema = values.schema
    assert isinstance(schema, bytes), "a descriptor set is bytes"
    options = {"mode": "PERMISSIVE"}
    return from_protobuf(data, values.message, options=options, binaryDescriptorSet=schema)


_READERS: dict[Format, Callable[[Column, ValueFormat], Column]] = {
    Format.JSON: _read_json,
    Format.AVRO: _read_avro,
    Format.PROTOBUF: _read_protobuf,
}
