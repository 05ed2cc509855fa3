"""Generate a table of tickets, for use where no table is at hand: a model of a compacted topic.

A ticket service keeps the latest version of each ticket. One row is one ticket:

    id           bigint     1 to the count
    account_id   bigint     the owner of the ticket, 1 to the count of accounts
    status       string     open, pending, solved or closed
    version      bigint     the same number in every row
    subject      string
    description  string     so long that the row as JSON has about ``bytes_each`` bytes; it is
                            random, so that no codec makes it much smaller

The rows follow from the arguments alone, each from its own id: any machine generates the same
rows, in any order, and another version has the same ids, accounts and sizes with other contents.
"""

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

STATUSES = ("open", "pending", "solved", "closed")

# The bytes of a row as JSON without its description.
_REST_BYTES = 100
# A digest of 48 bytes gives 64 characters of base64; longer base64 may have several lines.
_DIGEST_BITS, _PIECE_BYTES = 384, 64


def tickets(
    spark: SparkSession, count: int, *, bytes_each: int, accounts: int, version: int = 1
) -> DataFrame:
    """Return a table of tickets, each of about ``bytes_each`` bytes as JSON."""
    id_ = f.col("id")
    description_bytes = max(1, bytes_each - _REST_BYTES)
    pieces = -(-description_bytes // _PIECE_BYTES)
    # One expression for all pieces: Spark takes long to compile an expression for each.
    numbers = f.sequence(f.lit(0), f.lit(pieces - 1))
    random = f.array_join(f.transform(numbers, lambda number: _piece(id_, version, number)), "")
    return spark.range(1, count + 1).select(
        id_,
        (f.pmod(f.xxhash64(id_), f.lit(accounts)) + 1).alias("account_id"),
        f.element_at(
            f.array(*(f.lit(status) for status in STATUSES)),
            (f.pmod(f.xxhash64(id_, f.lit(version)), f.lit(len(STATUSES))) + 1).cast("int"),
        ).alias("status"),
        f.lit(version).cast("bigint").alias("version"),
        f.concat(f.lit("Ticket "), id_.cast("string")).alias("subject"),
        random.substr(1, description_bytes).alias("description"),
    )


def _piece(id_: Column, version: int, number: Column) -> Column:
    seed = f.concat_ws("-", id_.cast("string"), f.lit(version), number.cast("string"))
    return f.base64(f.unhex(f.sha2(seed, _DIGEST_BITS)))
