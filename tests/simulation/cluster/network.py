"""The network between the processes of a simulation: connections that are late, cut and reset.

Bytes of one direction keep their order, as in TCP. While two hosts are cut off from each other,
bytes wait. A connection that is reset loses the bytes on their way, at both ends.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.simulation.cluster.loop import Process, SimulatedLoop

HOST = "127.0.0.1"
CLIENTS = 0
# The mean time that bytes are under way; a seed draws one of them.
_LATENCIES_S = (0.0005, 0.01)
_TICK_S = 1e-7


class Network(SimulatedLoop):
    """A loop whose sockets are simulated; a port belongs to one broker."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._chance = random.Random(f"network {seed}")
        self._latency_s = self._chance.choice(_LATENCIES_S)
        self._listening: dict[int, Listening] = {}
        self._ends: dict[End, None] = {}  # in the order in which they were made
        # Until when two ports are cut off from each other; CLIENTS stands for all clients.
        self._cuts: dict[frozenset[int], float] = {}
        self._clients = iter(range(30_000, 1 << 30))

    # --- faults --------------------------------------------------------------------------------

    def cut(self, one: int, other: int, time_s: float) -> None:
        """Hold back all bytes between two brokers, or a broker and the clients, for a time."""
        self._cuts[frozenset((one, other))] = self.time() + time_s

    def heal(self) -> None:
        """Undo all cuts; bytes that are held back come when they would have come."""
        self._cuts.clear()

    def reset_some(self, share: float) -> None:
        """Reset a share of all connections."""
        for end in list(self._ends):
            if end.is_client and self._chance.random() < share:
                end.reset()

    def drop(self, process: Process, delay_s: float) -> None:
        """Free the ports of a process that has ended; its peers notice after a time."""
        for port, listening in list(self._listening.items()):
            if listening.process is process:
                del self._listening[port]
        for end in list(self._ends):
            if end.process is process:
                self._ends.pop(end, None)
                end.is_lost = True
                self.call_later(delay_s, end.peer.lose, ConnectionResetError("the peer ended"),
                                context=end.peer.context)  # fmt: skip

    # --- asyncio's interface -------------------------------------------------------------------

    def bind(self, host: str, port: int) -> list[Any]:
        """Take a port; see broker.hosts.addresses.bind."""
        assert port not in self._listening, f"port {port} is in use"
        self._listening[port] = made = Listening(self, port)
        return [made]

    async def sock_accept(self, sock: Any) -> Any:
        """Return the next connection of a port."""
        while not sock.arrived:
            sock.awaited = self.create_future()
            await sock.awaited
        return sock.arrived.popleft()

    async def connect_accepted_socket(
        self, protocol_factory: Callable[[], Any], sock: Any, **_: Any
    ) -> Any:
        """Connect a protocol to a connection that was accepted."""
        protocol = protocol_factory()
        sock.begin(protocol)
        return sock, protocol

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], Any], host: str, port: int, **_: Any
    ) -> Any:
        """Connect to a port. Raises ConnectionRefusedError."""
        own = self.current.port
        await asyncio.sleep(self.latency_s(self._chance) + max(0.0, self.cut_s(own, port)))
        listening = self._listening.get(port)
        if listening is None or not listening.is_open:
            raise ConnectionRefusedError(f"nothing listens at port {port}")
        client, server = End(self, own, is_client=True), End(self, port, is_client=False)
        client.peer, server.peer = server, client
        server.process, server.context = listening.process, listening.context
        self._ends[client] = self._ends[server] = None
        protocol = protocol_factory()
        client.begin(protocol)
        self.call_soon(listening.arrive, server, next(self._clients), context=listening.context)
        return client, protocol

    # --- within --------------------------------------------------------------------------------

    def new_chance(self) -> random.Random:
        """Return a source of chance for one end of a connection."""
        return random.Random(self._chance.getrandbits(64))

    def latency_s(self, chance: random.Random) -> float:
        """Draw the time that some bytes are under way."""
        return chance.expovariate(1 / self._latency_s)

    def cut_s(self, one: int, other: int) -> float:
        """Return for how long two ports are still cut off from each other."""
        return self._cuts.get(frozenset((one, other)), 0.0) - self.time()

    def forget(self, end: End) -> None:
        """Forget an end that is closed."""
        self._ends.pop(end, None)

    def free(self, listening: Listening) -> None:
        """Give a port back."""
        if self._listening.get(listening.port) is listening:
            del self._listening[listening.port]


class Listening:
    """A bound socket."""

    def __init__(self, network: Network, port: int) -> None:
        self._network, self.port = network, port
        self.process, self.context = network.current, network.current.context()
        self.is_open = False
        self.arrived: deque[Any] = deque()
        self.awaited: asyncio.Future[None] | None = None

    def getsockname(self) -> tuple[str, int]:
        return HOST, self.port

    def setsockopt(self, *_: object) -> None:
        """Take any option."""

    def listen(self, _: int) -> None:
        self.is_open = True

    def close(self) -> None:
        self._network.free(self)
        for end, _ in self.arrived:
            end.close()
        self.arrived.clear()

    def arrive(self, end: End, port: int) -> None:
        """Hand a new connection to the broker."""
        self.arrived.append((end, (HOST, port)))
        if self.awaited is not None and not self.awaited.done():
            self.awaited.set_result(None)


class End(asyncio.Transport):
    """One end of a connection; also the socket that `sock_accept` returns."""

    peer: End

    def __init__(self, network: Network, port: int, *, is_client: bool) -> None:
        super().__init__()
        self._network, self.port, self.is_client = network, port, is_client
        self.process, self.context = network.current, network.current.context()
        # Of its own: brokers close connections in the order of a set.
        self._chance = network.new_chance()
        self._protocol: Any = None
        self._received: deque[bytes] = deque()  # b"" is the end of the stream
        self._is_reading = True
        self._is_closing = False
        self._has_ended = False
        self._last_s = 0.0
        self.is_lost = False

    def begin(self, protocol: Any) -> None:
        """Connect a protocol, and hand it the bytes that have come."""
        self._protocol = protocol
        protocol.connection_made(self)
        self._network.call_soon(self._feed)

    def setsockopt(self, *_: object) -> None:
        """Take any option."""

    # --- asyncio.Transport ---------------------------------------------------------------------

    def write(self, data: Any) -> None:
        if data and not (self._is_closing or self._has_ended or self.is_lost):
            self._send(bytes(data))

    def write_eof(self) -> None:
        if not self._has_ended and not self.is_lost:
            self._has_ended = True
            self._send(b"")

    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer."""

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True
        self._network.call_soon(self._feed, context=self.context)

    def is_reading(self) -> bool:
        return self._is_reading

    def is_closing(self) -> bool:
        return self._is_closing or self.is_lost

    def close(self) -> None:
        if not self._is_closing and not self.is_lost:
            self.write_eof()
            self._is_closing = True
            self._network.call_soon(self.lose, None, context=self.context)

    abort = close

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    # --- the other end -------------------------------------------------------------------------

    def reset(self) -> None:
        """Break the connection at both ends; bytes on their way are lost."""
        for end in (self, self.peer):
            self._network.call_soon(
                end.lose, ConnectionResetError("the connection was reset"), context=end.context
            )

    def lose(self, error: Exception | None) -> None:
        """End this end of the connection."""
        if self.is_lost:
            return
        self.is_lost = True
        self._network.forget(self)
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    def _send(self, data: bytes) -> None:
        network = self._network
        due_s = network.time() + network.latency_s(self._chance)
        due_s += max(0.0, network.cut_s(self.port, self.peer.port))
        self._last_s = max(due_s, self._last_s + _TICK_S)
        network.call_at(self._last_s, self.peer._receive, data, context=self.peer.context)

    def _receive(self, data: bytes) -> None:
        if not self.is_lost:
            self._received.append(data)
            self._feed()

    def _feed(self) -> None:
        while self._received and self._is_reading and self._protocol is not None:
            if self.is_lost or self._is_closing:
                self._received.clear()
                return
            data = self._received.popleft()
            if not data:
                if not self._protocol.eof_received():
                    self.close()
            elif isinstance(self._protocol, asyncio.BufferedProtocol):
                self._fill(data)
            else:
                self._protocol.data_received(data)

    def _fill(self, data: bytes) -> None:
        buffer = self._protocol.get_buffer(-1)
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        if size < len(data):
            self._received.appendleft(data[size:])
        self._protocol.buffer_updated(size)
