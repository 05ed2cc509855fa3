"""The clients that the broker must please, each behind the same three verbs.

Each is the real thing: a library from PyPI, a tool of Apache Kafka in its own Java process, or
kcat. `consume` joins the group, takes what its committed offsets leave, commits, and leaves.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bench.processes import kafka_libs, kafka_tool

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CONSUME_TIMEOUT_S = 60.0

Entry = tuple[str, str]
"""A record's key and value."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A record as a consumer saw it."""

    partition: int
    offset: int
    key: str
    value: str


class Client(Protocol):
    """What is asked of every client."""

    name: str

    def why_absent(self) -> str | None:
        """Say why the client cannot run here, None when it can."""

    def create_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        """Create a topic."""

    def produce(self, bootstrap: str, topic: str, codec: str, entries: Sequence[Entry]) -> None:
        """Produce in order, each key to its partition, and wait for all acknowledgements."""

    def consume(self, bootstrap: str, topic: str, group: str, count: int) -> list[Seen]:
        """Consume `count` records as a member of a group, and commit."""


class KafkaPython:
    """kafka-python: pure Python."""

    name = "kafka-python"

    def why_absent(self) -> str | None:
        return None

    def create_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        from kafka import KafkaAdminClient
        from kafka.admin import NewTopic

        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        admin.create_topics([NewTopic(topic, partitions, 1)])
        admin.close()

    def produce(self, bootstrap: str, topic: str, codec: str, entries: Sequence[Entry]) -> None:
        from kafka import KafkaProducer

        compression = None if codec == "none" else codec
        producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=compression)
        sent = [producer.send(topic, key=k.encode(), value=v.encode()) for k, v in entries]
        for future in sent:
            future.get(CONSUME_TIMEOUT_S)
        producer.close()

    def consume(self, bootstrap: str, topic: str, group: str, count: int) -> list[Seen]:
        from kafka import KafkaConsumer

        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            consumer_timeout_ms=int(CONSUME_TIMEOUT_S * 1000),
            # kafka-python 3.0 may miss a topic at its start, and asks again after this
            metadata_max_age_ms=1_000,
        )
        seen = []
        for record in consumer:
            key, value = record.key.decode(), record.value.decode()
            seen.append(Seen(record.partition, record.offset, key, value))
            if len(seen) == count:
                break
        consumer.commit()
        consumer.close()
        return seen


class Confluent:
    """confluent-kafka: librdkafka."""

    name = "confluent-kafka"

    def why_absent(self) -> str | None:
        return None

    def create_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result()

    def produce(self, bootstrap: str, topic: str, codec: str, entries: Sequence[Entry]) -> None:
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "enable.idempotence": True,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        failed: list[object] = []

        def delivered(error: object, _: object) -> None:
            if error is not None:
                failed.append(error)

        for key, value in entries:
            producer.produce(topic, value.encode(), key.encode(), on_delivery=delivered)
            producer.poll(0)
        assert producer.flush(CONSUME_TIMEOUT_S) == 0
        assert not failed

    def consume(self, bootstrap: str, topic: str, group: str, count: int) -> list[Seen]:
        from confluent_kafka import Consumer

        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([topic])
        seen: list[Seen] = []
        deadline = time.monotonic() + CONSUME_TIMEOUT_S
        while len(seen) < count and time.monotonic() < deadline:
            for record in consumer.consume(count - len(seen), 1.0):
                assert record.error() is None, record.error()
                key, value = record.key().decode(), record.value().decode()
                seen.append(Seen(record.partition(), record.offset(), key, value))
        consumer.commit(asynchronous=False)
        consumer.close()
        return seen


class AioKafka:
    """aiokafka: asyncio."""

    name = "aiokafka"

    def why_absent(self) -> str | None:
        return None

    def create_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        async def create() -> None:
            from aiokafka.admin import AIOKafkaAdminClient, NewTopic

            admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
            await admin.start()
            await admin.create_topics([NewTopic(topic, partitions, 1)])
            await admin.close()

        asyncio.run(create())

    def produce(self, bootstrap: str, topic: str, codec: str, entries: Sequence[Entry]) -> None:
        async def produce() -> None:
            from aiokafka import AIOKafkaProducer

            compression = None if codec == "none" else codec
            producer = AIOKafkaProducer(
                bootstrap_servers=bootstrap, compression_type=compression, acks="all"
            )
            await producer.start()
            sent = [
                await producer.send(topic, key=k.encode(), value=v.encode()) for k, v in entries
            ]
            await asyncio.gather(*sent)
            await producer.stop()

        asyncio.run(produce())

    def consume(self, bootstrap: str, topic: str, group: str, count: int) -> list[Seen]:
        async def consume() -> list[Seen]:
            from aiokafka import AIOKafkaConsumer

            consumer = AIOKafkaConsumer(
                topic,
                bootstrap_servers=bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
            )
            await consumer.start()
            seen: list[Seen] = []
            async with asyncio.timeout(CONSUME_TIMEOUT_S):
                while len(seen) < count:
                    record = await consumer.getone()
                    key, value = record.key.decode(), record.value.decode()
                    seen.append(Seen(record.partition, record.offset, key, value))
            await consumer.commit()
            await consumer.stop()
            return seen

        return asyncio.run(consume())


class ConsoleTools:
    """Apache Kafka's own console tools: the Java client."""

    name = "kafka-console"

    def why_absent(self) -> str | None:
        return None if kafka_libs() else "Kafka's jars are not there"

    def create_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        kafka_tool(
            ["org.apache.kafka.tools.TopicCommand", "--bootstrap-server", bootstrap, "--create"]
            + ["--topic", topic, "--partitions", str(partitions), "--replication-factor", "1"]
        )

    def produce(self, bootstrap: str, topic: str, codec: str, entries: Sequence[Entry]) -> None:
        kafka_tool(
            ["org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", bootstrap]
            + ["--topic", topic, "--compression-codec", codec]
            + ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"],
            text="".join(f"{key}:{value}\n" for key, value in entries),
        )

    def consume(self, bootstrap: str, topic: str, group: str, count: int) -> list[Seen]:
        shown = ("print.key", "print.partition", "print.offset")
        found = kafka_tool(
            ["org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", bootstrap]
            + ["--topic", topic, "--group", group, "--from-beginning"]
            + ["--max-messages", str(count), "--timeout-ms", str(int(CONSUME_TIMEOUT_S * 1000))]
            + [word for name in shown for word in ("--formatter-property", f"{name}=true")]
        )
        seen = []
        for line in found.stdout.splitlines():
            partition, offset, key, value = line.split("\t")
            numbers = (int(text.split(":")[1]) for text in (partition, offset))
            seen.append(Seen(*numbers, key, value))
        return seen


class Kcat:
    """kcat: librdkafka from the shell."""

    name = "kcat"

    def why_absent(self) -> str | None:
        return None if shutil.which("kcat") else "kcat is not installed (apt-get install kcat)"

    def create_topic(self, bootstrap: str, topic: str, partitions: int) -> None:
        # kcat creates topics by asking for their metadata; they get num.partitions.
        self._run(bootstrap, ["-L", "-t", topic, "-X", "allow.auto.create.topics=true"])
        self._run(bootstrap, ["-P", "-t", topic], text="")

    def produce(self, bootstrap: str, topic: str, codec: str, entries: Sequence[Entry]) -> None:
        text = "".join(f"{key}:{value}\n" for key, value in entries)
        self._run(bootstrap, ["-P", "-t", topic, "-z", codec, "-K:", "-X", "acks=all"], text=text)

    def consume(self, bootstrap: str, topic: str, group: str, count: int) -> list[Seen]:
        form = "%p\\t%o\\t%k\\t%s\\n"
        found = self._run(
            bootstrap,
            ["-X", "auto.offset.reset=earliest", "-c", str(count), "-f", form, "-G", group, topic],
        )
        seen = []
        for line in found.splitlines():
            partition, offset, key, value = line.split("\t")
            seen.append(Seen(int(partition), int(offset), key, value))
        return seen

    def _run(self, bootstrap: str, arguments: list[str], text: str | None = None) -> str:
        return subprocess.run(
            ["kcat", "-b", bootstrap, "-q", *arguments],
            input=text,
            stdin=None if text is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CONSUME_TIMEOUT_S,
            check=True,
        ).stdout


CLIENTS: tuple[Client, ...] = (
    KafkaPython(),
    Confluent(),
    AioKafka(),
    ConsoleTools(),
    Kcat(),
)
