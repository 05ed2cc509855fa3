"""Odradek and Kafka with the same listeners and the same users, for tests that compare them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.processes import KafkaProcess, OdradekProcess, free_port
from tests.broker.sasl_client import SCRAM_MODULE, jaas
from tests.support.forking import ForkedOdradek

MECHANISMS = "PLAIN,SCRAM-SHA-256"
# A login at the listener SHORT lasts so long.
SHORT_MS = 2_000


@dataclass(frozen=True)
class Listeners:
    """One broker's ports."""

    plaintext: int
    sasl: int
    short: int
    process: OdradekProcess | KafkaProcess


@contextmanager
def odradek(directory: Path, more: Mapping[str, str] | None = None) -> Iterator[Listeners]:
    """Run Odradek."""
    plaintext, sasl, short = free_port(), free_port(), free_port()
    process = ForkedOdradek(directory, port=plaintext)
    process.settings = {**_settings(plaintext, sasl, short), **(more or {})}
    process.start()
    try:
        yield Listeners(plaintext, sasl, short, process)
    finally:
        process.stop()


@contextmanager
def kafka(directory: Path, more: Mapping[str, str] | None = None) -> Iterator[Listeners]:
    """Run Kafka."""
    plaintext, sasl, short = free_port(), free_port(), free_port()
    process = KafkaProcess(directory, port=plaintext)
    own = _settings(plaintext, sasl, short, process.controller_port)
    process.settings = {**own, **(more or {})}
    process.start()
    try:
        yield Listeners(plaintext, sasl, short, process)
    finally:
        process.stop()


def _settings(
    plaintext: int, sasl: int, short: int, controller: int | None = None
) -> dict[str, str]:
    ports = {"PLAINTEXT": plaintext, "SASL": sasl, "SHORT": short}
    addresses = [f"{name}://127.0.0.1:{port}" for name, port in ports.items()]
    protocols = "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,SHORT:SASL_PLAINTEXT"
    settings = {"advertised.listeners": ",".join(addresses)}
    if controller is not None:
        addresses.append(f"CONTROLLER://127.0.0.1:{controller}")
        protocols += ",CONTROLLER:PLAINTEXT"
    settings |= {
        "listeners": ",".join(addresses),
        "listener.security.protocol.map": protocols,
        "sasl.enabled.mechanisms": MECHANISMS,
        "connection.failed.authentication.delay.ms": "50",
        "listener.name.short.plain.connections.max.reauth.ms": str(SHORT_MS),
    }
    for name in ("sasl", "short"):
        prefix = f"listener.name.{name}"
        # A properties file takes a backslash for itself, the command line does not.
        text = jaas() if controller is None else jaas().replace("\\", "\\\\")
        settings[f"{prefix}.plain.sasl.jaas.config"] = text
        settings[f"{prefix}.scram-sha-256.sasl.jaas.config"] = f"{SCRAM_MODULE} required;"
    return settings
