"""odradek produce: sends lines as records to any Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import field, replace
from typing import IO, TYPE_CHECKING, Any

import click

from odradek.cli.answer import print_json
from odradek.cli.arguments import Name, Pair, partition_option
from odradek.cli.client import Connection, broker_options, json_option
from odradek.cli.completion import complete_topics
from odradek.cli.records import Line, LineError, read_json, split_line
from odradek.cli.refusals import Act, CommandError, explain, refused
from odradek.cli.registry import Encoding, registry_option, require_registry
from odradek.cli.words import count
from odradek.dataclass import dataclass

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

    from odradek.schemas.records import Codecs

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ACKS = ("0", "1", "all")
# Kafka's default partitioner: librdkafka's own chooses other partitions (CRC32), and a compacted
# topic with records of both would keep a key's last value twice.
PARTITIONER = "murmur2_random"
_SETTLE_S = 30.0


@dataclass
class Deliveries:
    """The brokers' answers for the records so far."""

    delivered: dict[int, list[int]] = field(default_factory=dict)  # count, first, last offset
    refused: int = 0
    first: tuple[int, KafkaError] | None = None

    @property
    def count(self) -> int:
        """The number of delivered records."""
        return sum(one[0] for one in self.delivered.values())

    def note(self, number: int, error: KafkaError | None, message: Message) -> None:
        """Note the delivery, or the error, of the record in a line."""
        if error is not None:
            self.refused += 1
            if self.first is None or number < self.first[0]:
                self.first = number, error
            return
        offset = message.offset()
        at = -1 if offset is None else offset
        one = self.delivered.setdefault(message.partition() or 0, [0, at, at])
        one[0], one[1], one[2] = one[0] + 1, min(one[1], at), max(one[2], at)


def schema_option(name: str) -> Callable[..., Any]:
    """Return the option for the schema of keys or values: `key_schema`."""
    return click.option(
        f"--{name}-schema",
        metavar="SUBJECT|ID",
        type=Name(),
        help=f"Encode each {name}, which is JSON, by this schema of --registry: the latest of a "
        "subject, or the one with an id. #MESSAGE after it names a message of Protobuf.",
    )


@click.command()
@click.argument("topic", type=Name(), shell_complete=complete_topics)
@click.option(
    "--file",
    type=click.File("rb"),
    default="-",
    help="The file to read. [default: standard input]",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["value", "key-value", "json"]),
    help="The format of a line: a value; a key, a separator and a value; or a JSON object with "
    "key, value, headers, partition, timestamp_ms (key_base64, value_base64 for bytes that are "
    "not text). [default: value; key-value with --key-separator]",
)
@click.option("--key-separator", help="The text between key and value. [default: a tab]")
@click.option("--key", help="The key of records whose line has none.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    type=Pair(),
    metavar="KEY=VALUE",
    help="Add a header to all records.",
)
@click.option(
    "--null-value", metavar="TEXT", help="The text that stands for null; as a value, a tombstone."
)
@partition_option("The partition to write to. By default the key decides, as in Java clients.")
@click.option(
    "--acks",
    type=click.Choice(ACKS),
    default="all",
    show_default=True,
    help="The acknowledgements to wait for.",
)
@click.option(
    "--compression",
    type=click.Choice(CODECS),
    default="none",
    show_default=True,
    help="The codec of batches.",
)
@click.option(
    "--transactional-id",
    help="Send all records in one transaction with this id: all of them are written, or none.",
)
@schema_option("key")
@schema_option("value")
@json_option
@broker_options
@registry_option
def produce(
    topic: str,
    file: IO[bytes],
    form: str | None,
    key_separator: str | None,
    null_value: str | None,
    acks: str,
    compression: str,
    transactional_id: str | None,
    as_json: bool,
    connection: Connection,
    codecs: Codecs | None,
    **more: Any,
) -> None:
    """Send lines as records to a topic.

    The exit status is 1 when a line is not a record, or a record was refused; the message names
    the first such line.

    Example: odradek produce prices --key-separator : < prices.txt
    """
    if key_separator is not None and form not in (None, "key-value"):
        raise click.UsageError("--key-separator needs --format key-value")
    if key_separator == "":
        raise click.UsageError("--key-separator is empty")
    if transactional_id and acks != "all":
        raise click.UsageError("--transactional-id needs --acks all")
    form = form or ("value" if key_separator is None else "key-value")
    separator = (key_separator or "\t").encode() if form == "key-value" else None
    schemas = more["key_schema"], more["value_schema"]
    require_registry(codecs, *schemas)
    connection.admin().require_topic(topic, for_records=True)
    encoding = None if codecs is None else Encoding(codecs, *schemas)
    lines = _records(file, _Form(form, separator, null_value, encoding))
    fixed = _fixed(more["key"], more["headers"], more["partition"], encoding)
    producer = connection.producer(
        {
            "partitioner": PARTITIONER,
            "acks": acks,
            # As in Java clients: retries neither double records nor change their order.
            "enable.idempotence": acks == "all",
            "compression.type": compression,
            "linger.ms": 5,
            **({"transactional.id": transactional_id} if transactional_id else {}),
        }
    )
    deliveries = Deliveries()
    sending = _Sending(producer, topic, deliveries, connection, transactional_id)
    problem = sending.run(_completed(one, fixed) for one in lines)
    if as_json:
        print_json(_document(topic, deliveries, problem))
    if problem is not None:
        raise problem
    if not as_json:
        click.echo(f"{topic}: {count(deliveries.count, 'record')} delivered")


@dataclass
class _Sending:
    """Sends records, in a transaction or without one."""

    producer: Producer
    topic: str
    deliveries: Deliveries
    connection: Connection
    transactional_id: str | None

    def run(self, lines: Iterator[tuple[int, Line]]) -> CommandError | None:
        """Send all records; return the first error, or None."""
        from confluent_kafka import KafkaException

        problem: CommandError | None = None
        try:
            if self.transactional_id:
                self.producer.init_transactions(_SETTLE_S)
                self.producer.begin_transaction()
            try:
                for number, line in lines:
                    self._send(number, line)
            except LineError as error:
                problem = CommandError(str(error))
            left = self.producer.flush(_SETTLE_S)
            problem = self._refusal(left) or problem
            if self.transactional_id and problem is None:
                self.producer.commit_transaction(_SETTLE_S)
            elif self.transactional_id:
                self.producer.abort_transaction(_SETTLE_S)
        except KafkaException as error:
            right = f"WRITE on transactional id {self.transactional_id}"
            act = Act(f"write to {self.topic} in a transaction", right)
            problem = problem or refused(error.args[0], act, self.connection.reason)
        if problem is not None and self.transactional_id:
            self.deliveries.delivered.clear()
            return CommandError(f"{problem.message}; the whole transaction is aborted")
        if problem is not None and not self.deliveries.refused:
            before = count(self.deliveries.count, "record")
            return CommandError(f"{problem.message}; {before} delivered before it")
        return problem

    def _send(self, number: int, line: Line) -> None:
        """Queue a record, and wait while the queue is full."""
        from confluent_kafka import KafkaException

        arguments: dict[str, Any] = {"headers": list(line.headers)} if line.headers else {}
        if line.partition is not None:
            arguments["partition"] = line.partition
        if line.timestamp_ms is not None:
            arguments["timestamp"] = line.timestamp_ms
        while True:
            try:
                self.producer.produce(
                    self.topic,
                    line.value,
                    line.key,
                    on_delivery=lambda error, message: self.deliveries.note(
                        number, error, message
                    ),
                    **arguments,
                )
                break
            except BufferError:
                self.producer.poll(0.1)
            except KafkaException as error:
                problem = explain(error.args[0], f"WRITE on topic {self.topic}")
                raise LineError(f"line {number}: {problem}") from error
        self.producer.poll(0)

    def _refusal(self, left: int) -> CommandError | None:
        failed = self.deliveries.refused + left
        if not failed:
            return None
        of = count(failed + self.deliveries.count, "record")
        message = f"not delivered to {self.topic}: {failed:,} of {of}"
        if self.deliveries.first is None:
            return CommandError(f"{message}, there was no answer in time")
        number, error = self.deliveries.first
        why = explain(error, f"WRITE on topic {self.topic}", self.connection.reason)
        return CommandError(f"{message}, the first in line {number}: {why}")


@dataclass(frozen=True, slots=True)
class _Form:
    """The form of a line, and the schemas that its record follows."""

    name: str
    separator: bytes | None
    null: str | None
    encoding: Encoding | None


def _records(file: Iterable[bytes], form: _Form) -> Iterator[tuple[int, Line]]:
    """Yield each line's number and record; raises LineError with the number."""
    null, encoding = None if form.null is None else form.null.encode(), form.encoding
    for number, line in enumerate(file, 1):
        text = line.removesuffix(b"\n")
        try:
            if form.name == "json":
                if text.strip():
                    yield number, read_json(text, encoding)
                continue
            found = split_line(text, form.separator, null)
            if encoding is not None:
                key = encoding.encode_text("key", found.key)
                found = Line(key, encoding.encode_text("value", found.value))
            yield number, found
        except LineError as error:
            raise LineError(f"line {number}: {error}") from error


def _fixed(
    key: str | None,
    headers: Iterable[tuple[str, str]],
    partition: int | None,
    encoding: Encoding | None,
) -> Line:
    """Return the key, headers and partition for records whose lines have none.

    Raises CommandError.
    """
    octets = None if key is None else key.encode()
    if encoding is not None:
        try:
            octets = encoding.encode_text("key", octets)
        except LineError as error:
            raise CommandError(f"--key: {error}") from error
    pairs = tuple((name, value.encode()) for name, value in headers)
    return Line(octets, None, pairs, partition)


def _completed(numbered: tuple[int, Line], fixed: Line) -> tuple[int, Line]:
    """Return a record with the key, headers and partition that the command line has for all."""
    number, line = numbered
    if fixed == Line(None, None):
        return numbered
    return number, replace(
        line,
        key=fixed.key if line.key is None else line.key,
        headers=line.headers + fixed.headers,
        partition=fixed.partition if line.partition is None else line.partition,
    )


def _document(
    topic: str, deliveries: Deliveries, problem: CommandError | None
) -> dict[str, object]:
    return {
        "topic": topic,
        "delivered": deliveries.count,
        "refused": deliveries.refused,
        "partitions": [
            {"partition": number, "records": one[0], "first_offset": one[1], "last_offset": one[2]}
            for number, one in sorted(deliveries.delivered.items())
        ],
        "error": problem.message if problem else None,
    }
