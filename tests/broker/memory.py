"""What a broker's process takes of memory, at most, while something is done to it."""

from __future__ import annotations

import time
from pathlib import Path

from bench.processes import OdradekProcess

_LOADED = "loaded kernels"
_TIMEOUT_S = 60


def wait_for_kernels(broker: OdradekProcess) -> None:
    """Wait until a broker to which a client has come has what takes most of its memory.

    It has to log at DEBUG.
    """
    deadline = time.monotonic() + _TIMEOUT_S
    while _LOADED not in broker.log_text():
        assert time.monotonic() < deadline, "the kernels are not loaded"
        time.sleep(0.1)


def reset_peak(broker: OdradekProcess) -> int:
    """Begin anew to note the most resident memory, in bytes; return what there is now."""
    assert broker.process is not None
    Path(f"/proc/{broker.process.pid}/clear_refs").write_text("5")
    return peak_bytes(broker)


def peak_bytes(broker: OdradekProcess) -> int:
    """Return the most resident memory since then."""
    assert broker.process is not None
    status = Path(f"/proc/{broker.process.pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024
