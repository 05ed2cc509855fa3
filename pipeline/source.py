"""Read a topic through Spark's Kafka source, as a batch or as a stream.

Both return one row for each record, with these columns:

    key        binary             null for a record without a key
    value      binary             null for a tombstone
    topic      string
    partition  int
    offset     bigint
    timestamp  timestamp
    headers    array<struct<key: string, value: binary>>, null for none

Offsets of a compacted topic have gaps. Spark counts offsets, not records, so a batch bounded by
``maxOffsetsPerTrigger`` can hold fewer records than its bound, or none.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING

from odradek.dataclass import dataclass
from odradek.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORD_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")

# Kafka's own default is a minute, and Spark tries three times before it reports an error.
_API_TIMEOUT_MS = 30_000

_CONNECT_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class TopicSource:
    """Topics to read, by exactly one of ``topic`` and ``subscribe_pattern``, and their broker.

    Offsets are ``earliest``, ``latest`` or Spark's JSON, as in ``{"prices": {"0": 23, "1": -2}}``,
    where -2 is the earliest offset and -1 the latest. ``ending_offsets`` is for batches only,
    ``max_offsets_per_trigger`` for streams only. ``options`` are further options of Spark's
    source, such as ``kafka.security.protocol``.
    """

    bootstrap_servers: str
    topic: str | None = None
    subscribe_pattern: str | None = None
    starting_offsets: str = "earliest"
    ending_offsets: str = "latest"
    max_offsets_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """Return a name of the broker for the middle of a sentence."""
        return f"the broker at {self.bootstrap_servers}"

    @property
    def what(self) -> str:
        """Return a name of the topic for the middle of a sentence."""
        if self.topic is not None:
            return f"topic {self.topic}"
        return f"any topic matching {self.subscribe_pattern}"


def read_batch(spark: SparkSession, source: TopicSource) -> DataFrame:
    """Read the records that a topic holds now, between two sets of offsets.

    Raises PipelineError for options that contradict each other.
    """
    options = batch_options(source)
    return spark.read.format("kafka").options(**options).load().select(*RECORD_COLUMNS)


def read_stream(spark: SparkSession, source: TopicSource) -> DataFrame:
    """Read a topic's records as a stream, from the starting offsets or the query's checkpoint.

    Raises PipelineError for options that contradict each other.
    """
    options = stream_options(source)
    return spark.readStream.format("kafka").options(**options).load().select(*RECORD_COLUMNS)


def batch_options(source: TopicSource) -> dict[str, str]:
    """Return the options of Spark's Kafka source for a batch; raises as `read_batch` does."""
    _check_offsets(source.starting_offsets, "--starting-offsets", ("earliest",))
    _check_offsets(source.ending_offsets, "--ending-offsets", ("latest",))
    return {"endingOffsets": source.ending_offsets} | _common_options(source)


def stream_options(source: TopicSource) -> dict[str, str]:
    """Return the options of Spark's Kafka source for a stream; raises as `read_stream` does."""
    _check_offsets(source.starting_offsets, "--starting-offsets", ("earliest", "latest"))
    bound = source.max_offsets_per_trigger
    if bound is None:
        return _common_options(source)
    if bound < 1:
        raise PipelineError("--max-offsets-per-trigger must be at least 1")
    return {"maxOffsetsPerTrigger": str(bound)} | _common_options(source)


def committed(source: TopicSource) -> TopicSource:
    """Return a source that leaves out aborted records, unless its options say otherwise."""
    return replace(source, options={"kafka.isolation.level": "read_committed", **source.options})


def client_options(source: TopicSource) -> dict[str, str]:
    """Return the options that go to Kafka's own clients, each with ``kafka.`` before its name."""
    given = {name: value for name, value in source.options.items() if name.startswith("kafka.")}
    return {
        "kafka.bootstrap.servers": source.bootstrap_servers,
        "kafka.default.api.timeout.ms": str(_API_TIMEOUT_MS),
    } | given


def require_broker(bootstrap_servers: str) -> None:
    """Connect to a broker once, so that a wrong address is reported before Java even starts.

    ``bootstrap_servers`` is Kafka's list, ``host:port,host:port``; one that accepts is enough.
    Raises PipelineError with the error of each address.
    """
    answers = []
    for host, port in parse_addresses(bootstrap_servers):
        try:
            with socket.create_connection((host, port), _CONNECT_TIMEOUT_SECONDS):
                return
        except OSError as error:
            answers.append(f"{host}:{port} {error.strerror or error}".lower())
    raise PipelineError(
        f"no broker answers ({'; '.join(answers)}): start it, or change --bootstrap-servers"
    )


def parse_addresses(bootstrap_servers: str) -> list[tuple[str, int]]:
    """Split Kafka's ``host:port,host:port``; IPv6 addresses stand in brackets.

    Raises PipelineError for a list that is empty or malformed.
    """
    addresses = []
    for entry in filter(None, (part.strip() for part in bootstrap_servers.split(","))):
        host, _, port = entry.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise PipelineError(
                f"--bootstrap-servers: {entry!r} is not host:port, as in 127.0.0.1:9092"
            )
        addresses.append((host.removeprefix("[").removesuffix("]"), int(port)))
    if not addresses:
        raise PipelineError("--bootstrap-servers is empty: give host:port, as in 127.0.0.1:9092")
    return addresses


def _common_options(source: TopicSource) -> dict[str, str]:
    if (source.topic is None) == (source.subscribe_pattern is None):
        raise PipelineError("name the topics to read with one of --topic and --subscribe-pattern")
    options = client_options(source) | {
        "startingOffsets": source.starting_offsets,
        "failOnDataLoss": str(source.fail_on_data_loss).lower(),
        "includeHeaders": "true",
    }
    if source.topic is not None:
        options["subscribe"] = source.topic
    else:
        options["subscribePattern"] = str(source.subscribe_pattern)
    return options | dict(source.options)


def _check_offsets(offsets: str, option: str, words: tuple[str, ...]) -> None:
    if offsets in words:
        return
    try:
        parsed = json.loads(offsets)
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict) or not all(isinstance(p, dict) for p in parsed.values()):
        raise PipelineError(
            f"{option}: {offsets!r} is neither {' nor '.join(words)} nor JSON such as "
            '{"prices": {"0": 23}}'
        )
