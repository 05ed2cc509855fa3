"""A flood of connections: its effect on a connected client, with Odradek and Apache Kafka.

    python -m bench.flood [--rounds N] [--seconds S] [--rate N] [--flood N] [--open N]

Each round starts a fresh Odradek, then a fresh Kafka. One client sends records of 100 B with
acks=1 at --rate a second, first alone, then while another process opens --flood connections a
second of each of these kinds, and keeps the last --open of them open:

    silent       no byte is sent
    half         the first half of a request
    nonsense     bytes that are no request
    gone         closed at once

The figures are the client's p99 in milliseconds, and the broker's largest memory. Needs Java and
Kafka's jars (`make kafka`).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import socket
import struct
import sys
import tempfile
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from bench.clients import create_topic
from bench.connections import connect, produce_request
from bench.pairs import Broker, quantile, summary
from bench.processes import KafkaProcess, OdradekProcess, lacks_kafka
from bench.watch import MemoryWatch
from odradek.broker.process.limits import raise_open_files_limit

KINDS = ("silent", "half", "nonsense", "gone")
_TOPIC = "pinged"
_ALONE = "alone"
_WARM_UP_TRIPS = 2000
_MEGABYTE = 1_000_000
# 12 bytes of a request of 64 bytes.
_HALF = struct.pack(">ihhi", 64, 18, 3, 1)
_NONSENSE_BYTES = 512


@dataclass
class Figures:
    """The p99 of the client's round trips in milliseconds by kind of flood, and memory."""

    p99_ms: dict[str, float] = field(default_factory=dict)
    memory_mb: float = 0.0


def flood(kind: str, port: int, options: argparse.Namespace) -> None:
    """Open connections of a kind at a rate, for the duration of a measurement."""
    raise_open_files_limit()
    kept: deque[socket.socket] = deque()
    payload = {"half": _HALF, "nonsense": os.urandom(_NONSENSE_BYTES)}.get(kind)
    begun_s = time.perf_counter()
    number = 0
    while (now_s := time.perf_counter()) < begun_s + options.seconds:
        due_s = begun_s + number / options.flood
        if due_s > now_s:
            time.sleep(due_s - now_s)
        number += 1
        with contextlib.suppress(OSError):  # a broker may well refuse
            made = socket.create_connection(("127.0.0.1", port), timeout=1.0)
            kept.append(made)
            if payload is not None:
                made.sendall(payload)
        if len(kept) > (0 if kind == "gone" else options.open):
            kept.popleft().close()
    for one in kept:
        one.close()


async def measure(broker: Broker, options: argparse.Namespace) -> Figures:
    """Run one round on a fresh, running broker."""
    figures = Figures()
    (client,) = await connect(broker, 1)
    request = produce_request(0)
    for _ in range(_WARM_UP_TRIPS):
        await client.ask(request)
    processes = multiprocessing.get_context("spawn")
    for kind in (_ALONE, *KINDS):
        flooding = None
        if kind != _ALONE:
            flooding = processes.Process(target=flood, args=(kind, broker.port, options))
            flooding.start()
            await asyncio.sleep(1.0)  # the process imports its modules first
        trips: list[float] = []
        begun_s = time.perf_counter()
        for number in range(int(options.rate * (options.seconds - 1))):
            due_s = begun_s + number / options.rate
            await asyncio.sleep(max(due_s - time.perf_counter(), 0))
            began_s = time.perf_counter()
            await client.ask(request)
            trips.append(time.perf_counter() - began_s)
        if flooding is not None:
            await asyncio.get_running_loop().run_in_executor(None, flooding.join)
        figures.p99_ms[kind] = quantile(trips, 0.99) * 1000
    client.transport.abort()
    return figures


def _run(kind: type[OdradekProcess] | type[KafkaProcess], options: argparse.Namespace) -> Figures:
    with tempfile.TemporaryDirectory() as folder:
        broker = kind(Path(folder) / "broker")
        broker.start()
        try:
            create_topic(broker, _TOPIC, 1)
            with MemoryWatch(broker) as watch:
                figures = uvloop.run(measure(broker, options))
            figures.memory_mb = watch.most_bytes / _MEGABYTE
        finally:
            broker.stop()
    name = kind.__name__.removesuffix("Process")
    latencies = "   ".join(f"{kind} {p99:.2f}" for kind, p99 in figures.p99_ms.items())
    print(f"{name:8} p99 in ms: {latencies}   memory {figures.memory_mb:.0f} MB", flush=True)
    return figures


def main() -> int:
    """Run the rounds, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=8, help="of each kind of flood")
    parser.add_argument("--rate", type=float, default=200, help="round trips a second")
    parser.add_argument("--flood", type=float, default=1000, help="connections a second")
    parser.add_argument("--open", type=int, default=1000, help="connections that stay open")
    options = parser.parse_args()
    if lacks_kafka():
        return 1
    raise_open_files_limit()
    pairs = []
    for _ in range(options.rounds):
        pairs.append((_run(OdradekProcess, options), _run(KafkaProcess, options)))
    for kind in (_ALONE, *KINDS):
        ratios = [theirs.p99_ms[kind] / ours.p99_ms[kind] for ours, theirs in pairs]
        print(summary(f"p99 {kind}, Kafka/Odradek", ratios))
    print(summary("memory, Kafka/Odradek", [b.memory_mb / a.memory_mb for a, b in pairs]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
