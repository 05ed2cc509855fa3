"""Gives a log to a broker, and measures its cleaner while it cleans the log stage by stage.

The partition's directory replaces an empty one that the broker has created, while the broker is
stopped, and its checkpoints say that the whole log is on the disk. Sealed segments are hard
links: no broker writes into them, so both read the same pages.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from bench.cleaner_load import PARTITION, TOPIC, Load, Written, lag_ms
from bench.cleaner_report import Run, runs, total
from bench.pairs import Broker
from bench.processes import resident_bytes

_CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint")
_TIMEOUT_S = 300.0
_POLL_S = 0.05
_SETTLE_S = 2.0
# Writing this resets the peak of a process's resident memory (proc(5), clear_refs).
_RESET_PEAK = "5"


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The result of cleaning one stage."""

    run_count: int
    total: Run
    before_bytes: int  # resident memory
    peak_bytes: int


def clean_stages(broker: Broker, load: Load, written: Written) -> list[Cleaned]:
    """Let a stopped broker clean a log; return the result of each stage, and stop it again."""
    try:
        broker.start()
        _create_topic(broker, load)
        broker.stop()
        _hand_over(broker, written)
        broker.start()
        return [
            _clean(broker, lag_ms(stage, len(load.stages)), end_offset)
            for stage, end_offset in enumerate(written.end_offsets)
        ]
    finally:
        broker.stop()


def _create_topic(broker: Broker, load: Load) -> None:
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": str(load.segment_bytes),
        # Records that are old enough are dirty enough.
        "min.cleanable.dirty.ratio": "0",
        "min.compaction.lag.ms": str(lag_ms(-1, len(load.stages))),
    }
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(TOPIC, 1, 1, config=config)])[TOPIC].result(30)


def _hand_over(broker: Broker, written: Written) -> None:
    """Put a log in place of the topic's own, which is empty."""
    place = broker.data / PARTITION
    identity = (place / "partition.metadata").read_bytes()
    shutil.rmtree(place)
    place.mkdir()
    active = max(written.directory.glob("*.log"))
    for source in written.directory.iterdir():
        if source.suffix == ".log" and source != active:
            (place / source.name).hardlink_to(source)
        else:
            shutil.copy2(source, place)
    (place / "partition.metadata").write_bytes(identity)
    for name in _CHECKPOINTS:
        _set_checkpoint(broker.data / name, written.end_offsets[-1])


def _set_checkpoint(path: Path, offset: int) -> None:
    """Write the partition's line of a checkpoint file: a version, a count, then the lines."""
    lines = path.read_text().splitlines()[2:] if path.exists() else []
    lines = [line for line in lines if not line.startswith(f"{TOPIC} 0 ")]
    lines.append(f"{TOPIC} 0 {offset}")
    path.write_text("\n".join(["0", str(len(lines)), *lines]) + "\n")


def _clean(broker: Broker, lag: int, end_offset: int) -> Cleaned:
    """Lower the lag, and wait until all before an offset is clean."""
    # Earlier writes must not go to the disk meanwhile, and the broker must have started fully.
    os.sync()
    time.sleep(_SETTLE_S)
    assert broker.process is not None
    earlier = len(runs(broker.log_text()))
    process = Path(f"/proc/{broker.process.pid}")
    (process / "clear_refs").write_text(_RESET_PEAK)
    before_bytes = resident_bytes(broker.process)
    _alter(broker, "min.compaction.lag.ms", str(lag))
    done: list[Run] = []

    def is_clean() -> bool:
        done[:] = runs(broker.log_text())[earlier:]
        return bool(done) and done[-1].end_offset >= end_offset

    _wait_until(is_clean, broker)
    return Cleaned(len(done), total(done), before_bytes, _peak_bytes(process))


def _alter(broker: Broker, name: str, value: str) -> None:
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    topic = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.incremental_alter_configs([topic])[topic].result(30)


def _wait_until(is_done: Callable[[], bool], broker: Broker) -> None:
    deadline = time.monotonic() + _TIMEOUT_S
    while not is_done():
        if time.monotonic() > deadline:
            raise RuntimeError(f"not clean within {_TIMEOUT_S} s:\n{broker.log_text()[-4000:]}")
        time.sleep(_POLL_S)


def _peak_bytes(process: Path) -> int:
    status = (process / "status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024
