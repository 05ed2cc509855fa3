"""How fast do consumers read? From the page cache and from the disk, over TLS, many at once."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import trustme
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from bench.clients import Load, consume, create_topic, librdkafka_consume, produce
from bench.pairs import Broker, Figure, Question, Values
from bench.processes import KafkaProcess, free_port

_RATE = "records/s"
_RECORDS = 5_000_000
_SMALL_RECORDS = 1_000_000
_LARGE_BYTES = 1_000
_MANY = 50
# A reading takes a few seconds, and one of them alone differs by a fifth from the next.
_READINGS = 3
_FROM_THE_MIDDLE = "librdkafka, 100 B, from the middle"
_TLS_NAME, _PLAIN_NAME = "SSL", "PLAINTEXT"
_KEYS, _CA = "server.pem", "ca.pem"


def _ask(broker: Broker, scale: float) -> Values:
    records, few = (max(int(count * scale), 1_000) for count in (_RECORDS, _SMALL_RECORDS))
    create_topic(broker, "small")
    produce(broker, "small", Load(records))
    create_topic(broker, "large")
    produce(broker, "large", Load(few, _LARGE_BYTES))
    create_topic(broker, "committed")
    transactions = ["--transactional-id", "bench", "--transaction-duration-ms", "100"]
    produce(broker, "committed", Load(few, 100, {"acks": "all"}, transactions))
    create_topic(broker, "many", _MANY)
    produce(broker, "many", Load(records))
    consume(broker, "small", records // 5)  # warm, all of them

    def read_cold() -> float:
        forget(broker.data)
        return consume(broker, "large", few)

    committed = {"isolation.level": "read_committed"}
    middle = records // 2
    readers: dict[str, Callable[[], float]] = {
        "Java, 100 B": lambda: consume(broker, "small", records),
        "Java, 1 kB": lambda: consume(broker, "large", few),
        "librdkafka, 100 B": lambda: librdkafka_consume(broker, "small", records),
        "librdkafka, 1 kB": lambda: librdkafka_consume(broker, "large", few),
        _FROM_THE_MIDDLE: lambda: librdkafka_consume(broker, "small", middle, offset=middle),
        "Java, read_committed": lambda: consume(broker, "committed", few, committed),
        f"Java, {_MANY} partitions": lambda: consume(broker, "many", records),
        f"{_MANY} consumers (librdkafka)": lambda: _consume_by_many(broker, "small", few),
        "Java, 1 kB, cold": read_cold,
    }
    return {
        title: statistics.median(read() for _ in range(_READINGS))
        for title, read in readers.items()
    }


def _consume_by_many(broker: Broker, topic: str, records: int) -> float:
    """Read the beginning of one log with many consumers; return the records/s of all together."""
    each = records // _MANY
    started_s = time.perf_counter()
    threads = [
        threading.Thread(target=librdkafka_consume, args=(broker, topic, each))
        for _ in range(_MANY)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return each * _MANY / (time.perf_counter() - started_s)


def forget(data: Path) -> None:
    """Make the system drop a broker's segments from its page cache."""
    for path in data.glob("*/*.log"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _with_tls(broker: Broker) -> None:
    """Add a TLS listener to a broker."""
    folder = broker.directory
    folder.mkdir(parents=True)
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
    # Java reads only keys in PKCS#8.
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    written = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = [one.bytes() for one in issued.cert_chain_pems]
    (folder / _KEYS).write_bytes(b"".join([written, *chain]))
    authority.cert_pem.write_to_path(folder / _CA)
    listeners = {_PLAIN_NAME: broker.port, _TLS_NAME: free_port()}
    if isinstance(broker, KafkaProcess):
        listeners["CONTROLLER"] = broker.controller_port
    addresses = [f"{name}://127.0.0.1:{port}" for name, port in listeners.items()]
    broker.settings = {
        "listeners": ",".join(addresses),
        "advertised.listeners": ",".join(addresses[:2]),
        "listener.security.protocol.map": ",".join(
            f"{name}:{_TLS_NAME if name == _TLS_NAME else _PLAIN_NAME}" for name in listeners
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / _KEYS),
    }


def _over_tls(broker: Broker) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield a client's kind, and its settings for a connection over TLS."""
    port = broker.settings["listeners"].split(f"{_TLS_NAME}://127.0.0.1:")[1].split(",")[0]
    common = {"bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": "SSL"}
    ca = str(broker.directory / _CA)
    yield "Java", {**common, "ssl.truststore.type": "PEM", "ssl.truststore.location": ca}
    yield "librdkafka", {**common, "ssl.ca.location": ca}


def _ask_tls(broker: Broker, scale: float) -> Values:
    records = max(int(_SMALL_RECORDS * scale), 1_000)
    create_topic(broker, "large")
    produce(broker, "large", Load(records, _LARGE_BYTES))
    (_, java), (_, librdkafka) = _over_tls(broker)
    consume(broker, "large", records // 5, java)
    return {
        "Java, 1 kB, TLS": consume(broker, "large", records, java),
        "librdkafka, 1 kB, TLS": librdkafka_consume(broker, "large", records, librdkafka),
        "Java produces 1 kB, TLS": produce(
            broker, "large", Load(records // 2, _LARGE_BYTES, java)
        ),
    }


CONSUME = Question(
    "consume",
    "ConsumerPerformance and librdkafka, one partition, cached, except where stated",
    [
        Figure("Java, 100 B", _RATE, at_least=1.2),
        Figure("Java, 1 kB", _RATE, at_least=1.2),
        Figure("librdkafka, 100 B", _RATE, at_least=1.2),
        Figure("librdkafka, 1 kB", _RATE, at_least=1.2),
        Figure(_FROM_THE_MIDDLE, _RATE),
        Figure("Java, read_committed", _RATE),
        Figure(f"Java, {_MANY} partitions", _RATE),
        Figure(f"{_MANY} consumers (librdkafka)", _RATE),
        Figure("Java, 1 kB, cold", _RATE),
    ],
    _ask,
    note=f"The medians of {_READINGS} readings. The clients do most of the work: a server that "
    "gives the answers of a broker again from memory, without a look at the requests, gives a "
    "Java consumer 1.04 times as many records of 1 kB a second as Odradek, which gave it 1.10 "
    "times as many as Kafka there (`python -m bench.reader_bound`, all of them warm).",
)

CONSUME_TLS = Question(
    "tls",
    "The same over TLS (OpenSSL's and Java's own)",
    [
        Figure("Java, 1 kB, TLS", _RATE, at_least=1.0),
        Figure("librdkafka, 1 kB, TLS", _RATE, at_least=1.0),
        Figure("Java produces 1 kB, TLS", _RATE),
    ],
    _ask_tls,
    prepare=_with_tls,
)
