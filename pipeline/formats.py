"""Read the values of records: bytes unchanged, or JSON, Avro or Protobuf by a schema.

Spark's own functions do the reading (``from_json``, ``from_avro``, ``from_protobuf``). A value
that does not fit the schema is never dropped or emptied silently: it is kept apart. Spark itself
turns it into a row of nulls, which may also be a valid value.
"""

from collections.abc import Callable
from enum import StrEnum

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from odradek.dataclass import dataclass
from odradek.pipeline.connector import AVRO, PROTOBUF, Package
from odradek.pipeline.descriptors import add_repeated_field
from odradek.pipeline.errors import PipelineError

# Columns that no user's schema has: one is null for values that fit, the other for the rest.
_CORRUPT, _FITTING = "_odradek_corrupt", "_odradek_fitting"


class Format(StrEnum):
    """The format of a value's bytes."""

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
    """The format and schema of values.

    ``schema`` is Spark's own, as in ``id BIGINT, status STRING``, for JSON; Avro's, in JSON, for
    Avro; a descriptor set, as ``protoc --descriptor_set_out`` writes it, for Protobuf, with the
    name of the ``message``. ``skipped_bytes`` precede each value and are not part of it, such as
    the 5 bytes in which Confluent's serializers name a schema.
    """

    format: Format = Format.RAW
    schema: str | bytes = ""
    message: str = ""
    skipped_bytes: int = 0


def read_values(records: DataFrame, values: ValueFormat) -> DataFrame:
    """Replace the column ``value`` by the decoded value, and add ``mismatched``.

    ``mismatched`` holds the bytes of a value that does not fit the schema, whose ``value`` is then
    null, and is null for all others. Raises PipelineError for an invalid schema.
    """
    data = f.col("value")
    if values.skipped_bytes:
        data = f.substring(data, values.skipped_bytes + 1, 2**31 - 1)
    if values.format is Format.RAW:
        return records.withColumns({"mismatched": f.lit(None).cast("binary"), "value": data})
    read = _READERS[values.format](data, values)
    parsed = records.withColumn("_read", read)
    decoded = f.col("_read")
    fits = decoded.isNotNull()
    # The column that shows a misfit is not part of the user's schema.
    if values.format is Format.JSON:
        fits, decoded = fits & decoded[_CORRUPT].isNull(), decoded.dropFields(_CORRUPT)
    elif values.format is Format.PROTOBUF:
        fits, decoded = fits & decoded[_FITTING].isNotNull(), decoded.dropFields(_FITTING)
    is_mismatched = f.col("value").isNotNull() & ~fits
    return parsed.withColumns(
        {"mismatched": f.when(is_mismatched, f.col("value")), "value": f.when(fits, decoded)}
    ).drop("_read")


def _read_json(data: Column, values: ValueFormat) -> Column:
    try:
        schema = t.StructType.fromDDL(str(values.schema))
    except PySparkException as error:
        raise PipelineError(
            f"--schema {values.schema!r} is not a Spark schema: write it as in "
            "'id BIGINT, status STRING'"
        ) from error
    assert isinstance(schema, t.StructType), "a list of columns is a struct"
    fields = t.StructType([*schema.fields, t.StructField(_CORRUPT, t.StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    return f.from_json(data.cast("string"), fields, options)


def _read_avro(data: Column, values: ValueFormat) -> Column:
    from pyspark.sql.avro.functions import from_avro

    # A record around a value adds no byte to its Avro encoding, and has a null for a value that
    # does not fit. The schema is not parsed here: Avro's own parser allows comments.
    around = '{"type": "record", "name": "OdradekRecord", "fields": [{"name": "value", "type": '
    schema = around + str(values.schema) + "\n}]}"
    return from_avro(data, schema, {"mode": "PERMISSIVE"})["value"]


def _read_protobuf(data: Column, values: ValueFormat) -> Column:
    from pyspark.sql.protobuf.functions import from_protobuf

    schema = values.schema
    assert isinstance(schema, bytes), "a descriptor set is bytes"
    schema = add_repeated_field(schema, values.message, _FITTING)
    # A field that proto3 does not write is zero, not null.
    options = {"mode": "PERMISSIVE", "emit.default.values": "true"}
    return from_protobuf(data, values.message, options=options, binaryDescriptorSet=schema)


_READERS: dict[Format, Callable[[Column, ValueFormat], Column]] = {
    Format.JSON: _read_json,
    Format.AVRO: _read_avro,
    Format.PROTOBUF: _read_protobuf,
}
