"""The columns of the rows that segment files are read into, one row per record.

    key binary, value binary        null where the record has none; a tombstone's value is null
    topic, partition, offset        as Spark's Kafka source has them
    timestamp timestamp             null for a time that Spark cannot hold
    headers                         array<struct<key: string, value: binary>>, null for none
    timestamp_type int              0: the producer's time, 1: the time of the append
    size_bytes int                  of the record in its uncompressed batch
    value_size_bytes int            null for a tombstone; known without reading the value
    batch_offset bigint             the base offset of its batch
    batch_size_bytes int            of the batch in the file, its header included
    codec string                    none, gzip, snappy, lz4 or zstd
    leader_epoch int                -1 in message formats 0 and 1
    producer_id bigint, producer_epoch int, sequence int        -1 for none
    transactional, control boolean  control: a marker of Kafka's own, left out unless asked for
    aborted boolean                 null while the transaction has not ended in these files
    delete_horizon_ms bigint        the time from which a tombstone or marker may go; null for none
    segment string                  the file's path
    segment_offset bigint           the base offset in its name
    position bigint                 where the batch begins in the file
    damage string                   the damage there; null except in rows of onDamage=report

Key and value are copied only when they are among the requested columns.
"""

from __future__ import annotations

# Names to Spark's types, in the order of the columns.
COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "headers": "array<struct<key:string,value:binary>>",
    "timestamp_type": "int",
    "size_bytes": "int",
    "value_size_bytes": "int",
    "batch_offset": "bigint",
    "batch_size_bytes": "int",
    "codec": "string",
    "leader_epoch": "int",
    "producer_id": "bigint",
    "producer_epoch": "int",
    "sequence": "int",
    "transactional": "boolean",
    "control": "boolean",
    "aborted": "boolean",
    "delete_horizon_ms": "bigint",
    "segment": "string",
    "segment_offset": "bigint",
    "position": "bigint",
    "damage": "string",
}
