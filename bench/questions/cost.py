"""What does it take? CPU seconds for a GB in and out, memory, the time until the first answer."""

from __future__ import annotations

import time
from functools import partial

from bench.clients import Load, consume, create_topic, produce
from bench.pairs import Broker, Figure, Question, Values
from bench.processes import resident_bytes
from bench.watch import MemoryWatch, cpu_of, write_bytecode

_GIGABYTE = 1e9
_RECORDS = 2_000_000
_SIZE_BYTES = 1_000
_SMALL_RECORDS, _SMALL_BYTES = 5_000_000, 100
_IDLE_S = 10.0
_LOADED_RECORDS = 3_000_000
_RECOVERED_RECORDS = 1_000_000


def _ask_cpu(broker: Broker, scale: float) -> Values:
    values = {}
    for name, records, size_bytes in (
        ("1 kB", _RECORDS, _SIZE_BYTES),
        ("100 B", _SMALL_RECORDS, _SMALL_BYTES),
    ):
        load = Load(max(int(records * scale), 10_000), size_bytes)
        gigabytes = load.records * load.size_bytes / _GIGABYTE
        topic = f"cpu-{size_bytes}"
        create_topic(broker, topic)
        produce(broker, topic, load.part(5))
        in_s = cpu_of(broker, partial(produce, broker, topic, load))
        out_s = cpu_of(broker, partial(consume, broker, topic, load.records))
        values[f"in, {name}"] = in_s / gigabytes
        values[f"out, {name}"] = out_s / gigabytes
        values[f"in and out, {name}"] = (in_s + out_s) / gigabytes
    return values


def _ask_start(broker: Broker, scale: float) -> Values:
    """Start twice: with a new data directory, and with the directory that the first start left."""
    first_s = broker.start()
    broker.stop()
    next_s = broker.start()
    assert broker.process is not None
    time.sleep(_IDLE_S * min(scale, 1.0))
    idle_bytes = resident_bytes(broker.process)
    create_topic(broker, "written")
    with MemoryWatch(broker) as watch:
        load = Load(max(int(_LOADED_RECORDS * scale), 1_000))
        produce(broker, "written", load)
        consume(broker, "written", load.records)
    return {
        "first start": first_s,
        "next start": next_s,
        "idle memory": idle_bytes / 1e6,
        "memory under load": watch.most_bytes / 1e6,
    }


def _ask_recovery(broker: Broker, scale: float) -> Values:
    """Kill a broker with one large segment, and start it: it reads the whole segment again."""
    records = max(int(_RECOVERED_RECORDS * scale), 1_000)
    create_topic(broker, "recovered")
    produce(broker, "recovered", Load(records, _SIZE_BYTES))
    broker.kill()
    seconds = broker.start()
    assert consume(broker, "recovered", records) > 0
    return {"start after a kill": seconds}


def _as_installed(broker: Broker) -> None:
    """Write the bytecode that an installed package has, in any environment."""
    write_bytecode()


RECOVERY = Question(
    "recovery",
    f"{_RECOVERED_RECORDS:,} records of 1 kB in one segment, in the page cache, and a kill",
    [Figure("start after a kill", "s", more_is_better=False)],
    _ask_recovery,
    {
        "log.segment.bytes": str(2**31 - 1),
        # Only the kill decides how much the start has to read.
        "log.flush.offset.checkpoint.interval.ms": "600000",
    },
)

CPU = Question(
    "cpu",
    "CPU seconds of the broker for each GB, one Java producer, then one Java consumer",
    [
        Figure(
            f"{way}, {size}",
            "CPU s/GB",
            more_is_better=False,
            at_least=3.0 if way == "in and out" else None,
        )
        for size in ("1 kB", "100 B")
        for way in ("in", "out", "in and out")
    ],
    _ask_cpu,
    note="Of the cost of a write of 64 KB in Odradek, a quarter is the file system's part, and an "
    "eighth that of other system calls; Python's part is spread over a hundred functions, none of "
    "which takes more than a twentieth.",
)

START = Question(
    "start",
    "Start to the first answer, and memory: idle, and while a producer and a consumer run",
    [
        Figure("first start", "s", more_is_better=False, at_least=5.0),
        Figure("next start", "s", more_is_better=False, at_least=5.0),
        Figure("idle memory", "MB", more_is_better=False, at_least=5.0),
        Figure("memory under load", "MB", more_is_better=False, at_least=4.0),
    ],
    _ask_start,
    prepare=_as_installed,
    starts_itself=True,
)
