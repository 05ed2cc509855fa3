"""The mission, end to end: a compacted topic, its files, its cleaning, its readers.

    make demo

Follows the worked example of "Log Compacted Topics in Apache Kafka" with a stock client on a
real broker, then reads the same topic with Spark.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic
from rich.console import Console

from bench.processes import OdradekProcess

TOPIC = "latest-product-price"
CONFIG = {
    "cleanup.policy": "compact",
    "delete.retention.ms": "100",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
}
RECORDS = ["p3:10", "p5:7", "p3:11", "p6:25", "p6:12", "p5:14", "p5:17"]
CLEAN_TIMEOUT_S = 30
CHECKPOINT = "cleaner-offset-checkpoint"

console = Console(highlight=False, width=100)


def main() -> int:
    """Show every step, and fail loudly when one does not give the expected result."""
    with tempfile.TemporaryDirectory(prefix="odradek-demo-") as folder:
        broker = OdradekProcess(Path(folder), {"log.cleaner.backoff.ms": "1500"})
        try:
            seconds = broker.start()
            _say("A broker", f"started in {seconds:.2f} s on {broker.bootstrap}")
            _create(broker)
            _produce(broker)
            _show_files(broker, "Its segment files, one for each record since segment.ms is 100")
            _wait_until_cleaned(broker)
            _show_report(broker)
            _show_files(broker, "Its segment files after cleaning")
            remains = _consume(broker)
            _show_checkpoint(broker)
            _read_with_spark(broker, remains)
        finally:
            broker.stop()
    console.print("\n[bold green]All results are as expected.[/]")
    return 0


def _say(title: str, text: str = "") -> None:
    console.print(f"\n[bold cyan]{title}[/]  {text}")


def _create(broker: OdradekProcess) -> None:
    _say("A compacted topic", f"{TOPIC}, created by kafka-python")
    for key, value in CONFIG.items():
        console.print(f"    {key}={value}")
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    admin.create_topics([NewTopic(TOPIC, 1, 1, topic_configs=CONFIG)])
    admin.close()


def _produce(broker: OdradekProcess) -> None:
    _say("Produced", "key:value at offset")
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=0)
    start_ms = int(time.time() * 1000)
    for number, record in enumerate(RECORDS):
        key, value = record.encode().split(b":")
        # Timestamps 200 ms apart: past segment.ms, so that each record begins a segment.
        sent = producer.send(TOPIC, key=key, value=value, timestamp_ms=start_ms + 200 * number)
        console.print(f"    {record:<6} at {sent.get(10).offset}")
    producer.close()


def _show_files(broker: OdradekProcess, title: str) -> None:
    _say(title)
    files = sorted((broker.data / f"{TOPIC}-0").iterdir())
    gone = [path for path in files if path.suffix == ".deleted"]
    for path in files:
        if path not in gone:
            console.print(f"    {path.name:<32} {path.stat().st_size:>5} B")
    if gone:
        console.print(f"    and {len(gone)} files of old segments, renamed to .deleted, which are "
                      "removed after file.delete.delay.ms")  # fmt: skip


def _wait_until_cleaned(broker: OdradekProcess) -> None:
    checkpoint = broker.data / CHECKPOINT
    deadline = time.monotonic() + CLEAN_TIMEOUT_S
    while not (checkpoint.exists() and f"{TOPIC} 0 6" in checkpoint.read_text().splitlines()):
        if time.monotonic() > deadline:
            raise SystemExit(f"the topic was not cleaned within {CLEAN_TIMEOUT_S} s")
        time.sleep(0.1)


def _show_report(broker: OdradekProcess) -> None:
    _say("The cleaner's report", "as the broker logged it")
    lines = broker.log_text().splitlines()
    start = next(at for at, line in enumerate(lines) if "cleaned log" in line.lower())
    for line in lines[start : start + 12]:
        console.print(f"    {line.strip()}", markup=False, soft_wrap=True)


def _consume(broker: OdradekProcess) -> list[str]:
    _say("The records that a consumer from the beginning now sees")
    consumer = KafkaConsumer(
        TOPIC,
        bootstrap_servers=broker.bootstrap,
        auto_offset_reset="earliest",
        consumer_timeout_ms=10_000,
    )
    seen = []
    for record in consumer:
        seen.append(f"{record.key.decode()}:{record.value.decode()}")
        console.print(f"    {seen[-1]:<6} at {record.offset}")
        if record.offset == len(RECORDS) - 1:
            break
    consumer.close()
    if seen != ["p3:11", "p6:12", "p5:14", "p5:17"]:
        raise SystemExit(f"expected p3:11 p6:12 p5:14 p5:17, saw {' '.join(seen)}")
    console.print("    (p5:14 stays: p5:17 is in the active segment, which is never cleaned)")
    return seen


def _show_checkpoint(broker: OdradekProcess) -> None:
    _say(f"The line of {CHECKPOINT}")
    line = next(
        line for line in (broker.data / CHECKPOINT).read_text().splitlines() if TOPIC in line
    )
    console.print(f"    {line}")


def _read_with_spark(broker: OdradekProcess, expected: list[str]) -> None:
    _say("The same topic, read by Spark")
    from odradek.pipeline.session import SessionOptions, open_session
    from odradek.pipeline.source import TopicSource, read_batch

    options = SessionOptions(cache=Path.home() / ".cache" / "odradek")
    with open_session(options) as spark:
        source = TopicSource(broker.bootstrap, TOPIC)
        rows = read_batch(spark, source).orderBy("offset").collect()
    seen = [f"{bytes(row.key).decode()}:{bytes(row.value).decode()}" for row in rows]
    for row, text in zip(rows, seen, strict=True):
        console.print(f"    {text:<6} at {row.offset}")
    if seen != expected:
        raise SystemExit(f"Spark saw {' '.join(seen)}")


if __name__ == "__main__":
    sys.exit(main())
