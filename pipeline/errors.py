"""Explain failures between Spark and a broker in one line that names the option to change.

Spark reports a missing topic as forty lines of Java. A person at a terminal needs one: the action,
the place, and the option to change. The Java trace stays available with ``--debug``.
"""

import re

# Text in Spark's report, and our message. The first entry whose text occurs wins, so causes stand
# before the wrappers that Spark puts around them. The caller fills in {where} and {what}, the
# groups of the text {0} and so on.
_EXPLANATIONS = (
    # An error that a job's own code raises inside a batch comes back through Java.
    (r"pipeline\.errors\.PipelineError: ([^\n]+)", "{0}"),
    (
        r"RecordTooLargeException: The message is (\d+) bytes when serialized",
        "a record of {0} bytes is larger than Kafka's producer sends: raise "
        "--option kafka.max.request.size=…, and max.message.bytes of {what}",
    ),
    (
        r"RecordTooLargeException",
        "a record is larger than {what} accepts: raise its max.message.bytes",
    ),
    (r"\[PATH_NOT_FOUND\] Path does not exist: (\S+?)\.?\s", "there is no table at {0}"),
    (
        r"DATA_SOURCE_NOT_FOUND\] Failed to find the data source: ([^\s.]+)",
        "Spark knows no table format {0}: change --format, or add the package that has it with "
        "--conf spark.jars.packages=…",
    ),
    (
        r"No suitable driver",
        "no JDBC driver for that address: add its package with --conf spark.jars.packages=…, "
        "such as org.postgresql:postgresql:42.7.4",
    ),
    (
        r"UncheckedSQLException: ([^\n]+)",
        "the Iceberg catalog's database failed ({0}): check --iceberg-catalog",
    ),
    (
        r"RESTException: Error occurred while processing",
        "the Iceberg catalog does not answer: check --iceberg-catalog",
    ),
    (
        r"\[UNRESOLVED_COLUMN[^\]]*\] ([^\n]+?) SQLSTATE",
        "--where or --deleted-where names a column that does not exist: {0}",
    ),
    (
        r"\[PARSE_SYNTAX_ERROR\] ([^\n]+?) SQLSTATE",
        "--where, --deleted-where or --schema is not valid Spark SQL: {0}",
    ),
    (
        r"SchemaParseException|AvroRuntimeException|AvroTypeException: Undefined schema",
        "--schema is not an Avro schema: write it as in "
        '{{"type": "record", "name": "Ticket", "fields": [{{"name": "id", "type": "long"}}]}}',
    ),
    (
        r"UnknownTopicOrPartition",
        "{what} does not exist at {where}: create it, or change --topic",
    ),
    (
        r"InvalidTopicException",
        "{what} cannot exist at {where}: a topic's name has up to 249 letters, digits, '.', '_' "
        "and '-'; change --topic",
    ),
    (
        r"TopicAuthorizationException|GroupAuthorizationException",
        "{where} does not let this user read {what}: allow Describe and Read on it, "
        "or log in as another user through --option kafka.sasl.jaas.config=…",
    ),
    (
        r"SaslAuthenticationException|SslAuthenticationException|IllegalSaslState",
        "{where} refused to log this client in: "
        "check --option kafka.security.protocol=… and kafka.sasl.…",
    ),
    (
        r"No resolvable bootstrap urls|Failed to construct kafka|Failed to create new KafkaAdmin",
        "Kafka's client could not be set up for {where}: "
        "check --bootstrap-servers and every --option kafka.…",
    ),
    (
        r"Partition .* offset was changed from|Some data may have been lost|"
        r"KAFKA_DATA_LOSS|Set\(\S+\) are gone|failOnDataLoss",
        "records of {what} are gone from {where} before they were read (deleted by "
        "retention, or the topic was created again): start again with a new --table and "
        "--checkpoint, or continue past the loss with --no-fail-on-data-loss",
    ),
    (
        r"Cannot fetch record for offset|Timeout.*poll",
        "{where} returned nothing for an offset of {what} that it says it has, within "
        "kafkaConsumer.pollTimeoutMs: see the broker's log, or raise "
        "--option kafkaConsumer.pollTimeoutMs=…",
    ),
    (
        r"TimeoutException|DisconnectException",
        "{where} accepts connections but does not answer Kafka requests in time: check that "
        "advertised.listeners names an address this machine reaches, and "
        "--option kafka.security.protocol=…",
    ),
    (
        r"No space left on device",
        "the disk under --table or --checkpoint is full: make room and run the same command again",
    ),
    (
        r"Permission denied|AccessControlException|(?i:mkdirs?) (?:of \S+ )?failed",
        "--table and --checkpoint must be folders that this user may write: {first}",
    ),
)


class PipelineError(Exception):
    """The pipeline must stop; the message is one line that names the remedy."""


def explain(error: BaseException, *, where: str, what: str) -> str:
    """Return one line about a failure of Spark, py4j or Kafka's client.

    ``where`` names the broker and ``what`` the topic, as they should read inside a sentence.
    """
    report = _report(error)
    # A PipelineError that was raised in a Spark process already has the right message.
    ready = re.search(r"^(?:\w+\.)*PipelineError: (.+)$", report, re.MULTILINE)
    if ready:
        return ready[1]
    first = _batch_failure(report) or _first_line(report)
    for pattern, explanation in _EXPLANATIONS:
        if found := re.search(pattern, report):
            return explanation.format(*found.groups(), where=where, what=what, first=first)
    return f"Spark stopped at work on {what} at {where}: {first} (--debug shows all of it)"


def _report(error: BaseException) -> str:
    """Join the texts of an exception and its causes, including Java's."""
    parts: list[str] = []
    seen: BaseException | None = error
    while seen is not None and len(parts) < 10:  # a cause chain can be a cycle
        parts.append(str(seen))
        # PySpark keeps Java's trace, which alone names the Kafka exception, in this attribute.
        parts.append(str(getattr(seen, "_stackTrace", None) or ""))
        seen = getattr(seen, "_cause", None) or seen.__cause__
    return "\n".join(parts)


def _batch_failure(report: str) -> str | None:
    """Return the error that ended the Python code of a batch, from below the trace of Spark."""
    _, is_one, trace = report.partition("[FOREACH_BATCH_USER_FUNCTION_ERROR]")
    found = re.search(r"^(?:\w+\.)*\w+(?:Exception|Error): (.+)$", trace, re.MULTILINE)
    return _first_line(found[1]) if is_one and found else None


def _first_line(report: str) -> str:
    """Return the first line with a text, without Spark's labels and codes."""
    for line in report.splitlines():
        text = re.sub(r"^An error occurred while calling \S+", "", line).strip(" .:")
        text = re.sub(r"\s*SQLSTATE: \w+", "", text)
        text = re.sub(r"^\[STREAM_FAILED\] .* terminated with exception: ", "", text)
        text = re.sub(r"^(?:: )?(?:[a-z]\w*\.)+(\w+(?:Exception|Error))", r"\1", text)
        if text:
            return text[:300]
    return "no reason given"
