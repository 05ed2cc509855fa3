"""What a broker's process takes of memory, at most, while something is done to it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench.processes import OdradekProcess
from odradek.broker.process.warm_up import RECORDS_BEFORE
from tests.support.waiting import wait_until

_LOADED = "loaded kernels"
_TIMEOUT_S = 60
_LOG_CHARS = 3_000
LOADING_TOPIC = "loads-kernels"


def load_kernels(broker: OdradekProcess, settings: Mapping[str, str]) -> None:
    """Have a broker load what takes most of its memory: write as many records as that takes.

    `settings` are those of a client. It has to log at DEBUG.
    """
    client = {"bootstrap.servers": broker.bootstrap, "log_level": 0, **settings}
    admin = AdminClient(client)
    admin.create_topics([NewTopic(LOADING_TOPIC, 1, 1)])[LOADING_TOPIC].result(_TIMEOUT_S)
    producer = Producer({**client, "linger.ms": 20})
    for _ in range(RECORDS_BEFORE):
        producer.produce(LOADING_TOPIC, b"")
    assert producer.flush(_TIMEOUT_S) == 0, broker.log_text()[-_LOG_CHARS:]
    wait_until(lambda: _LOADED in broker.log_text(), "the kernels are loaded", _TIMEOUT_S)


def reset_peak(broker: OdradekProcess) -> int:
    """Begin again to note the most resident memory, in bytes; return what there is now."""
    assert broker.process is not None
    return reset_peak_of(broker.process.pid)


def peak_bytes(broker: OdradekProcess) -> int:
    """Return the most resident memory since then."""
    assert broker.process is not None
    return peak_bytes_of(broker.process.pid)


def reset_peak_of(pid: int) -> int:
    """Do so for a process."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return peak_bytes_of(pid)


def peak_bytes_of(pid: int) -> int:
    """Return the most resident memory of a process since then."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024
