"""Accepts connections, keeps them within their limits, and closes them at the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from odradek.broker.hosts import addresses
from odradek.broker.hosts.limits import HostLimits
from odradek.broker.hosts.listener import Listener
from odradek.broker.loop.rate_limiter import RateLimiter
from odradek.broker.loop.tasks import start_task
from odradek.broker.network.connection import Connection
from odradek.broker.network.dispatch import Dispatcher
from odradek.config.broker import BrokerConfig
from odradek.config.connections import ConnectionConfig

if TYPE_CHECKING:
    from odradek.broker.security.quotas.composition import QuotaTable
    from odradek.broker.security.tls.listeners import Tls, TlsListener

logger = logging.getLogger(__name__)

# The delay after accept() has failed, most likely for lack of descriptors.
_ACCEPT_RETRY_S = 0.2
_SYSTEM_CHOOSES = -1
# Of the connections that came too fast, as many are kept waiting; others are closed at once.
_HELD_BACK_MAX = 1_000
# How often the setting is read again while a connection waits for its turn.
_TURN_CHECK_S = 1.0


class Server:
    """All listeners and their connections; the event loop owns it."""

    def __init__(
        self, config: Callable[[], BrokerConfig], bounds: Callable[[str], ConnectionConfig]
    ) -> None:
        """Serve nobody yet. `bounds` returns the bounds of a listener, or of all ("")."""
        self._config, self._bounds = config, bounds
        self._sockets: list[tuple[Listener, socket.socket]] = []
        self._accepting: list[asyncio.Task[None]] = []
        self.connections: set[Connection] = set()
        self._counts: Counter[str] = Counter()  # by address
        self._of_listener: Counter[str] = Counter()
        self._limits = HostLimits()
        # The listeners that speak TLS, by name.
        self._tls: Mapping[str, TlsListener] = {}
        # Set whenever a connection has gone.
        self._freed = asyncio.Event()
        # max.connection.creation.rate, by listener and, as "", of all listeners together.
        self._limiters: defaultdict[str, RateLimiter] = defaultdict(RateLimiter)
        # Used for the quotas of addresses; set before connections are accepted.
        self.quotas: QuotaTable | None = None
        self._held_back: set[socket.socket] = set()
        # By listener: connections that were accepted, and those that came faster than the rate of
        # their address allows.
        self.accepted: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()

    @property
    def listeners(self) -> list[Listener]:
        """The listeners, with the ports chosen by the system."""
        return list(dict.fromkeys(listener for listener, _ in self._sockets))

    def addresses_of(self, listener: Listener) -> list[tuple[str, int]]:
        """Return the addresses and ports that a listener has."""
        return [one.getsockname()[:2] for name, one in self._sockets if name == listener]

    def bind(self, listener: Listener) -> Listener:
        """Take an address; return the listener with its port. Nobody can connect yet.

        Raises AddressError when the address is in use or does not exist.
        """
        sockets = addresses.bind(listener.host, listener.port)
        port = sockets[0].getsockname()[1]
        advertised = listener.advertised_host, listener.advertised_port or port
        bound = Listener(listener.name, listener.host, port, *advertised, listener.protocol)
        self._sockets += [(bound, one) for one in sockets]
        return bound

    def listen(self) -> None:
        """Let connections wait until they are accepted: the system refuses none from now on.

        Raises AddressError when an address is in use meanwhile.
        """
        config = self._config()
        for _, bound in self._sockets:
            _set_size(bound, socket.SO_RCVBUF, config.socket_receive_buffer_bytes)
            addresses.listen(bound, config.socket_listen_backlog_size)

    def accept(self, dispatcher: Dispatcher, tls: Tls | None = None) -> None:
        """Begin to accept connections, also those that wait."""
        self._tls = {} if tls is None else tls.listeners
        for listener, bound in self._sockets:
            accepting = self._accept(bound, listener, dispatcher)
            self._accepting.append(start_task(f"accept at {listener}", accepting))
        for listener in self.listeners:
            logger.info("listening name=%s address=%s", listener.name, listener)

    def close_idle(self) -> None:
        """Close the connections that were silent for connections.max.idle.ms."""
        limit_ms = self._config().connections_max_idle_ms
        if limit_ms < 0:
            return
        now = asyncio.get_running_loop().time()
        for connection in list(self.connections):
            if connection.idle_s(now) * 1000 >= limit_ms:
                logger.info("closed idle connection peer=%s", connection.peer)
                connection.abort()

    def reconfigure(self) -> None:
        """Use the settings in force: there may be room for waiting connections now."""
        self._freed.set()

    async def turn_away(self) -> None:
        """Serve no further connections: those that come are closed at once, until `release`.

        They are not refused, since by that other brokers take this process for ended
        (catalog/probes.py), and it may still write.
        """
        await self._stop_accepting()
        self._accepting = [
            start_task(f"turn away at {listener}", _turn_away(bound))
            for listener, bound in self._sockets
        ]
        for client in self._held_back:
            client.close()

    async def release(self) -> None:
        """Give the addresses back."""
        await self._stop_accepting()
        for _, bound in self._sockets:
            bound.close()

    async def _stop_accepting(self) -> None:
        for task in self._accepting:
            task.cancel()
        await asyncio.gather(*self._accepting, return_exceptions=True)

    async def close(self, drain_s: float) -> None:
        """Answer the requests that have begun, within a time, and close all connections."""
        for connection in list(self.connections):
            connection.finish()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(drain_s):
                await self._wait_until(lambda: not self.connections)
        for connection in list(self.connections):
            connection.abort()

    async def _accept(
        self, bound: socket.socket, listener: Listener, dispatcher: Dispatcher
    ) -> None:
        loop = asyncio.get_running_loop()
        while True:
            # Further connections wait in the system's backlog, as in Kafka.
            await self._wait_until(partial(self._has_room, listener.name))
            await self._wait_for_turn(listener.name)
            try:
                client, name = await loop.sock_accept(bound)
            except OSError as error:
                logger.error("could not accept a connection at %s: %s", listener, error)
                await asyncio.sleep(_ACCEPT_RETRY_S)
                continue
            address = addresses.plain_address(name[0]), name[1]
            if self._holds_back(client, address[0]):
                self.refused[listener.name] += 1
                for whose in ("", listener.name):  # a refused connection takes no turn
                    self._limiters[whose].give_back(self._rate(whose))
                continue
            await self._limits.follow(self._config())
            if not self._admits(address):
                client.close()
                continue
            self.accepted[listener.name] += 1
            connection = Connection(dispatcher, listener, address, self._forget)
            dispatcher.guard(connection)
            await self._connect(connection, client)

    def _holds_back(self, client: socket.socket, host: str) -> bool:
        """Delay, then close, the connection of an address that connects too often (KIP-612).

        Returns whether the address does.
        """
        rates = None if self.quotas is None else self.quotas.addresses
        if rates is None:
            return False
        delay_ms = rates.delay_ms(host)
        if not delay_ms:
            return False
        if len(self._held_back) >= _HELD_BACK_MAX:
            client.close()
            return True
        self._held_back.add(client)
        asyncio.get_running_loop().call_later(delay_ms / 1000, self._let_go, client)
        return True

    def _let_go(self, client: socket.socket) -> None:
        self._held_back.discard(client)
        client.close()

    def _admits(self, address: tuple[str, int]) -> bool:
        """Return whether an address may have one more connection."""
        config = self._config()
        host, port = address
        own = self._limits.of(host)
        limit = config.max_connections_per_ip if own is None else own
        if self._counts[host] < limit:
            return True
        logger.warning(
            "refused connection peer=%s:%d reason=it has max.connections.per.ip=%d already",
            host,
            port,
            limit,
        )
        return False

    async def _connect(self, connection: Connection, client: socket.socket) -> None:
        """Begin to serve a connection, with the socket options of Kafka's SocketServer."""
        self.connections.add(connection)
        self._counts[connection.host] += 1
        self._of_listener[connection.listener.name] += 1
        try:
            _set_size(client, socket.SO_SNDBUF, self._config().socket_send_buffer_bytes)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            loop = asyncio.get_running_loop()
            tls = self._tls.get(connection.listener.name)
            made = connection if tls is None else tls.wrap(connection)
            await loop.connect_accepted_socket(lambda: made, client)
        except asyncio.CancelledError:  # uvloop closes it then, and calls nothing
            if not connection.is_lost:
                made.connection_lost(None)
            raise
        except OSError as error:  # it has gone already
            logger.debug("lost a new connection peer=%s: %s", connection.peer, error)
            client.close()
            self._forget(connection)

    def _has_room(self, listener: str) -> bool:
        """Return whether max.connections lets a listener have one more."""
        return (
            len(self.connections) < self._bounds("").max_connections
            and self._of_listener[listener] < self._bounds(listener).max_connections
        )

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition that depends on settings and on the connections."""
        while not condition():
            self._freed.clear()
            await self._freed.wait()

    async def _wait_for_turn(self, listener: str) -> None:
        """Wait until max.connection.creation.rate, which may change, lets one more in."""
        while (delay_s := self._delay_s(listener, asyncio.get_running_loop().time())) > 0:
            self._freed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._freed.wait(), min(delay_s, _TURN_CHECK_S))

    def _delay_s(self, listener: str, now_s: float) -> float:
        """Take a turn of all listeners and of this one, or return how long to wait for both."""
        limiters = [(self._limiters[name], self._rate(name)) for name in ("", listener)]
        delay_s = max(one.delay_s(rate, now_s) for one, rate in limiters)
        if not delay_s:
            for one, rate in limiters:
                one.take(rate, now_s)
        return delay_s

    def _rate(self, listener: str) -> int:
        return self._bounds(listener).max_connection_creation_rate

    def _forget(self, connection: Connection) -> None:
        self.connections.discard(connection)
        self._of_listener[connection.listener.name] -= 1
        self._counts[connection.host] -= 1
        if not self._counts[connection.host]:
            del self._counts[connection.host]
        self._freed.set()


async def _turn_away(bound: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    while True:
        try:
            client, _ = await loop.sock_accept(bound)
        except OSError:  # such as too many open files: those that wait are turned away later
            await asyncio.sleep(_ACCEPT_RETRY_S)
        else:
            client.close()


def _set_size(target: socket.socket, option: int, size_bytes: int) -> None:
    if size_bytes != _SYSTEM_CHOOSES:
        target.setsockopt(socket.SOL_SOCKET, option, size_bytes)
