"""What one request costs a broker's process: CPU time of the event loop, and resident memory.

    with Meter(broker) as meter:
        cost = meter.measure(door, frame)
    assert cost.loop_s <= 0.020 + cost.bytes * 5e-6

The event loop is the process's main thread. The kernel counts the time that each thread was on a
processor, in nanoseconds, so that other processes on the machine do not count.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.processes import OdradekProcess
from odradek.protocol.messages.api_versions import ApiVersionsRequest
from tests.broker.kafka_peer import Peer
from tests.broker.memory import peak_bytes, reset_peak

# A request that waits on purpose is given up then: its connection is closed.
PATIENCE_S = 120.0
# The broker is at rest when its loop took less than this share of a look's time.
_LOOK_S = 0.002
_IDLE_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Cost:
    """What a request cost, from its first byte until the broker was at rest."""

    request_bytes: int
    response_bytes: int  # 0 when the broker closed the connection
    loop_s: float
    process_s: float  # of all threads
    memory_bytes: int  # by which the most resident memory exceeded what there was before

    @property
    def bytes(self) -> int:
        """All that the client sent and was sent."""
        return self.request_bytes + self.response_bytes


def loop_s(broker: OdradekProcess) -> float:
    """Return the CPU time of a broker's event loop so far."""
    assert broker.process is not None
    pid = broker.process.pid
    text = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text()
    return int(text.split()[0]) / 1e9


def process_s(broker: OdradekProcess) -> float:
    """Return the CPU time of all threads of a broker that live."""
    assert broker.process is not None
    total = 0
    for task in Path(f"/proc/{broker.process.pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def measure(
    broker: OdradekProcess,
    connect: Callable[[], Peer],
    frame: bytes,
    *,
    waits: bool = True,
    weighs: bool = False,
) -> Cost:
    """Send a frame on a new connection, and measure until its response, or the end of the stream.

    A request that `waits` for others is not waited for: its connection is closed once the broker
    is at rest. Memory is looked at when `weighs`.
    """
    with connect() as peer:
        rest(broker)
        before_bytes = reset_peak(broker) if weighs else 0
        loop_before, process_before = loop_s(broker), process_s(broker)
        received = exchange(peer, frame, waits=waits)
        rest(broker)
        loop_after, process_after = loop_s(broker), process_s(broker)
        grown = peak_bytes(broker) - before_bytes if weighs else 0
    return Cost(
        len(frame), received, loop_after - loop_before, process_after - process_before, grown
    )


def exchange(peer: Peer, frame: bytes, *, waits: bool = True) -> int:
    """Send a frame; return the size of its response, 0 when there is none."""
    peer.socket.settimeout(PATIENCE_S if waits else 0.5)
    with contextlib.suppress(ConnectionError, TimeoutError):
        peer.socket.sendall(frame)
        return _receive(peer.socket)
    return 0


def rest(broker: OdradekProcess) -> None:
    """Wait until the threads of a broker have nothing to do."""
    deadline = time.monotonic() + PATIENCE_S
    quiet = 0
    while quiet < 2:
        before, begun = process_s(broker), time.monotonic()
        time.sleep(_LOOK_S)  # the time over which it is measured
        is_busy = process_s(broker) - before > _IDLE_SHARE * (time.monotonic() - begun)
        quiet = 0 if is_busy or _wants_a_processor(broker) else quiet + 1
        assert time.monotonic() < deadline, "the broker does not come to rest"


def _wants_a_processor(broker: OdradekProcess) -> bool:
    """Return whether a thread runs, or would if other processes left it a processor."""
    assert broker.process is not None
    for task in Path(f"/proc/{broker.process.pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if (task / "stat").read_text().rpartition(")")[2].split()[0] == "R":
                return True
    return False


def check_serves(connect: Callable[[], Peer]) -> None:
    """Fail unless another client is answered."""
    with connect() as peer:
        assert peer.ask(ApiVersionsRequest(), 0).error_code == 0


def _receive(connection: socket.socket) -> int:
    """Take one response, which nobody keeps; return its size with its head."""
    head = b""
    while len(head) < 4:
        more = connection.recv(4 - len(head))
        if not more:
            return 0
        head += more
    left = int.from_bytes(head, "big")
    buffer, received = bytearray(1 << 18), 4
    while left:
        count = connection.recv_into(buffer, min(left, len(buffer)))
        if not count:
            return 0
        left -= count
        received += count
    return received
